#!/usr/bin/env bats
# The command line: what it takes, what it refuses, and with which words and status.

bats_require_minimum_version 1.5.0

# refused STATUS TEXT: one line on standard error that begins with mcp-valet: and holds TEXT, nothing on standard output.
refused() {
	echo "status $status, output: $output, stderr: $stderr"
	[ "$status" -eq "$1" ]
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" == "mcp-valet: "*"$2"* ]]
}

valet() {
	run --separate-stderr "$MCP_VALET" "$@" </dev/null
}

@test "--help and --version go to standard output" {
	valet --help
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	for word in --listen --path --allow-remote --admin --policy --key-file --log-level --log-format --version demo keygen; do
		[[ "$output" == *"$word"* ]]
	done
	valet --version
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^mcp-valet\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
	valet --log-level debug --help
	[ "$status" -eq 0 ]
	for words in 'keygen --help' 'report -h' 'demo --help' 'demo -h' help 'help report' -h; do
		# shellcheck disable=SC2086 # words
		valet $words
		echo "$words: $status $output $stderr"
		[ "$status" -eq 0 ]
		[[ "$output" == usage:* ]]
		[ -z "$stderr" ]
	done
}

@test "help that cannot be written is an error" {
	run --separate-stderr bash -c '"$MCP_VALET" --help >/dev/full'
	[ "$status" -eq 1 ]
	[[ "$stderr" == "mcp-valet: "* ]]
}

@test "usage errors: status 2 and one line" {
	valet
	refused 2 "the command of the server is missing"
	valet --
	refused 2 "the command of the server is missing"
	valet --nonsense -- cat
	refused 2 "--nonsense"
	valet -x -- cat
	refused 2 "-x"
	valet --listen
	refused 2 "--listen needs a value"
	valet --log-level loud -- cat
	refused 2 "expected error, warning, info or debug"
	valet report --json --html --file x
	refused 2 "--json and --html: expected one of the two"
	valet suggest-policy --html --file x
	refused 2 "--json and --html are for report alone"
	valet report --html
	refused 2 "report needs --admin or --file"
	valet --log-format xml -- cat
	refused 2 "expected text or json"
	valet --listen 127.0.0.1:0 --path mcp -- cat
	refused 2 "expected an absolute path"
	valet --listen 127.0.0.1:0 --path '/mcp?x' -- cat
	refused 2 "expected an absolute path"
	valet --path /mcp -- cat
	refused 2 "--path needs --listen"
	valet --allow-remote -- cat
	refused 2 "--allow-remote needs --listen or --admin"
	valet --allow-remote=yes --listen 127.0.0.1:0 -- cat
	refused 2 "--allow-remote"
}

@test "the server's command comes after --" {
	valet cat
	refused 2 "cat: there is no such command"
	valet --log-level error cat
	refused 2 "cat: there is no such command"
	# A server that is called like a command of ours.
	valet --log-level error -- keygen
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "commands refuse what they do not take" {
	valet keygen more
	refused 2 "keygen takes no arguments"
	valet keygen --listen x
	refused 2 "--listen"
	valet check-policy
	refused 2 "check-policy takes one file"
	valet check-policy a b
	refused 2 "check-policy takes one file"
	valet explain tool
	refused 2 "explain takes two words"
	valet explain thing name
	refused 2 "expected tool, prompt or resource"
}

@test "keygen: every line is another key in the documented form" {
	valet keygen
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^v1\ [0-9a-f]{8}\ [0-9a-f]{64}$ ]]
	first=$output
	valet keygen
	[ "$first" != "$output" ]
}

@test "keygen: its output is a key file" {
	(umask 077 && "$MCP_VALET" keygen >"$BATS_TEST_TMPDIR/keys")
	valet --log-level error --key-file "$BATS_TEST_TMPDIR/keys" -- cat
	[ "$status" -eq 0 ]
	[ -z "$output$stderr" ]
}

@test "a FIFO in place of the key file is refused at once" {
	mkfifo -m 600 "$BATS_TEST_TMPDIR/keys"
	run timeout 5 "$MCP_VALET" --key-file "$BATS_TEST_TMPDIR/keys" -- cat </dev/null
	[ "$status" -ne 124 ]
	[ "$status" -ne 0 ]
	[[ "$output" == *"not a regular file"* ]]
}

@test "a key file that others can read is refused, whoever they are" {
	keys=$BATS_TEST_TMPDIR/keys
	"$MCP_VALET" keygen >"$keys"
	for mode in 0604 0660 0620 0644; do
		chmod "$mode" "$keys"
		valet --log-level error --key-file "$keys" -- cat
		refused 1 "mode $mode"
	done
	chmod 0400 "$keys"
	valet --log-level error --key-file "$keys" -- cat
	[ "$status" -eq 0 ]
}

@test "a server's address and the files for it are looked at before the start" {
	for url in http:// https:///mcp http://:3000 localhost:3000 ftp://localhost/; do
		valet --upstream "$url"
		refused 1 "--upstream $url: expected http://"
	done
	valet --upstream https://127.0.0.1:1/mcp --upstream-ca "$BATS_TEST_TMPDIR/none.pem"
	refused 1 "--upstream-ca $BATS_TEST_TMPDIR/none.pem: No such file"
	policy=$BATS_TEST_TMPDIR/policy.yaml
	for key in ca_file certificate key; do
		sed "s/KEY/$key/" >"$policy" <<-END
			version: 1
			upstream: { certificate: $policy, key: $policy, KEY: $BATS_TEST_TMPDIR/none.pem }
		END
		[ "$key" = ca_file ] || sed -i "s|$key: $policy, ||" "$policy"
		valet --policy "$policy" --upstream https://127.0.0.1:1/mcp
		refused 1 "upstream.$key $BATS_TEST_TMPDIR/none.pem: No such file"
	done
}

@test "report says where an admin endpoint would come from" {
	valet report --admin "unix:$BATS_TEST_TMPDIR/none.sock"
	refused 1 "no admin endpoint at unix:$BATS_TEST_TMPDIR/none.sock"
}

@test "bad key files are named with the line" {
	keys=$BATS_TEST_TMPDIR/keys
	valet --key-file "$keys" -- cat
	refused 1 "$keys: No such file or directory (mcp-valet keygen makes one)"
	valet --key-file "$BATS_TEST_TMPDIR" -- cat
	refused 1 "$BATS_TEST_TMPDIR"
	(umask 077 && printf '# a comment\n\nv2 key\n' >"$keys")
	valet --key-file "$keys" -- cat
	refused 1 "$keys:3"
	head -c 100000 /dev/zero | tr '\0' '#' >"$keys"
	valet --key-file "$keys" -- cat
	refused 1 "larger than"
}

@test "check-policy: good and bad files" {
	file=$BATS_TEST_TMPDIR/policy.yaml
	echo 'version: 1' >"$file"
	valet check-policy "$file"
	[ "$status" -eq 0 ]
	[ "$output" = "$file: ok" ]
	printf 'version: 1\nnonsense: 1\nlimits: { parked: lots }\n' >"$file"
	valet check-policy "$file"
	[ "$status" -eq 1 ]
	[ -z "$output" ]
	[[ "${stderr_lines[0]}" == "$file:2:"* ]]
	[[ "${stderr_lines[1]}" == "$file:3:"* ]]
	: >"$file"
	valet check-policy "$file"
	[ "$status" -eq 1 ]
	[ "$stderr" = "$file:1:1: the file is empty; a policy begins with version: 1" ]
	valet check-policy "$file.none"
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"No such file"* ]]
}

@test "a bad policy stops the start, with every fault" {
	file=$BATS_TEST_TMPDIR/policy.yaml
	printf 'version: 1\nnonsense: 1\nlimits: { parked: lots }\n' >"$file"
	valet --policy "$file" -- cat
	[ "$status" -eq 1 ]
	[ "${#stderr_lines[@]}" -eq 3 ]
	[[ "${stderr_lines[2]}" == "mcp-valet: "*"$file"* ]]
}

@test "explain: the settings of one name, with and without a file" {
	file=$BATS_TEST_TMPDIR/policy.yaml
	printf 'version: 1\nrules:\n  - match: { tool: "delete_*" }\n    sampling: deny\n' >"$file"
	valet explain --policy "$file" tool delete_all
	[ "$status" -eq 0 ]
	[[ "$output" == *"sampling: deny"*"$file:4"* ]]
	valet explain --policy "$file" tool other
	[[ "$output" == *"sampling: forward"* ]]
	valet explain prompt anything
	[ "$status" -eq 0 ]
	[[ "$output" == *"sampling: forward"* ]]
}

@test "policy-schema and policy-man write the reference of the policy file" {
	valet policy-schema
	[ "$status" -eq 0 ]
	[[ "$output" == *'"$schema"'* ]]
	valet policy-man
	[ "$status" -eq 0 ]
	[[ "$output" == *.It* ]]
}

@test "addresses that others can reach need --allow-remote" {
	valet --listen 0.0.0.0:0 -- cat
	refused 1 "--allow-remote"
	valet --listen nonsense -- cat
	refused 1 "nonsense"
}

@test "closed standard descriptors do no harm" {
	run bash -c '"$MCP_VALET" --log-level error -- cat <&- >&- 2>&-'
	[ "$status" -eq 0 ]
}
