#include "proxy/relay.h"

#include "proxy/elder.h"
#include "proxy/era.h"
#include "proxy/list.h"
#include "proxy/session.h"

#include <stdlib.h>

static const char not_taken[] = "The server does not read what it is sent";

static const struct session_ops ops;

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

void relay_on_initialize_failed(struct relay *relay)
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
			relay_on_initialize_failed(relay);
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
			relay_on_initialize_failed(relay);
	}
}

/* The server need not answer a cancelled request, so nobody waits for it any more. */
static void on_cancelled(struct relay *relay, const struct message *message)
{
	struct span id = {0};
	json_get(message->params, &message->index, "requestId", &id);
	struct relay_stream *stream = relay_stream_by_id(relay, id);
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

static const struct session_ops ops = {
	.on_message = relay_on_message,
	.on_request_failed = relay_on_request_failed,
	.on_end = on_end,
	.in_use = in_use,
	.free = relay_free,
};
