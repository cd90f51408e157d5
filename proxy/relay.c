#include "proxy/relay.h"

#include "proxy/elder.h"
#include "proxy/era.h"
#include "proxy/list.h"
#include "proxy/session.h"

#include <stdlib.h>

enum { RPC_SESSION_NOT_FOUND = -32001 }; /* as legacy servers say it under HTTP 404 */

static const char not_taken[] = "The server does not read what it is sent";

static const struct session_ops ops;

static struct relay_stream *find_by_id(struct relay *relay, struct span id)
{
	struct relay_stream *stream;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (id.ptr && !stream->answered && !stream->cancelled && json_same(id, span_of(stream->id)))
			return stream;
	return NULL;
}

/* The stream of a response. A server that reads numbers as doubles answers some ids under another number. */
static struct relay_stream *find_answered(struct relay *relay, struct span id)
{
	struct relay_stream *stream = find_by_id(relay, id);
	if (stream)
		return stream;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (!stream->answered && !stream->cancelled && json_number(id) == json_number(span_of(stream->id)))
			break;
	return stream;
}

/* Making and ending. */

static void relay_free(struct session *session)
{
	struct relay *relay = session->owner;
	free(relay->version);
	elder_free(relay->elder);
	free(relay);
}

static struct relay *relay_new(struct proxy *proxy, struct client *client, struct error *error)
{
	uint8_t id[RELAY_ID_BYTES];
	bool modern = proxy->era == POLICY_ERA_MODERN;
	struct relay *relay = calloc(1, sizeof(*relay));
	struct elder *elder = relay && modern ? elder_new() : NULL;
	if (!relay || (modern && !elder)) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		free(relay);
		return NULL;
	}
	relay->elder = elder;
	TAILQ_INIT(&relay->streams);
	TAILQ_INIT(&relay->events);
	relay->standalone.relay = relay;
	proxy->env->random(proxy->env->ctx, id, sizeof(id));
	sodium_bin2hex(relay->id, sizeof(relay->id), id, sizeof(id));
	relay->session = session_open(proxy, client, &ops, relay, modern, error);
	if (!relay->session) {
		elder_free(elder);
		free(relay);
		return NULL;
	}
	if (client->ops->header) {
		HASH_ADD(hh, proxy->relays, id, RELAY_ID_CHARS, relay);
		if (!relay->hh.tbl) {
			error_set(error, ERROR_MEMORY, "Out of memory");
			session_close(relay->session, error->text);
			return NULL;
		}
	} else {
		relay->pipe = client;
		client->relay = relay;
	}
	return relay;
}

/* The session is over. `why` is NULL when that is in order. */
static void on_end(struct session *session, int http_status, const char *why)
{
	struct relay *relay = session->owner;
	struct proxy *proxy = session->proxy;
	struct client *pipe = relay->pipe;
	struct relay_stream *stream;
	if (relay->elder)
		elder_on_end(relay);
	if (relay->elder && why)
		era_doubt(proxy);
	while ((stream = TAILQ_FIRST(&relay->streams))) {
		struct exchange *exchange = relay_stream_take_exchange(stream);
		if (exchange)
			exchange_fail_unreachable(
				exchange, http_status, session->challenge, why ? why : "The session is over", NULL);
		relay_stream_hang_up(stream);
		relay_stream_free(stream);
	}
	relay_stream_hang_up(&relay->standalone);
	relay_forget_events(relay);
	if (relay->hh.tbl)
		HASH_DELETE(hh, proxy->relays, relay);
	relay->pipe = NULL;
	if (pipe) {
		pipe->relay = NULL;
		pipe->ops->finish(pipe);
	}
}

const struct relay *relay_of_session(const struct session *session)
{
	return session->ops == &ops ? session->owner : NULL;
}

unsigned relay_running(const struct relay *relay)
{
	const struct relay_stream *stream;
	unsigned count = 0;
	TAILQ_FOREACH (stream, &relay->streams, link)
		count += !stream->answered && !stream->cancelled;
	return count;
}

/* Somebody waits or listens. A request whose client has gone holds nothing: it runs on, and its client may come back for the
 * response while the session is there (deadlines.idle_session). */
static bool in_use(const struct session *session)
{
	const struct relay *relay = session->owner;
	const struct relay_stream *stream;
	bool ends = session->proxy->shutting_down;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (stream->exchange || (stream->reader && !(ends && stream->answered)))
			return true;
	return !ends && (relay->pipe || relay->standalone.reader);
}

/* Over HTTP nobody knows the session's id then; on a pipe the client may try again. */
static void on_initialize_failed(struct relay *relay)
{
	if (relay->pipe)
		relay->initialize = 0;
	else
		session_close(relay->session, "the server refused to initialize");
}

/* From the client. */

static void on_request(struct relay *relay, struct exchange *exchange, const struct message *message, struct span whole)
{
	struct buf copy = {0};
	if (list_hides(relay->session->proxy->policy, message)) {
		exchange_fail(exchange, 200, RPC_INVALID_PARAMS, "Not found", NULL);
		return;
	}
	if (relay_running(relay) >= relay->session->proxy->policy->limits.exchanges) {
		metrics_refused(&exchange->proxy->metrics, "too_many_requests", proxy_now(exchange->proxy));
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Too many open requests (limits.exchanges)", NULL);
		return;
	}
	bool initializes = !relay->initialize && json_string_is(message->method, "initialize");
	struct relay_stream *stream = relay_stream_new(relay, exchange, message);
	if (!stream) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
		if (initializes)
			on_initialize_failed(relay);
		return;
	}
	if (initializes)
		relay->initialize = stream->number;
	if (relay->elder) {
		elder_on_request(stream, message);
		return;
	}
	relay_observe_request(stream, message);
	buf_add_span(&copy, whole);
	if (session_send(relay->session, UPSTREAM_REQUEST, stream->number, &copy)) {
		relay_stream_free(stream);
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, not_taken, NULL);
		if (initializes)
			on_initialize_failed(relay);
	}
}

/* The server need not answer a cancelled request, so nobody waits for it any more. */
static void on_cancelled(struct relay *relay, const struct message *message)
{
	struct span id = {0};
	json_get(message->params, &message->index, "requestId", &id);
	struct relay_stream *stream = find_by_id(relay, id);
	if (!stream)
		return;
	if (relay->elder)
		elder_on_cancelled(stream);
	stream->cancelled = true;
	relay_stream_end_call(stream);
	relay->session->proxy->upstream->forget(relay->session->upstream, stream->request);
	if (relay->pipe) {
		exchange_drop(relay_stream_take_exchange(stream));
	} else {
		relay_stream_hang_up(stream);
	}
	relay_stream_settle(stream);
}

/* false if the server does not take it. */
static bool on_other(struct relay *relay, const struct message *message, struct span whole)
{
	struct session *session = relay->session;
	bool is_response = message->kind == MESSAGE_RESPONSE;
	bool initialized = !is_response && json_string_is(message->method, "notifications/initialized");
	struct buf copy = {0};
	if (relay->elder) {
		if (initialized)
			elder_on_initialized(relay);
		else if (json_string_is(message->method, "notifications/cancelled"))
			on_cancelled(relay, message);
		return true;
	}
	buf_add_span(&copy, whole);
	if (session_send(session, is_response ? UPSTREAM_RESPONSE : UPSTREAM_NOTIFICATION, 0, &copy)) {
		session_log(session, LOG_WARNING, "message-not-taken", "%s", not_taken);
		return false;
	}
	if (!is_response && json_string_is(message->method, "notifications/cancelled"))
		on_cancelled(relay, message);
	if (initialized && relay->version && !relay->established) {
		relay->established = true;
		session->proxy->upstream->establish(session->upstream, relay->version);
	}
	return true;
}

static bool is_modern(const struct message *message, const struct request_headers *headers)
{
	struct span meta, version;
	if (headers && headers->protocol_version.ptr && span_is(headers->protocol_version, "2026-07-28"))
		return true;
	return json_get(message->params, &message->index, "_meta", &meta) &&
	       json_get(meta, NULL, "io.modelcontextprotocol/protocolVersion", &version);
}

static void open_relay(struct proxy *proxy, struct client *client, const struct message *message, struct span whole)
{
	struct error error = {0};
	struct exchange *exchange = exchange_admit(proxy, client, message->id);
	if (!exchange)
		return;
	struct relay *relay = relay_new(proxy, client, &error);
	if (relay)
		on_request(relay, exchange, message, whole);
	else
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, error.text, NULL);
}

static enum received pass(struct relay *relay, struct client *client, const struct message *message, struct span whole)
{
	enum received received = message->kind == MESSAGE_REQUEST ? RECEIVED_REQUEST : RECEIVED_NOTIFICATION;
	struct exchange *exchange = NULL;
	session_touch(relay->session, client);
	if (message->kind == MESSAGE_REQUEST)
		exchange = exchange_admit(relay->session->proxy, client, message->id);
	if (exchange) {
		on_request(relay, exchange, message, whole);
	} else if (message->kind == MESSAGE_RESPONSE && relay->elder) {
		elder_on_answer(relay, message);
	} else if (message->kind != MESSAGE_REQUEST && !on_other(relay, message, whole) && !relay->pipe) {
		exchange_reject(client, (struct span){0}, 503, RPC_INTERNAL_ERROR, not_taken);
		received = RECEIVED_INVALID;
	}
	session_pump(relay->session); /* the idle time begins anew */
	return received;
}

bool relay_owns(struct proxy *proxy, const struct client *client, const struct message *message,
	const struct request_headers *headers)
{
	return proxy->policy->legacy_clients == POLICY_LEGACY_SERVE && !is_modern(message, headers) &&
	       (client->relay || relay_of_client(proxy, client));
}

bool relay_takes(struct proxy *proxy, struct client *client, const struct message *message, struct span whole,
	const struct request_headers *headers, enum received *received)
{
	struct relay *relay = client->relay;
	struct span id = {0};
	if (proxy->policy->legacy_clients == POLICY_LEGACY_REFUSE || is_modern(message, headers))
		return false;
	bool names_session = client->ops->header && client->ops->header(client, "mcp-session-id", &id);
	bool opens = message->kind == MESSAGE_REQUEST && json_string_is(message->method, "initialize");
	if (names_session && !opens) {
		relay = relay_of_client(proxy, client);
		if (!relay) {
			exchange_reject(client, message->id, 404, RPC_SESSION_NOT_FOUND, "Session not found");
			*received = RECEIVED_INVALID;
			return true;
		}
	}
	if (!relay && !opens)
		return false;
	*received = RECEIVED_REQUEST;
	if (relay)
		*received = pass(relay, client, message, whole);
	else
		open_relay(proxy, client, message, whole);
	return true;
}

void relay_on_exchange_gone(struct exchange *exchange)
{
	struct relay_stream *stream = exchange->stream;
	struct session *session = stream->relay->session;
	(void)relay_stream_take_exchange(stream);
	relay_stream_settle(stream);
	session_pump(session);
}

void relay_on_client_gone(struct client *client)
{
	struct relay_stream *stream = client->reads;
	struct relay *relay = client->relay;
	client->reads = NULL;
	client->relay = NULL;
	if (stream) {
		struct session *session = stream->relay->session;
		stream->reader = NULL;
		relay_stream_settle(stream);
		session_pump(session);
	}
	if (relay) {
		relay->pipe = NULL;
		session_close(relay->session, "the client is gone");
	}
}

/* From the server. */

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
		on_initialize_failed(relay);
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
	else if (!buf_ok(message) || !relay->pipe->ops->send(relay->pipe, message))
		session_log(relay->session, LOG_ERROR, "no-memory", "a message to the client is lost");
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

static void on_message(struct session *session, const struct message *message, struct span whole, uint64_t request)
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

static void on_request_failed(struct session *session, uint64_t request, int http_status, const char *why)
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
		on_initialize_failed(relay);
	session_pump(session);
}

static const struct session_ops ops = {
	.on_message = on_message,
	.on_request_failed = on_request_failed,
	.on_end = on_end,
	.in_use = in_use,
	.free = relay_free,
};
