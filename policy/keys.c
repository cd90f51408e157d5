#include "policy/keys.h"

#include <stddef.h>
#include <string.h>

#define POLICY(member) offsetof(struct policy, member)
#define RULE(member) offsetof(struct policy_rule, member)
#define SIZE(name, member, fallback, max, help)                                                                        \
	{                                                                                                              \
		SECTION_LIMITS, name, KEY_SIZE, POLICY(limits.member), 0, fallback, 1024, max, NULL, help              \
	}
#define COUNT(name, max, fallback, help)                                                                               \
	{                                                                                                              \
		SECTION_LIMITS, #name, KEY_COUNT, POLICY(limits.name), 0, fallback, 1, max, NULL, help                 \
	}
#define DEADLINE(name, fallback, min, max, help)                                                                       \
	{                                                                                                              \
		SECTION_DEADLINES, #name, KEY_DURATION, POLICY(deadlines.name##_ms), 0, fallback, min, max, NULL, help \
	}
#define ASK(name, kind)                                                                                                \
	{                                                                                                              \
		SECTION_RULE, name, KEY_ASK, RULE(action[kind]), RULE(answer[kind]), "forward", kind, 0, NULL,         \
			"what becomes of a " name " request of the server"                                             \
	}

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

#define DAY (24LL * HOUR)
#define MIB (1024LL * 1024)
#define GIB (1024LL * 1024 * 1024)

const struct key keys[] = {
	{SECTION_TOP, "principal", KEY_PRINCIPAL, POLICY(principal), POLICY(principal_header), "authorization", 0, 0,
		NULL, "how HTTP clients are told apart: authorization, header:NAME (set by a proxy in front), or none"},
	{SECTION_TOP, "origins", KEY_TEXTS, POLICY(origins), POLICY(origin_count), NULL, 0, 256, NULL,
		"origins of web pages that may call, such as https://app.example.com"},
	{SECTION_TOP, "http_status_for_missing_capability", KEY_NUMBER, POLICY(missing_capability_status), 0, "400",
		200, 400, NULL,
		"the HTTP status of error -32021: 400, or 200 for clients that drop their connection on any 4xx"},

	{SECTION_TOP, "legacy_clients", KEY_WORD, POLICY(legacy_clients), 0, "serve", 0, 0, "refuse serve",
		"serve: a client of an earlier revision, which opens with initialize, is passed to a legacy server "
		"unchanged, and sees a modern one as a server of its own revision"},
	{SECTION_TOP, "mcp_headers", KEY_WORD, POLICY(mcp_headers), 0, "strip", 0, 0, "strip validate",
		"strip: x-mcp-header is taken out of listed tools; validate: it is kept, and over HTTP the Mcp-Param "
		"headers of a call must say what its arguments do"},

	{SECTION_TOP, "report_file", KEY_TEXT, POLICY(report_file), 0, NULL, 0, 0, NULL,
		"where the observations of the migration report outlive a restart (read at the start only)"},

	SIZE("message", message_bytes, "16MiB", GIB, "one message in either direction"),
	SIZE("head", head_bytes, "32KiB", MIB, "request line and headers of an HTTP request"),
	SIZE("downstream_queue", downstream_queue_bytes, "64MiB", GIB, "written and not yet read by one client"),
	SIZE("upstream_queue", upstream_queue_bytes, "64MiB", GIB, "written and not yet read by one session's server"),
	SIZE("state", state_bytes, "64KiB", MIB, "the answers in one request state, for a rerun"),
	SIZE("replay", replay_bytes, "1MiB", GIB, "events of one legacy client's session, kept for when it comes back"),
	SIZE("cache", cache_bytes, "1MiB", GIB, "lists of one session that are kept (deadlines.lists)"),
	SIZE("kept_bytes", kept_bytes, "256MiB", 64 * GIB, "what these outcomes (kept) need in memory, in all"),
	{SECTION_LIMITS, "body_rate", KEY_SIZE, POLICY(min_body_rate), 0, "1KiB", 1, GIB, NULL,
		"the least that the body of an HTTP request must arrive at, per second"},
	COUNT(exchanges, 1000000, "4096", "requests without a response, over all clients"),
	COUNT(waiting, 100000, "256", "calls that wait for their place in one session"),
	COUNT(parked, 1000000, "10000", "calls that wait for their clients, in all, tasks (task_after) among them"),
	COUNT(parked_per_principal, 1000000, "64", "the same for one principal"),
	COUNT(kept, 1000000, "10000", "outcomes kept for the same retry again, ends of tasks among them"),
	COUNT(server_requests, 100000, "64", "unanswered requests of one session's server"),
	COUNT(sessions, 100000, "256", "sessions with the server, in all"),
	COUNT(sessions_per_principal, 100000, "8", "the same for one principal"),
	COUNT(legacy_sessions, 100000, "64", "sessions of legacy clients, for one principal"),
	COUNT(pool, 1000, "1", "sessions for one principal and capability set, so that calls run side by side"),
	COUNT(connections, 100000, "4096", "HTTP connections, in all"),
	COUNT(connections_per_address, 100000, "256", "HTTP connections from one address"),

	DEADLINE(initialize, "30s", 100, HOUR, "start and handshake of a session"),
	DEADLINE(request, "60s", 100, DAY, "a request that is no call, such as tools/list"),
	DEADLINE(wait, "30s", 10, DAY, "a call that waits for its place in a session"),
	DEADLINE(gather, "20ms", 1, 10 * SECOND, "more questions of the server join the round"),
	DEADLINE(settle, "50ms", 0, 10 * SECOND,
		"calls wait after the handshake, and after roots were told outside a call"),
	DEADLINE(hold, "2s", 0, MINUTE, "a server request whose call is uncertain; roots that a list waits for"),
	DEADLINE(redeliver, "60s", 0, DAY, "an outcome is kept for the same retry"),
	DEADLINE(grace, "2s", 10, HOUR, "an ended call may still answer, and holds its place"),
	DEADLINE(keepalive, "25s", 100, HOUR, "between pings to a session with parked calls"),
	DEADLINE(idle_session, "10m", 100, 30 * DAY, "a session that nobody uses"),
	DEADLINE(head, "10s", 100, HOUR, "the whole head of an HTTP request"),
	DEADLINE(idle_connection, "60s", 100, DAY, "between two requests of an HTTP connection"),
	DEADLINE(stream_keepalive, "15s", 100, HOUR, "between comments on an open event stream"),
	DEADLINE(lists, "0s", 0, DAY,
		"a list that the server gave is given again without asking it, until it says that one has changed"),
	DEADLINE(exit, "2s", 10, MINUTE, "each step of ending a server: stdin closed, SIGTERM, SIGKILL"),
	DEADLINE(shutdown, "10s", 0, HOUR, "running calls after SIGTERM"),
	DEADLINE(restart, "30s", 100, HOUR, "the longest pause between failed starts of the server"),
	DEADLINE(url_wait, "10s", 0, HOUR,
		"a server may say that a URL elicitation is complete, before its call runs again"),
	DEADLINE(probe, "5s", 10, HOUR, "upstream.era: auto; a server that does not say what it is, is legacy"),
	DEADLINE(connect, "10s", 100, HOUR, "reaching an HTTP server"),

	{SECTION_UPSTREAM, "era", KEY_WORD, POLICY(upstream.era), 0, "legacy", 0, 0, "legacy modern auto",
		"legacy: the server speaks 2025-11-25 or earlier; modern: 2026-07-28, and everything passes through; "
		"auto: it "
		"is asked, on a session (a process, where it is a command) that serves nothing else"},
	{SECTION_UPSTREAM, "attribution", KEY_WORD, POLICY(upstream.attribution), 0, "auto", 0, 0, "auto stream serial",
		"how the call of a server request is found over HTTP: by its stream, or by running one call at a time"},
	{SECTION_UPSTREAM, "overlap", KEY_DURATION, POLICY(upstream.overlap_ms), 0, "1s", 0, HOUR, "never",
		"a call that has not asked for so long lets the next one start; never: it does not"},
	{SECTION_UPSTREAM, "forward_headers", KEY_TEXTS, POLICY(upstream.forward_headers),
		POLICY(upstream.forward_header_count), NULL, 0, 64, NULL,
		"headers of the client's request that an HTTP server gets"},
	{SECTION_UPSTREAM, "ca_file", KEY_TEXT, POLICY(upstream.ca_file), 0, NULL, 0, 0, NULL,
		"certificates that an HTTPS server may be signed by, instead of the system's"},
	{SECTION_UPSTREAM, "certificate", KEY_TEXT, POLICY(upstream.certificate), 0, NULL, 0, 0, NULL,
		"client certificate for an HTTPS server (PEM file)"},
	{SECTION_UPSTREAM, "key", KEY_TEXT, POLICY(upstream.key), 0, NULL, 0, 0, NULL, "its private key (PEM file)"},
	{SECTION_UPSTREAM, "cross_origin", KEY_FLAG, POLICY(upstream.cross_origin), 0, "false", 0, 0, NULL,
		"an HTTP+SSE server may name an endpoint of another origin"},

	ASK("elicitation", POLICY_ELICITATION),
	ASK("sampling", POLICY_SAMPLING),
	ASK("roots", POLICY_ROOTS),
	{SECTION_RULE, "undeclared", KEY_WORD, RULE(undeclared), 0, "fail", 0, 0, "fail refuse",
		"the server asks what the client did not declare: the call fails, or only the question is refused"},
	{SECTION_RULE, "asks", KEY_WORD, RULE(asks_never), 0, "may", 0, 0, "may never",
		"never: it runs beside other calls; asking anyway is refused"},
	{SECTION_RULE, "hide", KEY_FLAG, RULE(hide), 0, "false", 0, 0, NULL, "not listed and not callable"},
	{SECTION_RULE, "park", KEY_DURATION, RULE(park_ms), 0, "10m", 10, 30 * DAY, NULL,
		"how long a call waits for its client; then it fails closed"},
	{SECTION_RULE, "call", KEY_DURATION, RULE(call_ms), 0, "5m", 10, 30 * DAY, NULL,
		"how long the server may work; the time that people take does not count"},
	{SECTION_RULE, "task_after", KEY_DURATION, RULE(task_after_ms), 0, "never", 0, HOUR, "never",
		"a tool that works for so long becomes a task for a client that declares "
		"io.modelcontextprotocol/tasks: it "
		"polls instead of waiting; 0s: at once"},
	{SECTION_RULE, "rounds", KEY_COUNT, RULE(rounds), 0, "10", 1, 1000, NULL, "rounds after which a call is ended"},
	{SECTION_RULE, "input_keys", KEY_TEXTS, RULE(input_keys), RULE(input_key_count), NULL, 0, 64, NULL,
		"names of the input requests, in order; a fresh call may bring their answers"},
	{SECTION_RULE, "rerun", KEY_WORD, RULE(rerun), 0, "never", 0, 0, "never if-lost always",
		"whether a call may run again when its parked run is lost; always: nothing is kept parked"},
	{SECTION_RULE, "rerun_hints", KEY_FLAG, RULE(rerun_hints), 0, "false", 0, 0, NULL,
		"tools that declare readOnlyHint or idempotentHint run again as with rerun: if-lost"},
	{SECTION_RULE, "check_answers", KEY_WORD, RULE(check_schema), 0, "shape", 0, 0, "shape schema",
		"schema: the content of an elicitation's answer is checked against its requestedSchema"},
	{SECTION_RULE, "url_hosts", KEY_TEXTS, RULE(url_hosts), RULE(url_host_count), NULL, 0, 256, NULL,
		"hosts that a URL elicitation may lead to; others are answered cancel"},
	{SECTION_CACHE, "ttl", KEY_DURATION, RULE(cache_ttl_ms), 0, "0s", 0, 365 * DAY, NULL,
		"how long clients may consider the result fresh"},
	{SECTION_CACHE, "scope", KEY_WORD, RULE(cache_scope), 0, "private", 0, 0, "private public",
		"who may share the result"},
};

const size_t key_count = sizeof(keys) / sizeof(keys[0]);

const char *section_name(enum key_section section)
{
	static const char *const names[SECTIONS] = {"", "limits", "deadlines", "upstream", "defaults", "cache"};
	return names[section];
}

const struct key *key_find(enum key_section section, const char *name)
{
	for (size_t i = 0; i < key_count; i++)
		if (keys[i].section == section && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}
