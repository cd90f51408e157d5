#!/usr/bin/env bats
# What the documents show works as they show it.

@test "every example policy is accepted" {
	for policy in "$TOP_SRCDIR"/contrib/policy/*.yaml; do
		run "$MCP_VALET" check-policy "$policy"
		echo "$output"
		[ "$status" -eq 0 ]
	done
}

@test "the policy in README.md is accepted" {
	sed -n '/^    version: 1$/,/^$/p' "$TOP_SRCDIR/README.md" | sed 's/^    //' >"$BATS_TEST_TMPDIR/policy.yaml"
	grep -q hide "$BATS_TEST_TMPDIR/policy.yaml"
	run "$MCP_VALET" check-policy "$BATS_TEST_TMPDIR/policy.yaml"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "the policy in mcp-valet.policy(5) is accepted" {
	sed -n '/^\.Bd -literal/,/^\.Ed/p' "$TOP_SRCDIR/mcp-valet.policy.5.in" | sed '/^\./d' >"$BATS_TEST_TMPDIR/policy.yaml"
	grep -q hide "$BATS_TEST_TMPDIR/policy.yaml"
	run "$MCP_VALET" check-policy "$BATS_TEST_TMPDIR/policy.yaml"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "mcp-valet.policy(5) lists the keys of this program" {
	"$MCP_VALET" policy-man >"$BATS_TEST_TMPDIR/keys"
	grep -q '^\.It Cm park : ' "$BATS_TEST_TMPDIR/keys"
	run grep -vxFf "$TOP_BUILDDIR/mcp-valet.policy.5" "$BATS_TEST_TMPDIR/keys"
	[ -z "$output" ]
}

@test "a key made as mcp-valet(1) shows is usable" {
	(umask 077; "$MCP_VALET" keygen >"$BATS_TEST_TMPDIR/keys")
	run "$MCP_VALET" --key-file "$BATS_TEST_TMPDIR/keys" -- "$MCP_VALET" demo --server </dev/null
	echo "$output"
	[ "$status" -eq 0 ]
}
