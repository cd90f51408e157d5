#!/usr/bin/env bats
# Under a service manager: what it is told, the socket that it passes, and the units.

load wait_for

bats_require_minimum_version 1.5.0

setup() {
	log=$BATS_TEST_TMPDIR/log
	pid=
	manager=
}

teardown() {
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || :
	[ -z "$manager" ] || kill -9 "$manager" 2>/dev/null || :
	cat "$log" 2>/dev/null || :
}

# A service manager's datagram socket at @NAME: a line for each datagram in $told.
listen_as_manager() {
	told=$BATS_TEST_TMPDIR/told
	perl -MSocket -e '
		$| = 1;
		socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die $!;
		bind($s, pack_sockaddr_un("\0$ARGV[0]")) or die $!;
		print "ready\n";
		while (defined recv($s, my $text, 4096, 0)) { $text =~ tr/\n/ /; print "$text\n" }' \
		"$1" >"$told" 3>&- &
	manager=$!
	wait_for "$told" ready
}

# activated ARG...: runs mcp-valet as systemd does, with a socket that listens already, and sets $port.
activated() {
	local listens=${LISTENS:-127.0.0.1}
	perl -MSocket -MPOSIX -e '
		$^F = 9; # descriptors up to here survive exec
		my $host = shift;
		socket(my $s, AF_INET, SOCK_STREAM, 0) or die $!;
		bind($s, sockaddr_in(0, inet_aton($host))) && listen($s, 8) or die $!;
		my ($port) = sockaddr_in(getsockname($s));
		print "port $port\n";
		close STDOUT;
		POSIX::dup2(fileno($s), 3);
		@ENV{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} = ($$, 1, "mcp");
		exec @ARGV or die $!' \
		"$listens" "$MCP_VALET" "$@" >"$BATS_TEST_TMPDIR/port" 2>"$log" </dev/null 3>&- &
	pid=$!
	wait_for "$BATS_TEST_TMPDIR/port" '^port '
	port=$(sed -n 's/^port //p' "$BATS_TEST_TMPDIR/port")
}

@test "the service manager hears when it is ready, reads again and stops; the server hears nothing of it" {
	listen_as_manager "mcp-valet-test-$$"
	NOTIFY_SOCKET=@mcp-valet-test-$$ LISTEN_PID=1 LISTEN_FDS=1 LISTEN_FDNAMES=x "$MCP_VALET" --listen 127.0.0.1:0 -- \
		sh -c 'env >"$1"; exec "$2" demo --server' sh "$BATS_TEST_TMPDIR/env" "$MCP_VALET" 2>"$log" </dev/null 3>&- &
	pid=$!
	wait_for "$told" '^READY=1$'
	port=$(sed -n 's/.*Streamable HTTP on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log")
	list_tools "$port"
	wait_for "$BATS_TEST_TMPDIR/env" '^PATH='
	run grep -E '^(NOTIFY_SOCKET|LISTEN_)' "$BATS_TEST_TMPDIR/env"
	[ "$status" -eq 1 ]
	kill -HUP "$pid"
	wait_for "$log" ' reloaded: '
	wait_for "$told" '^RELOADING=1 MONOTONIC_USEC=[0-9]+$'
	kill -TERM "$pid"
	wait "$pid"
	pid=
	wait_for "$told" '^STOPPING=1$'
	[ "$(sed 's/ MONO.*//' "$told" | tr '\n' ' ')" = "ready READY=1 RELOADING=1 READY=1 STOPPING=1 " ]
}

# list_tools PORT: one request over HTTP, whose answer is in $answer.
list_tools() {
	local body='{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bats","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}'
	exec 8<>"/dev/tcp/127.0.0.1/$1"
	printf 'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: %s\r\n\r\n%s' "${#body}" "$body" >&8
	answer=$(cat <&8)
	exec 8>&-
	[[ "$answer" == *book_table* ]]
}

@test "a service manager that does not listen is no reason to stop" {
	NOTIFY_SOCKET=/nonexistent/socket run "$MCP_VALET" -- cat </dev/null
	[ "$status" -eq 0 ]
	[[ "$output" == *"notify-failed: cannot notify /nonexistent/socket: No such file"* ]]
	[[ "$output" == *"stopped: in order"* ]]
}

@test "socket activation: it serves the socket that it is given, whose name it says" {
	activated --listen systemd -- "$MCP_VALET" demo --server
	list_tools "$port"
	grep -q "Streamable HTTP on 127.0.0.1:$port/mcp" "$log"
	kill -TERM "$pid"
	wait "$pid"
	pid=
}

@test "socket activation: an address that others can reach needs --allow-remote" {
	LISTENS=0.0.0.0 activated --listen systemd -- "$MCP_VALET" demo --server
	run wait "$pid"
	pid=
	wait_for "$log" 'mcp-valet: 0\.0\.0\.0:[0-9]+ is not a loopback address'
	LISTENS=0.0.0.0 activated --allow-remote --listen systemd -- "$MCP_VALET" demo --server
	list_tools "$port"
}

@test "socket activation: without a socket it says so" {
	run --separate-stderr "$MCP_VALET" --listen systemd -- cat </dev/null
	[ "$status" -eq 1 ]
	[ "$stderr" = "mcp-valet: systemd passed 0 sockets to this process, and it needs one" ]
}

# units: the units as they are installed, with a program that systemd finds.
units() {
	command -v systemd-analyze >/dev/null || skip "systemd-analyze is not installed"
	mkdir -p "$BATS_TEST_TMPDIR/units"
	sed "s|^ExecStart=[^ ]*|ExecStart=$MCP_VALET|" "$TOP_BUILDDIR/contrib/systemd/mcp-valet@.service" \
		>"$BATS_TEST_TMPDIR/units/mcp-valet@.service"
	cp "$TOP_SRCDIR/contrib/systemd/mcp-valet@.socket" "$BATS_TEST_TMPDIR/units"
	cd "$BATS_TEST_TMPDIR/units"
}

@test "the units hold what systemd understands" {
	units
	# Only our own units are of interest, not what they name of the system's.
	run systemd-analyze verify --man=no --recursive-errors=no "./mcp-valet@.service" "./mcp-valet@.socket"
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "the service is well confined, and no child with a just-in-time compiler is kept from running" {
	units
	# The threshold is in tenths: below 2.0 is what systemd calls OK.
	run systemd-analyze security --offline=true --threshold=20 "./mcp-valet@.service"
	echo "$output"
	[ "$status" -eq 0 ]
	run grep -E '^(MemoryDenyWriteExecute|NoExecPaths)=' "mcp-valet@.service"
	[ "$status" -eq 1 ]
}

@test "the options that the service passes are options" {
	options=$(grep '^ExecStart=' "$TOP_BUILDDIR/contrib/systemd/mcp-valet@.service" | grep -oE -- '--[a-z-]+')
	[ -n "$options" ]
	for option in $options; do
		"$MCP_VALET" --help | grep -q -- "^  $option "
	done
}
