#!/usr/bin/env bats
# The completions know what --help names, and nothing else.

setup() {
	completions=$TOP_SRCDIR/contrib/completions
	PATH=$(dirname "$MCP_VALET"):$PATH
}

# The options and the commands that --help names, one a line.
options() {
	"$MCP_VALET" --help | grep -oE -- '(^  |, )--[a-z][a-z-]+' | grep -oE -- '--.*' | sort -u
}

commands() {
	"$MCP_VALET" --help | grep -E '^(usage:)? +mcp-valet [a-z]' | sed -E 's/^(usage:)? +mcp-valet //; s/   .*//' |
		grep -oE '^[a-z-]+(, [a-z-]+)*' | sed 's/, /\n/g' | sort -u
}

# complete_bash WORD...: what bash offers for the last word, one a line.
complete_bash() {
	bash -c '
		. "$0/bash/mcp-valet"
		COMP_WORDS=(mcp-valet "$@")
		COMP_CWORD=$#
		$(complete -p mcp-valet | sed "s/.*-F \([^ ]*\).*/\1/")
		printf "%s\n" "${COMPREPLY[@]}"' "$completions" "$@" | sort
}

# complete_fish LINE: what fish offers, without descriptions.
complete_fish() {
	HOME=$BATS_TEST_TMPDIR fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$completions/fish/mcp-valet.fish" "$1" |
		cut -f 1 | sort
}

# complete_zsh LINE: what zsh offers.
complete_zsh() {
	local out=$BATS_TEST_TMPDIR/offered
	rm -f "$out"
	HOME=$BATS_TEST_TMPDIR timeout 60 zsh -f "$TOP_SRCDIR/tests/cli/complete.zsh" "$completions/zsh" "$1" "$out"
	grep . "$out" | sort -u
}

@test "--help names options and commands" {
	[ "$(options | wc -l)" -ge 12 ]
	[ "$(commands | wc -l)" -ge 6 ]
	commands | grep -qx policy-schema
}

@test "bash: all options, all commands" {
	[ "$(complete_bash --)" = "$(options)" ]
	[ "$(complete_bash '')" = "$(commands)" ]
}

@test "bash: values, files, and the server's own command" {
	[ "$(complete_bash --log-level d)" = debug ]
	[ "$(complete_bash --log-format '' | tr '\n' ' ')" = "json text " ]
	cd "$TOP_SRCDIR"
	[ "$(complete_bash --policy READ)" = README.md ]
	[ "$(complete_bash check-policy READ)" = README.md ]
	[ "$(complete_bash explain to)" = tool ]
	[ "$(complete_bash explain --p)" = --policy ]
	[ "$(complete_bash demo --)" = --server ]
	[ "$(complete_bash --listen x --upstream-)" = --upstream-ca ]
	complete_bash --listen 127.0.0.1:1 -- mcp-val | grep -qx mcp-valet
	[ -z "$(complete_bash --listen 127.0.0.1:1 -- cat --po)" ]
}

@test "fish: the same" {
	command -v fish >/dev/null || skip "fish is not installed"
	[ "$(complete_fish 'mcp-valet --')" = "$(options)" ]
	[ "$(complete_fish 'mcp-valet ')" = "$(commands)" ]
	[ "$(complete_fish 'mcp-valet --log-level d')" = debug ]
	[ "$(complete_fish 'mcp-valet explain to')" = tool ]
	[ "$(complete_fish 'mcp-valet demo --s')" = --server ]
	complete_fish 'mcp-valet --listen 127.0.0.1:1 -- mcp-val' | grep -qx mcp-valet
}

@test "zsh: the same" {
	command -v zsh >/dev/null || skip "zsh is not installed"
	[ "$(complete_zsh 'mcp-valet --')" = "$(options)" ]
	[ "$(complete_zsh 'mcp-valet ')" = "$(commands)" ]
	[ "$(complete_zsh 'mcp-valet --log-level d')" = debug ]
	[ "$(complete_zsh 'mcp-valet explain to')" = tool ]
	[ "$(complete_zsh 'mcp-valet demo --s')" = --server ]
}

# Where a shell is missing, its file is held against --help all the same.
@test "fish and zsh: the files name every option and command" {
	for word in $(options | sed 's/^--//'); do
		grep -qE -- " -l $word( |\$)" "$completions/fish/mcp-valet.fish"
		grep -qE -- "--$word\[" "$completions/zsh/_mcp-valet"
	done
	for word in $(commands); do
		grep -qE -- " -a $word " "$completions/fish/mcp-valet.fish"
		grep -qE -- "'$word:" "$completions/zsh/_mcp-valet"
	done
}
