/* Headers that mirror arguments, where nobody has listed the tools before: the session lists them itself while calls wait, and a
 * call goes to the server only if its headers are true. */
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

enum listing { LISTED, LISTED_ON_PAGES, PAGES_WITHOUT_END, NOT_KNOWN, FAILS, BREAKS };

static struct {
	enum listing listing;
	struct client client;
	const char *header; /* the client's, a line */
	unsigned lists, calls, responses;
	int code; /* of the last response's error, or 0 */
} world;

static void serve_list(struct link *link, unsigned long long id, bool has_cursor)
{
	static const char tool[] =
		"{\"name\":\"t\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
		"\"string\",\"x-mcp-header\":\"A\"}}}}";
	world.lists++;
	switch (world.listing) {
	case LISTED:
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"tools\":[%s]}}", id, tool);
		break;
	case LISTED_ON_PAGES:
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"tools\":[%s]%s}}", id,
			has_cursor ? tool : "{\"name\":\"u\"}", has_cursor ? "" : ",\"nextCursor\":\"p\\u0032\"");
		break;
	case PAGES_WITHOUT_END:
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"tools\":[],\"nextCursor\":\"p\"}}", id);
		break;
	case NOT_KNOWN:
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32601,\"message\":\"no\"}}", id);
		break;
	case FAILS:
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32603,\"message\":\"no\"}}", id);
		break;
	case BREAKS:
		session_on_request_failed(link->session, id, 0, "the stream broke");
		break;
	}
}

static void serve(struct link *link, uint64_t request_id, struct span text)
{
	struct span method, cursor, params = {0};
	unsigned long long id = request_id;
	if (!request_id || !json_get(text, NULL, "method", &method))
		return;
	json_get(text, NULL, "params", &params);
	if (json_string_is(method, "tools/list")) {
		bool has_cursor = json_get(params, NULL, "cursor", &cursor) > 0;
		if (has_cursor && world.listing == LISTED_ON_PAGES)
			assert_true(span_is(cursor, "\"p\\u0032\"")); /* as it came */
		serve_list(link, id, has_cursor);
	} else if (json_string_is(method, "tools/call")) {
		world.calls++;
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"content\":[]}}", id);
	} else if (json_string_is(method, "initialize")) {
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"protocolVersion\":\"2025-06-18\","
			"\"capabilities\":"
			"{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}",
			id);
	}
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	buf_free(message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct span error, code;
	int64_t number = 0;
	(void)client;
	(void)http_status;
	world.responses++;
	if (json_get(buf_span(message), NULL, "error", &error) && json_get(error, NULL, "code", &code))
		assert_true(json_integer(code, &number));
	world.code = (int)number;
	buf_free(message);
}

static void on_headers_of(const struct client *client, const char *prefix, struct buf *lines)
{
	(void)client;
	assert_string_equal(prefix, "mcp-param-");
	buf_add_text(lines, world.header);
}

/* Calls "t" with these arguments. Returns the error's code, 0: it has a result, 1: no response. */
static int call(const char *arguments)
{
	static const struct request_headers headers = {
		.protocol_version = {"2026-07-28", 10}, .method = {"tools/call", 10}, .name = {"t", 1}};
	char text[600];
	unsigned before = world.responses;
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",%s,\"_meta\":{"
		"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientInfo\":{"
		"\"name\":\"c\",\"version\":\"1\"},\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
		arguments);
	assert_int_equal(proxy_receive(around.proxy, &world.client, span_of(text), &headers), RECEIVED_REQUEST);
	advance(1000);
	return world.responses > before ? world.code : 1;
}

static void begin(enum listing listing, const char *header)
{
	static const struct face_ops face_ops = {
		.notify = on_notify, .respond = on_respond, .headers_of = on_headers_of};
	memset(&world, 0, sizeof(world));
	memset(&around, 0, sizeof(around));
	around.now_ms = 1000;
	world.listing = listing;
	world.header = header;
	struct policy *policy = policy_default();
	struct keyring *keys = keyring_random(&env);
	policy->mcp_headers = POLICY_HEADERS_VALIDATE;
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	policy_unref(policy);
	keyring_unref(keys);
	client_init(&world.client, &face_ops);
}

static void end(unsigned lists, unsigned calls)
{
	assert_int_equal(world.lists, lists);
	assert_int_equal(world.calls, calls);
	client_gone(around.proxy, &world.client);
	proxy_free(around.proxy);
}

static void true_headers_pass(void **state)
{
	(void)state;
	begin(LISTED, "Mcp-Param-A: x\n");
	assert_int_equal(call("\"arguments\":{\"a\":\"x\"}"), 0);
	assert_int_equal(call("\"arguments\":{\"a\":\"x\"}"), 0); /* known by now */
	assert_int_equal(call("\"arguments\":{\"a\":\"y\"}"), -32020);
	/* Which of the two a peer takes, nobody knows. */
	assert_int_equal(call("\"arguments\":{\"a\":\"x\"},\"arguments\":{\"a\":\"x\"}"), -32020);
	end(1, 2);
}

static void all_pages_are_read(void **state)
{
	(void)state;
	begin(LISTED_ON_PAGES, "Mcp-Param-A: x\n");
	assert_int_equal(call("\"arguments\":{\"a\":\"y\"}"), -32020);
	assert_int_equal(call("\"arguments\":{\"a\":\"x\"}"), 0);
	end(2, 1);
}

static void pages_have_an_end(void **state)
{
	(void)state;
	begin(PAGES_WITHOUT_END, "");
	assert_int_equal(call("\"arguments\":{\"a\":\"y\"}"), 0);
	end(100, 1);
}

static void a_server_without_a_list_asks_for_no_headers(void **state)
{
	(void)state;
	begin(NOT_KNOWN, "");
	assert_int_equal(call("\"arguments\":{\"a\":\"y\"}"), 0);
	assert_int_equal(call("\"arguments\":{\"a\":\"y\"}"), 0);
	end(1, 2);
}

/* What cannot be checked is not sent, and the next call tries again. */
static void no_list_no_call(void **state)
{
	(void)state;
	static const enum listing faults[] = {FAILS, BREAKS};
	for (int i = 0; i < 2; i++) {
		begin(faults[i], "Mcp-Param-A: x\n");
		assert_int_equal(call("\"arguments\":{\"a\":\"x\"}"), -32603);
		world.listing = LISTED;
		assert_int_equal(call("\"arguments\":{\"a\":\"x\"}"), 0);
		end(2, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(true_headers_pass),
		cmocka_unit_test(all_pages_are_read),
		cmocka_unit_test(pages_have_an_end),
		cmocka_unit_test(a_server_without_a_list_asks_for_no_headers),
		cmocka_unit_test(no_list_no_call),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
