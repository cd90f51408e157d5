/* What is checked before a request is served (2026-07-28 basic/index "_meta", streamable-http "Server Validation"). */
#include "proxy/proxy.h"

#include <sodium.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct world {
	struct proxy *proxy;
	struct policy *policy;
	struct keyring *keys;
	struct env env;
	struct client client;
	int status;	 /* of the last response; 0: none */
	char text[4096]; /* the last response */
	unsigned responses;
};

static struct world *world_of(struct client *client)
{
	return (struct world *)(void *)((char *)client - offsetof(struct world, client));
}

static int64_t clock_ms(void *ctx)
{
	(void)ctx;
	return 1000;
}

static void make_random(void *ctx, void *out, size_t len)
{
	(void)ctx;
	memset(out, 5, len);
}

static void ignore_log(void *ctx, const struct log_line *line)
{
	(void)ctx;
	(void)line;
}

/* No server: requests that pass the checks fail with data.reason "unavailable". */
static struct upstream *open_nothing(void *ctx, struct session *session, struct error *error)
{
	(void)ctx;
	(void)session;
	error_set(error, ERROR_SYSTEM, "no server here");
	return NULL;
}

static const struct upstream_ops no_upstream = {.open = open_nothing};

static void notify(struct client *client, struct buf *message)
{
	(void)client;
	(void)message;
	fail_msg("a notification");
}

static void respond(struct client *client, int http_status, struct buf *message)
{
	struct world *world = world_of(client);
	world->status = http_status;
	world->responses++;
	snprintf(world->text, sizeof(world->text), "%.*s", (int)message->len, message->data);
	buf_free(message);
}

static const struct face_ops face = {.notify = notify, .respond = respond};

static int setup(void **state)
{
	static struct world world;
	memset(&world, 0, sizeof(world));
	if (sodium_init() < 0)
		return -1;
	world.env = (struct env){.now_ms = clock_ms, .wall_ms = clock_ms, .random = make_random, .log = ignore_log};
	world.policy = policy_default();
	world.keys = keyring_random(&world.env);
	world.proxy = proxy_new(&(struct proxy_config){
		.env = &world.env, .policy = world.policy, .keys = world.keys, .upstream = &no_upstream});
	client_init(&world.client, &face);
	*state = &world;
	return 0;
}

static int teardown(void **state)
{
	struct world *world = *state;
	client_gone(world->proxy, &world->client);
	proxy_free(world->proxy);
	policy_unref(world->policy);
	keyring_unref(world->keys);
	return 0;
}

#define VERSION "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\""
#define CAPS "\"io.modelcontextprotocol/clientCapabilities\":{}"
#define META "\"_meta\":{" VERSION "," CAPS "}"
#define REQUEST(method, params) "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":{" params "}}"

static void assert_refused(
	struct world *world, const char *text, const struct request_headers *headers, int status, int code)
{
	char expected[32];
	world->status = 0;
	snprintf(expected, sizeof(expected), "\"code\":%d,", code);
	proxy_receive(world->proxy, &world->client, span_of(text), headers);
	if (world->status != status || !strstr(world->text, expected))
		fail_msg("%s\n  gives %d %s\n  instead of %d %s", text, world->status, world->text, status, expected);
	proxy_turn(world->proxy);
}

static void refuses_bad_messages(void **state)
{
	static const struct {
		const char *text;
		int status, code;
	} cases[] = {
		{"", 400, -32700},
		{"{", 400, -32700},
		{"[]", 400, -32600},
		{"[" REQUEST("tools/list", META) "]", 400, -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 400, -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", 400, -32602},
		{REQUEST("tools/list", ""), 400, -32602},
		{REQUEST("tools/list", "\"_meta\":7"), 400, -32602},
		{REQUEST("tools/list", "\"_meta\":{" CAPS "}"), 400, -32602},
		{REQUEST("tools/list", "\"_meta\":{" VERSION "}"), 400, -32602},
		{REQUEST("tools/list", META "," META), 400, -32602},
		{REQUEST("tools/list", "\"_meta\":{" VERSION "," VERSION "," CAPS "}"), 400, -32602},
		{REQUEST("tools/list", "\"_meta\":{" VERSION "," CAPS ",\"progressToken\":{}}"), 400, -32602},
		{REQUEST("tools/list",
			 "\"_meta\":{" VERSION "," CAPS ",\"io.modelcontextprotocol/logLevel\":\"loud\"}"),
			400, -32602},
		{REQUEST("tools/list", "\"_meta\":{" VERSION ",\"io.modelcontextprotocol/clientCapabilities\":[]}"),
			400, -32602},
		{REQUEST("tools/list",
			 "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2025-11-25\"," CAPS "}"),
			400, -32022},
		{REQUEST("tools/frobnicate", META), 404, -32601},
		{REQUEST("initialize", META), 404, -32601},
		{REQUEST("ping", META), 404, -32601},
		{REQUEST("logging/setLevel", META), 404, -32601},
		{REQUEST("resources/subscribe", META), 404, -32601},
		{REQUEST("tools/call", META), 400, -32602},
		{REQUEST("tools/call", META ",\"name\":7"), 400, -32602},
		{REQUEST("tools/call", META ",\"name\":\"a\",\"name\":\"b\""), 400, -32602},
		{REQUEST("tools/call", META ",\"name\":\"a\\u0000b\""), 400, -32602},
		{REQUEST("tools/call", META ",\"name\":\"a\",\"inputResponses\":null"), 400, -32602},
		{REQUEST("tools/call", META ",\"name\":\"a\",\"requestState\":{}"), 400, -32602},
		{REQUEST("tools/call", META ",\"name\":\"a\",\"requestState\":\"x\""), 200, -32602},
		{REQUEST("resources/read", META ",\"name\":\"a\""), 400, -32602},
		{REQUEST("subscriptions/listen", META), 400, -32602},
		{REQUEST("subscriptions/listen", META ",\"notifications\":{\"resourceSubscriptions\":[1]}"), 400,
			-32602},
		/* What passes the checks finds no server. */
		{REQUEST("tools/list", META), 200, -32603},
		{REQUEST("tools/call", META ",\"name\":\"a\""), 200, -32603},
		{REQUEST("server/discover", META), 503, -32603},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_refused(*state, cases[i].text, NULL, cases[i].status, cases[i].code);
	assert_int_equal(proxy_counts(((struct world *)*state)->proxy).exchanges, 0);
}

static void compares_headers_with_the_body(void **state)
{
	static const struct {
		const char *version, *method, *name, *body;
		int status, code;
	} cases[] = {
		{NULL, "tools/list", NULL, REQUEST("tools/list", META), 400, -32020},
		{"2025-11-25", "tools/list", NULL, REQUEST("tools/list", META), 400, -32020},
		{"2026-07-28", NULL, NULL, REQUEST("tools/list", META), 400, -32020},
		{"2026-07-28", "Tools/list", NULL, REQUEST("tools/list", META), 400, -32020},
		{"2026-07-28", "tools/list", NULL, REQUEST("tools/list", META), 200, -32603},
		{"2026-07-28", "tools/list", "ignored", REQUEST("tools/list", META), 200, -32603},
		{"2026-07-28", "tools/call", NULL, REQUEST("tools/call", META ",\"name\":\"a\""), 400, -32020},
		{"2026-07-28", "tools/call", "b", REQUEST("tools/call", META ",\"name\":\"a\""), 400, -32020},
		{"2026-07-28", "tools/call", "a", REQUEST("tools/call", META ",\"name\":\"a\""), 200, -32603},
		{"2026-07-28", "tools/call", "a", REQUEST("tools/call", META ",\"name\":\"\\u0061\""), 200, -32603},
		{"2026-07-28", "tools/call", "=?base64?SGVsbG8sIOS4lueVjA==?=",
			REQUEST("tools/call", META ",\"name\":\"Hello, \xe4\xb8\x96\xe7\x95\x8c\""), 200, -32603},
		{"2026-07-28", "tools/call", "=?base64?YQ==?=", REQUEST("tools/call", META ",\"name\":\"a\""), 200,
			-32603},
		{"2026-07-28", "tools/call", "=?base64?YQ?=", REQUEST("tools/call", META ",\"name\":\"a\""), 400,
			-32020},
		{"2026-07-28", "tools/call", "=?base64?Y*==?=", REQUEST("tools/call", META ",\"name\":\"a\""), 400,
			-32020},
		{"2026-07-28", "tools/call", "=?BASE64?YQ==?=", REQUEST("tools/call", META ",\"name\":\"a\""), 400,
			-32020},
		{"2026-07-28", "resources/read", "file:///a", REQUEST("resources/read", META ",\"uri\":\"file:///a\""),
			200, -32603},
		{"v999.0.0", "tools/list", NULL,
			REQUEST("tools/list",
				"\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"v999.0.0\"," CAPS "}"),
			400, -32022},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct request_headers headers = {
			span_of(cases[i].version), span_of(cases[i].method), span_of(cases[i].name)};
		assert_refused(*state, cases[i].body, &headers, cases[i].status, cases[i].code);
	}
}

static void says_which_versions_it_supports(void **state)
{
	struct world *world = *state;
	assert_refused(world,
		REQUEST("tools/list", "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"v\\u0031\"," CAPS "}"),
		NULL, 400, -32022);
	assert_non_null(strstr(world->text, "\"data\":{\"supported\":[\"2026-07-28\"],\"requested\":\"v\\u0031\"}"));
	assert_refused(world, REQUEST("initialize", META), NULL, 404, -32601);
	assert_non_null(strstr(world->text, "\"data\":{\"supported\":[\"2026-07-28\"]}"));
}

static void takes_notifications_in_silence(void **state)
{
	struct world *world = *state;
	const struct request_headers none = {{0}, {0}, {0}};
	world->responses = 0;
	assert_int_equal(proxy_receive(world->proxy, &world->client,
				 SPAN("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
				      "cancelled\",\"params\":{\"requestId\":1}}"),
				 &none),
		RECEIVED_NOTIFICATION);
	assert_int_equal(world->responses, 0);
}

static void echoes_ids_as_spelled(void **state)
{
	struct world *world = *state;
	static const char *const ids[] = {"0", "-1", "\"a\\u0062\"", "18446744073709551616", "1e2", "\"\\ud800\""};
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		char text[256], expected[64];
		snprintf(text, sizeof(text),
			"{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"nothing\",\"params\":{" META "}}", ids[i]);
		snprintf(expected, sizeof(expected), "\"id\":%s,", ids[i]);
		assert_refused(world, text, NULL, 404, -32601);
		assert_non_null(strstr(world->text, expected));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_bad_messages),
		cmocka_unit_test(compares_headers_with_the_body),
		cmocka_unit_test(says_which_versions_it_supports),
		cmocka_unit_test(takes_notifications_in_silence),
		cmocka_unit_test(echoes_ids_as_spelled),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
