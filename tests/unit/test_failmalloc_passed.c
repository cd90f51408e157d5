/* Allocation failure in sessions that are passed through: a legacy client's over a pipe and over HTTP, a modern server's,
 * and one whose era has to be found out. A scripted run, over and over, and in the n-th run the n-th allocation fails; then
 * it and all that follow. Whatever fails, nothing crashes, nothing leaks, no half message goes anywhere, every request has
 * its one response or its client is hung up on, and the core is empty at the end. */
#include "tests/unit/failing_heap.h"
#include "tests/unit/small_world.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_CLIENTS = 64 };

/* The pipe, or one HTTP connection with one request. */
struct party {
	struct client client;
	char session_id[64]; /* as a header, or empty */
	unsigned requests, responses;
	bool finished;
};

static struct {
	bool modern; /* the server is */
	struct party parties[MAX_CLIENTS];
	unsigned party_count;
	char session_id[64]; /* that the core gave last */
	unsigned sent;	     /* messages to clients that were no responses */
	unsigned answered;   /* the client's answers that reached the server */
	unsigned results;
	bool is_retry;	  /* the message that the server reads */
	int64_t question; /* id of the newest server request */
} world;

/* The server. */

static void serve_legacy(struct link *link, uint64_t stream, struct span id, struct span method)
{
	int len = (int)id.len;
	if (json_string_is(method, "initialize")) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"protocolVersion\":\"2025-06-18\","
			"\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}",
			len, id.ptr);
	} else if (json_string_is(method, "tools/list")) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"tools\":[{\"name\":\"hidden\"},{\"name\":\"t\"}"
			"]}}",
			len, id.ptr);
	} else if (json_string_is(method, "tools/call")) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
			"progress\",\"params\":{\"progressToken\":\"t\","
			"\"progress\":1}}");
		say(link, stream, "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{}}");
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}");
		say(link, stream, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"content\":[]}}", len, id.ptr);
	} else if (!json_string_is(method, "resources/read")) {
		say(link, stream, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{}}", len, id.ptr);
	}
}

static void serve_modern(struct link *link, uint64_t stream, struct span id, struct span method)
{
	int len = (int)id.len;
	if (json_string_is(method, "server/discover")) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"supportedVersions\":[\"2026-07-28\"],"
			"\"capabilities\":{\"tools\":{\"listChanged\":true}},\"resultType\":\"complete\"}}",
			len, id.ptr);
	} else if (json_string_is(method, "tools/call")) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%.*s,"
			"\"progress\":1}}",
			len, id.ptr);
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"resultType\":\"input_required\","
			"\"inputRequests\":{},\"requestState\":\"s\"}}",
			len, id.ptr);
	} else if (json_string_is(method, "prompts/get") && !world.is_retry) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"resultType\":\"input_required\","
			"\"inputRequests\":{\"k\":{\"method\":\"elicitation/create\",\"params\":{}}}}}",
			len, id.ptr);
	} else if (json_string_is(method, "subscriptions/listen")) {
		say(link, stream,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{"
			"\"notifications\":{\"resourceSubscriptions\":[\"a:b\"]},\"_meta\":{\"io.modelcontextprotocol/"
			"subscriptionId\":%.*s}}}",
			len, id.ptr);
	} else if (!json_string_is(method, "resources/read")) {
		say(link, stream, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"resultType\":\"complete\"}}", len,
			id.ptr);
	}
}

static void serve(struct link *link, uint64_t stream, struct span text)
{
	struct span value, method = {0}, id = {0};
	struct error error;
	assert_int_equal(json_check(text, &value, NULL, &error), 0);
	bool has_id = json_get(value, NULL, "id", &id) > 0;
	world.is_retry = memmem(text.ptr, text.len, "inputResponses", 14) != NULL;
	if (!json_get(value, NULL, "method", &method))
		world.answered++;
	else if (has_id)
		(world.modern ? serve_modern : serve_legacy)(link, stream, id, method);
}

/* The clients. */

static void check_whole(struct buf *message)
{
	struct span value;
	struct error error;
	assert_true(buf_ok(message));
	assert_int_equal(json_check(buf_span(message), &value, NULL, &error), 0);
	buf_free(message);
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	world.sent++;
	check_whole(message);
}

static bool on_send_down(struct client *client, struct buf *message)
{
	struct span id;
	if (json_get(buf_span(message), NULL, "id", &id))
		json_integer(id, &world.question);
	on_notify(client, message);
	return true;
}

/* A response that is not complete for lack of memory is one all the same: the face closes the connection. */
static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct party *party = (struct party *)client;
	struct span result;
	assert_true(http_status >= 200);
	party->responses++;
	if (client->session_id)
		snprintf(world.session_id, sizeof(world.session_id), "%s", client->session_id);
	if (!buf_ok(message)) {
		buf_free(message);
		return;
	}
	world.results += json_get(buf_span(message), NULL, "result", &result) > 0;
	check_whole(message);
}

static void on_finish(struct client *client)
{
	((struct party *)client)->finished = true;
}

static bool on_header(const struct client *client, const char *name, struct span *value)
{
	const struct party *party = (const struct party *)client;
	if (strcmp(name, "mcp-session-id") != 0 || !party->session_id[0])
		return false;
	*value = span_of(party->session_id);
	return true;
}

static void on_headers_of(const struct client *client, const char *prefix, struct buf *lines)
{
	(void)client;
	(void)prefix;
	(void)lines;
}

static const struct face_ops pipe_ops = {
	.notify = on_notify, .respond = on_respond, .send = on_send_down, .finish = on_finish};
static const struct face_ops http_ops = {.notify = on_notify,
	.respond = on_respond,
	.send = on_send_down,
	.finish = on_finish,
	.header = on_header,
	.headers_of = on_headers_of};

static struct party *arrive(const struct face_ops *ops)
{
	assert_true(world.party_count < MAX_CLIENTS);
	struct party *party = &world.parties[world.party_count++];
	*party = (struct party){.client.authorization = "secret", .client.cancels_by_message = ops == &pipe_ops};
	if (ops == &http_ops)
		snprintf(party->session_id, sizeof(party->session_id), "%s", world.session_id);
	client_init(&party->client, ops);
	return party;
}

/* Says something; a request is owed a response, until it is cancelled. */
static void tell(struct party *party, const char *text)
{
	struct span id, method;
	if (party->finished)
		return;
	size_t open = proxy_counts(around.proxy).exchanges;
	bool cancels = strstr(text, "notifications/cancelled") != NULL;
	bool is_request = json_get(span_of(text), NULL, "id", &id) && json_get(span_of(text), NULL, "method", &method);
	party->requests += is_request;
	enum received received = proxy_receive(around.proxy, &party->client, span_of(text), NULL);
	party->requests += !is_request && received == RECEIVED_INVALID; /* an error answers it */
	if (cancels)
		party->requests -= (unsigned)(open - proxy_counts(around.proxy).exchanges);
	assert_true(party->responses <= party->requests);
}

/* Nothing is owed to who went away. */
static void leave(struct party *party)
{
	size_t open = proxy_counts(around.proxy).exchanges;
	client_gone(around.proxy, &party->client);
	party->requests -= (unsigned)(open - proxy_counts(around.proxy).exchanges);
}

static void lose_newest_link(void)
{
	struct link *link = around.link_count ? &around.links[around.link_count - 1] : NULL;
	if (!link || !link->open)
		return;
	link->open = false;
	session_on_lost(link->session, 0, "the server is gone");
}

/* The scripts. */

#define INITIALIZE                                                                                                     \
	"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\","      \
	"\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}"
#define INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"
#define LIST "{\"jsonrpc\":\"2.0\",\"id\":\"l\",\"method\":\"tools/list\"}"
#define CALL                                                                                                           \
	"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/"                                                            \
	"call\",\"params\":{\"name\":\"t\",\"_meta\":{\"progressToken\":"                                              \
	"\"t\"}}}"
#define HIDDEN "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":\"hidden\"}}"
#define SILENT "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"resources/read\",\"params\":{\"uri\":\"a:b\"}}"
#define CANCEL "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":4}}"
#define ANSWER "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"action\":\"decline\"}}"

static void play_pipe(void)
{
	struct party *party = arrive(&pipe_ops);
	static const char *const lines[] = {
		INITIALIZE, INITIALIZED, LIST, CALL, ANSWER, HIDDEN, SILENT, CANCEL, SILENT};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		tell(party, lines[i]);
		advance(10);
	}
	lose_newest_link();
	advance(1000);
	leave(party);
}

static void exchange_over_http(const char *text)
{
	struct party *party = arrive(&http_ops);
	tell(party, text);
	advance(10);
	leave(party);
}

static void play_http(void)
{
	exchange_over_http(INITIALIZE);
	exchange_over_http(INITIALIZED);
	struct party *listener = arrive(&http_ops);
	proxy_listen(around.proxy, &listener->client);
	static const char *const texts[] = {LIST, CALL, ANSWER, HIDDEN, SILENT};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		exchange_over_http(texts[i]);
	struct party *late = arrive(&http_ops);
	tell(late, SILENT);
	struct party *end = arrive(&http_ops);
	proxy_end_session(around.proxy, &end->client);
	advance(1000);
	leave(listener);
	leave(late);
	leave(end);
	world.session_id[0] = '\0';
}

#define META                                                                                                           \
	"\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"progressToken\":\"t\","               \
	"\"io.modelcontextprotocol/logLevel\":\"info\",\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define MODERN(id, method, params)                                                                                     \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":{" params META "}}"

static void play_modern(void)
{
	struct party *party = arrive(&pipe_ops);
	tell(party, MODERN("1", "server/discover", ""));
	tell(party, MODERN("2", "tools/list", ""));
	advance(5000);
	tell(party, MODERN("3", "tools/call", "\"name\":\"t\","));
	tell(party, MODERN("\"s\"", "subscriptions/listen", "\"notifications\":{\"toolsListChanged\":true},"));
	advance(10);
	if (around.link_count && around.links[around.link_count - 1].open)
		say(&around.links[around.link_count - 1], 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
			"message\",\"params\":{\"level\":\"error\",\"data\":1}}");
	tell(party, MODERN("4", "resources/read", "\"uri\":\"a:b\","));
	advance(10);
	tell(party, CANCEL);
	advance(10);
	lose_newest_link();
	advance(20000);
	tell(party, MODERN("5", "tools/call", "\"name\":\"t\","));
	advance(20000);
	leave(party);
}

#define ELDER_INITIALIZE                                                                                               \
	"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\","      \
	"\"capabilities\":{\"elicitation\":{}},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}"
#define LEVEL "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"info\"}}"
#define SUBSCRIBE "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a:b\"}}"
#define UNSUBSCRIBE "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"resources/unsubscribe\",\"params\":{\"uri\":\"a:b\"}}"
#define PROMPT "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"prompts/get\",\"params\":{\"name\":\"p\"}}"

/* A legacy client with a modern server. */
static void play_elder(void)
{
	struct party *party = arrive(&pipe_ops);
	static const char *const lines[] = {ELDER_INITIALIZE, INITIALIZED, LIST, LEVEL, SUBSCRIBE, PROMPT, NULL,
		UNSUBSCRIBE, CALL, HIDDEN, SILENT, CANCEL, PROMPT};
	char answer[100];
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		snprintf(answer, sizeof(answer),
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"action\":\"decline\"}}",
			(long long)world.question);
		tell(party, lines[i] ? lines[i] : answer);
		advance(10);
	}
	lose_newest_link();
	advance(1000);
	leave(party);
}

static void check_end(void)
{
	proxy_shutdown(around.proxy);
	advance(1000000);
	struct proxy_counts counts = proxy_counts(around.proxy);
	assert_int_equal(counts.exchanges, 0);
	assert_int_equal(counts.sessions, 0);
	for (unsigned i = 0; i < world.party_count; i++) {
		const struct party *party = &world.parties[i];
		assert_true(party->responses == party->requests || party->finished);
	}
	for (unsigned i = 0; i < around.link_count; i++)
		assert_false(around.links[i].open);
	assert_true(proxy_next_due(around.proxy) == INT64_MAX);
}

/* Returns how many allocations the run made. */
static size_t run(size_t fail_at, size_t fail_until, enum policy_era era, bool modern, void (*play)(void))
{
	memset(&world, 0, sizeof(world));
	memset(&around, 0, sizeof(around));
	around.now_ms = 1000;
	world.modern = modern;
	heap.fail_at = 0;
	struct error error;
	struct policy *policy = policy_parse(
		SPAN("version: 1\nrules: [ { match: { tool: hidden }, hide: true } ]\n"), "test", stderr, &error);
	assert_non_null(policy);
	policy->upstream.era = era;
	struct keyring *keys = keyring_random(&env);
	heap.live = 0; /* what libyaml allocated of the policy is not counted */
	heap.count = 0;
	heap.fail_at = fail_at;
	heap.fail_until = fail_until;
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	if (around.proxy) {
		play();
		check_end();
	}
	proxy_free(around.proxy);
	assert_int_equal(heap.live, 0);
	heap.fail_at = 0;
	policy_unref(policy);
	keyring_unref(keys);
	return heap.count;
}

static void run_all(enum policy_era era, bool modern, void (*play)(void))
{
	size_t count = run(0, 0, era, modern, play);
	for (size_t n = 1; n <= count; n++) {
		run(n, n, era, modern, play);
		run(n, n + 4, era, modern, play);
		run(n, SIZE_MAX, era, modern, play);
	}
}

static void test_legacy_client_on_a_pipe(void **state)
{
	(void)state;
	run(0, 0, POLICY_ERA_LEGACY, false, play_pipe);
	assert_int_equal(world.results, 3);
	assert_int_equal(world.answered, 1);
	assert_int_equal(world.sent, 3);
	run_all(POLICY_ERA_LEGACY, false, play_pipe);
}

static void test_legacy_client_over_http(void **state)
{
	(void)state;
	run(0, 0, POLICY_ERA_LEGACY, false, play_http);
	assert_int_equal(world.results, 2);
	assert_int_equal(world.answered, 1);
	assert_int_equal(world.sent, 4); /* the response of a call that said something before is one more event */
	run_all(POLICY_ERA_LEGACY, false, play_http);
}

static void test_modern_server(void **state)
{
	(void)state;
	run(0, 0, POLICY_ERA_MODERN, true, play_modern);
	assert_int_equal(world.results, 4);
	assert_in_range(world.sent, 3, 4);
	run_all(POLICY_ERA_MODERN, true, play_modern);
}

static void test_legacy_client_of_a_modern_server(void **state)
{
	(void)state;
	run(0, 0, POLICY_ERA_MODERN, true, play_elder);
	assert_int_equal(world.results, 6);
	assert_in_range(world.sent, 2, 20);
	run_all(POLICY_ERA_MODERN, true, play_elder);
}

static void test_era_to_be_found_out(void **state)
{
	(void)state;
	run(0, 0, POLICY_ERA_AUTO, true, play_modern);
	assert_int_equal(world.results, 4);
	run_all(POLICY_ERA_AUTO, true, play_modern);
	run_all(POLICY_ERA_AUTO, false, play_modern);
	run_all(POLICY_ERA_AUTO, false, play_pipe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_legacy_client_on_a_pipe),
		cmocka_unit_test(test_legacy_client_over_http),
		cmocka_unit_test(test_modern_server),
		cmocka_unit_test(test_legacy_client_of_a_modern_server),
		cmocka_unit_test(test_era_to_be_found_out),
	};
	if (sodium_init() < 0)
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
