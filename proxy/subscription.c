#include "proxy/subscription.h"

#include "proxy/client_task.h"
#include "proxy/json_write.h"
#include "proxy/session.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_URIS = 1000, MAX_FAILURES = 3, RETRY_MS = 200 };

static const char subscription_id[] = "io.modelcontextprotocol/subscriptionId";

static void on_timer(void *arg);

static void subscription_free(struct grave *grave)
{
	struct subscription *subscription = container_of(grave, struct subscription, grave);
	for (size_t i = 0; i < subscription->uri_count; i++)
		free(subscription->uris[i]);
	free(subscription->uris);
	free(subscription);
}

/* What the client asks for. */

static bool read_flag(struct span filter, const char *key)
{
	struct span value;
	return json_get(filter, NULL, key, &value) && json_type(value) == JSON_TRUE;
}

static int read_uris(struct subscription *subscription, struct span list, struct error *error)
{
	struct span element;
	size_t count = 0;
	struct json_walk walk = json_walk(list, NULL);
	if (json_type(list) != JSON_ARRAY)
		return error_set(error, ERROR_SYNTAX, "notifications.resourceSubscriptions is not an array");
	while (json_next_element(&walk, &element)) {
		if (json_type(element) != JSON_STRING)
			return error_set(
				error, ERROR_SYNTAX, "notifications.resourceSubscriptions holds what is no string");
		count++;
	}
	if (count > MAX_URIS)
		return error_set(error, ERROR_LIMIT, "notifications.resourceSubscriptions names more than %d resources",
			MAX_URIS);
	if (count == 0)
		return 0;
	subscription->uris = calloc(count, sizeof(*subscription->uris));
	if (!subscription->uris)
		return error_set(error, ERROR_MEMORY, "Out of memory");
	walk = json_walk(list, NULL);
	while (json_next_element(&walk, &element)) {
		char *uri = span_dup(element); /* as spelled: it goes upstream as it came */
		if (!uri)
			return error_set(error, ERROR_MEMORY, "Out of memory");
		subscription->uris[subscription->uri_count++] = uri;
	}
	return 0;
}

static int read_filter(struct subscription *subscription, const struct request *request, struct error *error)
{
	struct span filter, list;
	if (json_get(request->params, request->index, "notifications", &filter) != 1 ||
		json_type(filter) != JSON_OBJECT)
		return error_set(error, ERROR_SYNTAX, "params.notifications is not an object");
	subscription->tools = read_flag(filter, "toolsListChanged");
	subscription->prompts = read_flag(filter, "promptsListChanged");
	subscription->resources = read_flag(filter, "resourcesListChanged");
	if (json_get(filter, NULL, "resourceSubscriptions", &list) && read_uris(subscription, list, error))
		return error->code;
	int status = capabilities_read(&subscription->caps, request->capabilities, error);
	/* None are sent, but a client that may not have them is to be told so (SEP-2663 "Task Status Notifications"). */
	if (!status && client_tasks_offered(subscription->proxy) && json_get(filter, NULL, "taskIds", &list) &&
		!subscription->caps.tasks)
		return error_set(error, ERROR_REFUSED, "the tasks extension is not declared");
	return status;
}

/* What the server can give. */

static bool server_has(const struct session *session, const char *feature, const char *flag)
{
	struct span object, value;
	return json_get(span_of(session->identity.capabilities), NULL, feature, &object) &&
	       json_get(object, NULL, flag, &value) && json_type(value) == JSON_TRUE;
}

/* Whether another subscription of the session has the resource subscribed already. */
static bool is_subscribed(const struct session *session, const struct subscription *self, const char *uri)
{
	const struct subscription *other;
	TAILQ_FOREACH (other, &session->subscriptions, link)
		for (size_t i = 0; other != self && other->acknowledged && i < other->uri_count; i++)
			if (strcmp(other->uris[i], uri) == 0)
				return true;
	return false;
}

static void send_subscribe(struct session *session, const char *method, const char *uri)
{
	struct buf message = {0};
	uint64_t id = session->next_id++;
	buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":{\"uri\":%s}}",
		(unsigned long long)id, method, uri);
	if (session_send(session, UPSTREAM_REQUEST, id, &message))
		session_log(session, LOG_WARNING, "subscribe-failed", "%s could not be sent", method);
}

static void subscribe_all(struct subscription *subscription)
{
	struct session *session = subscription->session;
	if (!server_has(session, "resources", "subscribe"))
		return;
	for (size_t i = 0; i < subscription->uri_count; i++)
		if (!is_subscribed(session, subscription, subscription->uris[i]))
			send_subscribe(session, "resources/subscribe", subscription->uris[i]);
}

static void unsubscribe_all(struct subscription *subscription)
{
	struct session *session = subscription->session;
	if (!session->upstream || session->state != SESSION_READY || !server_has(session, "resources", "subscribe"))
		return;
	for (size_t i = 0; i < subscription->uri_count; i++)
		if (!is_subscribed(session, subscription, subscription->uris[i]))
			send_subscribe(session, "resources/unsubscribe", subscription->uris[i]);
}

/* The first message: the subset that can be honoured. */
static void acknowledge(struct subscription *subscription)
{
	const struct session *session = subscription->session;
	struct buf params = {0};
	buf_add_text(&params, "{\"notifications\":{");
	if (subscription->tools && server_has(session, "tools", "listChanged"))
		buf_add_text(&params, "\"toolsListChanged\":true");
	if (subscription->prompts && server_has(session, "prompts", "listChanged")) {
		json_add_key(&params, "promptsListChanged");
		buf_add_text(&params, "true");
	}
	if (subscription->resources && server_has(session, "resources", "listChanged")) {
		json_add_key(&params, "resourcesListChanged");
		buf_add_text(&params, "true");
	}
	if (subscription->uri_count && server_has(session, "resources", "subscribe")) {
		json_add_key(&params, "resourceSubscriptions");
		buf_add_text(&params, "[");
		for (size_t i = 0; i < subscription->uri_count; i++) {
			json_add_separator(&params);
			buf_add_text(&params, subscription->uris[i]);
		}
		buf_add_text(&params, "]");
	}
	buf_add_text(&params, "}}");
	if (buf_ok(&params))
		exchange_notify(subscription->exchange, "notifications/subscriptions/acknowledged", buf_span(&params),
			subscription_id, subscription->exchange->id);
	buf_free(&params);
	subscription->acknowledged = true;
}

/* Notifications. */

bool subscriptions_deliver(struct span method, const char **name)
{
	static const char *const names[] = {"notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (json_string_is(method, names[i])) {
			*name = names[i];
			return true;
		}
	return false;
}

/* Whether the updated resource is one of those, or part of one (server/resources "Subscriptions"). */
static bool covers(const struct subscription *subscription, struct span uri)
{
	for (size_t i = 0; i < subscription->uri_count; i++) {
		struct span own = span_of(subscription->uris[i]);
		if (span_equal(own, uri))
			return true;
		/* Both end with a quote; what follows the longer one's common part must begin a new segment. */
		size_t common = own.len - 1;
		if (uri.len > own.len && memcmp(uri.ptr, own.ptr, common) == 0 &&
			(strchr("/?#", uri.ptr[common]) || own.ptr[common - 1] == '/'))
			return true;
	}
	return false;
}

static bool wants(const struct subscription *subscription, const char *method, struct span params)
{
	struct span uri;
	if (!subscription->acknowledged)
		return false;
	if (strcmp(method, "notifications/tools/list_changed") == 0)
		return subscription->tools;
	if (strcmp(method, "notifications/prompts/list_changed") == 0)
		return subscription->prompts;
	if (strcmp(method, "notifications/resources/list_changed") == 0)
		return subscription->resources;
	return json_get(params, NULL, "uri", &uri) && json_type(uri) == JSON_STRING && covers(subscription, uri);
}

void subscriptions_notify(struct session *session, const char *method, struct span params)
{
	struct subscription *subscription;
	TAILQ_FOREACH (subscription, &session->subscriptions, link)
		if (wants(subscription, method, params))
			exchange_notify(
				subscription->exchange, method, params, subscription_id, subscription->exchange->id);
}

/* After a new session: what changed meanwhile is unknown, so the client looks again. */
static void notify_renewal(struct subscription *subscription)
{
	static const char *const lists[] = {"tools", "prompts", "resources"};
	const bool wanted[] = {subscription->tools, subscription->prompts, subscription->resources};
	char method[48];
	for (size_t i = 0; i < 3; i++) {
		snprintf(method, sizeof(method), "notifications/%s/list_changed", lists[i]);
		if (wanted[i] && server_has(subscription->session, lists[i], "listChanged"))
			exchange_notify(subscription->exchange, method, (struct span){0}, subscription_id,
				subscription->exchange->id);
	}
}

/* Sessions. */

static void detach(struct subscription *subscription)
{
	struct session *session = subscription->session;
	timer_cancel(&subscription->proxy->timers, &subscription->timer);
	if (!session) {
		TAILQ_REMOVE(&subscription->proxy->homeless, subscription, link);
		return;
	}
	unsubscribe_all(subscription);
	TAILQ_REMOVE(&session->subscriptions, subscription, link);
	subscription->session = NULL;
	session_pump(session); /* it may rest now */
}

static void attach(struct subscription *subscription, struct session *session)
{
	subscription->session = session;
	TAILQ_INSERT_TAIL(&session->subscriptions, subscription, link);
	if (session->state == SESSION_READY)
		subscriptions_on_ready(session);
}

static void make_homeless(struct subscription *subscription, int64_t delay_ms)
{
	struct proxy *proxy = subscription->proxy;
	subscription->session = NULL;
	TAILQ_INSERT_TAIL(&proxy->homeless, subscription, link);
	timer_set(&proxy->timers, &subscription->timer, proxy_now(proxy) + delay_ms, on_timer, subscription);
}

static void on_timer(void *arg)
{
	struct subscription *subscription = arg;
	struct proxy *proxy = subscription->proxy;
	struct error error = {0};
	const struct request request = {0};
	struct session *session =
		session_for(proxy, subscription->exchange->client, &subscription->caps, &request, false, &error);
	if (session) {
		TAILQ_REMOVE(&proxy->homeless, subscription, link);
		attach(subscription, session);
	} else if (++subscription->failures > MAX_FAILURES) {
		subscription_finish(subscription);
	} else {
		timer_set(&proxy->timers, &subscription->timer, proxy_now(proxy) + RETRY_MS * subscription->failures,
			on_timer, subscription);
	}
}

void subscriptions_on_ready(struct session *session)
{
	struct subscription *subscription;
	TAILQ_FOREACH (subscription, &session->subscriptions, link) {
		bool first = !subscription->acknowledged;
		subscription->failures = 0;
		if (!first && !subscription->renewed)
			continue;
		if (first)
			acknowledge(subscription);
		subscribe_all(subscription);
		if (subscription->renewed && !first)
			notify_renewal(subscription);
		subscription->renewed = false;
	}
}

void subscriptions_on_lost(struct session *session)
{
	struct subscription *subscription;
	while ((subscription = TAILQ_FIRST(&session->subscriptions))) {
		TAILQ_REMOVE(&session->subscriptions, subscription, link);
		subscription->renewed = true;
		subscription->failures++;
		if (subscription->failures > MAX_FAILURES || subscription->proxy->shutting_down) {
			make_homeless(subscription, 0);
			subscription_finish(subscription);
		} else {
			make_homeless(subscription, RETRY_MS * subscription->failures);
		}
	}
}

/* Life. */

void subscription_drop(struct subscription *subscription)
{
	detach(subscription);
	subscription->exchange->subscription = NULL;
	proxy_bury(subscription->proxy, &subscription->grave, subscription_free);
}

void subscription_finish(struct subscription *subscription)
{
	struct exchange *exchange = subscription->exchange;
	struct buf body = {0};
	buf_printf(
		&body, "\"result\":{\"resultType\":\"complete\",\"_meta\":{\"%s\":%s}}", subscription_id, exchange->id);
	bool acknowledged = subscription->acknowledged;
	subscription_drop(subscription);
	if (acknowledged)
		exchange_respond(exchange, 200, message_body(&body));
	else
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "The server cannot be reached",
			"{\"reason\":\"unavailable\"}");
	buf_free(&body);
}

void subscription_start(struct exchange *exchange, const struct request *request)
{
	struct proxy *proxy = exchange->proxy;
	struct error error = {0};
	struct subscription *subscription = calloc(1, sizeof(*subscription));
	if (!subscription) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
		return;
	}
	subscription->proxy = proxy;
	subscription->exchange = exchange;
	if (read_filter(subscription, request, &error)) {
		subscription_free(&subscription->grave);
		if (error.code == ERROR_REFUSED)
			client_tasks_refuse(exchange);
		else
			exchange_fail(exchange, 400, RPC_INVALID_PARAMS, error.text, NULL);
		return;
	}
	struct session *session = session_for(proxy, exchange->client, &subscription->caps, request, false, &error);
	if (!session) {
		subscription_free(&subscription->grave);
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, error.text, "{\"reason\":\"unavailable\"}");
		return;
	}
	exchange->subscription = subscription;
	attach(subscription, session);
}
