#include "proxy/through.h"

#include "proxy/era.h"
#include "proxy/json_write.h"
#include "proxy/list.h"
#include "proxy/session.h"
#include "proxy/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SUBSCRIPTION_ID "io.modelcontextprotocol/subscriptionId"

/* A session, and the requests that are on their way in it. */
struct through {
	struct session *session;
	struct passing *requests; /* table by upstream id */
	bool answers;		  /* it has said something */
};

struct passing {
	UT_hash_handle hh;
	uint64_t id; /* upstream */
	struct through *through;
	struct exchange *exchange;
	const struct method *method; /* or NULL: none that is known here */
	int log_level;		     /* of the log messages that it asked for, or LOGGING_NONE */
};

static const struct session_ops ops;

/* Requests. */

static void passing_free(struct passing *passing)
{
	if (passing->exchange)
		passing->exchange->passing = NULL;
	HASH_DELETE(hh, passing->through->requests, passing);
	free(passing);
}

static struct passing *passing_new(struct through *through, struct exchange *exchange, const struct message *message)
{
	struct proxy *proxy = through->session->proxy;
	struct span meta, level;
	struct passing *passing = calloc(1, sizeof(*passing));
	if (!passing)
		return NULL;
	passing->id = through->session->next_id++;
	passing->through = through;
	passing->method = method_find(message->method);
	passing->log_level = LOGGING_NONE;
	if (json_get(message->params, &message->index, "_meta", &meta) &&
		json_get(meta, NULL, "io.modelcontextprotocol/logLevel", &level))
		(void)logging_read_level(level, &passing->log_level);
	HASH_ADD(hh, through->requests, id, sizeof(passing->id), passing);
	if (!passing->hh.tbl) {
		free(passing);
		return NULL;
	}
	passing->exchange = exchange;
	exchange->passing = passing;
	return passing;
}

static struct passing *find(const struct through *through, uint64_t id)
{
	struct proxy *proxy = through->session->proxy;
	struct passing *passing = NULL;
	HASH_FIND(hh, through->requests, &id, sizeof(id), passing);
	return passing;
}

/* The session of the client's principal. */
static struct through *through_for(struct proxy *proxy, const struct client *client, struct error *error)
{
	struct session *session;
	TAILQ_FOREACH (session, &proxy->sessions, link)
		if (session->ops == &ops && session->state == SESSION_READY &&
			sodium_memcmp(session->principal, client->principal, PRINCIPAL_BYTES) == 0)
			return session->owner;
	struct through *through = calloc(1, sizeof(*through));
	if (!through) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		return NULL;
	}
	through->session = session_open(proxy, client, &ops, through, true, error);
	if (!through->session) {
		free(through);
		return NULL;
	}
	session_set_ready(through->session);
	return through;
}

/* Appends an object with another value for one member of its `_meta`. */
static void add_with_meta(
	struct buf *out, struct span object, const struct json_index *index, const char *key, const char *value)
{
	struct json_member member, meta;
	struct json_walk walk = json_walk(object, index);
	buf_add_text(out, "{");
	while (json_next_member(&walk, &member)) {
		if (!json_key_is(member.key, "_meta")) {
			json_add_member(out, &member);
			continue;
		}
		struct json_walk inner = json_walk(member.value, NULL);
		json_add_key(out, "_meta");
		buf_add_text(out, "{");
		while (json_next_member(&inner, &meta)) {
			if (json_key_is(meta.key, key)) {
				json_add_key(out, key);
				buf_add_text(out, value);
			} else {
				json_add_member(out, &meta);
			}
		}
		buf_add_text(out, "}");
	}
	buf_add_text(out, "}");
}

/* The params with our progress token. */
static void add_params(struct buf *out, const struct message *message, const struct exchange *exchange, uint64_t id)
{
	char token[24];
	snprintf(token, sizeof(token), "%" PRIu64, id);
	if (exchange->progress_token)
		add_with_meta(out, message->params, &message->index, "progressToken", token);
	else
		buf_add_span(out, message->params);
}

void through_start(struct exchange *exchange, const struct message *message)
{
	struct proxy *proxy = exchange->proxy;
	struct error error = {0};
	struct buf request = {0};
	if (list_hides(proxy->policy, message)) {
		exchange_fail(exchange, 200, RPC_INVALID_PARAMS, "Not found", NULL);
		return;
	}
	struct through *through = through_for(proxy, exchange->client, &error);
	struct passing *passing = through ? passing_new(through, exchange, message) : NULL;
	if (!passing) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, through ? "Out of memory" : error.text, NULL);
		return;
	}
	session_touch(through->session, exchange->client);
	buf_reserve(&request, message->params.len + 160);
	buf_printf(&request, "{\"jsonrpc\":\"2.0\",\"id\":%" PRIu64 ",\"method\":", passing->id);
	buf_add_span(&request, message->method);
	if (message->params.ptr) {
		buf_add_text(&request, ",\"params\":");
		add_params(&request, message, exchange, passing->id);
	}
	buf_add_text(&request, "}");
	if (session_send(through->session, UPSTREAM_REQUEST, passing->id, &request)) {
		passing_free(passing);
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "The server does not read what it is sent", NULL);
	}
}

void through_on_exchange_gone(struct exchange *exchange)
{
	struct passing *passing = exchange->passing;
	struct session *session = passing->through->session;
	struct proxy *proxy = session->proxy;
	uint64_t id = passing->id;
	passing_free(passing);
	/* Over HTTP the end of the stream says it (basic/patterns/cancellation). */
	if (!proxy->upstream->has_streams)
		session_cancel_request(session, id, "The client has gone");
	proxy->upstream->forget(session->upstream, id);
	session_pump(session);
}

/* Responses. */

/* The HTTP status that belongs to a response (transports/streamable-http, basic/index "Error Codes"). */
static int http_status_of(struct span error)
{
	struct span value;
	int64_t code = 0;
	if (!error.ptr)
		return 200;
	if (json_get(error, NULL, "code", &value) && !json_integer(value, &code))
		code = 0;
	switch (code) {
	case RPC_METHOD_NOT_FOUND:
		return 404;
	case RPC_PARSE_ERROR:
	case RPC_INVALID_REQUEST:
	case RPC_INVALID_PARAMS:
	case RPC_HEADER_MISMATCH:
	case RPC_MISSING_CAPABILITY:
	case RPC_UNSUPPORTED_VERSION:
		return 400;
	default:
		return 200;
	}
}

static void on_response(struct through *through, const struct message *message)
{
	struct session *session = through->session;
	struct buf body = {0};
	int64_t id;
	struct passing *passing =
		message->id.ptr && json_integer(message->id, &id) ? find(through, (uint64_t)id) : NULL;
	if (!passing) {
		session_log(session, LOG_DEBUG, "late-answer", "the server answered a request that is over");
		return;
	}
	struct exchange *exchange = passing->exchange;
	const struct method *method = passing->method;
	uint64_t answered = passing->id;
	passing_free(passing);
	buf_reserve(&body, message->result.len + message->error.len + 16);
	buf_add_text(&body, message->error.ptr ? "\"error\":" : "\"result\":");
	if (message->error.ptr)
		buf_add_span(&body, message->error);
	else if (method && method->id == METHOD_LISTEN && json_type(message->result) == JSON_OBJECT)
		add_with_meta(&body, message->result, &message->index, SUBSCRIPTION_ID, exchange->id);
	else
		list_add_visible(&body, method, message->result, &message->index, session->proxy->policy);
	exchange_respond(exchange, http_status_of(message->error), message_body(&body));
	buf_free(&body);
	if (session->state == SESSION_DEAD)
		return;
	session->proxy->upstream->forget(session->upstream, answered);
	session_pump(session);
}

/* Notifications. */

static struct passing *find_spelled(const struct through *through, struct span value)
{
	int64_t id;
	return json_integer(value, &id) ? find(through, (uint64_t)id) : NULL;
}

/* On a pipe nothing says whose log message it is: it can only be told when one request alone asked for such. */
static struct passing *find_logger(const struct through *through)
{
	struct passing *passing, *found = NULL;
	for (passing = through->requests; passing; passing = passing->hh.next) {
		if (passing->log_level == LOGGING_NONE)
			continue;
		if (found)
			return NULL;
		found = passing;
	}
	return found;
}

static void on_notification(struct through *through, const struct message *message, uint64_t stream)
{
	struct passing *passing = NULL;
	struct span meta, value;
	if (json_string_is(message->method, "notifications/progress")) {
		if (json_get(message->params, &message->index, "progressToken", &value))
			passing = find_spelled(through, value);
		if (passing)
			exchange_progress(passing->exchange, message->params);
		return;
	}
	bool logs = json_string_is(message->method, "notifications/message");
	bool subscribed = json_get(message->params, &message->index, "_meta", &meta) &&
			  json_get(meta, NULL, SUBSCRIPTION_ID, &value);
	if (subscribed)
		passing = find_spelled(through, value);
	else if (stream)
		passing = find(through, stream);
	else if (logs)
		passing = find_logger(through);
	/* Nobody gets log messages whose request did not ask for such (server/utilities/logging). */
	if (passing && logs && !logging_is_wanted(message, passing->log_level))
		passing = NULL;
	char *method = passing ? json_string_dup(message->method) : NULL;
	if (method)
		exchange_notify(passing->exchange, method, message->params, subscribed ? SUBSCRIPTION_ID : NULL,
			subscribed ? passing->exchange->id : NULL);
	else
		session_log(through->session, LOG_DEBUG, "notification-dropped", "%.*s", (int)message->method.len,
			message->method.ptr);
	free(method);
}

static void on_message(struct session *session, const struct message *message, struct span whole, uint64_t stream)
{
	struct through *through = session->owner;
	(void)whole;
	if (!through->answers && !session->proxy->upstream->has_streams)
		session->proxy->upstream->establish(session->upstream, "2026-07-28");
	through->answers = true;
	session->proxy->metrics.unreachable_until_ms = 0;
	if (message->kind == MESSAGE_RESPONSE)
		on_response(through, message);
	else if (message->kind == MESSAGE_NOTIFICATION)
		on_notification(through, message, stream);
	else
		session_warn(
			session, "bad-message", "a request from a server of a revision that knows none (upstream.era)");
}

/* The end. */

static void fail(struct passing *passing, int http_status, const char *why)
{
	struct exchange *exchange = passing->exchange;
	const char *challenge = passing->through->session->challenge;
	passing_free(passing);
	exchange_fail_unreachable(exchange, http_status, challenge, why, "{\"reason\":\"unavailable\"}");
}

static void on_request_failed(struct session *session, uint64_t request_id, int http_status, const char *why)
{
	struct passing *passing = find(session->owner, request_id);
	if (!passing)
		return;
	fail(passing, http_status, why);
	session_pump(session);
}

static void on_end(struct session *session, int http_status, const char *why)
{
	struct through *through = session->owner;
	if (why)
		era_doubt(session->proxy);
	while (through->requests)
		fail(through->requests, http_status, why ? why : "The session is over");
}

static bool in_use(const struct session *session)
{
	return ((const struct through *)session->owner)->requests != NULL;
}

unsigned through_running(const struct session *session)
{
	return session->ops == &ops ? HASH_COUNT(((const struct through *)session->owner)->requests) : 0;
}

static void through_free(struct session *session)
{
	free(session->owner);
}

static const struct session_ops ops = {
	.on_message = on_message,
	.on_request_failed = on_request_failed,
	.on_end = on_end,
	.in_use = in_use,
	.free = through_free,
};
