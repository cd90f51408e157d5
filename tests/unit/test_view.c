/* What the core shows of itself: the status page's view, the metrics and the report, over one course of events whose figures
 * are known. A tool asks and is answered after a second and a half; it asks again and is abandoned; a call of another tool
 * waits for its server. */
#include "proxy/metrics_write.h"
#include "proxy/view.h"
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

static struct {
	struct client client;
	unsigned requests, responses;
	bool is_mute;	      /* the server is */
	char state[MAX_TEXT]; /* of the newest round, with its quotes */
} world;

/* The server: "ask" asks for a name, all other calls hang. */
static void serve(struct link *link, uint64_t request_id, struct span text)
{
	struct span method = {0}, answered;
	unsigned long long id = request_id;
	json_get(text, NULL, "method", &method);
	if (world.is_mute)
		return;
	if (method.ptr && json_string_is(method, "initialize"))
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"protocolVersion\":\"2025-06-18\","
			"\"capabilities\":"
			"{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}",
			id);
	else if (method.ptr && json_string_is(method, "ping"))
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{}}", id);
	else if (request_id && memmem(text.ptr, text.len, "\"ask\"", 5))
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":\"q%llu\",\"method\":\"elicitation/"
			"create\",\"params\":{\"message\":"
			"\"secret\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":"
			"\"string\"}},"
			"\"required\":[\"name\"]}}}",
			id);
	else if (!method.ptr && json_get(text, NULL, "id", &answered)) /* "q<id of the call>" */
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"content\":[]}}", (int)answered.len - 3,
			answered.ptr + 2);
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	buf_free(message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct span result, state;
	(void)client;
	assert_true(http_status == 200 || http_status == 400 || http_status == 401);
	world.responses++;
	if (json_get(buf_span(message), NULL, "result", &result) && json_get(result, NULL, "requestState", &state))
		snprintf(world.state, sizeof(world.state), "%.*s", (int)state.len, state.ptr);
	buf_free(message);
}

static void call(const char *tool, const char *more)
{
	static char text[2 * MAX_TEXT];
	snprintf(text, sizeof(text),
		"{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",%s\"_meta\":{"
		"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientInfo\":{"
		"\"name\":\"c\",\"version\":\"1\"},\"io.modelcontextprotocol/"
		"clientCapabilities\":{\"elicitation\":{}}}}}",
		++world.requests, tool, more);
	assert_int_equal(proxy_receive(around.proxy, &world.client, span_of(text), NULL), RECEIVED_REQUEST);
	advance(100);
}

/* The course of events. */

static void begin(void)
{
	static const struct face_ops face_ops = {.notify = on_notify, .respond = on_respond};
	memset(&world, 0, sizeof(world));
	memset(&around, 0, sizeof(around));
	around.now_ms = 1000;
	struct policy *policy = policy_default();
	struct keyring *keys = keyring_random(&env);
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	assert_non_null(around.proxy);
	policy_unref(policy);
	keyring_unref(keys);
	world.client.cancels_by_message = true;
	client_init(&world.client, &face_ops);
}

static void end(void)
{
	client_gone(around.proxy, &world.client);
	proxy_free(around.proxy);
}

static void play(void)
{
	char more[MAX_TEXT + 200];
	begin();
	call("ask", "");
	advance(1420); /* call() waits a tenth of a second itself, and a round is gathered for 20 ms */
	snprintf(more, sizeof(more),
		"\"requestState\":%s,\"inputResponses\":{\"input-1\":{\"action\":\"accept\",\"content\":{\"name\":"
		"\"x\"}}},",
		world.state);
	call("ask", more);
	assert_int_equal(world.responses, 2);
	call("ask", "");
	advance(600000); /* defaults.park */
	call("ask", "");
	call("wait", "");
	call("wait", "\"requestState\":\"made up\",");
}

/* The status page. */

struct seen {
	unsigned shown;
	char text[1000];
};

static void show_parked(void *ctx, const struct view_parked *parked)
{
	struct seen *seen = ctx;
	seen->shown++;
	assert_int_equal(strlen(parked->hash) > 0, true);
	snprintf(seen->text, sizeof(seen->text), "%s in %s, round %u, for %d, left %d, asked %u %u %u", parked->subject,
		parked->session, parked->round, (int)parked->for_ms, (int)parked->left_ms,
		parked->asked[POLICY_ELICITATION], parked->asked[POLICY_SAMPLING], parked->asked[POLICY_ROOTS]);
}

static void show_session(void *ctx, const struct view_session *session)
{
	struct seen *seen = ctx;
	seen->shown++;
	snprintf(seen->text, sizeof(seen->text), "%s %s %s, calls %u, parked %u", session->name, session->state,
		session->version, session->calls, session->parked);
}

static void parked_calls_are_shown(void **state)
{
	(void)state;
	struct seen seen = {0};
	play();
	assert_int_equal(view_parked(around.proxy, 10, show_parked, &seen), 1);
	assert_int_equal(seen.shown, 1);
	assert_int_equal(view_parked(around.proxy, 0, show_parked, &seen), 1); /* counted, and not shown */
	assert_int_equal(seen.shown, 1);
	assert_string_equal(seen.text, "tools/call ask in s1, round 1, for 280, left 599720, asked 1 0 0");
	assert_int_equal(view_now_ms(around.proxy), around.now_ms);
	end();
}

static void sessions_are_shown(void **state)
{
	(void)state;
	struct seen seen = {0};
	play();
	assert_int_equal(view_sessions(around.proxy, 10, show_session, &seen), 1);
	assert_string_equal(seen.text, "s1 ready 2025-06-18, calls 1, parked 1");
	assert_int_equal(view_sessions(around.proxy, 0, show_session, &seen), 1);
	assert_int_equal(seen.shown, 1);
	end();
}

static void what_cannot_be_known_yet_is_not_shown(void **state)
{
	(void)state;
	struct seen seen = {0};
	begin();
	world.is_mute = true;
	call("ask", "");
	view_sessions(around.proxy, 1, show_session, &seen);
	assert_string_equal(seen.text, "s1 opening , calls 1, parked 0");
	assert_int_equal(view_patience_ms(around.proxy), 0);
	assert_int_equal(view_metrics(around.proxy)->methods[2], 1);
	assert_null(proxy_unready(around.proxy));
	around.links[0].open = false;
	session_on_lost(around.links[0].session, 0, "it cannot be started");
	assert_non_null(strstr(proxy_unready(around.proxy), "could not be opened"));
	proxy_shutdown(around.proxy);
	assert_string_equal(proxy_unready(around.proxy), "shutting down");
	end();
}

/* Who gets no requests opens no sessions, so a failure must not count for ever; and whoever has no credentials must not take
 * the server from the others. */
static void a_failed_session_counts_for_a_while(void **state)
{
	(void)state;
	begin();
	world.is_mute = true;
	call("ask", "");
	session_on_lost(around.links[0].session, 401, "it wants credentials");
	assert_null(proxy_unready(around.proxy));
	call("ask", "");
	session_on_lost(around.links[1].session, 0, "it cannot be started");
	assert_non_null(proxy_unready(around.proxy));
	around.now_ms += 29999; /* deadlines.restart */
	assert_non_null(proxy_unready(around.proxy));
	around.now_ms += 1;
	assert_null(proxy_unready(around.proxy));
	end();
}

/* The metrics. */

static void must_have(const struct buf *text, const char *line)
{
	if (!memmem(text->data, text->len, line, strlen(line)))
		fail_msg("no %s in\n%.*s", line, (int)text->len, text->data);
}

static void metrics_tell_what_happened(void **state)
{
	(void)state;
	static const char *const lines[] = {
		"requests_total{method=\"tools/call\"} 6\n",
		"requests_total{method=\"tools/list\"} 0\n",
		"calls_total{subject=\"tool\",name=\"ask\",outcome=\"answered\"} 1\n",
		"calls_total{subject=\"tool\",name=\"ask\",outcome=\"abandoned\"} 1\n",
		"rounds_total{subject=\"tool\",name=\"ask\"} 3\n",
		"rounds_total{subject=\"tool\",name=\"wait\"} 0\n",
		"people_seconds_sum{subject=\"tool\",name=\"ask\"} 1.500\n",
		"people_seconds_count{subject=\"tool\",name=\"ask\"} 1\n",
		"server_requests_forwarded_total{subject=\"tool\",name=\"ask\",kind=\"elicitation\"} 3\n",
		"server_requests_total{subject=\"tool\",name=\"ask\",kind=\"elicitation\",outcome=\"answered\"} 1\n",
		"refusals_total{reason=\"unverifiable\"} 1\n",
		"attribution_doubts_total{outcome=\"held\"} 0\n",
		"open_requests 1\n",
		"parked_calls 1\n",
		"parked_calls_total 3\n",
		"open_server_requests 1\n",
		"sessions 1\n",
		"sessions_opened_total 1\n",
		"sessions_lost_total 0\n",
		"patience_seconds 0.000\n",
	};
	struct buf out = {0};
	play();
	proxy_write_metrics(around.proxy, &out);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char line[200];
		snprintf(line, sizeof(line), "\nmcp_valet_%s", lines[i]);
		must_have(&out, line);
	}
	must_have(&out, "name=\"ask\",kind=\"elicitation\",outcome=\"failed_closed\"} 1\n");
	assert_null(memmem(out.data, out.len, "secret", 6));
	assert_int_equal(out.data[out.len - 1], '\n');
	buf_free(&out);
	end();
}

static void buckets_add_up(void **state)
{
	(void)state;
	struct buf out = {0};
	begin();
	struct metrics *metrics = (struct metrics *)view_metrics(around.proxy);
	metrics_waited(metrics, 1);
	metrics_waited(metrics, 40);
	metrics_waited(metrics, 2000);
	metrics_waited(metrics, 60000);
	proxy_write_metrics(around.proxy, &out);
	must_have(&out, "wait_seconds_bucket{le=\"0.001\"} 1\n");
	must_have(&out, "wait_seconds_bucket{le=\"0.01\"} 1\n");
	must_have(&out, "wait_seconds_bucket{le=\"0.05\"} 2\n");
	must_have(&out, "wait_seconds_bucket{le=\"30\"} 3\n");
	must_have(&out, "wait_seconds_bucket{le=\"+Inf\"} 4\n");
	must_have(&out, "wait_seconds_sum 62.041\n");
	must_have(&out, "wait_seconds_count 4\n");
	buf_free(&out);
	end();
}

/* The report. */

static struct span part(struct span object, const char *key)
{
	struct span value;
	assert_int_equal(json_get(object, NULL, key, &value), 1);
	return value;
}

static void report_tells_what_was_asked(void **state)
{
	(void)state;
	struct buf out = {0};
	struct span report, entry;
	struct error error;
	play();
	proxy_write_report(around.proxy, &out);
	assert_int_equal(json_check(buf_span(&out), &report, NULL, &error), 0);
	assert_true(span_is(part(report, "version"), "1"));
	assert_true(span_is(part(report, "subscriptions"), "0"));
	struct json_walk entries = json_walk(part(report, "entries"), NULL);
	assert_true(json_next_element(&entries, &entry));
	assert_true(span_is(part(entry, "subject"), "\"tool\""));
	assert_true(span_is(part(entry, "name"), "\"ask\""));
	assert_true(span_is(part(part(entry, "calls"), "answered"), "1"));
	assert_true(span_is(part(part(entry, "calls"), "abandoned"), "1"));
	struct span asked = part(part(entry, "asked"), "elicitation");
	assert_true(span_is(part(asked, "forwarded"), "3"));
	assert_true(span_is(part(asked, "answered"), "1"));
	assert_true(span_is(part(asked, "failed_closed"), "1"));
	assert_true(span_is(part(part(part(entry, "asked"), "roots"), "forwarded"), "0"));
	assert_true(span_is(part(entry, "rounds"), "3"));
	assert_true(span_is(part(entry, "most_rounds"), "1"));
	assert_true(span_is(part(entry, "people_ms"), "1500"));
	assert_true(span_is(part(entry, "people_longest_ms"), "1500"));
	assert_true(span_is(part(entry, "url_mode"), "0"));
	assert_true(span_is(part(entry, "forms"), "[{\"fields\":\"name string\",\"count\":3}]"));
	assert_true(span_is(part(entry, "other_forms"), "0"));
	assert_true(json_next_element(&entries, &entry));
	assert_true(span_is(part(entry, "name"), "\"wait\""));
	assert_true(span_is(part(entry, "forms"), "[]"));
	assert_true(json_next_element(&entries, &entry));
	assert_true(span_is(part(entry, "subject"), "\"other\""));
	assert_false(json_next_element(&entries, &entry));
	assert_null(memmem(out.data, out.len, "secret", 6));
	buf_free(&out);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parked_calls_are_shown),
		cmocka_unit_test(sessions_are_shown),
		cmocka_unit_test(what_cannot_be_known_yet_is_not_shown),
		cmocka_unit_test(a_failed_session_counts_for_a_while),
		cmocka_unit_test(metrics_tell_what_happened),
		cmocka_unit_test(buckets_add_up),
		cmocka_unit_test(report_tells_what_was_asked),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
