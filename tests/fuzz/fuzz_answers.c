/* What a client answers to what it was asked. The input is the params of a question (an elicitation, or a sampling request), a
 * NUL, and the answer; in the first byte stand the kind of the question and whether the policy checks answers. The server gets
 * one answer to its question: what the client said, as another reader of JSON reads it, if that is an answer to the question,
 * and else a cancellation or an error, never consent. */
#include "tests/fuzz/second_reader.h"
#include "tests/unit/small_world.h"

#include <sodium.h>
#include <stdlib.h>

enum { LONGEST_INPUT = 1500 }; /* what the server says once fits into its mail */

static const char shape[] = "version: 1\ndeadlines: { gather: 1ms, settle: 0s }\n";
static const char schema[] =
	"version: 1\ndeadlines: { gather: 1ms, settle: 0s }\ndefaults: { check_answers: schema }\n";

static struct {
	bool sampling, checked;
	struct span params;   /* of the question */
	char body[MAX_TEXT];  /* the client's newest outcome */
	char reply[MAX_TEXT]; /* what the server got, "" if nothing yet */
	unsigned replies;
} play;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void keep(char out[MAX_TEXT], struct span text)
{
	require(text.len < MAX_TEXT);
	memcpy(out, text.ptr, text.len);
	out[text.len] = '\0';
}

/* The server: it asks in every call. */
static void serve(struct link *link, uint64_t request_id, struct span text)
{
	struct span method;
	if (!json_get(text, NULL, "method", &method)) {
		play.replies++;
		keep(play.reply, text);
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[]}}");
	} else if (json_string_is(method, "initialize")) {
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%u,\"result\":{\"protocolVersion\":\"2025-11-25\","
			"\"capabilities\":{\"tools\":{}},"
			"\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}",
			(unsigned)request_id);
	} else if (json_string_is(method, "tools/call")) {
		require(request_id == 2);
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"%s\",\"params\":%.*s}",
			play.sampling ? "sampling/createMessage" : "elicitation/create", (int)play.params.len,
			play.params.ptr);
	}
}

/* The client. */

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	buf_free(message);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	(void)client;
	require(http_status >= 200 && buf_ok(message));
	keep(play.body, buf_span(message));
	buf_free(message);
}

static void call(struct client *client, const char *more, struct span answers, const char *state)
{
	struct buf text = {0};
	play.body[0] = '\0';
	buf_add_text(&text,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"_meta\":{"
		"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/"
		"clientCapabilities\":{"
		"\"sampling\":{\"tools\":{},\"context\":{}},\"elicitation\":{\"form\":{},\"url\":{}}}}");
	buf_add_text(&text, more);
	buf_add_span(&text, answers);
	buf_add_text(&text, state);
	buf_add_text(&text, "}}");
	(void)proxy_receive(around.proxy, client, buf_span(&text), NULL);
	buf_free(&text);
	advance(20000);
}

/* The server has its answer; the client had said `answer`. */
static void judge(struct span answer)
{
	struct span reply = span_of(play.reply);
	if (!second_has(reply, "result")) {
		require(second_has(reply, "error"));
		return;
	}
	struct span result;
	require(json_get(reply, NULL, "result", &result) == 1);
	if (!play.sampling && second_equal(result, NULL, SPAN("{\"action\":\"cancel\"}")))
		return; /* as if nobody had answered */
	require(second_equal(reply, "result", answer));
	require(play.sampling ? second_is_sample(answer) : second_is_elicited(play.params, answer, play.checked));
}

/* One question, one retry, and the end of the call's patience. */
static void run(struct client *client, struct span answer)
{
	struct span body, value, state, requests, text = answer;
	struct json_member question;
	char keyed[64], end[MAX_TEXT];
	call(client, "", (struct span){0}, "");
	body = span_of(play.body);
	if (!json_get(body, NULL, "result", &value) || !json_get(value, NULL, "requestState", &state) ||
		!json_get(value, NULL, "inputRequests", &requests))
		return; /* the question was refused, or answered on the spot */
	struct json_walk walk = json_walk(requests, NULL);
	require(json_next_member(&walk, &question));
	snprintf(keyed, sizeof(keyed), ",\"inputResponses\":{\"%.*s\":", (int)question.key.len, question.key.ptr);
	snprintf(end, sizeof(end), "},\"requestState\":%.*s", (int)state.len, state.ptr);
	require(play.replies == 0);
	call(client, keyed, text, end);
	bool consumed = play.replies > 0;
	advance(3600000); /* beyond every deadline */
	require(play.replies == 1);
	if (second_reads(span_of(play.reply)) && second_reads(play.params) && (second_reads(text) || !consumed))
		judge(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct face_ops ops = {.notify = on_notify, .respond = on_respond};
	struct client client = {.principal = {1}};
	struct error error;
	struct span answer, value;
	if (size < 2 || size > LONGEST_INPUT || sodium_init() < 0)
		return 0;
	struct span text = {(const char *)data + 1, size - 1};
	const char *end = memchr(text.ptr, '\0', text.len);
	if (!end)
		return 0;
	memset(&play, 0, sizeof(play));
	memset(&around, 0, sizeof(around));
	play.sampling = data[0] & 1;
	play.checked = data[0] & 2;
	play.params = (struct span){text.ptr, (size_t)(end - text.ptr)};
	answer = (struct span){end + 1, text.len - play.params.len - 1};
	/* Text that is no JSON is for other targets; and what follows a value would be another member here. */
	if (json_check(play.params, &play.params, NULL, NULL) || json_type(play.params) != JSON_OBJECT ||
		json_check(answer, &value, NULL, NULL))
		return 0;
	struct policy *policy = policy_parse(play.checked ? SPAN(schema) : SPAN(shape), "p", NULL, &error);
	struct keyring *keys = keyring_parse(
		SPAN("v1 0a1b2c3d 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"), "k", &error);
	require(policy && keys);
	around.now_ms = 1;
	around.proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops});
	require(around.proxy);
	client_init(&client, &ops);
	run(&client, value);
	client_gone(around.proxy, &client);
	proxy_free(around.proxy);
	policy_unref(policy);
	keyring_unref(keys);
	return 0;
}
