#!/usr/bin/env bats
# decode-state, with states that a real call was parked under.

bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_TMPDIR"
	(umask 077 && "$MCP_VALET" keygen >keys)
	printf 'version: 1\ndefaults: { rerun: if-lost }\n' >rerun.yaml
}

# request ID PARAMS: one tools/call of a modern client, as a line.
request() {
	echo '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"book_table","arguments":{},'"$2"'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"sampling":{}}}}}'
}

# read_state: $state is the one in the next response.
read_state() {
	local line
	read -r -t 20 line <&"${valet[0]}"
	[[ "$line" =~ \"requestState\":\"([A-Za-z0-9_-]+)\" ]]
	state=${BASH_REMATCH[1]}
}

# park [OPTION...]: $state is that of a call that asked a first time; the process stays until `leave`.
park() {
	coproc valet { exec "$MCP_VALET" --key-file keys "$@" -- "$MCP_VALET" demo --server 2>log 3>&-; }
	request 1 '' >&"${valet[1]}"
	read_state
}

leave() {
	local pid=$valet_PID
	eval "exec ${valet[1]}>&-"
	wait "$pid"
}

decode() {
	run --separate-stderr "$MCP_VALET" decode-state "$@"
	echo "status $status, output: $output, stderr: $stderr"
}

# refused TEXT
refused() {
	[ "$status" -eq 1 ]
	[ -z "$output" ]
	[[ "$stderr" == "mcp-valet: "*"$1"* ]]
}

@test "it tells which call, which round and until when" {
	park
	leave
	call=$(sed -n 's/.*call-parked .*call=\([0-9a-f]*\) .*/\1/p' log)
	decode --key-file keys "$state"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	grep -qx "call       $call (as in the log)" <<<"$output"
	grep -qx 'round      1' <<<"$output"
	grep -q '^kind       parked' <<<"$output"
	grep -qE '^principal  [0-9a-f]{8}\.\.\. ' <<<"$output"
	issued=$(date -d "$(sed -n 's/^issued *//p' <<<"$output")" +%s)
	expires=$(date -d "$(sed -n 's/^expires *//p' <<<"$output")" +%s)
	[ $((expires - issued)) -eq 600 ]
	[ $(($(date +%s) - issued)) -lt 60 ]
	whole=$output
	run --separate-stderr "$MCP_VALET" decode-state --key-file keys - <<<"$state"
	[ "$status" -eq 0 ]
	[ "$output" = "$whole" ]
}

@test "answers are counted, and shown only when asked for" {
	park --policy rerun.yaml
	request 2 '"requestState":"'"$state"'","inputResponses":{"input-1":{"action":"accept","content":{"people":7,"time":"19:30"}}},' >&"${valet[1]}"
	read_state
	leave
	decode --key-file keys "$state"
	[ "$status" -eq 0 ]
	grep -q '^kind       rerun' <<<"$output"
	grep -qx 'round      2' <<<"$output"
	grep -qx 'answers    1' <<<"$output"
	grep -qx 'open       input-2: sampling' <<<"$output"
	[[ "$output" != *19:30* ]]
	decode --key-file keys --answers "$state"
	[ "$status" -eq 0 ]
	grep -qxF 'answer     {"action":"accept","content":{"people":7,"time":"19:30"}}' <<<"$output"
}

@test "another key, and another key of the same name, open nothing" {
	park
	leave
	(umask 077 && "$MCP_VALET" keygen >other)
	decode --key-file other "$state"
	refused 'sealed with the unknown key'
	read -r _ id _ <keys
	sed "s/^v1 [0-9a-f]*/v1 $id/" other >same_id
	chmod 600 same_id
	decode --key-file same_id "$state"
	refused 'altered, or forged'
	# After a change of keys the old one still opens.
	cat other keys >both
	chmod 600 both
	decode --key-file both "$state"
	[ "$status" -eq 0 ]
}

@test "a state that was tampered with is refused" {
	park
	leave
	last=${state: -1}
	[ "$last" = A ] && other=B || other=A
	decode --key-file keys "${state%?}$other"
	refused 'altered, or forged'
	decode --key-file keys "${state}="
	refused 'not base64url'
	decode --key-file keys "${state:0:40}"
	refused 'bytes instead of'
	decode --key-file keys ''
	refused 'bytes instead of'
}

@test "usage" {
	decode x
	[ "$status" -eq 2 ]
	[[ "$stderr" == *'decode-state needs --key-file'* ]]
	decode --key-file keys
	[ "$status" -eq 2 ]
	[[ "$stderr" == *'takes one request state'* ]]
	decode --key-file missing x
	refused 'missing'
}
