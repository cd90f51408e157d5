/* The messages of a session: what goes out, and what becomes of what comes in. */
#include "proxy/session.h"
#include "proxy/subscription.h"

#include <stdio.h>

int session_send(struct session *session, enum upstream_kind kind, uint64_t request_id, struct buf *message)
{
	if (!session->upstream || !buf_ok(message)) {
		int status = buf_ok(message) ? ERROR_LOST : ERROR_MEMORY;
		buf_free(message);
		return status;
	}
	session->proxy->metrics.server_bytes_out += message->len;
	return session->proxy->upstream->send(session->upstream, kind, request_id, message);
}

void session_cancel_request(struct session *session, uint64_t request_id, const char *reason)
{
	struct buf message = {0};
	buf_printf(&message,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		"cancelled\",\"params\":{\"requestId\":%llu,\"reason\":",
		(unsigned long long)request_id);
	buf_add_json_string(&message, span_of(reason));
	buf_add_text(&message, "}}");
	if (session_send(session, UPSTREAM_NOTIFICATION, 0, &message))
		session_log(session, LOG_DEBUG, "cancel-failed", "a cancellation could not be sent to the server");
}

bool session_ping(struct session *session, uint64_t *newest)
{
	struct buf message = {0};
	uint64_t id = session->next_id++;
	buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"ping\"}", (unsigned long long)id);
	if (session_send(session, UPSTREAM_REQUEST, id, &message))
		return false;
	*newest = id;
	return true;
}

static void on_ping(struct session *session, struct span id)
{
	struct buf message = message_response(id, SPAN("\"result\":{}"));
	if (session_send(session, UPSTREAM_RESPONSE, 0, &message))
		session_log(session, LOG_DEBUG, "pong-failed", "the answer to a ping could not be sent");
}

struct call *session_find_call(const struct session *session, uint64_t id)
{
	const struct proxy *proxy = session->proxy;
	struct call *call = NULL;
	HASH_FIND(by_upstream, session->requests, &id, sizeof(id), call);
	return call;
}

/* A call that became a task keeps the progress token of its first request. */
static struct call *find_by_progress(struct session *session, uint64_t id)
{
	struct call *call = session_find_call(session, id);
	if (call)
		return call;
	TAILQ_FOREACH (call, &session->running, link)
		if (call->task_id && call->progress_id == id)
			return call;
	TAILQ_FOREACH (call, &session->parked, link)
		if (call->task_id && call->progress_id == id)
			return call;
	return NULL;
}

static void on_response(struct session *session, const struct message *message)
{
	int64_t id;
	if (!message->id.ptr || !json_integer(message->id, &id) || id <= 0) {
		session_warn(session, "bad-message", "the server answered an id that was never used");
		return;
	}
	struct call *call = session_find_call(session, (uint64_t)id);
	if (call)
		call_on_answer(call, message->result, message->error, &message->index);
	else if ((uint64_t)id == session->initialize_id && session->state == SESSION_OPENING)
		session_on_initialize_answer(session, message);
	else if ((uint64_t)id == session->ping_id || (uint64_t)id == session->settle_id)
		session_on_pong(session, (uint64_t)id);
	else if ((uint64_t)id == session->mirrors.list_id)
		tool_mirrors_on_answer(session, message);
	else
		session_log(session, LOG_DEBUG, "late-answer", "the server answered request %lld, which is over",
			(long long)id);
}

/* A URL elicitation has served: calls that wait for it need not wait longer. */
static void on_elicitation_complete(struct session *session, const struct message *message)
{
	struct span id;
	struct call *call;
	if (!json_get(message->params, &message->index, "elicitationId", &id))
		return;
	TAILQ_FOREACH (call, &session->parked, link)
		call_on_elicitation_complete(call, id);
	TAILQ_FOREACH (call, &session->waiting, link)
		call_on_elicitation_complete(call, id);
	session_pump(session);
}

static void on_notification(struct session *session, const struct message *message, uint64_t stream)
{
	const char *name;
	struct span value;
	int64_t id;
	if (json_string_is(message->method, "notifications/progress")) {
		if (!json_get(message->params, &message->index, "progressToken", &value) || !json_integer(value, &id))
			return;
		struct call *call = find_by_progress(session, (uint64_t)id);
		if (call)
			call_on_progress(call, message->params);
	} else if (json_string_is(message->method, "notifications/cancelled")) {
		if (json_get(message->params, &message->index, "requestId", &value))
			server_request_withdraw(session, value);
		session_pump(session); /* a task may have all its answers now */
	} else if (subscriptions_deliver(message->method, &name)) {
		if (!json_string_is(message->method, "notifications/resources/updated"))
			list_cache_changed(&session->lists);
		if (json_string_is(message->method, "notifications/tools/list_changed"))
			tool_mirrors_on_change(session);
		subscriptions_notify(session, name, message->params);
	} else if (json_string_is(message->method, "notifications/message")) {
		logging_on_message(session, message, stream);
	} else if (json_string_is(message->method, "notifications/elicitation/complete")) {
		on_elicitation_complete(session, message);
	} else {
		session_log(session, LOG_DEBUG, "notification-dropped", "%.*s", (int)message->method.len,
			message->method.ptr);
	}
}

static void on_one(struct session *session, struct span value, const struct json_index *index, uint64_t stream)
{
	struct message message;
	struct error error = {0};
	if (message_parse(&message, value, index, &error)) {
		session_warn(session, "bad-message", "from the server: %s", error.text);
		return;
	}
	if (session->ops) {
		session->ops->on_message(session, &message, value, stream);
		return;
	}
	if (message.kind == MESSAGE_RESPONSE)
		on_response(session, &message);
	else if (message.kind == MESSAGE_NOTIFICATION)
		on_notification(session, &message, stream);
	else if (json_string_is(message.method, "ping"))
		on_ping(session, message.id);
	else
		server_request_receive(session, &message, stream);
}

bool session_on_message(struct session *session, struct span text, uint64_t stream)
{
	struct span value, element;
	struct json_index index = {0};
	struct error error = {0};
	if (session->state == SESSION_DEAD)
		return false;
	session->proxy->metrics.server_bytes_in += text.len;
	if (json_check(text, &value, &index, &error)) {
		session_warn(session, "bad-message", "from the server: %s", error.text);
		return false;
	}
	if (json_type(value) != JSON_ARRAY) {
		on_one(session, value, &index, stream);
		return true;
	}
	/* Batches exist in 2025-03-26 only, where a client must take them (basic/index "Batching"). */
	if (!session->ops && session->version != LEGACY_2025_03_26) {
		session_warn(session, "bad-message", "a batch from a server of revision %s",
			legacy_version_names[session->version]);
		return false;
	}
	struct json_walk walk = json_walk(value, &index);
	while (session->state != SESSION_DEAD && json_next_element(&walk, &element))
		on_one(session, element, &index, stream);
	return true;
}
