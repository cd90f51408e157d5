#!/usr/bin/env bats
# What SECURITY.md says of the process itself.

load wait_for

bats_require_minimum_version 1.5.0

setup() {
	log=$BATS_TEST_TMPDIR/log
	pid=
}

teardown() {
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || :
	cat "$log" 2>/dev/null || :
}

# start ARG...: runs mcp-valet until it serves.
start() {
	"$MCP_VALET" --log-level debug "$@" </dev/null >"$BATS_TEST_TMPDIR/out" 2>"$log" 3>&- &
	pid=$!
	wait_for "$log" 'info started'
}

# call ADDRESS: has the server started.
call() {
	curl -s -m 10 -H 'Content-Type: application/json' -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/list' "$@" \
		-d '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
}

# may_lock: whether a page can be locked, which containers may forbid whatever the limit is.
may_lock() {
	case $(uname -m) in
	x86_64) mlock=149 ;;
	*) mlock=228 ;;
	esac
	perl -e '$page = "x" x 4096; exit(syscall($ARGV[0] + 0, $page, 4096) != 0)' "$mlock"
}

@test "keys are in locked memory" {
	! grep -q __asan_init "$MCP_VALET" || skip "with sanitizers nothing is locked"
	may_lock || skip "no memory may be locked here"
	(umask 077 && "$MCP_VALET" keygen >"$BATS_TEST_TMPDIR/keys")
	start --listen 127.0.0.1:0 --key-file "$BATS_TEST_TMPDIR/keys" -- "$MCP_VALET" demo --server
	run sed -n 's/^VmLck:[[:space:]]*\([0-9]*\) kB$/\1/p' "/proc/$pid/status"
	echo "$output kB"
	[ "$output" -gt 0 ]
}

@test "the server's command is no text for a shell, and its arguments are not logged" {
	local socket=$BATS_TEST_TMPDIR/socket evil
	evil="\$(touch $BATS_TEST_TMPDIR/evil); \`touch $BATS_TEST_TMPDIR/evil\` & ' \" *"
	start --listen "unix:$socket" -- perl -e 'open my $f, ">", shift; print $f @ARGV; close $f; exit 1' "$BATS_TEST_TMPDIR/got" "$evil"
	call --unix-socket "$socket" http://localhost/mcp
	[ "$(cat "$BATS_TEST_TMPDIR/got")" = "$evil" ]
	[ ! -e "$BATS_TEST_TMPDIR/evil" ]
	grep -q 'in front of: perl$' "$log"
	run grep -c touch "$log"
	[ "$output" = 0 ]
}

@test "the query of the server's URL is not logged" {
	start --listen 127.0.0.1:0 --upstream 'http://127.0.0.1:1/mcp?token=sesame#open'
	call "http://$(sed -n 's/.*HTTP on \([0-9.:]*\)\/mcp.*/\1/p' "$log")/mcp"
	wait_for "$log" 'session-(lost|failed)'
	run grep -cE 'sesame|open$' "$log"
	[ "$output" = 0 ]
}

@test "Unix sockets are for their owner alone" {
	(umask 000 && exec "$MCP_VALET" --listen "unix:$BATS_TEST_TMPDIR/mcp" --admin "unix:$BATS_TEST_TMPDIR/admin" -- \
		"$MCP_VALET" demo --server </dev/null 2>"$log" 3>&-) &
	pid=$!
	wait_for "$log" admin-started
	wait_for "$log" 'info started'
	[ "$(stat -c %a "$BATS_TEST_TMPDIR/mcp" "$BATS_TEST_TMPDIR/admin" | tr '\n' ' ')" = '600 600 ' ]
}
