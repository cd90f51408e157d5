/* What comes from the server of a relay: responses, and where everything else goes. */
#include "proxy/elder.h"
#include "proxy/list.h"
#include "proxy/relay.h"
#include "proxy/session.h"

#include <stdlib.h>

/* The stream of a response. A server that reads numbers as doubles answers some ids under another number. */
static struct relay_stream *find_answered(struct relay *relay, struct span id)
{
	struct relay_stream *stream = relay_stream_by_id(relay, id);
	if (stream)
		return stream;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (!stream->answered && !stream->cancelled && json_number(id) == json_number(span_of(stream->id)))
			break;
	return stream;
}

void relay_on_opened(struct relay *relay, const char *version)
{
	struct session *session = relay->session;
	free(relay->version);
	relay->version = version ? strdup(version) : NULL;
	session_set_ready(session);
	session->proxy->metrics.unreachable_until_ms = 0; /* whatever its era */
	session_log(session, LOG_INFO, "session-ready", "of a legacy client, protocol revision %s",
		relay->version ? relay->version : "unknown");
}

/* The answer to initialize says whether there is a session now. */
static void on_initialize_answer(struct relay *relay, const struct message *message)
{
	struct span value;
	if (!json_get(message->result, &message->index, "protocolVersion", &value))
		return;
	char *version = json_string_dup(value);
	relay_on_opened(relay, version);
	free(version);
}

void relay_respond(struct relay_stream *stream, struct buf *response)
{
	struct relay *relay = stream->relay;
	struct session *session = relay->session;
	uint64_t answered = stream->request;
	bool is_initialize = stream->number == relay->initialize;
	bool opened = is_initialize && session->state == SESSION_READY;
	struct client *client = stream->exchange ? stream->exchange->client : NULL;
	if (client && opened && !relay->pipe)
		client->session_id = relay->id;
	relay_stream_put(stream, response, true);
	if (client)
		client->session_id = NULL;
	if (session->state == SESSION_DEAD)
		return;
	session->proxy->upstream->forget(session->upstream, answered);
	if (is_initialize && !opened)
		relay_on_initialize_failed(relay);
	session_pump(session);
}

/* The response as the server spelled it, but for the id, which is as the client spelled it, and hidden entries. */
static struct buf restore(const struct relay_stream *stream, const struct message *message, struct span whole)
{
	const struct policy *policy = stream->relay->session->proxy->policy;
	struct span id = message->id, result = message->result;
	struct buf copy = {0};
	const char *at = whole.ptr;
	buf_reserve(&copy, whole.len);
	for (int i = 0; i < 2; i++) {
		bool is_id = !result.ptr || (id.ptr < result.ptr) == (i == 0);
		struct span value = is_id ? id : result;
		if (value.ptr < at)
			break; /* there is no result */
		buf_add(&copy, at, (size_t)(value.ptr - at));
		if (is_id)
			buf_add_text(&copy, stream->id);
		else
			list_add_visible(&copy, stream->method, result, &message->index, policy);
		at = value.ptr + value.len;
	}
	buf_add(&copy, at, (size_t)(whole.ptr + whole.len - at));
	return copy;
}

static void on_response(struct relay *relay, const struct message *message, struct span whole)
{
	struct session *session = relay->session;
	struct relay_stream *stream = find_answered(relay, message->id);
	if (!stream) {
		session_log(session, LOG_DEBUG, "late-answer", "the server answered a request that is over");
		return;
	}
	if (stream->number == relay->initialize)
		on_initialize_answer(relay, message);
	relay_observe_answer(stream, message);
	struct buf response = restore(stream, message, whole);
	relay_respond(stream, &response);
}

/* Where a message goes that is no response: to the request that it belongs to, as far as that can be seen; a question to
 * somebody who listens; the rest to the standalone stream. */
static struct relay_stream *choose_stream(struct relay *relay, const struct message *message, uint64_t request)
{
	struct relay_stream *stream = request ? relay_stream_of_request(relay, request) : NULL;
	struct span token;
	if (stream)
		return stream;
	if (json_string_is(message->method, "notifications/progress") &&
		json_get(message->params, &message->index, "progressToken", &token))
		TAILQ_FOREACH (stream, &relay->streams, link)
			if (stream->progress_token && !stream->answered &&
				json_same(token, span_of(stream->progress_token)))
				return stream;
	if (message->kind == MESSAGE_NOTIFICATION && relay->standalone.reader)
		return &relay->standalone;
	struct relay_stream *unread = NULL;
	TAILQ_FOREACH_REVERSE(stream, &relay->streams, relay_streams, link)
	{
		if (stream->answered || stream->cancelled)
			continue;
		if (stream->exchange || stream->reader)
			return stream;
		unread = unread ? unread : stream;
	}
	return unread && !relay->standalone.reader ? unread : &relay->standalone;
}

void relay_send(struct relay_stream *stream, struct buf *message)
{
	struct relay *relay = stream->relay;
	if (!relay->pipe)
		relay_stream_put(stream, message, false);
	else if (!buf_ok(message))
		session_log(relay->session, LOG_ERROR, "no-memory", "a message to the client is lost");
	else
		(void)!relay->pipe->ops->send(
			relay->pipe, message); /* who does not read is cut off, and the face says so */
	buf_free(message);
}

void relay_pass(struct relay *relay, const struct message *message, struct span whole, uint64_t request)
{
	struct buf copy = {0};
	buf_add_span(&copy, whole);
	if (!relay->pipe)
		relay_send(choose_stream(relay, message, request), &copy);
	else if (message->kind == MESSAGE_NOTIFICATION && buf_ok(&copy))
		relay->pipe->ops->notify(relay->pipe, &copy);
	else
		relay_send(&relay->standalone, &copy);
	buf_free(&copy);
}

/* Progress of a modern request on the same pipe is told by its own session, and by nobody else. */
static bool crosses(const struct relay *relay, const struct message *message)
{
	const struct exchange *exchange;
	struct span token;
	if (!relay->pipe || !json_string_is(message->method, "notifications/progress") ||
		!json_get(message->params, &message->index, "progressToken", &token))
		return false;
	TAILQ_FOREACH (exchange, &relay->pipe->exchanges, of_client)
		if (!exchange->stream && exchange->progress_token &&
			json_same(token, span_of(exchange->progress_token)))
			return true;
	return false;
}

void relay_on_message(struct session *session, const struct message *message, struct span whole, uint64_t request)
{
	struct relay *relay = session->owner;
	if (relay->elder) {
		elder_on_message(relay, message, whole, request);
	} else if (message->kind == MESSAGE_RESPONSE && !(relay->pipe && !message->id.ptr)) {
		on_response(relay, message, whole);
	} else if (!crosses(relay, message)) {
		relay_observe_question(relay, message, request);
		relay_pass(relay, message, whole, request);
	}
}

void relay_on_request_failed(struct session *session, uint64_t request, int http_status, const char *why)
{
	struct relay *relay = session->owner;
	struct relay_stream *stream = relay_stream_of_request(relay, request);
	struct buf body = {0};
	if (relay->elder && elder_on_listen_over(relay, request))
		return;
	if (!stream || stream->answered || stream->cancelled)
		return;
	bool is_initialize = stream->number == relay->initialize;
	if (stream->exchange && !stream->has_events && !stream->reader) {
		struct exchange *exchange = relay_stream_take_exchange(stream);
		stream->answered = true;
		if (session->gone && !relay->pipe) /* so the client opens another (2025-11-25 basic/transports) */
			exchange_fail(exchange, 404, RPC_SESSION_NOT_FOUND, "Session not found", NULL);
		else
			exchange_fail_unreachable(exchange, http_status, session->challenge, why, NULL);
		relay_stream_settle(stream);
	} else {
		body = message_error(span_of(stream->id), RPC_INTERNAL_ERROR, why, NULL);
		relay_stream_put(stream, &body, true);
	}
	if (session->state == SESSION_DEAD)
		return;
	if (is_initialize)
		relay_on_initialize_failed(relay);
	session_pump(session);
}
