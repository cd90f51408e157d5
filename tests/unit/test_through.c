/* Modern clients in front of a modern server. */
#include "proxy/view.h"
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

static char heard[MAX_TEXT]; /* the newest response */

/* Answers at once, but not one tool, and not what it is. */
static void serve(struct link *link, uint64_t request_id, struct span text)
{
	if (request_id && !memmem(text.ptr, text.len, "\"silent\"", 8) &&
		!memmem(text.ptr, text.len, "\"server/discover\"", 17))
		say(link, request_id, "{\"jsonrpc\":\"2.0\",\"id\":%llu.0,\"result\":{}}",
			(unsigned long long)request_id);
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	buf_free(message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	(void)client;
	(void)http_status;
	snprintf(heard, sizeof(heard), "%.*s", (int)message->len, message->data);
	buf_free(message);
}

static const struct face_ops pipe_ops = {.notify = on_notify, .respond = on_respond};

static void call(struct client *client, const char *id, const char *tool)
{
	struct buf text = {0};
	buf_printf(&text,
		"{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",\"_meta\":{"
		"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}",
		id, tool);
	assert_true(buf_ok(&text));
	heard[0] = '\0';
	(void)proxy_receive(around.proxy, client, buf_span(&text), NULL);
	buf_free(&text);
	turn();
}

static int begin(void **state)
{
	(void)state;
	struct error error;
	struct policy *policy = policy_parse(SPAN("version: 1\nupstream: { era: modern }\n"), "test", stderr, &error);
	struct keyring *keys = keyring_random(&env);
	memset(&around, 0, sizeof(around));
	around.now_ms = 1000;
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	policy_unref(policy);
	keyring_unref(keys);
	return around.proxy ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	proxy_free(around.proxy);
	return 0;
}

/* The server could not be started once, and later it could. */
static void ready_again(void **state)
{
	struct client client = {0};
	(void)state;
	client_init(&client, &pipe_ops);
	around.link_count = MAX_LINKS;
	call(&client, "1", "t");
	assert_non_null(strstr(heard, "\"error\""));
	assert_non_null(proxy_unready(around.proxy));
	around.link_count = 0;
	call(&client, "2", "t");
	assert_string_equal(heard, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	assert_null(proxy_unready(around.proxy));
	client_gone(around.proxy, &client);
}

static void reload(const char *text)
{
	struct error error;
	struct policy *policy = policy_parse(span_of(text), "test", stderr, &error);
	struct keyring *keys = keyring_random(&env);
	assert_non_null(policy);
	proxy_reload(around.proxy, policy, keys);
	policy_unref(policy);
	keyring_unref(keys);
}

/* While the server is asked for its era, a new policy names it. */
static void era_named(void **state)
{
	struct client client = {0};
	(void)state;
	client_init(&client, &pipe_ops);
	reload("version: 1\nupstream: { era: auto }\n");
	call(&client, "1", "t");
	assert_string_equal(heard, "");
	reload("version: 1\nupstream: { era: modern }\n");
	advance(10000);
	assert_string_equal(heard, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
	call(&client, "2", "t");
	assert_string_equal(heard, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	client_gone(around.proxy, &client);
}

static struct view_session seen;

static void see(void *ctx, const struct view_session *session)
{
	(void)ctx;
	seen = *session;
}

static void status_page(void **state)
{
	struct client client = {0};
	(void)state;
	client_init(&client, &pipe_ops);
	call(&client, "1", "t");
	call(&client, "2", "silent");
	assert_int_equal(view_sessions(around.proxy, 9, see, NULL), 1);
	assert_string_equal(seen.version, "2026-07-28");
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.parked, 0);
	client_gone(around.proxy, &client);
	advance(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ready_again, begin, end),
		cmocka_unit_test_setup_teardown(era_named, begin, end),
		cmocka_unit_test_setup_teardown(status_page, begin, end),
	};
	if (sodium_init() < 0)
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
