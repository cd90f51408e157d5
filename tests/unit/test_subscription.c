/* Subscriptions of modern clients at a legacy server: who is told of what. */
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

static struct {
	struct client client;
	unsigned told, subscribed;
	int code;	     /* of the last response's error, or 0 */
	char last[MAX_TEXT]; /* notification */
} world;

static void serve(struct link *link, uint64_t request_id, struct span text)
{
	struct span method;
	if (!request_id || !json_get(text, NULL, "method", &method))
		return;
	world.subscribed += json_string_is(method, "resources/subscribe");
	say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":%s}", (unsigned long long)request_id,
		json_string_is(method, "initialize")
			? "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{\"listChanged\":true},"
			  "\"prompts\":{\"listChanged\":true},\"resources\":{\"subscribe\":true,\"listChanged\":true}},"
			  "\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}"
			: "{}");
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	world.told++;
	snprintf(world.last, sizeof(world.last), "%.*s", (int)message->len, message->data);
	buf_free(message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct span error, code;
	int64_t number = 0;
	(void)client;
	(void)http_status;
	if (json_get(buf_span(message), NULL, "error", &error) && json_get(error, NULL, "code", &code))
		assert_true(json_integer(code, &number));
	world.code = (int)number;
	buf_free(message);
}

static void subscribe(unsigned id, const char *filter)
{
	char text[1000];
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":%s,"
		"\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/"
		"clientInfo\":{\"name\":\"c\",\"version\":\"1\"},\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
		id, filter);
	assert_int_equal(proxy_receive(around.proxy, &world.client, span_of(text), NULL), RECEIVED_REQUEST);
	advance(1000);
}

/* How many notifications come of one of the server's. */
static unsigned tell(const char *method, const char *uri)
{
	unsigned before = world.told;
	say(&around.links[0], 0, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/%s\",\"params\":{%s%s%s}}", method,
		uri ? "\"uri\":\"" : "", uri ? uri : "", uri ? "\"" : "");
	advance(10);
	return world.told - before;
}

static int begin(void **state)
{
	static const struct face_ops face_ops = {.notify = on_notify, .respond = on_respond};
	(void)state;
	memset(&world, 0, sizeof(world));
	memset(&around, 0, sizeof(around));
	around.now_ms = 1000;
	struct policy *policy = policy_default();
	struct keyring *keys = keyring_random(&env);
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	policy_unref(policy);
	keyring_unref(keys);
	world.client.cancels_by_message = true;
	client_init(&world.client, &face_ops);
	return 0;
}

static int end(void **state)
{
	(void)state;
	client_gone(around.proxy, &world.client);
	proxy_free(around.proxy);
	return 0;
}

static void lists_that_were_asked_for(void **state)
{
	(void)state;
	subscribe(1, "{\"promptsListChanged\":true,\"resourcesListChanged\":true}");
	assert_int_equal(world.told, 1);
	assert_non_null(strstr(world.last, "\"promptsListChanged\":true"));
	assert_non_null(strstr(world.last, "\"resourcesListChanged\":true"));
	assert_null(strstr(world.last, "toolsListChanged"));
	assert_int_equal(tell("prompts/list_changed", NULL), 1);
	assert_non_null(strstr(world.last, "\"io.modelcontextprotocol/subscriptionId\":1"));
	assert_int_equal(tell("resources/list_changed", NULL), 1);
	assert_int_equal(tell("tools/list_changed", NULL), 0);
	assert_int_equal(tell("resources/updated", "db://a"), 0);
}

/* An update may be of a part of the resource (server/resources "Subscriptions"). */
static void resources_and_their_parts(void **state)
{
	(void)state;
	subscribe(1, "{\"resourceSubscriptions\":[\"db://a\",\"db://b/\"]}");
	assert_int_equal(tell("resources/updated", "db://a"), 1);
	assert_int_equal(tell("resources/updated", "db://a/x"), 1);
	assert_int_equal(tell("resources/updated", "db://a?x"), 1);
	assert_int_equal(tell("resources/updated", "db://b/x"), 1);
	assert_int_equal(tell("resources/updated", "db://ab"), 0);
	assert_int_equal(tell("resources/updated", "db://c"), 0);
	assert_int_equal(tell("resources/updated", NULL), 0);
}

static void a_resource_is_subscribed_once(void **state)
{
	(void)state;
	subscribe(1, "{\"resourceSubscriptions\":[\"db://a\"]}");
	subscribe(2, "{\"resourceSubscriptions\":[\"db://a\"]}");
	assert_int_equal(world.subscribed, 1);
	assert_int_equal(tell("resources/updated", "db://a"), 2);
}

static void what_is_no_list_is_refused(void **state)
{
	(void)state;
	subscribe(1, "{\"resourceSubscriptions\":\"db://a\"}");
	assert_int_equal(world.code, -32602);
	assert_int_equal(world.told, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(lists_that_were_asked_for, begin, end),
		cmocka_unit_test_setup_teardown(resources_and_their_parts, begin, end),
		cmocka_unit_test_setup_teardown(a_resource_is_subscribed_once, begin, end),
		cmocka_unit_test_setup_teardown(what_is_no_list_is_refused, begin, end),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
