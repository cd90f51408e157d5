#!/usr/bin/env bats
# The program as a whole on stdio, in front of the legacy server of the demonstration and of servers that misbehave.

load wait_for

bats_require_minimum_version 1.5.0

setup() {
	in=$BATS_TEST_TMPDIR/in
	out=$BATS_TEST_TMPDIR/out
	log=$BATS_TEST_TMPDIR/log
	mkfifo "$in"
	pid=
}

teardown() {
	exec 7>&- || :
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || :
	cat "$log" 2>/dev/null || :
}

# start ARG...: runs mcp-valet with its input open on descriptor 7.
start() {
	"$MCP_VALET" --log-level debug "$@" <"$in" >"$out" 2>"$log" 3>&- &
	pid=$!
	exec 7>"$in"
}

# say ID METHOD PARAMS: one modern request.
say() {
	local meta='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bats","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}'
	echo '{"jsonrpc":"2.0","id":'"$1"',"method":"'"$2"'","params":{'"${3:+$3,}$meta"'}}' >&7
}

# ends STATUS: the program ends by itself.
ends() {
	local i status=0
	for ((i = 0; i < 300; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	if kill -0 "$pid" 2>/dev/null; then
		echo "still running"
		return 1
	fi
	wait "$pid" || status=$?
	pid=
	echo "status $status, expected $1"
	[ "$status" -eq "$1" ]
}

# gone PID: there is no such process.
gone() {
	run kill -0 "$1"
	[ "$status" -ne 0 ]
}

# The process of the legacy server, as the log names it.
server_pid() {
	sed -n 's/.*is process \([0-9]*\)$/\1/p' "$log" | tail -n 1
}

@test "a call goes through, and the end of the input ends everything in order" {
	start -- "$MCP_VALET" demo --server
	say 1 server/discover
	wait_for "$out" '"id":1,"result"'
	say 2 tools/call '"name":"echo","arguments":{"text":"hello"}'
	wait_for "$out" '"id":2,"result".*hello'
	server=$(server_pid)
	kill -0 "$server"
	exec 7>&-
	ends 0
	gone "$server"
	grep -q 'info started: mcp-valet .* stdio, in front of: .*mcp-valet' "$log"
	grep -q 'stopped: in order' "$log"
}

@test "a question is parked, and a parked call does not delay the end" {
	start -- "$MCP_VALET" demo --server
	say 1 tools/call '"name":"delete_everything","arguments":{}'
	wait_for "$out" '"resultType":"input_required"'
	exec 7>&-
	ends 0
	[ "$(wc -l <"$out")" -eq 1 ]
}

@test "SIGTERM ends everything in order" {
	start -- "$MCP_VALET" demo --server
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	server=$(server_pid)
	kill -TERM "$pid"
	ends 0
	gone "$server"
}

@test "a server that ignores everything is killed, and its children with it" {
	cat >"$BATS_TEST_TMPDIR/policy.yaml" <<-'END'
		version: 1
		deadlines: { exit: 100ms, shutdown: 200ms }
	END
	start --policy "$BATS_TEST_TMPDIR/policy.yaml" -- sh -c 'trap "" TERM INT; sleep 1000 & echo "child $!" >&2; while :; do sleep 1; done'
	say 1 tools/list
	wait_for "$log" 'server-stderr.* child [0-9]+'
	child=$(sed -n 's/.*server-stderr.* child \([0-9]*\)$/\1/p' "$log")
	server=$(server_pid)
	kill -TERM "$pid"
	ends 0
	gone "$server"
	gone "$child"
}

@test "what a server's child detached is not left behind" {
	start -- sh -c 'setsid sleep 1000 & echo "child $!" >&2; exec "$MCP_VALET" demo --server'
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	wait_for "$log" 'server-stderr.* child [0-9]+'
	exec 7>&-
	ends 0
	child=$(sed -n 's/.*server-stderr.* child \([0-9]*\)$/\1/p' "$log")
	gone "$child"
}

@test "the second SIGTERM ends at once" {
	start -- "$MCP_VALET" demo --server
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	server=$(server_pid)
	kill -STOP "$server"
	kill -TERM "$pid"
	wait_for "$log" 'stopping: received signal TERM'
	kill -TERM "$pid"
	ends 1
	gone "$server"
	grep -q 'stop-forced: second signal TERM' "$log"
}

# Official clients send SIGTERM two seconds after they have closed the input.
@test "a server that stays after its input ends is ended before the client becomes impatient" {
	start -- sh -c '"$0" demo --server; exec sleep 100' "$MCP_VALET"
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	server=$(server_pid)
	exec 7>&-
	sleep 1.7
	grep -q 'stopped: in order' "$log"
	gone "$server"
	ends 0
}

# An official client sends SIGTERM and, a second later, SIGKILL: what is not ended by then would be left behind.
@test "a server that stays after its input ends is not left to whoever kills mcp-valet soon after SIGTERM" {
	policy=$BATS_TEST_TMPDIR/policy.yaml
	printf 'version: 1\ndeadlines: { exit: 1m }\n' >"$policy"
	start --policy "$policy" -- sh -c '"$0" demo --server; exec sleep 100' "$MCP_VALET"
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	kill -TERM "$pid"
	sleep 0.9
	grep -q 'child-exited' "$log"
	ends 0
}

@test "a server that dies before the handshake: the client is told its last words" {
	start -- sh -c 'echo "no licence found" >&2; exit 3'
	say 1 tools/list
	wait_for "$out" '"id":1,"error".*exited with status 3 before the handshake was over; it said: no licence found'
	say 2 tools/list
	wait_for "$out" '"id":2,"error"'
	exec 7>&-
	ends 0
}

@test "a command that does not exist: the client is told" {
	start -- /nonexistent/server
	say 1 tools/list
	wait_for "$out" '"id":1,"error".*cannot start /nonexistent/server: No such file or directory'
	exec 7>&-
	ends 0
}

@test "a server killed in use is started again on the next need" {
	start -- "$MCP_VALET" demo --server
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	kill -9 "$(server_pid)"
	wait_for "$log" 'session-lost.*killed by signal 9'
	say 2 tools/list
	wait_for "$out" '"id":2,"result"'
	exec 7>&-
	ends 0
}

@test "SIGHUP takes a good policy and refuses a bad one" {
	policy=$BATS_TEST_TMPDIR/policy.yaml
	echo 'version: 1' >"$policy"
	start --policy "$policy" -- "$MCP_VALET" demo --server
	say 1 tools/call '"name":"echo","arguments":{"text":"one"}'
	wait_for "$out" '"id":1,"result"'
	printf 'version: 1\nrules:\n  - match: { tool: echo }\n    hide: true\n' >"$policy"
	kill -HUP "$pid"
	wait_for "$log" 'info reloaded'
	say 2 tools/call '"name":"echo","arguments":{"text":"two"}'
	wait_for "$out" '"id":2,"error"'
	printf 'version: 1\nrules: 7\n' >"$policy"
	kill -HUP "$pid"
	wait_for "$log" 'error reload-refused: .*policy.yaml:2:'
	say 3 tools/call '"name":"echo","arguments":{"text":"three"}'
	wait_for "$out" '"id":3,"error"'
	exec 7>&-
	ends 0
}

@test "SIGHUP takes new keys, and refuses a key file that became open to others" {
	keys=$BATS_TEST_TMPDIR/keys
	(umask 077 && "$MCP_VALET" keygen >"$keys")
	start --key-file "$keys" -- "$MCP_VALET" demo --server
	wait_for "$log" 'info started'
	"$MCP_VALET" keygen >"$keys"
	kill -HUP "$pid"
	wait_for "$log" 'info reloaded.*keys'
	chmod 644 "$keys"
	kill -HUP "$pid"
	wait_for "$log" 'error reload-refused: .*mode 0644'
	exec 7>&-
	ends 0
}

@test "a line that is too long is refused, and the next one is heard" {
	printf 'version: 1\nlimits: { message: 64KiB }\n' >"$BATS_TEST_TMPDIR/policy.yaml"
	start --policy "$BATS_TEST_TMPDIR/policy.yaml" -- "$MCP_VALET" demo --server
	head -c 100000 /dev/zero | tr '\0' ' ' >&7
	echo '{}' >&7
	wait_for "$out" '"code":-32600.*65536'
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	exec 7>&-
	ends 0
}

@test "the log in JSON is one object a line" {
	start --log-format json -- "$MCP_VALET" demo --server
	say 1 tools/list
	wait_for "$out" '"id":1,"result"'
	exec 7>&-
	ends 0
	[ "$(wc -l <"$log")" -ge 4 ]
	run grep -vE '^\{"time":"[0-9T:.Z-]+","level":"[a-z]+","event":"[a-z-]+".*"text":".*"\}$' "$log"
	[ -z "$output" ]
}

@test "input from a file and from /dev/null" {
	run --separate-stderr "$MCP_VALET" --log-level error -- "$MCP_VALET" demo --server </dev/null
	[ "$status" -eq 0 ]
	[ -z "$output$stderr" ]
	echo '{"jsonrpc":"2.0","id":1,"method":"nonsense"}' >"$BATS_TEST_TMPDIR/file"
	run --separate-stderr "$MCP_VALET" --log-level error -- "$MCP_VALET" demo --server <"$BATS_TEST_TMPDIR/file"
	[ "$status" -eq 0 ]
	[[ "$output" == *'"id":1,"error"'* ]]
}

@test "HTTP: the log names the address, and SIGTERM ends in order" {
	start --listen 127.0.0.1:0 -- "$MCP_VALET" demo --server
	wait_for "$log" 'started: .*Streamable HTTP on 127\.0\.0\.1:[1-9][0-9]*/mcp, in front of: '
	kill -TERM "$pid"
	ends 0
}

@test "HTTP: without free descriptors accepting pauses, and does not spin" {
	local before after ticks port i
	start --listen 127.0.0.1:0 -- "$MCP_VALET" demo --server
	wait_for "$log" 'started: .*Streamable HTTP on 127\.0\.0\.1:[1-9]'
	prlimit --pid "$pid" --nofile=24:24
	port=$(sed -n 's/.*HTTP on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log")
	perl -MIO::Socket::INET -e 'my @all = map { IO::Socket::INET->new("127.0.0.1:$ARGV[0]") } 1 .. 40;
		open my $f, ">", $ARGV[1]; close $f; sleep 30' "$port" "$BATS_TEST_TMPDIR/connected" 3>&- &
	local crowd=$!
	for ((i = 0; i < 100; i++)); do [ -e "$BATS_TEST_TMPDIR/connected" ] && break; sleep 0.05; done
	before=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
	sleep 2
	after=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
	ticks=$((after - before))
	echo "$ticks ticks"
	wait_for "$log" accept-failed
	[ "$(grep -c accept-failed "$log")" -le 5 ] # one a second, and the first
	[ "$ticks" -lt "$(($(getconf CLK_TCK) / 5))" ]
	# Once they leave, the next one is served.
	kill "$crowd"
	run curl -s -m 10 -o "$BATS_TEST_TMPDIR/answer" -w '%{http_code}' "http://127.0.0.1:$port/nothing"
	echo "$output"
	[ "$output" = 404 ]
	kill -TERM "$pid"
	ends 0
}

# Whether a command, killed by SIGSEGV once it has printed a line, is dumped: prints 1 or 0.
dumped() {
	(cd "$BATS_TEST_TMPDIR" && ulimit -c unlimited && perl -e '
		my $pid = open(my $out, "-|") // die;
		if (!$pid) { open STDERR, ">&STDOUT"; exec @ARGV }
		readline $out; kill "SEGV", $pid; close $out; print $? & 128 ? 1 : 0' "$@" 3>&-)
}

@test "no core dump: keys and answers are in memory" {
	[ "$(dumped perl -e '$| = 1; print "ready\n"; sleep 20')" = 1 ] || skip "this system dumps nothing"
	[ "$(dumped "$MCP_VALET" --listen 127.0.0.1:0 -- "$MCP_VALET" demo --server)" = 0 ]
}
