#include "proxy/era.h"

#include "proxy/relay.h"
#include "proxy/session.h"

#include <stdlib.h>

/* A request that waits for the era. */
struct undecided {
	TAILQ_ENTRY(undecided) link;
	struct client *client;
	char *id; /* as spelled */
	struct buf message;
	bool has_headers;
	struct buf headers[3]; /* version, method, name; empty: absent */
};

static const struct session_ops ops;

static void undecided_free(struct undecided *undecided)
{
	free(undecided->id);
	buf_free(&undecided->message);
	for (int i = 0; i < 3; i++)
		buf_free(&undecided->headers[i]);
	free(undecided);
}

static void forget(struct proxy *proxy, struct undecided *undecided)
{
	TAILQ_REMOVE(&proxy->undecided, undecided, link);
	proxy->undecided_count--;
	undecided_free(undecided);
}

static bool keep(struct proxy *proxy, struct client *client, const struct message *message, struct span whole,
	const struct request_headers *headers)
{
	struct undecided *undecided = calloc(1, sizeof(*undecided));
	if (!undecided)
		return false;
	undecided->client = client;
	undecided->id = span_dup(message->id);
	undecided->has_headers = headers != NULL;
	buf_add_span(&undecided->message, whole);
	if (headers) {
		buf_add_span(&undecided->headers[0], headers->protocol_version);
		buf_add_span(&undecided->headers[1], headers->method);
		buf_add_span(&undecided->headers[2], headers->name);
	}
	bool complete = undecided->id && buf_ok(&undecided->message);
	for (int i = 0; i < 3; i++)
		complete &= buf_ok(&undecided->headers[i]);
	if (!complete) {
		undecided_free(undecided);
		return false;
	}
	TAILQ_INSERT_TAIL(&proxy->undecided, undecided, link);
	proxy->undecided_count++;
	return true;
}

static struct span header_of(const struct buf *header)
{
	return header->len ? buf_span(header) : (struct span){0};
}

/* Processes what waited. Where nothing is sure, the requests run into what kept us from knowing, and the next one asks
 * again. */
static void decide(struct proxy *proxy, enum policy_era era, bool is_sure)
{
	struct undecided *undecided;
	if (proxy->policy->upstream.era != POLICY_ERA_AUTO) { /* a new policy names it */
		era = proxy->policy->upstream.era;
		is_sure = true;
	}
	proxy->era = era;
	proxy_log(proxy, LOG_INFO, "era", "the server is %s%s", era == POLICY_ERA_MODERN ? "modern" : "legacy",
		is_sure ? "" : ", as long as it cannot be asked");
	/* A session that is lost meanwhile makes the rest wait again. */
	for (unsigned left = proxy->undecided_count; left && (undecided = TAILQ_FIRST(&proxy->undecided)); left--) {
		TAILQ_REMOVE(&proxy->undecided, undecided, link);
		proxy->undecided_count--;
		const struct request_headers headers = {.protocol_version = header_of(&undecided->headers[0]),
			.method = header_of(&undecided->headers[1]),
			.name = header_of(&undecided->headers[2])};
		(void)proxy_receive(proxy, undecided->client, buf_span(&undecided->message),
			undecided->has_headers ? &headers : NULL);
		undecided_free(undecided);
	}
	if (!is_sure)
		era_doubt(proxy);
}

/* Ends the probe and decides. */
static void conclude(struct session *session, enum policy_era era, bool is_sure)
{
	struct proxy *proxy = session->proxy;
	proxy->probe = NULL;
	session_close(session, "the era of the server is known");
	decide(proxy, era, is_sure);
}

static bool lists_our_version(struct span list)
{
	struct span version;
	struct json_walk walk = json_walk(list, NULL);
	while (json_next_element(&walk, &version))
		if (json_type(version) == JSON_STRING && json_string_is(version, "2026-07-28"))
			return true;
	return false;
}

static bool is_modern(const struct message *message)
{
	struct span value, data;
	int64_t code = 0;
	if (message->result.ptr)
		return json_get(message->result, &message->index, "supportedVersions", &value) &&
		       lists_our_version(value);
	if (json_get(message->error, &message->index, "code", &value) && !json_integer(value, &code))
		return false;
	if (code == RPC_UNSUPPORTED_VERSION)
		return json_get(message->error, &message->index, "data", &data) &&
		       json_get(data, NULL, "supported", &value) && lists_our_version(value);
	return code == RPC_HEADER_MISMATCH || code == RPC_MISSING_CAPABILITY;
}

static void on_message(struct session *session, const struct message *message, struct span whole, uint64_t stream)
{
	(void)whole;
	(void)stream;
	if (message->kind == MESSAGE_RESPONSE)
		conclude(session, is_modern(message) ? POLICY_ERA_MODERN : POLICY_ERA_LEGACY, true);
}

static void on_request_failed(struct session *session, uint64_t request_id, int http_status, const char *why)
{
	(void)request_id;
	(void)why;
	bool is_answer = http_status / 100 == 4 && http_status != 401 && http_status != 403;
	conclude(session, POLICY_ERA_LEGACY, is_answer);
}

/* It ended at the question, or was silent: both are what legacy servers do. */
static void on_end(struct session *session, int http_status, const char *why)
{
	struct proxy *proxy = session->proxy;
	(void)http_status;
	if (!why || proxy->probe != session)
		return;
	proxy->probe = NULL;
	decide(proxy, POLICY_ERA_LEGACY, true);
}

static bool in_use(const struct session *session)
{
	return session->proxy->probe == session;
}

static void free_nothing(struct session *session)
{
	(void)session;
}

static const struct session_ops ops = {
	.on_message = on_message,
	.on_request_failed = on_request_failed,
	.on_end = on_end,
	.in_use = in_use,
	.free = free_nothing,
};

static void on_silence(void *arg)
{
	conclude(arg, POLICY_ERA_LEGACY, true);
}

static void ask(struct proxy *proxy, const struct client *client)
{
	struct error error = {0};
	struct buf message = {0};
	struct session *session = session_open(proxy, client, &ops, NULL, true, &error);
	if (!session) {
		decide(proxy, POLICY_ERA_LEGACY, false);
		return;
	}
	proxy->probe = session;
	session_set_ready(session);
	/* A command that ends at the question has not failed to start. */
	if (!proxy->upstream->has_streams)
		proxy->upstream->establish(session->upstream, "2026-07-28");
	uint64_t id = session->next_id++;
	buf_printf(&message,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"server/discover\",\"params\":{\"_meta\":{"
		"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
		"\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
		(unsigned long long)id);
	if (session_send(session, UPSTREAM_REQUEST, id, &message))
		conclude(session, POLICY_ERA_LEGACY, false);
	else
		timer_set(&proxy->timers, &session->timer, proxy_now(proxy) + proxy->policy->deadlines.probe_ms,
			on_silence, session);
}

/* stdio: a request that still waits can be cancelled. */
static void cancel(struct proxy *proxy, const struct client *client, const struct message *message)
{
	struct undecided *undecided;
	struct span id;
	if (TAILQ_EMPTY(&proxy->undecided) || !client->cancels_by_message ||
		!json_string_is(message->method, "notifications/cancelled") ||
		!json_get(message->params, &message->index, "requestId", &id))
		return;
	TAILQ_FOREACH (undecided, &proxy->undecided, link)
		if (undecided->client == client && json_same(id, span_of(undecided->id)))
			break;
	if (undecided)
		forget(proxy, undecided);
}

bool era_defers(struct proxy *proxy, struct client *client, const struct message *message, struct span whole,
	const struct request_headers *headers)
{
	if (message->kind == MESSAGE_NOTIFICATION)
		cancel(proxy, client, message); /* whatever became of the proxy since the request came */
	if (message->kind != MESSAGE_REQUEST || proxy->era != POLICY_ERA_AUTO || proxy->shutting_down ||
		relay_owns(proxy, client, message, headers))
		return false;
	if (proxy->undecided_count >= proxy->policy->limits.exchanges) {
		exchange_reject(
			client, message->id, 503, RPC_INTERNAL_ERROR, "Too many open requests (limits.exchanges)");
		return true;
	}
	if (!keep(proxy, client, message, whole, headers)) {
		exchange_reject(client, message->id, 503, RPC_INTERNAL_ERROR, "Out of memory");
		return true;
	}
	if (!proxy->probe)
		ask(proxy, client);
	return true;
}

void era_forget(struct proxy *proxy, const struct client *client)
{
	struct undecided *undecided = TAILQ_FIRST(&proxy->undecided);
	while (undecided) {
		struct undecided *next = TAILQ_NEXT(undecided, link);
		if (undecided->client == client)
			forget(proxy, undecided);
		undecided = next;
	}
}

void era_doubt(struct proxy *proxy)
{
	proxy->era = proxy->policy->upstream.era;
}
