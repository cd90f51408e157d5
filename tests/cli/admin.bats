#!/usr/bin/env bats
# The admin endpoint: where it listens, what it serves, and to whom.

bats_require_minimum_version 1.5.0

setup() {
	log=$BATS_TEST_TMPDIR/log
	pid=
	mkfifo "$BATS_TEST_TMPDIR/in"
}

teardown() {
	exec 7>&- || :
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || :
	cat "$log" 2>/dev/null || :
}

# start ARG...: runs mcp-valet with an admin endpoint on a port that the system chooses, and sets $port.
start() {
	local i
	"$MCP_VALET" --admin 127.0.0.1:0 "$@" <"$BATS_TEST_TMPDIR/in" >"$BATS_TEST_TMPDIR/out" 2>"$log" 3>&- &
	pid=$!
	exec 7>"$BATS_TEST_TMPDIR/in"
	for ((i = 0; i < 200; i++)); do
		port=$(sed -n 's/.*health and metrics on 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$log")
		[ -z "$port" ] || return 0
		sleep 0.05
	done
	return 1
}

# get REQUEST-LINE [HEADER]: the whole response, without carriage returns.
get() {
	exec 8<>"/dev/tcp/127.0.0.1/$port"
	printf '%s\r\nHost: %s\r\n\r\n' "$1" "${2:-127.0.0.1}" >&8
	run tr -d '\r' <&8
	exec 8>&-
	echo "$output"
}

# ask PARAMS: one tools/call through the standard input.
ask() {
	echo '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{'"$1"',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}' >&7
}

# wait_for PATTERN: until the metrics have such a line.
wait_for() {
	local i
	for ((i = 0; i < 100; i++)); do
		get 'GET /metrics HTTP/1.1' >/dev/null
		! grep -qxE -- "$1" <<<"$output" || return 0
		sleep 0.1
	done
	echo "no line is $1"
	return 1
}

@test "health, readiness and metrics are served, and nothing else" {
	start -- "$MCP_VALET" demo --server
	get 'GET /healthz HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 200 OK' ]
	get 'GET /readyz HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 200 OK' ]
	get 'GET /metrics HTTP/1.1'
	[[ "$output" == *'text/plain; version=0.0.4'* ]]
	[[ "$output" == *$'\nmcp_valet_sessions 0\n'* ]]
	get 'GET /mcp HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 404 Not Found' ]
	get 'POST /metrics HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 405 Method Not Allowed' ]
	get 'nonsense'
	[ "${lines[0]}" = 'HTTP/1.1 400 Bad Request' ]
	get 'GET /metrics HTTP/2.0'
	[[ "${lines[0]}" == 'HTTP/1.1 505 '* ]]
	get $'GET /metrics HTTP/1.1\r\nTransfer-Encoding: gzip'
	[[ "${lines[0]}" == 'HTTP/1.1 501 '* ]]
	get $'GET /metrics HTTP/1.1\r\nExpect: a-miracle'
	[[ "${lines[0]}" == 'HTTP/1.1 417 '* ]]
	get "GET /$(printf '%9000s' x | tr ' ' x) HTTP/1.1"
	[[ "${lines[0]}" == 'HTTP/1.1 431 '* ]]
	get 'GET /metrics HTTP/1.1' evil.example
	[ "${lines[0]}" = 'HTTP/1.1 403 Forbidden' ]
}

@test "HEAD has the head of GET and no body" {
	start -- "$MCP_VALET" demo --server
	get 'HEAD /healthz HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 200 OK' ]
	[[ "$output" == *'Content-Length: 3'* ]]
	[ "${lines[-1]}" = 'Connection: close' ]
}

@test "a call that is parked is counted, and one that is answered" {
	start -- "$MCP_VALET" demo --server
	ask '"name":"delete_everything","arguments":{}'
	wait_for 'mcp_valet_parked_calls 1'
	wait_for 'mcp_valet_server_requests_forwarded_total\{subject="tool",name="delete_everything",kind="elicitation"\} 1'
	ask '"name":"echo","arguments":{"text":"secret words"}'
	wait_for 'mcp_valet_calls_total\{subject="tool",name="echo",outcome="answered"\} 1'
	wait_for 'mcp_valet_requests_total\{method="tools/call"\} 2'
	[[ "$output" != *secret* ]]
}

@test "the report tells what each tool asked, and never what was answered" {
	start -- "$MCP_VALET" demo --server
	ask '"name":"book_table","arguments":{"note":"secret words"}'
	wait_for 'mcp_valet_parked_calls 1'
	get 'GET /report.json HTTP/1.1'
	[[ "$output" == *'Content-Type: application/json'* ]]
	report=${lines[-1]}
	[[ "$report" == *'{"subject":"tool","name":"book_table",'*'"elicitation":{"forwarded":1,'*'"most_rounds":1,'* ]]
	[[ "$report" == *'"forms":[{"fields":"people integer, time string","count":1}]'* ]]
	state=$(sed -n 's/.*"requestState":"\([^"]*\)".*/\1/p' "$BATS_TEST_TMPDIR/out")
	[ -n "$state" ]
	ask '"name":"book_table","arguments":{"note":"secret words"},"requestState":"'"$state"'","inputResponses":{"input-1":{"action":"accept","content":{"people":7,"time":"19:30"}}}'
	wait_for 'mcp_valet_people_seconds_count\{subject="tool",name="book_table"\} 1'
	get 'GET /report.json HTTP/1.1'
	report=${lines[-1]}
	[[ "$report" == *'"people_count":1,'* ]]
	[[ "$report" != *secret* ]]
	[[ "$report" != *19:30* ]]
	[[ "$report" != *"$state"* ]]
}

@test "the report as a page, and one that cannot be written" {
	start -- "$MCP_VALET" demo --server
	ask '"name":"book_table","arguments":{}'
	wait_for 'mcp_valet_parked_calls 1'
	run --separate-stderr "$MCP_VALET" report --html --admin "127.0.0.1:$port"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[[ "$output" == '<!DOCTYPE html>'*'http-equiv="Content-Security-Policy"'*'<bdi>book_table</bdi>'*'people integer, time string (1)'*'</html>' ]]
	run bash -c '"$MCP_VALET" report --html --admin "127.0.0.1:$1" >/dev/full' _ "$port"
	[ "$status" -eq 1 ]
}

@test "two with one report file: the second waits for its turn, and nothing is lost" {
	local file=$BATS_TEST_TMPDIR/report second i
	printf 'version: 1\nreport_file: %s\n' "$file" >"$BATS_TEST_TMPDIR/policy"
	start --policy "$BATS_TEST_TMPDIR/policy" -- "$MCP_VALET" demo --server
	mkfifo "$BATS_TEST_TMPDIR/in2"
	"$MCP_VALET" --policy "$BATS_TEST_TMPDIR/policy" -- "$MCP_VALET" demo --server <"$BATS_TEST_TMPDIR/in2" >"$BATS_TEST_TMPDIR/out2" 2>"$BATS_TEST_TMPDIR/log2" 3>&- 7>&- &
	second=$!
	exec 6>"$BATS_TEST_TMPDIR/in2"
	for ((i = 0; i < 100; i++)); do ! grep -q 'report-file-failed.*another process' "$BATS_TEST_TMPDIR/log2" || break; sleep 0.1; done
	grep -q 'report-file-failed.*another process' "$BATS_TEST_TMPDIR/log2"
	ask '"name":"echo","arguments":{"text":"x"}'
	echo '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}' >&6
	wait_for 'mcp_valet_calls_total\{subject="tool",name="echo",outcome="answered"\} 1'
	exec 7>&-
	wait "$pid"
	pid=
	grep -q '"name":"echo","known":true,"calls":{"answered":1,' "$file"
	exec 6>&-
	wait "$second"
	grep -q '"name":"echo","known":true,"calls":{"answered":2,' "$file"
}

@test "it is not ready when the server cannot be started" {
	start -- /nonexistent/server
	ask '"name":"echo","arguments":{}'
	wait_for 'mcp_valet_sessions_lost_total [1-9][0-9]*'
	get 'GET /readyz HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 503 Service Unavailable' ]
	[[ "$output" == *'could not be opened'* ]]
	get 'GET /healthz HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 200 OK' ]
}

@test "a visitor who says nothing is sent away, and more than there is room for do not stop the rest" {
	local i descriptors=()
	start -- "$MCP_VALET" demo --server
	for ((i = 0; i < 20; i++)); do
		exec {descriptor}<>"/dev/tcp/127.0.0.1/$port"
		descriptors+=("$descriptor")
	done
	# After five seconds their places are free.
	get 'GET /healthz HTTP/1.1'
	[ "${lines[0]}" = 'HTTP/1.1 200 OK' ]
	for descriptor in "${descriptors[@]}"; do
		exec {descriptor}>&-
	done
}

@test "without --allow-remote it is for this machine alone" {
	run -1 --separate-stderr "$MCP_VALET" --admin 0.0.0.0:0 -- true </dev/null
	[[ "$stderr" == *'is not a loopback address'* ]]
	run -2 --separate-stderr "$MCP_VALET" --admin
	[[ "$stderr" == *'--admin needs a value'* ]]
}

@test "an open admin endpoint does not delay the end" {
	start -- "$MCP_VALET" demo --server
	exec 8<>"/dev/tcp/127.0.0.1/$port"
	exec 7>&-
	wait "$pid"
	pid=
}
