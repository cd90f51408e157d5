/* What a task says of itself, and which ids find it. How tasks live is in the scenarios tests/sim/scenarios/client-task*. */
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

static struct client client;
static char answer[MAX_TEXT];

static void serve(struct link *link, uint64_t request_id, struct span text)
{
	struct span value, method;
	struct error error;
	assert_int_equal(json_check(text, &value, NULL, &error), 0);
	if (json_get(value, NULL, "method", &method) && json_string_is(method, "initialize"))
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"protocolVersion\":\"2025-11-25\","
			"\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}",
			(unsigned long long)request_id);
}

static void on_respond(struct client *to, int http_status, struct buf *message)
{
	(void)to;
	(void)http_status;
	assert_in_range(message->len, 1, sizeof(answer) - 1);
	memcpy(answer, message->data, message->len);
	answer[message->len] = '\0';
	buf_free(message);
}

static void ask(const char *method, const char *params)
{
	char text[MAX_TEXT];
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{%s,\"_meta\":{\"progressToken\":1,"
		"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/"
		"clientCapabilities\":{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}}}}",
		method, params);
	answer[0] = '\0';
	proxy_receive(around.proxy, &client, span_of(text), NULL);
	advance(0);
	assert_string_not_equal(answer, "");
}

static bool says(const char *part)
{
	return strstr(answer, part) != NULL;
}

/* A proxy that has begun at this time, and a task in it. */
static void begin(int64_t now_ms)
{
	static const struct face_ops ops = {.respond = on_respond};
	memset(&around, 0, sizeof(around));
	around.now_ms = now_ms;
	struct policy *policy = policy_default();
	struct keyring *keys = keyring_random(&env);
	policy->tasks = true;
	policy->defaults.task_after_ms = 0;
	policy->defaults.call_ms = 60000;
	policy->defaults.park_ms = 10000;
	policy->defaults.rounds = 2;
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	policy_unref(policy);
	keyring_unref(keys);
	client = (struct client){.cancels_by_message = true};
	client_init(&client, &ops);
	around.random = 0xA0;
	ask("tools/call", "\"name\":\"t\"");
	assert_true(says("\"resultType\":\"task\""));
}

static void end(void)
{
	client_gone(around.proxy, &client);
	proxy_free(around.proxy);
}

static void tells_times(void **unused)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {
		{1, "1970-01-01T00:00:00.001Z"},
		{68169599999, "1972-02-28T23:59:59.999Z"},
		{951782400000, "2000-02-29T00:00:00.000Z"},
		{1799999999123, "2027-01-15T07:59:59.123Z"},
		{1830297599000, "2027-12-31T23:59:59.000Z"},
		{4107542400000, "2100-03-01T00:00:00.000Z"},
	};
	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char member[64];
		begin(cases[i].ms);
		snprintf(member, sizeof(member), "\"createdAt\":\"%s\"", cases[i].text);
		assert_true(says(member));
		snprintf(member, sizeof(member), "\"lastUpdatedAt\":\"%s\"", cases[i].text);
		assert_true(says(member));
		end();
	}
}

/* The id as it was handed out. */
static void take_id(char id[33])
{
	const char *at = strstr(answer, "\"taskId\":\"");
	assert_non_null(at);
	snprintf(id, 33, "%s", at + 10);
}

static void tells_how_long(void **unused)
{
	char id[33], params[64];
	(void)unused;
	begin(1000);
	take_id(id);
	snprintf(params, sizeof(params), "\"taskId\":\"%s\"", id);
	/* The server's time, and people's for each round and for the end. */
	assert_true(says("\"ttlMs\":90000,\"pollIntervalMs\":200,"));
	advance(20000);
	ask("tasks/get", params);
	assert_true(says("\"ttlMs\":90000,\"pollIntervalMs\":2500,"));
	advance(39000);
	ask("tasks/get", params);
	assert_true(says("\"pollIntervalMs\":5000,"));
	assert_false(says("statusMessage"));
	say(&around.links[0], 0,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		"progress\",\"params\":{\"progressToken\":2,\"progress\":"
		"1,\"message\":\"half \\u0041\\\"\"}}");
	advance(0);
	ask("tasks/get", params);
	assert_true(says("\"statusMessage\":\"half \\u0041\\\"\""));
	say(&around.links[0], 0,
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32000,\"message\":\"no "
		"\\\"luck\\\"\",\"data\":[1]}}");
	advance(0);
	ask("tasks/get", params);
	assert_true(says("\"status\":\"failed\",\"statusMessage\":\"no \\\"luck\\\"\","));
	assert_true(says("\"error\":{\"code\":-32000,\"message\":\"no \\\"luck\\\"\",\"data\":[1]}"));
	assert_true(says("\"ttlMs\":119000,")); /* it is told, and kept for `redeliver` */
	end();
}

static void knows_ids_only_as_handed_out(void **unused)
{
	char id[33], params[200], upper[33];
	(void)unused;
	begin(1000);
	take_id(id);
	memcpy(upper, id, sizeof(upper));
	for (char *p = upper; *p; p++)
		*p = (char)(*p >= 'a' && *p <= 'f' ? *p - 'a' + 'A' : *p);
	assert_string_not_equal(id, upper);
	const struct {
		const char *before, *id;
		int taken;
		const char *after;
	} wrong[] = {{"", "", 0, ""}, {"a", "", 0, ""}, {"", upper, 32, ""}, {"", id, 32, "00"}, {"00", id, 32, ""},
		{"", id, 31, ""}, {"", id, 30, "0g"}, {"", id, 32, " "}, {"\\u0000", id, 32, ""}};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(params, sizeof(params), "\"taskId\":\"%s%.*s%s\"", wrong[i].before, wrong[i].taken,
			wrong[i].id, wrong[i].after);
		ask("tasks/get", params);
		assert_true(says("\"code\":-32602"));
	}
	ask("tasks/get", "\"taskId\":7");
	assert_true(says("\"code\":-32602"));
	ask("tasks/get", "\"x\":7");
	assert_true(says("\"code\":-32602"));
	/* Escapes of JSON are another spelling of the same. */
	snprintf(params, sizeof(params), "\"taskId\":\"\\u00%02x%s\"", (unsigned)id[0], id + 1);
	ask("tasks/get", params);
	assert_true(says("\"status\":\"working\""));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_times),
		cmocka_unit_test(tells_how_long),
		cmocka_unit_test(knows_ids_only_as_handed_out),
	};
	if (sodium_init() < 0)
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
