#!/usr/bin/env bats
# `mcp-valet demo`: what a newcomer sees first, and the legacy server that it brings along.

@test "demo: every step goes as it should" {
	run "$MCP_VALET" demo
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"Every step went as it should."* ]]
	[[ "$output" != *"FAILED"* ]]
}

@test "demo: no colour where there is no terminal" {
	run "$MCP_VALET" demo
	[[ "$output" != *$'\033'* ]]
}

@test "demo: an unknown argument is a usage error" {
	run "$MCP_VALET" demo --nonsense
	[ "$status" -eq 2 ]
	[[ "$output" == *"usage: mcp-valet demo"* ]]
}

@test "demo --server: a legacy server that refuses to work before the handshake" {
	run "$MCP_VALET" demo --server <<<'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
	[ "$status" -eq 0 ]
	[[ "$output" == *'"code":-32600'* ]]
}

@test "demo --server: agrees on each legacy revision, and offers its newest for others" {
	for version in 2024-11-05 2025-03-26 2025-06-18 2025-11-25; do
		run "$MCP_VALET" demo --server <<<'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"'$version'","capabilities":{}}}'
		[[ "$output" == *"\"protocolVersion\":\"$version\""* ]]
	done
	run "$MCP_VALET" demo --server <<<'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{}}}'
	[[ "$output" == *'"protocolVersion":"2025-11-25"'* ]]
}

@test "demo --server: deletes nothing when the question is answered with an error" {
	run "$MCP_VALET" demo --server <<-'END'
		{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}
		{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete_everything"}}
		{"jsonrpc":"2.0","id":0,"error":{"code":-1,"message":"no"}}
	END
	[ "$status" -eq 0 ]
	[[ "$output" == *"Nothing was deleted."* ]]
}
