#include "proxy/exchange.h"

#include "proxy/call.h"
#include "proxy/client_task.h"
#include "proxy/era.h"
#include "proxy/json_write.h"
#include "proxy/relay.h"
#include "proxy/request_check.h"
#include "proxy/subscription.h"
#include "proxy/through.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void client_init(struct client *client, const struct face_ops *ops)
{
	client->ops = ops;
	TAILQ_INIT(&client->exchanges);
}

/* The life of an exchange. */

static void exchange_free(struct grave *grave)
{
	struct exchange *exchange = container_of(grave, struct exchange, grave);
	free(exchange->id);
	free(exchange->progress_token);
	free(exchange->trace);
	free(exchange);
}

void exchange_log(const struct exchange *exchange, enum log_level level, const char *event, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	env_log(exchange->proxy->env, (struct log_line){.level = level, .event = event, .trace = exchange->trace},
		ENV_LOG_BYTES, format, args);
	va_end(args);
}

/* The trace id of a W3C traceparent, `00-<trace id>-<parent id>-<flags>`, as a terminated copy; NULL if it is none. */
static char *make_trace(struct span trace_parent)
{
	if (trace_parent.len != 57 || trace_parent.ptr[0] != '"')
		return NULL;
	struct span id = {trace_parent.ptr + 4, 32};
	for (size_t i = 0; i < id.len; i++)
		if (!strchr("0123456789abcdef", id.ptr[i]))
			return NULL;
	return span_dup(id);
}

static struct exchange *exchange_new(struct proxy *proxy, struct client *client, struct span id)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		return NULL;
	exchange->id = span_dup(id);
	if (!exchange->id) {
		free(exchange);
		return NULL;
	}
	exchange->proxy = proxy;
	exchange->client = client;
	TAILQ_INSERT_TAIL(&client->exchanges, exchange, of_client);
	proxy->counts.exchanges++;
	return exchange;
}

/* Takes the exchange off every list; what is left of it goes with the end of the turn. */
void exchange_drop(struct exchange *exchange)
{
	if (exchange->call)
		TAILQ_REMOVE(&exchange->call->waiters, exchange, of_call);
	exchange->call = NULL;
	TAILQ_REMOVE(&exchange->client->exchanges, exchange, of_client);
	exchange->proxy->counts.exchanges--;
	proxy_bury(exchange->proxy, &exchange->grave, exchange_free);
}

void exchange_deliver(struct exchange *exchange, int http_status, struct buf *message)
{
	struct client *client = exchange->client;
	exchange->proxy->metrics.client_bytes_out += message->len;
	exchange_drop(exchange);
	client->ops->respond(client, http_status, message);
}

void exchange_respond(struct exchange *exchange, int http_status, struct span body)
{
	struct buf message = message_response(span_of(exchange->id), body);
	exchange_deliver(exchange, http_status, &message);
}

void exchange_respond_taking(struct exchange *exchange, int http_status, struct buf *body)
{
	struct buf message = message_response_around(span_of(exchange->id), body);
	exchange_deliver(exchange, http_status, &message);
}

void exchange_fail(struct exchange *exchange, int http_status, int code, const char *text, const char *data)
{
	struct buf body = {0};
	message_add_error(&body, code, text, data);
	exchange_respond(exchange, http_status, message_body(&body));
	buf_free(&body);
}

void exchange_fail_unreachable(
	struct exchange *exchange, int http_status, const char *challenge, const char *why, const char *data)
{
	struct client *client = exchange->client;
	bool is_refusal = http_status == 401 || http_status == 403;
	client->challenge = challenge;
	exchange_fail(exchange, is_refusal ? http_status : 502, RPC_INTERNAL_ERROR, why, data);
	client->challenge = NULL;
}

/* Appends `"_meta":{…}` without what only subscriptions say, and with one member of ours. */
static void add_notification_meta(struct buf *out, struct span meta, const char *meta_key, const char *meta_value)
{
	struct json_member member;
	struct json_walk walk = json_walk(meta, NULL);
	size_t start = out->len;
	json_add_key(out, "_meta");
	buf_add_text(out, "{");
	size_t empty = out->len;
	while (json_next_member(&walk, &member))
		if (!json_key_is(member.key, "io.modelcontextprotocol/subscriptionId"))
			json_add_member(out, &member);
	if (meta_key) {
		json_add_key(out, meta_key);
		buf_add_text(out, meta_value);
	}
	if (out->len == empty)
		out->len = start;
	else
		buf_add_text(out, "}");
}

static void notify(struct exchange *exchange, const char *method, struct span params, const char *meta_key,
	const char *meta_value, const char *progress_token)
{
	struct buf message = {0};
	struct json_member member;
	struct span meta = {0};
	struct json_walk walk = json_walk(params, NULL);
	buf_add_text(&message, "{\"jsonrpc\":\"2.0\",\"method\":");
	buf_add_json_string(&message, span_of(method)); /* a modern server may say anything */
	buf_add_text(&message, ",\"params\":{");
	while (json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "_meta"))
			meta = member.value;
		else if (!progress_token || !json_key_is(member.key, "progressToken"))
			json_add_member(&message, &member);
	}
	if (progress_token) {
		json_add_key(&message, "progressToken");
		buf_add_text(&message, progress_token);
	}
	add_notification_meta(&message, meta, meta_key, meta_value);
	buf_add_text(&message, "}}");
	if (buf_ok(&message)) {
		exchange->proxy->metrics.client_bytes_out += message.len;
		exchange->client->ops->notify(exchange->client, &message);
	}
	buf_free(&message);
}

void exchange_notify(
	struct exchange *exchange, const char *method, struct span params, const char *meta_key, const char *meta_value)
{
	notify(exchange, method, params, meta_key, meta_value, NULL);
}

void exchange_progress(struct exchange *exchange, struct span params)
{
	if (exchange->progress_token)
		notify(exchange, "notifications/progress", params, NULL, NULL, exchange->progress_token);
}

/* Nobody waits for the response any more. */
static void cancel(struct exchange *exchange)
{
	struct call *call = exchange->call;
	if (exchange->subscription)
		subscription_drop(exchange->subscription);
	if (exchange->stream)
		relay_on_exchange_gone(exchange);
	if (exchange->passing)
		through_on_exchange_gone(exchange);
	exchange_drop(exchange);
	if (call)
		call_on_exchange_gone(call, exchange);
}

void client_gone(struct proxy *proxy, struct client *client)
{
	struct exchange *exchange;
	era_forget(proxy, client);
	while ((exchange = TAILQ_FIRST(&client->exchanges))) {
		cancel(exchange);
	}
	relay_on_client_gone(client);
}

/* What is done with a message. */

static void reject(struct client *client, struct span id, int http_status, int code, const char *text, struct span data)
{
	char *copy = data.len ? span_dup(data) : NULL;
	struct buf message = message_error(id, code, text, copy);
	free(copy);
	client->ops->respond(client, http_status, &message);
}

static bool id_in_use(const struct client *client, struct span id)
{
	struct exchange *exchange;
	TAILQ_FOREACH (exchange, &client->exchanges, of_client)
		if (json_same(id, span_of(exchange->id)))
			return true;
	return false;
}

void exchange_reject(struct client *client, struct span id, int http_status, int code, const char *text)
{
	reject(client, id, http_status, code, text, (struct span){0});
}

struct exchange *exchange_admit(struct proxy *proxy, struct client *client, struct span id)
{
	struct exchange *exchange = NULL;
	if (id.len > MAX_ID_BYTES)
		exchange_reject(client, (struct span){0}, 400, RPC_INVALID_REQUEST, "The id is longer than 1024 bytes");
	else if (id_in_use(client, id))
		exchange_reject(client, id, 400, RPC_INVALID_REQUEST, "A request with this id is still open");
	else if (proxy->shutting_down) {
		metrics_refused(&proxy->metrics, "shutdown", proxy_now(proxy));
		exchange_reject(client, id, 503, RPC_INTERNAL_ERROR, "The proxy is shutting down");
	} else if (proxy->counts.exchanges >= proxy->policy->limits.exchanges) {
		metrics_refused(&proxy->metrics, "too_many_requests", proxy_now(proxy));
		exchange_reject(client, id, 503, RPC_INTERNAL_ERROR, "Too many open requests (limits.exchanges)");
	} else if (!(exchange = exchange_new(proxy, client, id)))
		exchange_reject(client, id, 503, RPC_INTERNAL_ERROR, "Out of memory");
	return exchange;
}

static void start(
	struct proxy *proxy, struct client *client, const struct message *message, const struct request *request)
{
	struct exchange *exchange = exchange_admit(proxy, client, message->id);
	proxy->metrics.methods[request->method->id]++;
	if (!exchange)
		return;
	if (request->progress_token.ptr && !(exchange->progress_token = span_dup(request->progress_token))) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
		return;
	}
	exchange->trace = make_trace(request->trace_parent);
	exchange->retried = request->request_state.ptr || request->input_responses.ptr;
	if (request->method->id == METHOD_LISTEN)
		subscription_start(exchange, request);
	else if (request->method->of_tasks)
		client_task_request(exchange, request);
	else if (request->request_state.ptr)
		call_retry(exchange, request);
	else
		call_start(exchange, request);
}

static void pass_through(struct proxy *proxy, struct client *client, const struct message *message)
{
	struct span meta, token;
	struct exchange *exchange = exchange_admit(proxy, client, message->id);
	if (!exchange)
		return;
	if (json_get(message->params, &message->index, "_meta", &meta) &&
		json_get(meta, NULL, "progressToken", &token) && !(exchange->progress_token = span_dup(token))) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
		return;
	}
	through_start(exchange, message);
}

/* stdio: notifications/cancelled names a request of ours (basic/patterns/cancellation). Unknown ids mean nothing. */
static void on_notification(struct client *client, const struct message *message)
{
	struct span id;
	if (!client->cancels_by_message || !json_string_is(message->method, "notifications/cancelled") ||
		!json_get(message->params, &message->index, "requestId", &id))
		return;
	struct exchange *exchange;
	TAILQ_FOREACH (exchange, &client->exchanges, of_client)
		if (json_same(id, span_of(exchange->id)))
			break;
	if (!exchange)
		return;
	cancel(exchange);
}

static enum received on_request(struct proxy *proxy, struct client *client, const struct message *message,
	const struct request_headers *headers)
{
	struct refusal refusal = {0};
	struct request request = {.params = message->params, .index = &message->index};
	bool is_modern = proxy->era == POLICY_ERA_MODERN;
	bool accepted = is_modern ? request_check_mirrors(&refusal, message, headers)
				  : request_check(&refusal, &request, proxy, message, headers);
	if (accepted && is_modern) {
		pass_through(proxy, client, message);
	} else if (accepted) {
		start(proxy, client, message, &request);
	} else {
		metrics_refused(&proxy->metrics, "invalid_request", proxy_now(proxy));
		reject(client, message->id, refusal.http_status, refusal.code, refusal.text, buf_span(&refusal.data));
	}
	buf_free(&refusal.data);
	return accepted ? RECEIVED_REQUEST : RECEIVED_INVALID;
}

enum received proxy_receive(
	struct proxy *proxy, struct client *client, struct span text, const struct request_headers *headers)
{
	struct span value;
	struct json_index index = {0};
	struct message message;
	struct error error = {0};
	enum received received;
	const struct span none = {0};
	proxy->metrics.client_bytes_in += text.len;
	if (json_check(text, &value, &index, &error)) {
		reject(client, none, 400, RPC_PARSE_ERROR, error.text, none);
		return RECEIVED_INVALID;
	}
	if (json_type(value) == JSON_ARRAY) {
		reject(client, none, 400, RPC_INVALID_REQUEST, "Batches are not part of this protocol revision", none);
		return RECEIVED_INVALID;
	}
	if (message_parse(&message, value, &index, &error)) {
		reject(client, message.id, 400, RPC_INVALID_REQUEST, error.text, none);
		return RECEIVED_INVALID;
	}
	if (era_defers(proxy, client, &message, value, headers))
		return RECEIVED_REQUEST;
	if (relay_takes(proxy, client, &message, value, headers, &received))
		return received;
	if (message.kind == MESSAGE_RESPONSE) {
		reject(client, none, 400, RPC_INVALID_REQUEST, "Clients send no responses in this protocol revision",
			none);
		return RECEIVED_INVALID;
	}
	if (message.kind == MESSAGE_REQUEST)
		return on_request(proxy, client, &message, headers);
	struct refusal refusal = {0};
	if (headers && headers->method.ptr && !request_check_method(&refusal, message.method, headers)) {
		reject(client, none, refusal.http_status, refusal.code, refusal.text, none);
		return RECEIVED_INVALID;
	}
	on_notification(client, &message);
	return RECEIVED_NOTIFICATION;
}
