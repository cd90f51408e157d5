#!/usr/bin/env bats
# The files for containers, clients and proxies in contrib/: they parse, they fit together, and the program accepts them.

load wait_for

setup() {
	log=$BATS_TEST_TMPDIR/log
	pid=
	nginx=
}

teardown() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || :
	[ -z "$nginx" ] || kill "$nginx" 2>/dev/null || :
	cat "$log" 2>/dev/null || :
}

deploy() {
	python3 -c 'import yaml' 2>/dev/null || skip "python3-yaml is not installed"
	python3 -B "$TOP_SRCDIR/tests/cli/deploy.py" "$@"
}

# get PORT PATH: the status line.
get() {
	exec 8<>"/dev/tcp/127.0.0.1/$1"
	printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' "$2" >&8
	head -n 1 <&8
	exec 8>&-
}

@test "every YAML and JSON file parses" {
	deploy parse
}

@test "Kubernetes: selectors, ports, volumes, deadlines and paths fit together" {
	deploy check
}

@test "Kubernetes, sidecar, Compose: the program starts with these arguments, and the probes are answered" {
	(umask 077 && "$MCP_VALET" keygen >"$BATS_TEST_TMPDIR/keys")
	for name in base sidecar compose; do
		deploy args "$name" >"$BATS_TEST_TMPDIR/args"
		grep -q '^--upstream=http://' "$BATS_TEST_TMPDIR/args"
		mapfile -t args < <(sed -e 's|0\.0\.0\.0:[0-9]*|0.0.0.0:0|' -e "s|^--key-file=.*|--key-file=$BATS_TEST_TMPDIR/keys|" \
			-e "s|^--policy=.*|--policy=$TOP_SRCDIR/contrib/kubernetes/base/policy.yaml|" "$BATS_TEST_TMPDIR/args")
		: >"$log" # or the line of the program before is found in it
		"$MCP_VALET" "${args[@]}" >"$BATS_TEST_TMPDIR/out" 2>"$log" </dev/null 3>&- &
		pid=$!
		wait_for "$log" 'health and metrics on'
		port=$(sed -n 's/.*health and metrics on 0\.0\.0\.0:\([0-9]*\).*/\1/p' "$log")
		if [ "$name" != compose ]; then
			paths=$(deploy probes "$name")
			[ "$(wc -l <<<"$paths")" -eq 2 ]
			for path in $paths; do
				[[ "$(get "$port" "$path")" == *" 200 "* ]]
			done
		fi
		kill "$pid"
		wait "$pid"
		pid=
	done
}

@test "client snippets: mcp-valet accepts its part of the command line" {
	deploy commands >"$BATS_TEST_TMPDIR/commands"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/commands")" -ge 2 ]
	while read -r program line; do
		[ "$program" = mcp-valet ]
		[[ "$line" == *"-- "?* ]]
		# shellcheck disable=SC2086 # words of a command line
		"$MCP_VALET" ${line%%-- *} --help >/dev/null
	done <"$BATS_TEST_TMPDIR/commands"
}

@test "Containerfile: what it copies is there, and its arguments are options" {
	file=$TOP_SRCDIR/contrib/container/Containerfile
	for name in $(sed -n 's/^COPY \([^-].*\) [^ ]*$/\1/p' "$file"); do
		[ -e "$TOP_SRCDIR/$name" ]
	done
	for option in $(grep -oE '"--[a-z-]+"' "$file" | tr -d '"'); do
		"$MCP_VALET" --help | grep -qE -- "(^  |, )$option( |,|$)"
	done
	# Nothing in it runs as root.
	[ "$(grep -E '^(FROM|USER)' "$file" | tail -n 1)" = "USER 65532:65532" ]
}

# request METHOD [PARAMS]: one that ends the connection, when it is answered.
request() {
	local body='{"jsonrpc":"2.0","id":1,"method":"'$1'","params":{'${2:+$2,}'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bats","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}'
	printf 'POST /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nX-Forwarded-User: mallory\r\nContent-Length: %s\r\n\r\n%s' "${host-mcp.example.com}" "$1" "${#body}" "$body"
}

# start_nginx OPTIONS...: mcp-valet with the options on $port, and nginx with the snippet before it on $front.
start_nginx() {
	PATH=$PATH:/usr/sbin
	command -v nginx >/dev/null || skip "nginx is not installed"
	"$MCP_VALET" --listen 127.0.0.1:0 "$@" -- "$MCP_VALET" demo --server 2>"$log" </dev/null 3>&- &
	pid=$!
	wait_for "$log" 'Streamable HTTP on'
	port=$(sed -n 's/.*Streamable HTTP on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log")
	front=$((port > 40000 ? port - 10000 : port + 10000))
	dir=$BATS_TEST_TMPDIR
	sed -e "s/127\.0\.0\.1:8080/127.0.0.1:$port/" -e "s/127\.0\.0\.1:8443/127.0.0.1:$front/" "$TOP_SRCDIR/contrib/snippets/nginx.conf" >"$dir/snippet.conf"
	cat >"$dir/nginx.conf" <<-END
		daemon off;
		pid $dir/nginx.pid;
		error_log $dir/nginx.log;
		events {}
		http {
			access_log off;
			client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4; scgi_temp_path $dir/t5;
			include $dir/snippet.conf;
		}
	END
	nginx -e "$dir/nginx.log" -p "$dir" -c "$dir/nginx.conf" 3>&- &
	nginx=$!
	for ((i = 0; i < 100; i++)); do
		(exec 8<>"/dev/tcp/127.0.0.1/$front") 2>/dev/null && return 0
		sleep 0.05
	done
	cat "$dir/nginx.log"
	return 1
}

# ask PORT PATTERN METHOD [PARAMS]: the first line of the answer that matches.
ask() {
	exec 8<>"/dev/tcp/127.0.0.1/$1"
	request "$3" "${4-}" >&8
	timeout 10 grep -m 1 -- "$2" <&8
	exec 8>&-
}

@test "nginx: calls go through the snippet, and events of an open stream come at once" {
	start_nginx
	ask "$front" book_table tools/list
	# The stream stays open; its first event is there all the same.
	ask "$front" notifications/subscriptions/acknowledged subscriptions/listen '"notifications":{"toolsListChanged":true}'
}

@test "nginx: a client cannot say who it is" {
	printf 'version: 1\nprincipal: header:X-Forwarded-User\n' >"$BATS_TEST_TMPDIR/policy.yaml"
	start_nginx --policy "$BATS_TEST_TMPDIR/policy.yaml"
	# Each principal has a session of its own.
	host=127.0.0.1 ask "$port" book_table tools/list
	host=127.0.0.1 ask "$port" book_table tools/list
	[ "$(grep -c session-ready "$log")" -eq 1 ]
	ask "$front" book_table tools/list
	[ "$(grep -c session-ready "$log")" -eq 2 ]
}
