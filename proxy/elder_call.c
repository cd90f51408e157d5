/* The requests of an elder that the server answers by questions: rounds, seen from the other side. */
#include "proxy/elder.h"

#include "proxy/json_write.h"
#include "proxy/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A server request to the client, for one entry of `inputRequests`. */
struct question {
	TAILQ_ENTRY(question) link;
	uint64_t id;
	enum policy_kind kind;
	char *key; /* as spelled, without its quotes */
	struct buf request;
	bool answered;
	struct buf answer;
};

struct elder_call {
	struct relay_stream *stream;
	struct policy *policy; /* that the rule is of */
	const struct policy_rule *rule;
	char *subject; /* for people, such as "tools/call report" */
	char *params;  /* as they came, or NULL: none */
	char *state;   /* requestState as spelled, or NULL */
	unsigned rounds;
	bool parked;
	int64_t parked_ms; /* since when */
	unsigned open;	   /* questions without an answer */
	size_t answer_bytes;
	TAILQ_HEAD(, question) questions;
	bool has_progress;
	double last_progress;
	struct timer timer;
};

/* Calls. */

static void drop_questions(struct elder_call *call)
{
	struct question *question;
	while ((question = TAILQ_FIRST(&call->questions))) {
		TAILQ_REMOVE(&call->questions, question, link);
		free(question->key);
		buf_free(&question->request);
		if (question->answer.data)
			sodium_memzero(question->answer.data, question->answer.cap);
		buf_free(&question->answer);
		free(question);
	}
	call->stream->relay->elder->open -= call->open;
	call->open = 0;
	call->answer_bytes = 0;
}

static void unpark(struct elder_call *call)
{
	const struct session *session = call->stream->relay->session;
	struct proxy *proxy = session->proxy;
	timer_cancel(&proxy->timers, &call->timer);
	if (!call->parked)
		return;
	call->parked = false;
	proxy->counts.parked--;
	proxy_account_unpark(proxy, session->principal);
}

void elder_call_free(struct elder_call *call)
{
	if (!call)
		return;
	unpark(call);
	drop_questions(call);
	call->stream->relay->elder->calls--;
	policy_unref(call->policy);
	free(call->subject);
	free(call->params);
	free(call->state);
	free(call);
}

struct elder_call *elder_call_new(struct relay_stream *stream, const struct message *message, struct error *error)
{
	const struct method *method = stream->method;
	struct elder *elder = stream->relay->elder;
	struct policy *policy = stream->relay->session->proxy->policy;
	struct span name = {0};
	/* Any of them may be parked, and is kept even if its client has gone. */
	if (elder->calls >= policy->limits.parked_per_principal) {
		error_set(error, ERROR_LIMIT, "Too many calls (limits.parked_per_principal)");
		return NULL;
	}
	struct elder_call *call = calloc(1, sizeof(*call));
	if (!call) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		return NULL;
	}
	elder->calls++;
	TAILQ_INIT(&call->questions);
	call->stream = stream;
	call->policy = policy_ref(policy);
	call->params = message->params.ptr ? span_dup(message->params) : NULL;
	json_get(message->params, &message->index, method->name_member, &name);
	char *text = name.ptr ? json_string_dup(name) : NULL;
	call->rule = text ? policy_rule(policy, method->subject, text) : &policy->defaults;
	call->subject = method_subject(method, text);
	free(text);
	if (!call->subject || (message->params.ptr && !call->params)) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		elder_call_free(call);
		return NULL;
	}
	return call;
}

/* Appends what makes a request a retry. */
void elder_add_answers(struct buf *out, const struct elder_call *call)
{
	const struct question *question;
	if (call->state) {
		json_add_key(out, "requestState");
		buf_add_text(out, call->state);
	}
	if (TAILQ_EMPTY(&call->questions))
		return;
	json_add_key(out, "inputResponses");
	buf_add_text(out, "{");
	TAILQ_FOREACH (question, &call->questions, link) {
		struct json_member member = {span_of(question->key), buf_span(&question->answer)};
		json_add_member(out, &member);
		out->failed |= !buf_ok(&question->answer);
	}
	buf_add_text(out, "}");
}

static void retry(struct elder_call *call)
{
	struct relay_stream *stream = call->stream;
	unpark(call);
	stream->request = stream->relay->session->next_id++;
	if (elder_send_request(stream, stream->method->name, span_of(call->params), NULL))
		drop_questions(call); /* else it is gone */
}

/* Questions. */

/* Tells the client that a question needs no answer any more. */
static void withdraw(struct relay_stream *stream, const struct question *question, const char *why)
{
	struct buf message = {0};
	buf_printf(&message,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%llu,"
		"\"reason\":\"%s\"}}",
		(unsigned long long)question->id, why);
	relay_send(stream, &message);
}

/* The call ends with an error, because a question has no answer that the server knows, or must not be asked. */
static void fail_call(struct elder_call *call, const char *text)
{
	struct relay_stream *stream = call->stream;
	const struct question *question;
	if (call->parked)
		TAILQ_FOREACH (question, &call->questions, link)
			if (!question->answered)
				withdraw(stream, question, "the request that it belongs to has failed");
	unpark(call);
	elder_fail(stream, RPC_INTERNAL_ERROR, text);
}

static void answer_question(struct elder_call *call, struct question *question, struct span answer)
{
	question->answered = true;
	buf_add_span(&question->answer, answer);
	call->answer_bytes += answer.len;
	call->open--;
	call->stream->relay->elder->open--;
}

static const struct span cancel = {"{\"action\":\"cancel\"}", sizeof("{\"action\":\"cancel\"}") - 1};

static void on_timeout(void *arg)
{
	struct elder_call *call = arg;
	struct question *question;
	TAILQ_FOREACH (question, &call->questions, link)
		if (!question->answered && question->kind != POLICY_ELICITATION) {
			fail_call(call, "The client did not answer the server's question in time (park)");
			return;
		}
	TAILQ_FOREACH (question, &call->questions, link)
		if (!question->answered) {
			withdraw(call->stream, question, "it took too long");
			answer_question(call, question, cancel);
		}
	retry(call);
}

/* Writes the server request for an entry of `inputRequests`. */
static void write_question(
	struct question *question, const struct capability_need *need, struct span method, struct span params)
{
	struct buf *out = &question->request;
	buf_printf(out, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":", (unsigned long long)question->id);
	buf_add_span(out, method);
	if (need->url) {
		/* 2025-11-25 demands it, 2026-07-28 does not know it. */
		static const char *const dropped[] = {"elicitationId", NULL};
		buf_add_text(out, ",\"params\":{");
		elder_add_members_but(out, params, NULL, dropped);
		json_add_key(out, "elicitationId");
		buf_printf(out, "\"%llu\"}", (unsigned long long)question->id);
	} else if (params.ptr) {
		buf_add_text(out, ",\"params\":");
		buf_add_span(out, params);
	}
	buf_add_text(out, "}");
}

static bool is_asked(const struct elder_call *call, struct span key)
{
	const struct question *question;
	TAILQ_FOREACH (question, &call->questions, link)
		if (json_same_key(key, span_of(question->key)))
			return true;
	return false;
}

/* NULL, or why the question cannot be asked. */
static const char *add_question(struct elder_call *call, const struct json_member *entry)
{
	struct relay *relay = call->stream->relay;
	struct span method = {0}, params = {0};
	struct capability_need need;
	json_get(entry->value, NULL, "method", &method);
	json_get(entry->value, NULL, "params", &params);
	if (!method.ptr || json_type(method) != JSON_STRING || !translate_need(method, params, &need) ||
		(params.ptr && json_type(params) != JSON_OBJECT))
		return "The server asks for something that is unknown";
	if (!capabilities_cover(&relay->elder->caps, &need))
		return "The server asks for something that the client did not declare";
	if (relay->elder->open >= call->policy->limits.server_requests)
		return "The server asks too much at a time (limits.server_requests)";
	if (is_asked(call, entry->key))
		return "The server asks twice under one name";
	struct question *question = calloc(1, sizeof(*question));
	if (!question)
		return "Out of memory";
	TAILQ_INSERT_TAIL(&call->questions, question, link);
	call->open++;
	relay->elder->open++;
	question->id = relay->session->next_id++;
	question->kind = need.kind;
	question->key = span_dup(entry->key);
	write_question(question, &need, method, params);
	return question->key && buf_ok(&question->request) ? NULL : "Out of memory";
}

static const char *add_questions(struct elder_call *call, struct span requests)
{
	struct json_member entry;
	const char *fault = NULL;
	if (!requests.ptr && call->state)
		return NULL;
	if (!requests.ptr || json_type(requests) != JSON_OBJECT)
		return "The server asks for input, and does not say for which";
	struct json_walk walk = json_walk(requests, NULL);
	while (!fault && json_next_member(&walk, &entry))
		fault = add_question(call, &entry);
	return fault;
}

static void park(struct elder_call *call)
{
	struct session *session = call->stream->relay->session;
	struct proxy *proxy = session->proxy;
	struct question *question;
	struct error error = {0};
	if (!proxy_account_park(proxy, session->principal, &error)) {
		fail_call(call, error.text);
		return;
	}
	call->parked = true;
	call->parked_ms = proxy_now(proxy);
	proxy->counts.parked++;
	timer_set(&proxy->timers, &call->timer, proxy_now(proxy) + call->rule->park_ms, on_timeout, call);
	TAILQ_FOREACH (question, &call->questions, link)
		relay_send(call->stream, &question->request);
}

void elder_on_input_required(struct elder_call *call, const struct message *message)
{
	struct session *session = call->stream->relay->session;
	struct span requests = {0}, state = {0};
	free(call->state);
	call->state = NULL;
	unsigned asks = json_get(message->result, &message->index, "inputRequests", &requests);
	unsigned states = json_get(message->result, &message->index, "requestState", &state);
	if (asks > 1 || states > 1 || (states && json_type(state) != JSON_STRING)) {
		fail_call(call, "The server asks for input, and does not say clearly for which");
		return;
	}
	if (states && !(call->state = span_dup(state))) {
		fail_call(call, "Out of memory");
		return;
	}
	if (++call->rounds > call->rule->rounds) {
		fail_call(call, "The server asks again and again (rounds)");
		return;
	}
	const char *fault = add_questions(call, requests);
	session->proxy->upstream->forget(session->upstream, call->stream->request);
	if (fault)
		fail_call(call, fault);
	else if (TAILQ_EMPTY(&call->questions))
		retry(call);
	else
		park(call);
}

bool elder_is_parked(const struct relay_stream *stream)
{
	return stream->call && stream->call->parked;
}

struct view_parked elder_look(const struct relay_stream *stream)
{
	const struct elder_call *call = stream->call;
	const struct session *session = stream->relay->session;
	const struct question *question;
	int64_t now = proxy_now(session->proxy);
	struct view_parked parked = {.subject = call->subject,
		.hash = "",
		.session = session->name,
		.round = call->rounds,
		.for_ms = now - call->parked_ms,
		.left_ms = call->timer.due_ms - now};
	TAILQ_FOREACH (question, &call->questions, link)
		parked.asked[question->kind] += !question->answered;
	return parked;
}

static struct question *find_question(struct relay *relay, struct span id, struct elder_call **call)
{
	struct relay_stream *stream;
	struct question *question;
	int64_t number;
	if (!id.ptr || !json_integer(id, &number))
		return NULL;
	TAILQ_FOREACH (stream, &relay->streams, link) {
		if (!elder_is_parked(stream))
			continue;
		TAILQ_FOREACH (question, &stream->call->questions, link)
			if (question->id == (uint64_t)number && !question->answered) {
				*call = stream->call;
				return question;
			}
	}
	return NULL;
}

void elder_on_answer(struct relay *relay, const struct message *message)
{
	struct elder_call *call;
	struct error error;
	struct question *question = find_question(relay, message->id, &call);
	if (!question) {
		session_log(relay->session, LOG_DEBUG, "late-answer", "the client answered a question that is over");
		return;
	}
	if (message->result.ptr && !translate_check_answer(question->kind, message->result, &error)) {
		answer_question(call, question, message->result);
	} else if (question->kind == POLICY_ELICITATION) {
		answer_question(call, question, cancel);
	} else {
		fail_call(call, question->kind == POLICY_ROOTS ? "The client did not list its roots"
							       : "The client did not answer the sampling request");
		return;
	}
	if (call->answer_bytes > call->policy->limits.message_bytes)
		fail_call(call, "The answers to the server's questions are too large (limits.message)");
	else if (!call->open)
		retry(call);
}

void elder_on_cancelled(struct relay_stream *stream)
{
	struct session *session = stream->relay->session;
	const struct question *question;
	if (stream->call && stream->call->parked) {
		TAILQ_FOREACH (question, &stream->call->questions, link)
			if (!question->answered)
				withdraw(stream, question, "the request that it belongs to was cancelled");
	} else if (!session->proxy->upstream->has_streams) {
		/* Over HTTP the end of the stream says it (basic/patterns/cancellation). */
		session_cancel_request(session, stream->request, "The client has cancelled it");
	}
	elder_forget_uris(stream->relay->elder, stream->request);
}

bool elder_is_progress(const struct relay *relay, const struct message *message)
{
	struct relay_stream *stream;
	struct span token, value;
	if (!json_get(message->params, &message->index, "progressToken", &token) ||
		!json_get(message->params, &message->index, "progress", &value) || isnan(json_number(value)))
		return false;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (!stream->answered && stream->progress_token && json_same(token, span_of(stream->progress_token)))
			break;
	if (!stream || !stream->call)
		return stream;
	double progress = json_number(value);
	bool increases = !stream->call->has_progress || progress > stream->call->last_progress;
	stream->call->has_progress = true;
	if (increases)
		stream->call->last_progress = progress;
	return increases;
}
