/* What the server of an elder tells unasked: the changes of its lists and of the resources that the client has subscribed to.
 * One subscriptions/listen (basic/patterns/subscriptions) asks for all of it, from `initialized` on; each resources/subscribe
 * and unsubscribe replaces it by another one, whose acknowledgment answers the client's request. */
#include "proxy/elder.h"

#include "proxy/json_write.h"
#include "proxy/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_URIS = 1000, MAX_FAILURES = 3, RELISTEN_MS = 1000 };

static const struct {
	const char *capability, *filter;
} lists[ELDER_LISTS] = {
	{"tools", "toolsListChanged"},
	{"prompts", "promptsListChanged"},
	{"resources", "resourcesListChanged"},
};

static void uri_free(struct elder *elder, struct elder_uri *uri)
{
	TAILQ_REMOVE(&elder->uris, uri, link);
	elder->uri_count--;
	elder->uri_bytes -= strlen(uri->spelled);
	free(uri->spelled);
	free(uri);
}

void elder_forget_uris(struct elder *elder, uint64_t listen)
{
	struct elder_uri *uri = TAILQ_FIRST(&elder->uris);
	while (uri) {
		struct elder_uri *next = TAILQ_NEXT(uri, link);
		if (!listen || uri->listen == listen)
			uri_free(elder, uri);
		uri = next;
	}
}

static struct elder_uri *find_uri(const struct elder *elder, struct span spelled)
{
	struct elder_uri *uri;
	TAILQ_FOREACH (uri, &elder->uris, link)
		if (json_same(spelled, span_of(uri->spelled)))
			break;
	return uri;
}

static bool add_uri(struct elder *elder, struct span spelled, uint64_t listen)
{
	struct elder_uri *uri = calloc(1, sizeof(*uri));
	if (!uri || !(uri->spelled = span_dup(spelled))) {
		free(uri);
		return false;
	}
	TAILQ_INSERT_TAIL(&elder->uris, uri, link);
	elder->uri_count++;
	elder->uri_bytes += spelled.len;
	uri->listen = listen;
	return true;
}

void elder_read_lists(struct elder *elder, struct span capabilities)
{
	struct span member, flag;
	for (int i = 0; i < ELDER_LISTS; i++)
		elder->lists[i] = json_get(capabilities, NULL, lists[i].capability, &member) &&
				  json_get(member, NULL, "listChanged", &flag) && json_type(flag) == JSON_TRUE;
}

/* Asking. */

static bool wants_any(const struct elder *elder)
{
	bool any = !TAILQ_EMPTY(&elder->uris);
	for (int i = 0; i < ELDER_LISTS; i++)
		any |= elder->lists[i];
	return any;
}

static bool ask(struct relay *relay, uint64_t id)
{
	const struct elder *elder = relay->elder;
	const struct elder_uri *uri;
	struct buf params = {0};
	buf_add_text(&params, "{\"notifications\":{");
	for (int i = 0; i < ELDER_LISTS; i++)
		if (elder->lists[i]) {
			json_add_key(&params, lists[i].filter);
			buf_add_text(&params, "true");
		}
	if (!TAILQ_EMPTY(&elder->uris)) {
		json_add_key(&params, "resourceSubscriptions");
		buf_add_text(&params, "[");
		TAILQ_FOREACH (uri, &elder->uris, link) {
			json_add_separator(&params);
			buf_add_text(&params, uri->spelled);
		}
		buf_add_text(&params, "]");
	}
	buf_add_text(&params, "}}");
	bool sent = buf_ok(&params) && elder_send(relay, id, method_name(METHOD_LISTEN), buf_span(&params), NULL, NULL);
	buf_free(&params);
	return sent;
}

/* Ends a subscription of ours. */
static void end(struct session *session, uint64_t listen)
{
	if (!listen)
		return;
	if (!session->proxy->upstream->has_streams)
		session_cancel_request(session, listen, "It was replaced");
	session->proxy->upstream->forget(session->upstream, listen);
}

static void try_again(struct relay *relay, uint64_t listen);

static void on_timer(void *arg)
{
	struct relay *relay = arg;
	relay->elder->asked = relay->session->next_id++;
	if (!ask(relay, relay->elder->asked))
		try_again(relay, relay->elder->asked);
}

/* A subscription is over; another one may be asked for already. */
static void try_again(struct relay *relay, uint64_t listen)
{
	struct elder *elder = relay->elder;
	struct proxy *proxy = relay->session->proxy;
	elder->listen = elder->listen == listen ? 0 : elder->listen;
	elder->asked = elder->asked == listen ? 0 : elder->asked;
	elder->missed = true;
	if (elder->asked)
		return;
	if (++elder->failures <= MAX_FAILURES)
		timer_set(&proxy->timers, &elder->timer, proxy_now(proxy) + RELISTEN_MS, on_timer, relay);
	else
		session_log(relay->session, LOG_WARNING, "subscription-lost",
			"the server does not tell of changes any more");
}

void elder_on_initialized(struct relay *relay)
{
	if (relay->session->state == SESSION_READY && !relay->elder->listen && !relay->elder->asked &&
		wants_any(relay->elder))
		on_timer(relay);
}

void elder_on_end(struct relay *relay)
{
	timer_cancel(&relay->session->proxy->timers, &relay->elder->timer);
}

/* A request waits for the acknowledgment of the listen that has its id. */
static void replace(struct relay_stream *stream)
{
	struct relay *relay = stream->relay;
	if (wants_any(relay->elder)) {
		if (ask(relay, stream->request))
			return;
		elder_forget_uris(relay->elder, stream->request);
		elder_fail(stream, RPC_INTERNAL_ERROR, "The server does not read what it is sent");
		return;
	}
	end(relay->session, relay->elder->listen);
	relay->elder->listen = 0;
	elder_succeed(stream);
}

void elder_subscribe(struct relay_stream *stream, const struct message *message, bool is_subscription)
{
	struct elder *elder = stream->relay->elder;
	const struct policy_limits *limits = &stream->relay->session->proxy->policy->limits;
	struct span spelled;
	if (!json_get(message->params, &message->index, "uri", &spelled) || json_type(spelled) != JSON_STRING) {
		elder_fail(stream, RPC_INVALID_PARAMS, "params.uri is not a string");
		return;
	}
	struct elder_uri *uri = find_uri(elder, spelled);
	if (is_subscription == (uri != NULL)) {
		elder_succeed(stream);
	} else if (uri) {
		uri_free(elder, uri);
		replace(stream);
	} else if (elder->uri_count >= MAX_URIS || elder->uri_bytes + spelled.len > limits->message_bytes) {
		elder_fail(stream, RPC_INTERNAL_ERROR, "Too many resources are subscribed to");
	} else if (!add_uri(elder, spelled, stream->request)) {
		elder_fail(stream, RPC_INTERNAL_ERROR, "Out of memory");
	} else {
		replace(stream);
	}
}

/* Hearing. */

/* Whether the acknowledgment covers what its listen was the first to ask for. */
static bool covers(const struct elder *elder, uint64_t listen, const struct message *message)
{
	const struct elder_uri *uri;
	struct span filter = {0}, list = {0}, element = {0};
	json_get(message->params, &message->index, "notifications", &filter);
	json_get(filter, NULL, "resourceSubscriptions", &list);
	TAILQ_FOREACH (uri, &elder->uris, link) {
		if (uri->listen != listen)
			continue;
		struct json_walk walk = json_walk(list, NULL);
		while (json_next_element(&walk, &element))
			if (json_type(element) == JSON_STRING && json_same(element, span_of(uri->spelled)))
				return true;
		return false;
	}
	return true;
}

/* What changed while the server did not tell, nobody knows: the client shall look again. */
static void tell_all(struct relay *relay)
{
	const struct elder *elder = relay->elder;
	const struct elder_uri *uri;
	struct buf message = {0};
	for (int i = 0; i < ELDER_LISTS; i++)
		if (elder->lists[i]) {
			buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/%s/list_changed\"}",
				lists[i].capability);
			relay_send(&relay->standalone, &message);
		}
	TAILQ_FOREACH (uri, &elder->uris, link) {
		buf_printf(&message,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":%s}}",
			uri->spelled);
		relay_send(&relay->standalone, &message);
	}
}

/* The subscription that a notification belongs to, or 0. */
static uint64_t subscription_of(const struct message *message)
{
	struct span meta, value;
	int64_t id;
	bool is_named = json_get(message->params, &message->index, "_meta", &meta) &&
			json_get(meta, NULL, "io.modelcontextprotocol/subscriptionId", &value) &&
			json_integer(value, &id) && id > 0;
	return is_named ? (uint64_t)id : 0;
}

/* The stream whose resources/subscribe or unsubscribe waits for this listen, or NULL. */
static struct relay_stream *waiting_subscriber(struct relay *relay, uint64_t listen)
{
	struct relay_stream *stream = listen ? relay_stream_of_request(relay, listen) : NULL;
	bool waits = stream && !stream->method && stream->number != relay->initialize && !stream->answered &&
		     !stream->cancelled;
	return waits ? stream : NULL;
}

void elder_on_acknowledged(struct relay *relay, const struct message *message)
{
	struct elder *elder = relay->elder;
	uint64_t id = subscription_of(message);
	struct relay_stream *stream = waiting_subscriber(relay, id);
	if (!stream && (!id || id != elder->asked))
		return; /* said again, or of nothing that was asked for */
	bool is_newest = id > elder->listen;
	end(relay->session, is_newest ? elder->listen : id);
	if (is_newest) {
		if (elder->asked < id)
			end(relay->session, elder->asked);
		if (elder->asked <= id)
			elder->asked = 0;
		elder->listen = id;
		elder->failures = 0;
		timer_cancel(&relay->session->proxy->timers, &elder->timer);
	}
	if (is_newest && elder->missed)
		tell_all(relay);
	elder->missed &= !is_newest;
	if (!stream)
		return;
	stream->request = 0; /* the subscription outlives it */
	if (covers(elder, id, message)) {
		elder_succeed(stream);
	} else {
		elder_forget_uris(elder, id);
		elder_fail(stream, RPC_INVALID_PARAMS, "The server does not tell of changes of this resource");
	}
}

bool elder_is_subscribed(const struct relay *relay, const struct message *message)
{
	static const char *const names[] = {"notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated"};
	uint64_t id = subscription_of(message);
	bool is_change = false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		is_change |= json_string_is(message->method, names[i]);
	return is_change && id && id == relay->elder->listen;
}

bool elder_on_listen_over(struct relay *relay, uint64_t id)
{
	struct elder *elder = relay->elder;
	struct relay_stream *stream = waiting_subscriber(relay, id);
	if (id == elder->listen || id == elder->asked) {
		try_again(relay, id);
		return true;
	}
	if (!stream)
		return false;
	elder_forget_uris(elder, id);
	elder_fail(stream, RPC_INTERNAL_ERROR, "The server does not tell of changes of resources");
	return true;
}
