# fish completion for mcp-valet; tests/cli/completions.bats holds it against mcp-valet --help.

function __mcp_valet_before_dashes
    not contains -- -- (commandline -opc)
end

# What the server's own command completes to.
function __mcp_valet_server
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -l rest $words[(math $at + 1)..]
    test (math $at + 1) -gt (count $words); and set rest
    complete -C (string join ' ' -- $rest (commandline -ct))
end

function __mcp_valet_serves
    __mcp_valet_before_dashes; and not __fish_seen_subcommand_from demo keygen decode-state report suggest-policy check-policy explain policy-man policy-schema help
end

complete -c mcp-valet -f
complete -c mcp-valet -n 'not __mcp_valet_before_dashes' -a '(__mcp_valet_server)'

complete -c mcp-valet -n __fish_is_first_token -a demo -d 'show how it works'
complete -c mcp-valet -n __fish_is_first_token -a keygen -d 'make a key for request states'
complete -c mcp-valet -n __fish_is_first_token -a decode-state -d 'show what a request state holds'
complete -c mcp-valet -n __fish_is_first_token -a report -d 'show what is left to migrate'
complete -c mcp-valet -n __fish_is_first_token -a suggest-policy -d 'write a policy file to begin with'
complete -c mcp-valet -n __fish_is_first_token -a check-policy -d 'check a policy file'
complete -c mcp-valet -n __fish_is_first_token -a explain -d 'show what the policy decides for one name'
complete -c mcp-valet -n __fish_is_first_token -a policy-man -d 'write the reference of the policy file in mdoc'
complete -c mcp-valet -n __fish_is_first_token -a policy-schema -d 'write the JSON Schema of the policy file'
complete -c mcp-valet -n __fish_is_first_token -a help -d 'show a summary of the commands and options'

complete -c mcp-valet -n __mcp_valet_serves -l listen -x -a systemd -d 'serve Streamable HTTP there'
complete -c mcp-valet -n __mcp_valet_serves -l path -x -d 'path of the MCP endpoint'
complete -c mcp-valet -n __mcp_valet_serves -l allow-remote -d 'let --listen and --admin take addresses that others can reach'
complete -c mcp-valet -n __mcp_valet_serves -l admin -x -d 'serve a status page, health and metrics there'
complete -c mcp-valet -n __mcp_valet_serves -l upstream -x -d 'front a server that runs already'
complete -c mcp-valet -n __mcp_valet_serves -l upstream-ca -rF -d 'certificates that an https server may be signed by'
complete -c mcp-valet -n __mcp_valet_serves -l policy -rF -d 'limits, deadlines and rules'
complete -c mcp-valet -n __mcp_valet_serves -l key-file -rF -d 'keys for request states'
complete -c mcp-valet -n __mcp_valet_serves -l log-level -x -a 'error warning info debug' -d 'how much to log'
complete -c mcp-valet -n __mcp_valet_serves -l log-format -x -a 'text json' -d 'the form of log lines'
complete -c mcp-valet -n __mcp_valet_before_dashes -l answers -d 'decode-state: show the answers in the state, too'
complete -c mcp-valet -n __mcp_valet_before_dashes -l json -d 'report: as JSON'
complete -c mcp-valet -n __mcp_valet_before_dashes -l html -d 'report: as one page of HTML'
complete -c mcp-valet -n __mcp_valet_before_dashes -l file -rF -d 'report: from a file that --json wrote'
complete -c mcp-valet -n __mcp_valet_before_dashes -l help -s h -d 'show a summary of the commands and options'
complete -c mcp-valet -n __mcp_valet_serves -l version -d 'show the version'

complete -c mcp-valet -n '__fish_seen_subcommand_from demo' -l server -d 'be the legacy server of the demonstration'
complete -c mcp-valet -n '__fish_seen_subcommand_from decode-state' -l key-file -rF -d 'keys for request states'
complete -c mcp-valet -n '__fish_seen_subcommand_from report suggest-policy' -l admin -x -d 'the admin endpoint'
complete -c mcp-valet -n '__fish_seen_subcommand_from check-policy' -F
complete -c mcp-valet -n '__fish_seen_subcommand_from explain' -l policy -rF -d 'limits, deadlines and rules'
complete -c mcp-valet -n '__fish_seen_subcommand_from explain' -a 'tool prompt resource'
