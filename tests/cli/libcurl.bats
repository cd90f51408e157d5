#!/usr/bin/env bats
# libcurl is loaded at the start where the target needs it, or at a reload, and else never. The loader is shown a library that
# it cannot load: a program that goes on nevertheless has not tried.

load wait_for

bats_require_minimum_version 1.5.0

setup() {
	log=$BATS_TEST_TMPDIR/log
	pids=
	# As the program's note to packagers has it.
	name=$(grep -ao '"soname":\["[^"]*' "$MCP_VALET" | sed 's/.*"//')
	: >"$BATS_TEST_TMPDIR/$name"
	export LD_LIBRARY_PATH=$BATS_TEST_TMPDIR
}

teardown() {
	# shellcheck disable=SC2086 # a list of words
	[ -z "$pids" ] || kill -9 $pids 2>/dev/null || :
	cat "$log" 2>/dev/null || :
}

# start ARG...: runs mcp-valet until it serves.
start() {
	"$MCP_VALET" "$@" </dev/null 2>"$log" 3>&- &
	pid=$!
	pids="$pids $pid"
	wait_for "$log" 'info started'
}

# refused URL [ARG...]: mcp-valet does not start in front of it, and says why in one line.
refused() {
	run timeout 10 "$MCP_VALET" "${@:2}" --upstream "$1" </dev/null
	echo "$output"
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ "$output" == "mcp-valet: "*"$name"* ]]
}

# old_library VERSION NUMBER: puts a library there that has nothing but a version.
old_library() {
	printf 'struct { int age; const char *version; unsigned number; } data = {0, "%s", %s};
		void *curl_version_info(int now) { (void)now; return &data; }' "$1" "$2" |
		${CC:-cc} -shared -fPIC -x c -o "$BATS_TEST_TMPDIR/$name" -
}

@test "the note names the library that is looked for" {
	[[ "$name" == libcurl*.so.* ]]
	run readelf --wide --notes "$MCP_VALET"
	[[ "$output" == *FDO*0x407c0c0a* ]]
}

@test "a server with TLS or on another machine does not start without the library" {
	refused https://127.0.0.1:1/mcp
	[[ "$output" == *"$BATS_TEST_TMPDIR/$name: "* ]]
	[[ "$output" == *"apt-get install"* ]]
	refused http://192.0.2.1:1/mcp --listen 127.0.0.1:0
	refused http://127.0.0.1:1/mcp --policy <(printf 'version: 1\nupstream: { cross_origin: true }\n')
}

@test "a library that is too old, and one that lacks something, are refused" {
	old_library 7.84.0 0x075400
	refused https://127.0.0.1:1/mcp
	[[ "$output" == *"is version 7.84.0, and 7.85.0 or later is needed"* ]]
	old_library 7.85.0 0x075500
	refused https://127.0.0.1:1/mcp
	[[ "$output" == *"undefined symbol: curl_"* ]]
}

@test "with the library they start" {
	unset LD_LIBRARY_PATH
	start --listen 127.0.0.1:0 --upstream https://127.0.0.1:1/mcp
}

@test "a child process, a server on this machine and the small commands do without it" {
	local request='{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bats","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}'
	start --listen "unix:$BATS_TEST_TMPDIR/mcp" --admin "unix:$BATS_TEST_TMPDIR/admin" -- "$MCP_VALET" demo --server
	wait_for "$log" admin-started
	# The server of the demonstration, once more behind the first mcp-valet, and on stdio.
	run "$MCP_VALET" --upstream "unix:$BATS_TEST_TMPDIR/mcp:/mcp" <<<"$request"
	echo "$output"
	[[ "$output" == *'"id":1,"result"'*book_table* ]]
	run "$MCP_VALET" -- "$MCP_VALET" demo --server <<<"$request"
	[[ "$output" == *'"id":1,"result"'*book_table* ]]
	"$MCP_VALET" report --admin "unix:$BATS_TEST_TMPDIR/admin" | grep "Migration to"
	"$MCP_VALET" --version
	"$MCP_VALET" demo
	printf 'version: 1\nupstream: { cross_origin: true }\n' >"$BATS_TEST_TMPDIR/policy.yaml"
	"$MCP_VALET" check-policy "$BATS_TEST_TMPDIR/policy.yaml"
}

@test "a report from an address that has to be looked up needs it" {
	run "$MCP_VALET" report --admin valet.invalid:9464
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == "mcp-valet: "*"$name"* ]]
}

@test "a reload that needs it is refused without it, and taken with it" {
	local policy=$BATS_TEST_TMPDIR/policy.yaml
	echo 'version: 1' >"$policy"
	start --listen 127.0.0.1:0 --policy "$policy" --upstream http://127.0.0.1:1/mcp
	printf 'version: 1\nupstream: { cross_origin: true }\n' >"$policy"
	kill -HUP "$pid"
	wait_for "$log" "reload-refused: policy and keys stay as they were: .*$name"
	kill -0 "$pid"
	rm "$BATS_TEST_TMPDIR/$name"
	kill -HUP "$pid"
	wait_for "$log" ' reloaded: '
}
