/* Allocation failure: a scripted run of the whole core, over and over, and in the n-th run the n-th allocation fails; then
 * the n-th and all that follow it for a while. Whatever fails, nothing crashes, nothing leaks, every request has its one
 * response, every elicitation that was not answered by its client was cancelled, and the core is empty at the end. */
#include "tests/unit/failing_heap.h"
#include "tests/unit/small_world.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The world: a clock, a server, a client. */

enum { MAX_REQUESTS = 64 };

static struct {
	unsigned urls_required;
	struct client client;
	unsigned requests, responses;
	unsigned open[MAX_REQUESTS]; /* by id: responses that are owed */
	char state[MAX_TEXT];	     /* of the newest round, and whose request it was */
	unsigned state_of;
	unsigned rounds, results;
	char task[MAX_TEXT]; /* the id of the newest task, with its quotes */
	unsigned tasks, ends;
} world;

static bool with_tasks; /* the client declares them, and the policy makes them */

/* The server. */

static void serve_call(struct link *link, long long id, struct span params)
{
	struct span name, task;
	if (!json_get(params, NULL, "name", &name))
		name = SPAN("\"\"");
	bool as_task = json_get(params, NULL, "task", &task) > 0;
	if (json_string_is(name, "ask")) {
		link->asked = true;
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%lld,"
			"\"progress\":1}}",
			id);
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":\"%lld\",\"method\":\"elicitation/"
			"create\",\"params\":{\"message\":"
			"\"m\",\"requestedSchema\":{},\"_meta\":{\"progressToken\":\"p\"}}}",
			id);
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"method\":\"roots/list\"}");
	} else if (json_string_is(name, "urls") && world.urls_required++ == 0) {
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"error\":{\"code\":-32042,\"message\":\"m\",\"data\":"
			"{\"elicitations\":[{\"mode\":\"url\",\"elicitationId\":\"u\",\"url\":\"https://x/\"}]}}}",
			id);
	} else if (json_string_is(name, "task") && as_task) {
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"task\":{\"taskId\":\"x\"}}}", id);
	} else if (json_string_is(name, "task")) {
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"error\":{\"code\":-32601,\"message\":\"as a task\"}}",
			id);
	} else if (!json_string_is(name, "hang")) {
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"content\":[],\"_meta\":{\"a\":1}}}", id);
	}
}

static void serve(struct link *link, uint64_t request_id, struct span text)
{
	(void)request_id;
	struct span value, method = {0}, params = {0}, id = {0}, result;
	struct error error;
	int64_t number = 0;
	assert_int_equal(json_check(text, &value, NULL, &error), 0);
	json_get(value, NULL, "params", &params);
	json_get(value, NULL, "id", &id);
	if (id.ptr)
		json_integer(id, &number);
	if (!json_get(value, NULL, "method", &method)) { /* an answer; never an error to an elicitation */
		assert_true(json_string_is(id, "r") || json_get(value, NULL, "result", &result));
		link->asked &= json_string_is(id, "r");
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"content\":[]}}", (int)(id.len - 2),
			id.ptr + 1);
	} else if (!id.ptr) { /* a notification */
		return;
	} else if (json_string_is(method, "initialize")) {
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"protocolVersion\":\"2025-11-25\","
			"\"capabilities\":"
			"{\"tools\":{\"listChanged\":true},\"logging\":{},\"resources\":{\"subscribe\":true},\"tasks\":"
			"{\"requests\":{\"tools\":{\"call\":{}}}}},"
			"\"serverInfo\":"
			"{\"name\":\"s\",\"version\":\"1\"},\"instructions\":\"i\"}}",
			(long long)number);
	} else if (json_string_is(method, "tools/list")) {
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"tools\":[{\"name\":\"t\",\"inputSchema\":{"
			"\"properties\":{\"a\":{\"type\":\"string\",\"x-mcp-header\":\"A\"}}}},{\"name\":\"u\","
			"\"inputSchema\":{\"type\":\"object\",\"x-mcp-header\":1},\"execution\":{}}]}}",
			(long long)number);
	} else if (json_string_is(method, "tools/call")) {
		serve_call(link, (long long)number, params);
	} else {
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{}}", (long long)number);
	}
}

/* The client. */

/* A notification that is not complete is not sent: nobody waits for it. */
static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	assert_true(buf_ok(message));
	buf_free(message);
}

static void note_round(struct span result, unsigned id)
{
	struct span type, state;
	world.results++;
	if (json_get(result, NULL, "taskId", &state)) {
		assert_in_range(state.len, 1, sizeof(world.task) - 1);
		memcpy(world.task, state.ptr, state.len);
		world.task[state.len] = '\0';
		world.tasks += json_get(result, NULL, "resultType", &type) && json_string_is(type, "task");
		world.ends += json_get(result, NULL, "result", &type);
	}
	if (!json_get(result, NULL, "resultType", &type) || !json_string_is(type, "input_required") ||
		!json_get(result, NULL, "requestState", &state))
		return;
	assert_in_range(state.len, 1, sizeof(world.state) - 1);
	memcpy(world.state, state.ptr, state.len);
	world.state[state.len] = '\0';
	world.state_of = id;
	world.rounds++;
}

/* A response that is not complete for lack of memory is one all the same, though whose it was cannot be told: the face
 * closes the connection. */
static void on_respond(struct client *client, int http_status, struct buf *message)
{
	(void)client;
	struct span value, id, result;
	struct error error;
	int64_t number = 0;
	world.responses++;
	assert_true(http_status >= 200);
	if (buf_ok(message)) {
		assert_int_equal(json_check(buf_span(message), &value, NULL, &error), 0);
		assert_int_equal(json_get(value, NULL, "id", &id), 1);
		assert_true(json_integer(id, &number));
		assert_in_range(number, 1, MAX_REQUESTS - 1);
		assert_int_equal(world.open[number], 1);
		world.open[number] = 0;
		if (json_get(value, NULL, "result", &result))
			note_round(result, (unsigned)number);
	}
	buf_free(message);
}

static void add_headers(const struct client *client, const char *prefix, struct buf *lines)
{
	(void)client;
	(void)prefix;
	buf_add_text(lines, "Mcp-Param-A: =?base64?eA==?=\n");
}

static const struct face_ops face_ops = {.notify = on_notify, .respond = on_respond, .headers_of = add_headers};

static const char meta[] =
	"\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"progressToken\":\"t\","
	"\"io.modelcontextprotocol/logLevel\":\"info\",\"io.modelcontextprotocol/"
	"clientInfo\":{\"name\":\"c\",\"version\":"
	"\"1\"},\"traceparent\":\"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\","
	"\"io.modelcontextprotocol/clientCapabilities\":{\"roots\":{},\"elicitation\":{\"form\":{},\"url\":{}}";

static unsigned request(const char *method, const char *params)
{
	static char text[2 * MAX_TEXT];
	unsigned id = ++world.requests;
	assert_in_range(id, 1, MAX_REQUESTS - 1);
	world.open[id] = 1;
	snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"%s\",\"params\":{%s%s%s%s}}}}", id,
		method, params, params[0] ? "," : "", meta,
		with_tasks ? ",\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}" : "");
	proxy_receive(around.proxy, &world.client, span_of(text), NULL);
	return id;
}

static void cancel(unsigned id)
{
	char text[200];
	size_t open = proxy_counts(around.proxy).exchanges;
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%u}}", id);
	proxy_receive(around.proxy, &world.client, span_of(text), NULL);
	world.open[id] = 0;
	world.responses += (unsigned)(open - proxy_counts(around.proxy).exchanges); /* none is owed any more */
}

/* Brings the answers to the newest round, if there is one. */
static void retry(const char *params, const char *answers)
{
	static char text[2 * MAX_TEXT];
	if (!world.state[0])
		return;
	snprintf(text, sizeof(text), "%s,\"requestState\":%s,\"inputResponses\":{%s}", params, world.state, answers);
	request("tools/call", text);
	advance(100);
}

/* The script. */

static void play_calls(void)
{
	static const char ask[] = "\"name\":\"ask\",\"arguments\":{\"\\u0061\":[1,{\"b\":2}]}";
	static const char urls[] = "\"name\":\"urls\"";
	static const char accept[] = "{\"action\":\"accept\",\"content\":{}}";
	char answers[400];
	request("server/discover", "");
	request("tools/list", "");
	advance(100);
	request("tools/call", ask);
	advance(100);
	retry(ask, "\"input-2\":{\"roots\":[]}");
	snprintf(answers, sizeof(answers), "\"input-1\":%s", accept);
	retry(ask, answers);
	retry(ask, answers); /* once more */
	world.state[0] = '\0';
	request("tools/call", urls);
	advance(100);
	retry(urls, answers);
	advance(20000);
	world.state[0] = '\0';
	request("prompts/get", "\"name\":\"p\",\"arguments\":{\"x\":1}");
	request("resources/read", "\"uri\":\"sim://a\"");
	request("completion/complete", "\"ref\":{},\"argument\":{}");
	advance(3000);
	request("tools/call", "\"name\":\"task\",\"arguments\":{}");
	request("tools/call", "\"name\":\"task\"");
	advance(3000);
	cancel(request("tools/call", "\"name\":\"hang\""));
	request("tools/call", "\"name\":\"t\",\"arguments\":{\"a\":\"x\"}");
	advance(10000);
}

static void about_task(const char *method, const char *answers)
{
	static char text[2 * MAX_TEXT];
	if (!world.task[0])
		return;
	snprintf(text, sizeof(text), "\"taskId\":%s,\"inputResponses\":{%s}", world.task, answers);
	request(method, text);
	advance(100);
}

static void play_tasks(void)
{
	static const char accept[] = "\"input-1\":{\"action\":\"accept\",\"content\":{}}";
	request("server/discover", "");
	request("tools/call", "\"name\":\"ask\",\"arguments\":{}");
	advance(100);
	about_task("tasks/get", "");
	about_task("tasks/update", "\"input-2\":{\"roots\":[]}");
	about_task("tasks/get", "");
	about_task("tasks/update", accept);
	about_task("tasks/get", "");
	world.task[0] = '\0';
	request("tools/call", "\"name\":\"urls\"");
	advance(100);
	about_task("tasks/get", "");
	about_task("tasks/update", accept);
	advance(20000);
	about_task("tasks/get", "");
	world.task[0] = '\0';
	request("tools/call", "\"name\":\"hang\"");
	advance(100);
	about_task("tasks/cancel", "");
	about_task("tasks/get", "");
	request("tasks/get", "\"taskId\":\"00112233445566778899aabbccddeeff\"");
}

static void play_endings(void)
{
	unsigned listener = request("subscriptions/listen",
		"\"notifications\":{\"toolsListChanged\":true,\"resourceSubscriptions\":[\"sim://a\",\"sim://b\"]}");
	request("tools/call", "\"name\":\"ask\"");
	advance(100);
	if (around.link_count && around.links[around.link_count - 1].open) {
		struct link *link = &around.links[around.link_count - 1];
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}");
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
			"message\",\"params\":{\"level\":\"error\",\"data\":1}}");
		advance(30000); /* with a ping */
		link->open = false;
		session_on_lost(link->session, 0, "the server is gone");
	}
	advance(1000);
	retry("\"name\":\"ask\"", "\"input-1\":{\"action\":\"decline\"}"); /* the call is lost */
	request("tools/call", "\"name\":\"ask\"");
	advance(1000000); /* abandoned */
	request("tools/call", "\"name\":\"ask\"");
	advance(100);
	cancel(listener);
	proxy_shutdown(around.proxy);
	advance(20000);
}

static void check_end(void)
{
	client_gone(around.proxy, &world.client);
	advance(1000000);
	struct proxy_counts counts = proxy_counts(around.proxy);
	assert_int_equal(counts.exchanges, 0);
	assert_int_equal(counts.calls, 0);
	assert_int_equal(counts.parked, 0);
	assert_int_equal(counts.sessions, 0);
	assert_int_equal(counts.server_requests, 0);
	assert_int_equal(world.responses, world.requests);
	for (unsigned i = 0; i < around.link_count; i++)
		assert_false(around.links[i].open);
	assert_true(proxy_next_due(around.proxy) == INT64_MAX);
}

/* Returns how many allocations the run made. */
static size_t run_with(size_t fail_at, size_t fail_until, enum policy_rerun rerun)
{
	memset(&world, 0, sizeof(world));
	memset(&around, 0, sizeof(around));
	around.now_ms = 1000;
	heap.count = 0;
	heap.fail_at = fail_at;
	heap.fail_until = fail_until;
	heap.live = 0;
	struct policy *policy = policy_default();
	struct keyring *keys = keyring_random(&env);
	if (policy) {
		policy->defaults.rerun = rerun;
		policy->tasks = with_tasks;
		policy->defaults.task_after_ms = with_tasks ? 0 : -1;
		policy->mcp_headers = POLICY_HEADERS_VALIDATE;
	}
	if (policy && keys)
		around.proxy = proxy_new(
			&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	if (around.proxy) {
		world.client.cancels_by_message = true;
		world.client.authorization = "secret";
		client_init(&world.client, &face_ops);
		if (with_tasks)
			play_tasks();
		else
			play_calls();
		play_endings();
		check_end();
	}
	proxy_free(around.proxy);
	policy_unref(policy);
	keyring_unref(keys);
	assert_int_equal(heap.live, 0);
	heap.fail_at = 0;
	return heap.count;
}

static size_t run(size_t fail_at, size_t fail_until)
{
	return run_with(fail_at, fail_until, POLICY_RERUN_NEVER);
}

/* The script does what it is meant to do when nothing fails. */
static void test_nothing_fails(void **state)
{
	(void)state;
	assert_in_range(run(0, 0), 300, 100000);
	assert_int_equal(world.rounds, 6);
	assert_in_range(world.results, 14, MAX_REQUESTS);
}

static void test_each_fails(void **state)
{
	(void)state;
	size_t count = run(0, 0);
	for (size_t n = 1; n <= count; n++)
		run(n, n);
}

static void test_ten_in_a_row_fail(void **state)
{
	(void)state;
	size_t count = run(0, 0);
	for (size_t n = 1; n <= count; n += 3)
		run(n, n + 9);
}

/* From the n-th on, nothing can be had any more. */
static void test_all_from_one_on_fail(void **state)
{
	(void)state;
	size_t count = run(0, 0);
	for (size_t n = 1; n <= count; n += 3)
		run(n, SIZE_MAX);
}

/* With the answers kept in the request states, and calls that run again. */
static void test_each_fails_with_reruns(void **state)
{
	(void)state;
	for (int rerun = POLICY_RERUN_IF_LOST; rerun <= POLICY_RERUN_ALWAYS; rerun++) {
		size_t count = run_with(0, 0, (enum policy_rerun)rerun);
		for (size_t n = 1; n <= count; n++)
			run_with(n, n, (enum policy_rerun)rerun);
	}
}

static void test_each_fails_with_tasks(void **state)
{
	(void)state;
	with_tasks = true;
	size_t count = run(0, 0);
	assert_in_range(world.tasks, 6, MAX_REQUESTS);
	assert_int_equal(world.ends, 2);
	for (size_t n = 1; n <= count; n++)
		run(n, n);
	for (size_t n = 1; n <= count; n += 3)
		run(n, n + 9);
	with_tasks = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_fails),
		cmocka_unit_test(test_each_fails),
		cmocka_unit_test(test_ten_in_a_row_fail),
		cmocka_unit_test(test_all_from_one_on_fail),
		cmocka_unit_test(test_each_fails_with_reruns),
		cmocka_unit_test(test_each_fails_with_tasks),
	};
	if (sodium_init() < 0)
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
