# zsh -f complete.zsh DIRECTORY LINE FILE: writes what the completions of DIRECTORY offer for LINE to FILE, one a line.
# Completion works in a terminal alone, so a shell in one is asked, and its compadd tells the candidates that match.
zmodload zsh/zpty
line=$2 out=$3
zpty shell "zsh -f"
# Without a dump file: compinit would move one to that place.
zpty -w shell "fpath=(${(q)1} \$fpath); out=${(q)out}; autoload -Uz compinit; compinit -u -D; zstyle ':completion:*' menu no"
zpty -w shell 'compadd() { local -a got; (( ${@[(I)-(O|A|D)*]} )) || { builtin compadd -O got "$@"; print -rl -- $got >>$out }; builtin compadd "$@" }'
zpty -w shell 'ask() { zle complete-word; exit }; zle -N ask; bindkey "^I" ask; print "<rea""dy>"'
seen=
while zpty -r shell part; do seen+=$part; [[ $seen == *"<ready>"* ]] && break; done
zpty -n -w shell "$line"$'\t'
while zpty -r shell part; do :; done
zpty -d shell
