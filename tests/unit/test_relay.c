/* What happens to the session of a legacy client over HTTP and on a pipe when its server or its connections misbehave. */
#include "proxy/message.h"
#include "proxy/proxy.h"
#include "proxy/view.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One HTTP connection with one request, or the pipe. */
struct party {
	struct client client;
	const char *names; /* Mcp-Session-Id as a header, or NULL */
	const char *last;  /* Last-Event-ID as a header, or NULL */
	char given[64];	   /* Mcp-Session-Id as the response says it */
	int status;
	char text[1000]; /* the newest message */
	bool breaks;	 /* the connection is found to be broken when something is sent */
	bool is_full;	 /* it does not read what it is sent */
};

static struct {
	int64_t now_ms;
	struct proxy *proxy;
	struct session *session; /* the newest */
	uint64_t request;	 /* the newest */
	char text[1000];	 /* the newest message to the server */
	bool established;
	bool is_full;	 /* the server takes nothing */
	unsigned losses; /* of messages for lack of memory, by the log */
	uint8_t random;
} world;

static int64_t now_ms(void *ctx)
{
	(void)ctx;
	return world.now_ms;
}

static void random_bytes(void *ctx, void *out, size_t len)
{
	(void)ctx;
	memset(out, ++world.random, len);
}

static void take_log(void *ctx, const struct log_line *line)
{
	(void)ctx;
	world.losses += strcmp(line->event, "no-memory") == 0;
}

static const struct env env = {
	.now_ms = now_ms, .wall_ms = now_ms, .random = random_bytes, .log = take_log, .log_level = LOG_DEBUG};

static struct upstream *on_open(void *ctx, struct session *session, struct error *error)
{
	(void)ctx;
	(void)error;
	world.session = session;
	return (struct upstream *)&world;
}

static int on_send(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id, struct buf *message)
{
	(void)upstream;
	if (world.is_full) {
		buf_free(message);
		return ERROR_LIMIT;
	}
	if (kind == UPSTREAM_REQUEST)
		world.request = request_id;
	snprintf(world.text, sizeof(world.text), "%.*s", (int)message->len, message->data);
	buf_free(message);
	return 0;
}

static void on_establish(struct upstream *upstream, const char *version)
{
	(void)upstream;
	(void)version;
	world.established = true;
	session_on_established(world.session);
}

static void on_forget(struct upstream *upstream, uint64_t request_id)
{
	(void)upstream;
	(void)request_id;
}

static void on_close(struct upstream *upstream)
{
	(void)upstream;
}

static const struct upstream_ops upstream_ops = {
	.open = on_open, .send = on_send, .establish = on_establish, .forget = on_forget, .close = on_close};

static void take_head(struct party *party, int status)
{
	if (!party->status && party->client.session_id)
		snprintf(party->given, sizeof(party->given), "%s", party->client.session_id);
	party->status = party->status ? party->status : status;
}

static void take_text(struct party *party, struct buf *message)
{
	snprintf(party->text, sizeof(party->text), "%.*s", (int)message->len, message->data);
	buf_free(message);
}

static bool on_send_down(struct client *client, struct buf *message)
{
	struct party *party = (struct party *)client;
	take_head(party, 200);
	take_text(party, message);
	if (party->breaks)
		client_gone(world.proxy, client);
	return !party->is_full;
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)on_send_down(client, message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	take_head((struct party *)client, http_status);
	take_text((struct party *)client, message);
}

static void on_finish(struct client *client)
{
	(void)client;
}

static bool on_header(const struct client *client, const char *name, struct span *value)
{
	const struct party *party = (const struct party *)client;
	const char *text = strcmp(name, "mcp-session-id") == 0	? party->names
			   : strcmp(name, "last-event-id") == 0 ? party->last
								: NULL;
	if (text)
		*value = span_of(text);
	return text;
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

#define INITIALIZE                                                                                                     \
	"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\"}}"
#define INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"
#define WELCOME "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-06-18\"}}"
#define CALL "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}"
#define LOG "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}"

static void tell(struct party *party, const struct face_ops *ops, const char *names, const char *text)
{
	if (!party->client.ops) {
		party->names = names;
		client_init(&party->client, ops);
	}
	(void)proxy_receive(world.proxy, &party->client, span_of(text), NULL);
}

static void say(const char *text)
{
	session_on_message(world.session, span_of(text), world.request);
}

static int begin(void **state)
{
	(void)state;
	struct error error;
	struct policy *policy = policy_parse(
		SPAN("version: 1\nlimits: { exchanges: 3, legacy_sessions: 2 }\n"), "test", stderr, &error);
	struct keyring *keys = keyring_random(&env);
	memset(&world, 0, sizeof(world));
	world.now_ms = 1000;
	policy->upstream.era = POLICY_ERA_LEGACY;
	world.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	policy_unref(policy);
	keyring_unref(keys);
	return world.proxy ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	proxy_free(world.proxy);
	return 0;
}

/* The session id is a header, and so goes with the first event. */
static void test_log_before_the_answer_to_initialize(void **state)
{
	(void)state;
	struct party party = {0};
	tell(&party, &http_ops, NULL, INITIALIZE);
	say(LOG);
	say(WELCOME);
	assert_int_equal(strlen(party.given), 32);
	client_gone(world.proxy, &party.client);
}

static void test_initialize_again_after_a_failure(void **state)
{
	(void)state;
	struct party party = {0};
	tell(&party, &pipe_ops, NULL, INITIALIZE);
	session_on_request_failed(world.session, world.request, 503, "busy");
	tell(&party, &pipe_ops, NULL, INITIALIZE);
	say(WELCOME);
	tell(&party, &pipe_ops, NULL, INITIALIZED);
	assert_true(world.established);
	client_gone(world.proxy, &party.client);
}

/* Nobody can name the session of an initialize that failed. */
static void test_failed_initialize_leaves_no_session(void **state)
{
	(void)state;
	struct party party = {0};
	tell(&party, &http_ops, NULL, INITIALIZE);
	session_on_request_failed(world.session, world.request, 503, "busy");
	proxy_turn(world.proxy);
	assert_int_equal(proxy_counts(world.proxy).sessions, 0);
	client_gone(world.proxy, &party.client);
}

/* Requests whose clients went away still run, and count. */
static void test_abandoned_requests_are_limited(void **state)
{
	(void)state;
	struct party first = {0};
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	client_gone(world.proxy, &first.client);
	for (int i = 0; i < 4; i++) {
		struct party party = {0};
		tell(&party, &http_ops, first.given, CALL);
		assert_int_equal(party.status, i < 3 ? 0 : 503);
		client_gone(world.proxy, &party.client);
		proxy_turn(world.proxy);
	}
}

/* The last answer is written to a broken connection while the proxy shuts down: the session ends meanwhile. */
static void test_connection_breaks_at_the_last_answer(void **state)
{
	(void)state;
	struct party first = {0}, party = {0};
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	client_gone(world.proxy, &first.client);
	tell(&party, &http_ops, first.given, CALL);
	say(LOG);
	proxy_shutdown(world.proxy);
	party.breaks = true;
	say("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
	proxy_turn(world.proxy);
	assert_int_equal(proxy_counts(world.proxy).sessions, 0);
}

/* The id is given to the client of a session with a request that the server does not answer. */
static void abandon_call(char *names, size_t size)
{
	struct party first = {0}, party = {0};
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	snprintf(names, size, "%s", first.given);
	client_gone(world.proxy, &first.client);
	tell(&party, &http_ops, names, CALL);
	say(LOG); /* the client knows the id of an event */
	client_gone(world.proxy, &party.client);
	proxy_turn(world.proxy);
}

static void advance(int64_t ms)
{
	world.now_ms += ms;
	proxy_turn(world.proxy);
}

enum { IDLE_MS = 10 * 60 * 1000 }; /* deadlines.idle_session */

/* A client that hung up may come back, but only so long. */
static void test_abandoned_request_does_not_hold_the_session(void **state)
{
	(void)state;
	char names[64];
	abandon_call(names, sizeof(names));
	advance(IDLE_MS - 1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	struct party back = {.names = names, .last = "2-1"};
	client_init(&back.client, &http_ops);
	assert_int_equal(proxy_listen(world.proxy, &back.client), 200);
	advance(2 * IDLE_MS); /* it waits */
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	client_gone(world.proxy, &back.client);
	advance(IDLE_MS - 1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	advance(1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 0);
}

/* Of sessions whose clients are gone the one that was used last stays. */
static void test_abandoned_requests_make_room(void **state)
{
	(void)state;
	char first[64], second[64];
	abandon_call(first, sizeof(first));
	abandon_call(second, sizeof(second));
	struct party used = {0}, other = {0}, party = {0};
	tell(&used, &http_ops, first, INITIALIZED);
	tell(&other, &http_ops, NULL, INITIALIZE);
	assert_int_equal(other.status, 0);
	say(WELCOME);
	tell(&party, &http_ops, second, CALL);
	assert_int_equal(party.status, 404);
	tell(&used, &http_ops, first, CALL);
	assert_int_equal(used.status, 0);
	client_gone(world.proxy, &used.client);
	client_gone(world.proxy, &other.client);
}

/* A message without a response is a sign of the client, too. */
static void test_notification_keeps_the_session(void **state)
{
	(void)state;
	char names[64];
	struct party party = {0};
	abandon_call(names, sizeof(names));
	advance(IDLE_MS - 1);
	tell(&party, &http_ops, names, INITIALIZED);
	advance(IDLE_MS - 1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	say(LOG); /* what the server says is none */
	advance(1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 0);
}

/* Who waits for the response longer than a session may be idle holds it, and has time again when it is over. */
static void test_client_that_waits_holds_the_session(void **state)
{
	(void)state;
	struct party first = {0}, party = {0};
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	tell(&party, &http_ops, first.given, CALL);
	advance(3 * IDLE_MS);
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	client_gone(world.proxy, &party.client);
	advance(IDLE_MS - 1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	advance(1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 0);
	client_gone(world.proxy, &first.client);
}

/* Who does not read is cut off, and then is gone like the others. */
static void test_client_that_does_not_read(void **state)
{
	(void)state;
	struct party first = {0}, party = {.is_full = true};
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	tell(&party, &http_ops, first.given, CALL);
	advance(IDLE_MS);
	say(LOG);
	client_gone(world.proxy, &party.client);
	advance(IDLE_MS - 1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 1);
	advance(1);
	assert_int_equal(proxy_counts(world.proxy).sessions, 0);
	client_gone(world.proxy, &first.client);
}

/* On a pipe too; the face says so itself, and no memory is short. */
static void test_pipe_that_does_not_read(void **state)
{
	(void)state;
	struct party pipe = {.is_full = true};
	tell(&pipe, &pipe_ops, NULL, INITIALIZE);
	say(WELCOME);
	say("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}");
	assert_non_null(strstr(pipe.text, "roots/list"));
	assert_int_equal(world.losses, 0);
	client_gone(world.proxy, &pipe.client);
}

/* A server in JavaScript reads a number as a double and writes it as short as can be. Its answer finds the request, and has the
 * id that the client knows. */
static void test_server_spells_ids_anew(void **state)
{
	static const struct {
		const char *asked, *answered;
	} ids[] = {
		{"1e2", "100"},
		{"1.0", "1"},
		{"9007199254740993", "9007199254740992"},
		{"12345678901234567890123", "1.2345678901234568e+22"},
		{"\"\\u00e9\"", "\"\xc3\xa9\""},
	};
	char text[200];
	struct party first = {0};
	(void)state;
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct party party = {0};
		snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"tools/list\"}", ids[i].asked);
		tell(&party, &http_ops, first.given, text);
		assert_string_equal(world.text, text);
		snprintf(text, sizeof(text), "{\"result\" : { },\"id\":%s,\"jsonrpc\":\"2.0\"}", ids[i].answered);
		say(text);
		assert_int_equal(party.status, 200);
		snprintf(text, sizeof(text), "{\"result\" : { },\"id\":%s,\"jsonrpc\":\"2.0\"}", ids[i].asked);
		assert_string_equal(party.text, text);
	}
}

static int listen_from(struct party *party, const char *names, const char *last)
{
	*party = (struct party){.names = names, .last = last};
	client_init(&party->client, &http_ops);
	return proxy_listen(world.proxy, &party->client);
}

/* Who asks for the rest of a stream gets that, or hears that there is none: never another stream (2025-11-25 basic/transports
 * "Resumability and Redelivery"). */
static void test_event_ids_that_name_nothing(void **state)
{
	static const char *const bad[] = {"2-2", "3-1", "x", "-", "2-", "-1", "2", "2-1x", "2 -1", " 2-1", "+2-1",
		"2-+1", "2--1", "2-1-1", "2-18446744073709551617", "18446744073709551618-1", "0-2"};
	char names[64];
	struct party reader, party;
	(void)state;
	abandon_call(names, sizeof(names));
	assert_int_equal(listen_from(&reader, names, NULL), 200);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(listen_from(&party, names, bad[i]), 400);
		assert_null(party.client.reads);
		assert_non_null(reader.client.reads);
	}
	struct party again;
	assert_int_equal(listen_from(&again, names, "2-1"), 200);
	world.request = 0;
	say(LOG);
	assert_string_equal(reader.text, LOG);
	/* An empty id says that there is none. */
	assert_int_equal(listen_from(&party, names, ""), 200);
	assert_null(reader.client.reads);
	client_gone(world.proxy, &party.client);
	client_gone(world.proxy, &again.client);
}

/* When all that was kept of a stream is forgotten, the client must hear of it. */
static void test_event_ids_that_are_forgotten(void **state)
{
	char names[64];
	struct party party, reader;
	(void)state;
	abandon_call(names, sizeof(names));
	say("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
	assert_int_equal(listen_from(&party, names, "2-1"), 200);
	assert_string_equal(party.text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
	struct buf large = {0};
	buf_add_text(&large, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"");
	while (large.len < 1 << 20) /* limits.replay */
		buf_add_text(&large, "0123456789abcdef");
	buf_add_text(&large, "\"}}");
	world.request = 0;
	session_on_message(world.session, buf_span(&large), 0);
	buf_free(&large);
	assert_int_equal(listen_from(&reader, names, "2-1"), 400);
	assert_int_equal(listen_from(&reader, names, "2-2"), 400);
}

#define MODERN                                                                                                         \
	"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{}"

/* Both eras on one pipe: what the legacy server says stays in its session. */
static void test_stray_messages_do_not_cross(void **state)
{
	struct party pipe = {0};
	struct session *passed;
	(void)state;
	tell(&pipe, &pipe_ops, NULL, INITIALIZE);
	say(WELCOME);
	passed = world.session;
	tell(&pipe, &pipe_ops, NULL,
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"_meta\":{" MODERN
		",\"progressToken\":9}}}");
	assert_true(world.session != passed);
	pipe.text[0] = '\0';
	world.session = passed;
	say("{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}");
	say("{\"jsonrpc\":\"2.0\",\"id\":7.0,\"error\":{\"code\":1,\"message\":\"no\"}}");
	say("{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}"); /* it may be on its way */
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
	    "progress\",\"params\":{\"progressToken\":9,\"progress\":1}}");
	assert_string_equal(pipe.text, "");
	/* The server could not read a message: which, the client must find out. */
	static const char unread[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"no\"}}";
	say(unread);
	assert_string_equal(pipe.text, unread);
	client_gone(world.proxy, &pipe.client);
}

/* The answer to a request that was cancelled is of no use, kept events or not. */
static void test_answer_to_a_cancelled_request(void **state)
{
	char names[64];
	struct party party, back = {0};
	(void)state;
	abandon_call(names, sizeof(names));
	tell(&back, &http_ops, names,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}");
	struct party second = {0};
	tell(&second, &http_ops, names, CALL);
	say("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"of\":2}}");
	assert_string_equal(second.text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"of\":2}}");
	assert_int_equal(listen_from(&party, names, "2-1"), 200);
	assert_string_equal(party.text, "");
	client_gone(world.proxy, &party.client);
}

/* What the server did not take was not accepted (202). */
static void test_server_that_does_not_read(void **state)
{
	static const char *const texts[] = {INITIALIZED, CALL, "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{}}"};
	struct party first = {0}, pipe = {0};
	(void)state;
	tell(&first, &http_ops, NULL, INITIALIZE);
	say(WELCOME);
	world.is_full = true;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct party party = {.names = first.given};
		client_init(&party.client, &http_ops);
		enum received received = proxy_receive(world.proxy, &party.client, span_of(texts[i]), NULL);
		assert_int_equal(received == RECEIVED_NOTIFICATION, false);
		assert_int_equal(party.status, 503);
	}
	/* On a pipe a notification has no response. */
	world.is_full = false;
	tell(&pipe, &pipe_ops, NULL, INITIALIZE);
	say(WELCOME);
	pipe.text[0] = '\0';
	world.is_full = true;
	tell(&pipe, &pipe_ops, NULL, INITIALIZED);
	assert_string_equal(pipe.text, "");
	client_gone(world.proxy, &pipe.client);
}

static void see_session(void *ctx, const struct view_session *session)
{
	*(struct view_session *)ctx = *session;
}

/* The status page shows the revision that the two have agreed on, and what runs. */
static void test_status_page(void **state)
{
	struct party first = {0}, party = {0};
	struct view_session seen;
	(void)state;
	tell(&first, &http_ops, NULL, INITIALIZE);
	view_sessions(world.proxy, 1, see_session, &seen);
	assert_string_equal(seen.version, "");
	say(WELCOME);
	tell(&party, &http_ops, first.given, CALL);
	view_sessions(world.proxy, 1, see_session, &seen);
	assert_string_equal(seen.version, "2025-06-18");
	assert_int_equal(seen.calls, 1);
	client_gone(world.proxy, &party.client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_log_before_the_answer_to_initialize, begin, end),
		cmocka_unit_test_setup_teardown(test_initialize_again_after_a_failure, begin, end),
		cmocka_unit_test_setup_teardown(test_failed_initialize_leaves_no_session, begin, end),
		cmocka_unit_test_setup_teardown(test_abandoned_requests_are_limited, begin, end),
		cmocka_unit_test_setup_teardown(test_connection_breaks_at_the_last_answer, begin, end),
		cmocka_unit_test_setup_teardown(test_abandoned_request_does_not_hold_the_session, begin, end),
		cmocka_unit_test_setup_teardown(test_abandoned_requests_make_room, begin, end),
		cmocka_unit_test_setup_teardown(test_notification_keeps_the_session, begin, end),
		cmocka_unit_test_setup_teardown(test_client_that_waits_holds_the_session, begin, end),
		cmocka_unit_test_setup_teardown(test_client_that_does_not_read, begin, end),
		cmocka_unit_test_setup_teardown(test_pipe_that_does_not_read, begin, end),
		cmocka_unit_test_setup_teardown(test_server_spells_ids_anew, begin, end),
		cmocka_unit_test_setup_teardown(test_event_ids_that_name_nothing, begin, end),
		cmocka_unit_test_setup_teardown(test_event_ids_that_are_forgotten, begin, end),
		cmocka_unit_test_setup_teardown(test_stray_messages_do_not_cross, begin, end),
		cmocka_unit_test_setup_teardown(test_answer_to_a_cancelled_request, begin, end),
		cmocka_unit_test_setup_teardown(test_server_that_does_not_read, begin, end),
		cmocka_unit_test_setup_teardown(test_status_page, begin, end),
	};
	if (sodium_init() < 0)
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
