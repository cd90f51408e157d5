/* Legacy clients in front of a modern server that says whatever it likes, and what clients make of its questions. */
#include "proxy/view.h"
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

/* The pipe, or one HTTP connection with one request. */
struct party {
	struct client client;
	const char *names; /* Mcp-Session-Id as a header, or NULL */
	char given[64];	   /* the same, as the response says it */
	int status;
	unsigned heard;	      /* messages */
	char text[MAX_TEXT];  /* the newest */
	char asked[MAX_TEXT]; /* the newest but responses */
};

static struct {
	struct link *link; /* the newest */
	uint64_t request;  /* the newest */
	unsigned requests, cancelled;
	char text[MAX_TEXT]; /* the newest message but for cancellations */
} server;

static void serve(struct link *link, uint64_t request_id, struct span text)
{
	server.link = link;
	if (memmem(text.ptr, text.len, "notifications/cancelled", 23)) {
		server.cancelled++;
		return;
	}
	snprintf(server.text, sizeof(server.text), "%.*s", (int)text.len, text.ptr);
	server.request = request_id ? request_id : server.request;
	server.requests += request_id != 0;
}

static void take(struct party *party, int status, bool is_response, struct buf *message)
{
	if (!party->status && party->client.session_id)
		snprintf(party->given, sizeof(party->given), "%s", party->client.session_id);
	party->status = party->status ? party->status : status;
	party->heard++;
	snprintf(party->text, sizeof(party->text), "%.*s", (int)message->len, message->data);
	if (!is_response)
		memcpy(party->asked, party->text, sizeof(party->asked));
	buf_free(message);
}

static bool on_send_down(struct client *client, struct buf *message)
{
	take((struct party *)client, 200, false, message);
	return true;
}

static void on_notify(struct client *client, struct buf *message)
{
	take((struct party *)client, 200, false, message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	take((struct party *)client, http_status, true, message);
}

static void on_finish(struct client *client)
{
	(void)client;
}

static bool on_header(const struct client *client, const char *name, struct span *value)
{
	const struct party *party = (const struct party *)client;
	if (strcmp(name, "mcp-session-id") != 0 || !party->names)
		return false;
	*value = span_of(party->names);
	return true;
}

static const struct face_ops pipe_ops = {
	.notify = on_notify, .respond = on_respond, .send = on_send_down, .finish = on_finish};
static const struct face_ops http_ops = {
	.notify = on_notify, .respond = on_respond, .send = on_send_down, .finish = on_finish, .header = on_header};

#define HEAD "{\"jsonrpc\":\"2.0\","
#define INITIALIZE                                                                                                     \
	HEAD "\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","                      \
	     "\"capabilities\":{\"elicitation\":{\"form\":{},\"url\":{}},\"sampling\":{},\"roots\":{}}}}"
#define CALL HEAD "\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}"
#define ASK "\"k\":{\"method\":\"elicitation/create\",\"params\":{\"message\":\"?\",\"requestedSchema\":{}}}"

static enum received tell(struct party *party, const char *text)
{
	if (!party->client.ops)
		client_init(&party->client, &http_ops);
	enum received received = proxy_receive(around.proxy, &party->client, span_of(text), NULL);
	turn();
	return received;
}

/* The server ends its newest request with this result. */
static void give(const char *result)
{
	struct buf text = {0};
	buf_printf(&text, HEAD "\"id\":%llu,\"result\":%s}", (unsigned long long)server.request, result);
	assert_true(buf_ok(&text));
	session_on_message(server.link->session, buf_span(&text), server.request);
	buf_free(&text);
	turn();
}

static void open_session(struct party *party)
{
	tell(party, INITIALIZE);
	give("{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}}}");
	assert_non_null(strstr(party->text, "\"protocolVersion\":\"2025-11-25\""));
}

static int begin_with(const char *text)
{
	struct error error;
	struct policy *policy = policy_parse(span_of(text), "test", stderr, &error);
	struct keyring *keys = keyring_random(&env);
	memset(&around, 0, sizeof(around));
	memset(&server, 0, sizeof(server));
	around.now_ms = 1000;
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	policy_unref(policy);
	keyring_unref(keys);
	return around.proxy ? 0 : -1;
}

static int begin(void **state)
{
	(void)state;
	return begin_with("version: 1\nupstream: { era: modern }\n"
			  "limits: { server_requests: 3, legacy_sessions: 1, parked_per_principal: 2, message: 3KiB }\n"
			  "rules: [{ match: { tool: hidden }, hide: true }]\n");
}

static int end(void **state)
{
	(void)state;
	proxy_free(around.proxy);
	return 0;
}

static void begin_call(struct party *pipe)
{
	client_init(&pipe->client, &pipe_ops);
	open_session(pipe);
	tell(pipe, CALL);
	pipe->heard = 0;
}

/* A client that went away while its call was open, or parked, does not hold its session. */
static void test_abandoned_calls(void **state)
{
	struct party first = {0}, party = {0}, other = {0};
	(void)state;
	open_session(&first);
	party.names = first.given;
	tell(&party, CALL);
	give("{\"resultType\":\"input_required\",\"requestState\":\"s\",\"inputRequests\":{" ASK "}}");
	assert_non_null(strstr(party.asked, "elicitation/create"));
	client_gone(around.proxy, &party.client);
	client_gone(around.proxy, &first.client);
	assert_int_equal(proxy_counts(around.proxy).parked, 1);
	open_session(&other);
	assert_int_equal(proxy_counts(around.proxy).sessions, 1);
	assert_int_equal(proxy_counts(around.proxy).parked, 0);
	client_gone(around.proxy, &other.client);
	advance(10 * 60 * 1000); /* deadlines.idle_session */
	assert_int_equal(proxy_counts(around.proxy).sessions, 0);
}

static struct {
	unsigned parked, sessions;
	struct view_parked call;
	struct view_session session;
} seen;

static void see_parked(void *ctx, const struct view_parked *parked)
{
	(void)ctx;
	seen.parked++;
	seen.call = *parked;
}

static void see_session(void *ctx, const struct view_session *session)
{
	(void)ctx;
	seen.sessions++;
	seen.session = *session;
}

/* What the status page shows of a passed session is the server's side of it. */
static void test_status_page(void **state)
{
	struct party pipe = {0};
	(void)state;
	memset(&seen, 0, sizeof(seen));
	begin_call(&pipe);
	assert_int_equal(view_sessions(around.proxy, 9, see_session, NULL), 1);
	assert_string_equal(seen.session.version, "2026-07-28");
	assert_int_equal(seen.session.calls, 1);
	assert_int_equal(seen.session.parked, 0);
	give("{\"resultType\":\"input_required\",\"inputRequests\":{" ASK "}}");
	advance(1000);
	assert_int_equal(view_sessions(around.proxy, 9, see_session, NULL), 1);
	assert_int_equal(seen.session.calls, 0);
	assert_int_equal(seen.session.parked, 1);
	assert_int_equal(view_parked(around.proxy, 9, see_parked, NULL), 1);
	assert_int_equal(seen.parked, 1);
	assert_string_equal(seen.call.subject, "tools/call t");
	assert_string_equal(seen.call.session, seen.session.name);
	assert_int_equal(seen.call.asked[POLICY_ELICITATION], 1);
	assert_int_equal(seen.call.round, 1);
	/* A log message is no round. */
	say(server.link, 0, HEAD "\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}");
	turn();
	assert_int_equal(seen.call.round, 1);
	assert_int_equal(seen.call.for_ms, 1000);
	assert_int_equal(seen.call.left_ms, 10 * 60 * 1000 - 1000); /* park */
	client_gone(around.proxy, &pipe.client);
}

/* What a server can say as often as it likes does not fill the log. */
static void test_flood(void **state)
{
	static const char *const rubbish[] = {"{", HEAD "\"id\":1,\"method\":\"ping\"}"};
	struct party pipe = {0};
	(void)state;
	begin_call(&pipe);
	for (int i = 0; i < 1000; i++)
		session_on_message(server.link->session, span_of(rubbish[i % 2]), 0);
	assert_int_equal(around.warnings, 10);
	advance(1000);
	session_on_message(server.link->session, SPAN("{"), 0);
	assert_int_equal(around.warnings, 11);
	assert_non_null(strstr(around.words, "990 warnings were left out"));
	client_gone(around.proxy, &pipe.client);
}

/* A client that has said which log messages it wants gets no others; before that, what the server sends. */
static void test_levels(void **state)
{
#define MESSAGE(level) HEAD "\"method\":\"notifications/message\",\"params\":{\"level\":" level ",\"data\":1}}"
	static const struct {
		const char *level, *message;
		bool passes;
	} cases[] = {
		{NULL, MESSAGE("\"debug\""), true},
		{"warning", MESSAGE("\"notice\""), false},
		{"warning", MESSAGE("\"warning\""), true},
		{"warning", MESSAGE("\"emergency\""), true},
		{"warning", MESSAGE("\"loud\""), false},
		{"warning", MESSAGE("7"), false},
		{"warning", HEAD "\"method\":\"notifications/message\"}", false},
		{"debug", MESSAGE("\"debug\""), true},
	};
	struct party pipe = {0};
	(void)state;
	begin_call(&pipe);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[200];
		snprintf(text, sizeof(text),
			HEAD "\"id\":9,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"%s\"}}",
			cases[i].level ? cases[i].level : "");
		if (cases[i].level)
			tell(&pipe, text);
		unsigned heard = pipe.heard;
		say(server.link, 0, "%s", cases[i].message);
		turn();
		assert_int_equal(pipe.heard - heard, cases[i].passes);
	}
	client_gone(around.proxy, &pipe.client);
}

/* What a server may put into inputRequests or beside it, and how the client's request ends then. */
static void test_questions_that_cannot_be_asked(void **state)
{
#define REQUIRED "{\"resultType\":\"input_required\""
#define ROOTS "{\"method\":\"roots/list\"}"
	static const char *const results[] = {
		REQUIRED "}",
		REQUIRED ",\"inputRequests\":[]}",
		REQUIRED ",\"inputRequests\":{\"k\":{}}}",
		REQUIRED ",\"inputRequests\":{\"k\":7}}",
		REQUIRED ",\"inputRequests\":{\"k\":{\"method\":\"tools/call\",\"params\":{}}}}",
		REQUIRED ",\"inputRequests\":{\"k\":{\"method\":\"roots/list\",\"params\":[]}}}",
		/* not declared */
		REQUIRED
		",\"inputRequests\":{\"k\":{\"method\":\"sampling/createMessage\",\"params\":{\"tools\":[]}}}}",
		/* answers of one name, however it is spelled */
		REQUIRED ",\"inputRequests\":{" ASK "," ASK "}}",
		REQUIRED ",\"inputRequests\":{" ASK ",\"\\u006b\":" ROOTS "}}",
		REQUIRED ",\"inputRequests\":{" ASK "},\"inputRequests\":{}}",
		/* limits.server_requests */
		REQUIRED ",\"inputRequests\":{\"1\":" ROOTS ",\"2\":" ROOTS ",\"3\":" ROOTS ",\"4\":" ROOTS "}}",
		REQUIRED ",\"requestState\":7}",
		REQUIRED ",\"requestState\":null,\"inputRequests\":{" ASK "}}",
		REQUIRED ",\"requestState\":\"a\",\"requestState\":\"b\"}",
		REQUIRED ",\"resultType\":\"complete\"}",
		"{\"resultType\":\"odd\"}",
		"{\"resultType\":null}",
		"[]",
		"null",
	};
	struct party pipe = {0};
	(void)state;
	client_init(&pipe.client, &pipe_ops);
	open_session(&pipe);
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		tell(&pipe, CALL);
		unsigned requests = server.requests;
		pipe.heard = 0;
		give(results[i]);
		assert_int_equal(pipe.heard, 1);
		assert_non_null(strstr(pipe.text, "\"id\":1,\"error\":"));
		assert_int_equal(server.requests, requests);
		assert_int_equal(proxy_counts(around.proxy).parked, 0);
	}
	/* None of them counts any more. */
	tell(&pipe, CALL);
	give(REQUIRED ",\"inputRequests\":{\"1\":" ROOTS ",\"2\":" ROOTS ",\"3\":" ROOTS "}}");
	assert_non_null(strstr(pipe.text, "\"method\":\"roots/list\""));
	client_gone(around.proxy, &pipe.client);
}

static void test_endless_rounds(void **state)
{
	struct party pipe = {0};
	unsigned rounds = 0;
	(void)state;
	begin_call(&pipe);
	for (; !pipe.heard && rounds < 100; rounds++)
		give(REQUIRED ",\"requestState\":\"again\"}");
	assert_int_equal(rounds, 11); /* `rounds` is 10 */
	assert_non_null(strstr(pipe.text, "\"id\":1,\"error\":"));
	client_gone(around.proxy, &pipe.client);
}

/* Answers to what was never asked, and to what is answered, change nothing. */
static void test_answers_to_nothing(void **state)
{
	static const char *const ids[] = {"0", "1", "-1", "\"4\"", "99", "1e300", "18446744073709551616"};
	struct party pipe = {0};
	char text[200];
	(void)state;
	begin_call(&pipe);
	unsigned requests = server.requests;
	give(REQUIRED ",\"inputRequests\":{" ASK "}}");
	long long question = 0;
	assert_int_equal(sscanf(pipe.text, HEAD "\"id\":%lld", &question), 1);
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		snprintf(text, sizeof(text), HEAD "\"id\":%s,\"result\":{\"action\":\"accept\",\"content\":{}}}",
			ids[i]);
		tell(&pipe, text);
		assert_int_equal(server.requests, requests);
	}
	/* An integer is the same in any spelling. */
	snprintf(text, sizeof(text), HEAD "\"id\":%lld.0,\"result\":{\"action\":\"decline\"}}", question);
	tell(&pipe, text);
	assert_int_equal(server.requests, requests + 1);
	assert_non_null(strstr(server.text, "\"inputResponses\":{\"k\":{\"action\":\"decline\"}}"));
	snprintf(text, sizeof(text), HEAD "\"id\":%lld,\"result\":{\"action\":\"accept\",\"content\":{}}}", question);
	tell(&pipe, text);
	assert_int_equal(server.requests, requests + 1);
	client_gone(around.proxy, &pipe.client);
}

/* Calls that are over do not count, though their events are kept for a client that comes back. */
static void test_calls_that_are_over(void **state)
{
	struct party first = {0}, last = {0};
	(void)state;
	open_session(&first);
	for (int i = 0; i < 4; i++) {
		struct party party = {.names = first.given}, other = {.names = first.given};
		unsigned requests = server.requests;
		tell(&party, CALL);
		assert_int_equal(server.requests, requests + 1);
		say(server.link, server.request,
			HEAD "\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}");
		turn();
		if (i % 2)
			give("{\"resultType\":\"complete\",\"content\":[]}");
		else
			tell(&other, HEAD "\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}");
		client_gone(around.proxy, &party.client);
	}
	last.names = first.given;
	client_init(&last.client, &http_ops);
	assert_int_equal(proxy_end_session(around.proxy, &last.client), 200);
}

static void acknowledge(uint64_t listen)
{
	say(server.link, listen,
		HEAD "\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"notifications\":{"
		     "\"resourceSubscriptions\":[\"a:b\"]},\"_meta\":{"
		     "\"io.modelcontextprotocol/subscriptionId\":%llu}}}",
		(unsigned long long)listen);
	turn();
}

/* Only what a subscription is for comes with its id. */
static void test_notifications_of_a_subscription(void **state)
{
	static const struct {
		const char *method;
		bool passes;
	} cases[] = {
		{"notifications/tools/list_changed", true},
		{"notifications/prompts/list_changed", true},
		{"notifications/resources/list_changed", true},
		{"notifications/resources/updated", true},
		{"notifications/cancelled", false},
		{"notifications/elicitation/complete", false},
		{"notifications/initialized", false},
		{"notifications/odd", false},
	};
	struct party pipe = {0};
	(void)state;
	client_init(&pipe.client, &pipe_ops);
	open_session(&pipe);
	tell(&pipe, HEAD "\"id\":2,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a:b\"}}");
	assert_non_null(strstr(server.text, "subscriptions/listen"));
	uint64_t listen = server.request;
	tell(&pipe, CALL);
	unsigned heard = pipe.heard;
	for (uint64_t id = 0; id < 9; id++)
		if (id != listen)
			acknowledge(id); /* of what is no subscription of ours */
	assert_int_equal(pipe.heard, heard);
	/* Twice, as when a stream was lost and found: the subscription lives on. */
	acknowledge(listen);
	acknowledge(listen);
	assert_non_null(strstr(pipe.text, "\"id\":2,\"result\":{}"));
	assert_int_equal(server.cancelled, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		heard = pipe.heard;
		say(server.link, listen,
			HEAD
			"\"method\":\"%s\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%llu}}}",
			cases[i].method, (unsigned long long)listen);
		turn();
		assert_int_equal(pipe.heard - heard, cases[i].passes);
	}
	client_gone(around.proxy, &pipe.client);
}

/* What a client subscribes to is kept, and so it is bounded: all of it by limits.message. */
static void test_subscriptions_are_bounded(void **state)
{
	struct party pipe = {0};
	struct buf text = {0};
	unsigned refused = 0;
	(void)state;
	client_init(&pipe.client, &pipe_ops);
	open_session(&pipe);
	for (int i = 0; i < 40; i++) {
		buf_printf(&text,
			HEAD "\"id\":%d,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"%02d:", i + 2, i);
		for (int j = 0; j < 15; j++)
			buf_add_text(&text, "0123456789");
		buf_add_text(&text, "\"}}");
		pipe.text[0] = '\0';
		(void)proxy_receive(around.proxy, &pipe.client, buf_span(&text), NULL);
		refused += strstr(pipe.text, "Too many resources") != NULL;
		buf_free(&text);
		turn();
	}
	assert_int_equal(refused, 40 - 3072 / (1 + 3 + 150 + 1));
	client_gone(around.proxy, &pipe.client);
}

/* Of a name that is there twice a server may read the one and we the other: what is hidden must not be reached so. */
static void test_hidden_name_beside_another(void **state)
{
	struct party pipe = {0};
	(void)state;
	client_init(&pipe.client, &pipe_ops);
	open_session(&pipe);
	unsigned requests = server.requests;
	tell(&pipe, HEAD "\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"hidden\",\"name\":\"t\"}}");
	assert_non_null(strstr(pipe.text, "\"id\":1,\"error\""));
	assert_int_equal(server.requests, requests);
	client_gone(around.proxy, &pipe.client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_abandoned_calls, begin, end),
		cmocka_unit_test_setup_teardown(test_status_page, begin, end),
		cmocka_unit_test_setup_teardown(test_flood, begin, end),
		cmocka_unit_test_setup_teardown(test_levels, begin, end),
		cmocka_unit_test_setup_teardown(test_questions_that_cannot_be_asked, begin, end),
		cmocka_unit_test_setup_teardown(test_endless_rounds, begin, end),
		cmocka_unit_test_setup_teardown(test_answers_to_nothing, begin, end),
		cmocka_unit_test_setup_teardown(test_calls_that_are_over, begin, end),
		cmocka_unit_test_setup_teardown(test_notifications_of_a_subscription, begin, end),
		cmocka_unit_test_setup_teardown(test_subscriptions_are_bounded, begin, end),
		cmocka_unit_test_setup_teardown(test_hidden_name_beside_another, begin, end),
	};
	if (sodium_init() < 0)
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
