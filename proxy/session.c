#include "proxy/session.h"

#include "proxy/era.h"
#include "proxy/subscription.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The numbers of requests: a range for each session, small enough for servers that hold them in 32 bits. */
enum { ID_RANGES = 4096, IDS_OF_SESSION = 1 << 18 };
enum { WARNINGS_A_SECOND = 10 };

static void on_timer(void *arg);
static void on_keepalive(void *arg);

void session_log(const struct session *session, enum log_level level, const char *event, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	env_log(session->proxy->env, (struct log_line){.level = level, .event = event, .session = session->name},
		ENV_LOG_MOST_BYTES, format, args);
	va_end(args);
}

void session_warn(const struct session *session, const char *event, const char *format, ...)
{
	const struct env *env = session->proxy->env;
	struct log_line line = {.level = LOG_WARNING, .event = event, .session = session->name};
	char text[ENV_LOG_MOST_BYTES];
	unsigned left_out;
	va_list args;
	if (line.level > env->log_level ||
		!log_rate_allows(&session->proxy->warnings, WARNINGS_A_SECOND, proxy_now(session->proxy), &left_out))
		return;
	int len = left_out ? snprintf(text, sizeof(text), "(%u warnings were left out) ", left_out) : 0;
	va_start(args, format);
	vsnprintf(text + len, sizeof(text) - (size_t)len, format, args);
	va_end(args);
	line.text = text;
	env->log(env->ctx, &line);
}

const char *session_authorization(const struct session *session)
{
	return session->authorization;
}

void session_has_no_streams(struct session *session)
{
	session->no_streams = true;
}

struct span session_mirrored(const struct session *session)
{
	return buf_span(&session->mirrored);
}

const char *session_forwarded(const struct session *session)
{
	return session->forwarded.len > 1 ? session->forwarded.data : NULL;
}

void session_set_challenge(struct session *session, const char *challenge)
{
	free(session->challenge);
	session->challenge = challenge ? strdup(challenge) : NULL;
}

static void take_forwarded(struct session *session, const struct client *client)
{
	const struct policy_upstream *upstream = &session->proxy->policy->upstream;
	struct buf lines = {0};
	struct span value;
	for (size_t i = 0; client->ops->header && i < upstream->forward_header_count; i++)
		if (client->ops->header(client, upstream->forward_headers[i], &value))
			buf_printf(&lines, "%s: %.*s\n", upstream->forward_headers[i], (int)value.len, value.ptr);
	if (session->modern && client->ops->headers_of)
		client->ops->headers_of(client, "mcp-param-", &lines);
	buf_add(&lines, "", 1);
	if (!buf_ok(&lines)) {
		buf_free(&lines);
		return;
	}
	if (session->forwarded.data)
		sodium_memzero(session->forwarded.data, session->forwarded.cap);
	buf_free(&session->forwarded);
	session->forwarded = lines;
}

void session_take_credentials(struct session *session, const struct client *client)
{
	const char *old = session->authorization, *new = client->authorization;
	if (!(old && new &&strcmp(old, new) == 0) && (old || new)) {
		char *copy = new ? strdup(new) : NULL;
		if (copy || !new) {
			if (old)
				sodium_memzero(session->authorization, strlen(old));
			free(session->authorization);
			session->authorization = copy;
		}
	}
	take_forwarded(session, client);
}

void session_touch(struct session *session, const struct client *client)
{
	TAILQ_REMOVE(&session->proxy->sessions, session, link);
	TAILQ_INSERT_HEAD(&session->proxy->sessions, session, link);
	session_take_credentials(session, client);
}

bool session_is_modern(const struct session *session)
{
	return session->modern;
}

const char *session_name(const struct session *session)
{
	return session->name;
}

/* Making and freeing. */

static void session_free(struct grave *grave)
{
	struct session *session = container_of(grave, struct session, grave);
	if (session->authorization)
		sodium_memzero(session->authorization, strlen(session->authorization));
	free(session->authorization);
	if (session->forwarded.data)
		sodium_memzero(session->forwarded.data, session->forwarded.cap);
	buf_free(&session->forwarded);
	free(session->challenge);
	free(session->client_info);
	server_identity_free(&session->identity);
	list_cache_clear(&session->lists);
	tool_mirrors_free(&session->mirrors);
	if (session->ops)
		session->ops->free(session);
	free(session);
}

static struct session *session_new(
	struct proxy *proxy, const struct client *client, const struct capabilities *caps, struct span client_info)
{
	struct session *session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	session->proxy = proxy;
	session->caps = *caps;
	session->version = LEGACY_2025_11_25;
	/* A server that answers twice, or late, on a connection that sessions share shall not answer another's request. */
	session->next_id = 1 + (proxy->sessions_opened % ID_RANGES) * IDS_OF_SESSION;
	memcpy(session->principal, client->principal, sizeof(session->principal));
	snprintf(session->name, sizeof(session->name), "s%llu", (unsigned long long)++proxy->sessions_opened);
	TAILQ_INIT(&session->waiting);
	TAILQ_INIT(&session->running);
	TAILQ_INIT(&session->parked);
	TAILQ_INIT(&session->resuming);
	TAILQ_INIT(&session->ending);
	TAILQ_INIT(&session->server_requests);
	TAILQ_INIT(&session->subscriptions);
	list_cache_init(&session->lists);
	session->log_level = LOGGING_NONE;
	session_take_credentials(session, client);
	session->client_info = client_info.ptr ? span_dup(client_info) : NULL;
	if ((client->authorization && !session->authorization) || (client_info.ptr && !session->client_info)) {
		session_free(&session->grave);
		return NULL;
	}
	TAILQ_INSERT_HEAD(&proxy->sessions, session, link);
	proxy->counts.sessions++;
	return session;
}

static bool is_in_use(const struct session *session)
{
	if (session->ops)
		return session->ops->in_use(session);
	return !TAILQ_EMPTY(&session->subscriptions) || !TAILQ_EMPTY(&session->waiting) ||
	       !TAILQ_EMPTY(&session->running) || !TAILQ_EMPTY(&session->parked) || !TAILQ_EMPTY(&session->resuming) ||
	       !TAILQ_EMPTY(&session->ending);
}

/* Takes the session out of service; nothing of it is left but its memory. */
static void bury(struct session *session)
{
	struct proxy *proxy = session->proxy;
	session->state = SESSION_DEAD;
	timer_cancel(&proxy->timers, &session->timer);
	timer_cancel(&proxy->timers, &session->wake);
	timer_cancel(&proxy->timers, &session->keepalive);
	server_requests_drop(session);
	TAILQ_REMOVE(&proxy->sessions, session, link);
	proxy->counts.sessions--;
	proxy_bury(proxy, &session->grave, session_free);
}

void session_close(struct session *session, const char *reason)
{
	session_log(session, LOG_INFO, "session-closed", "%s", reason);
	server_requests_drop(session);
	struct upstream *upstream = session->upstream;
	session->upstream = NULL;
	bury(session);
	if (session->ops)
		session->ops->on_end(session, 0, NULL);
	if (upstream)
		session->proxy->upstream->close(upstream);
}

static void lose_calls(struct call_list *list, int http_status, const char *why)
{
	struct call *call;
	while ((call = TAILQ_FIRST(list)))
		call_on_session_lost(call, http_status, why);
}

/* Not for longer: where readiness decides who gets requests, nothing else would try again. */
static void doubt_server(struct proxy *proxy)
{
	proxy->metrics.unreachable_until_ms = proxy_now(proxy) + proxy->policy->deadlines.restart_ms;
}

void session_on_lost(struct session *session, int http_status, const char *why)
{
	if (session->state == SESSION_DEAD)
		return;
	session_log(session, LOG_WARNING, "session-lost", "%s", why);
	if (!session->ops)
		era_doubt(session->proxy);
	session->proxy->metrics.sessions_lost++;
	/* A server that refuses credentials (401, 403) is there. */
	if (session->state < SESSION_READY && http_status != 401 && http_status != 403)
		doubt_server(session->proxy);
	session->upstream = NULL;
	bury(session);
	if (session->ops)
		session->ops->on_end(session, http_status, why);
	subscriptions_on_lost(session);
	lose_calls(&session->waiting, http_status, why);
	lose_calls(&session->running, http_status, why);
	lose_calls(&session->resuming, http_status, why);
	lose_calls(&session->parked, http_status, why);
	lose_calls(&session->ending, http_status, why);
}

void session_fail(struct session *session, int http_status, const char *why)
{
	struct upstream *upstream = session->upstream;
	server_requests_drop(session);
	session_on_lost(session, http_status, why);
	if (upstream)
		session->proxy->upstream->close(upstream);
}

static void on_request_failed(
	struct session *session, uint64_t request_id, int http_status, const char *why, bool unseen)
{
	if (session->state == SESSION_DEAD)
		return;
	if (session->ops) {
		session->ops->on_request_failed(session, request_id, http_status, why);
		return;
	}
	if (request_id == session->initialize_id && session->state == SESSION_OPENING) {
		session_fail(session, http_status, why);
		return;
	}
	struct call *call = session_find_call(session, request_id);
	if (call && unseen)
		call_on_unseen(call, why);
	else if (call)
		call_on_session_lost(call, http_status, why);
	else if (request_id == session->mirrors.list_id)
		tool_mirrors_on_failed(session, why);
}

void session_on_request_failed(struct session *session, uint64_t request_id, int http_status, const char *why)
{
	on_request_failed(session, request_id, http_status, why, false);
}

void session_on_request_unseen(struct session *session, uint64_t request_id, const char *why)
{
	on_request_failed(session, request_id, 0, why, true);
}

/* Calls that are with the server go on; the session is over when they are. */
static void empty(struct session *session, uint64_t request_id, const char *why)
{
	session_retire(session, why);
	if (session->state == SESSION_DEAD)
		return;
	session->pumping = true; /* nothing more is sent */
	subscriptions_on_lost(session);
	lose_calls(&session->resuming, 0, why);
	lose_calls(&session->parked, 0, why);
	lose_calls(&session->ending, 0, why);
	call_resend_waiting(session);
	on_request_failed(session, request_id, 0, why, true);
	session->pumping = false;
	session_pump(session);
}

void session_on_gone(struct session *session, uint64_t request_id, const char *why)
{
	bool known = session->gone;
	if (session->state == SESSION_DEAD)
		return;
	session->gone = true;
	if (session->ops) {
		session->ops->on_request_failed(session, request_id, 0, why);
		session_fail(session, 0, why);
		return;
	}
	if (!known) {
		session_log(session, LOG_WARNING, "session-lost", "%s", why);
		session->proxy->metrics.sessions_lost++;
		era_doubt(session->proxy);
	}
	empty(session, request_id, why);
}

/* Finding. */

static bool is_usable(const struct session *session, const struct client *client, const struct capabilities *caps)
{
	return !session->ops && session->state <= SESSION_READY && capabilities_equal(&session->caps, caps) &&
	       sodium_memcmp(session->principal, client->principal, PRINCIPAL_BYTES) == 0;
}

/* Makes room under the limits by closing sessions that nobody uses, the longest unused first. Passed sessions count for
 * themselves: there is one for each legacy client. */
static bool make_room(struct proxy *proxy, const struct client *client, bool is_passed, struct error *error)
{
	const struct policy_limits *limits = &proxy->policy->limits;
	unsigned limit = is_passed ? limits->legacy_sessions : limits->sessions_per_principal;
	for (;;) {
		struct session *session, *idle = NULL, *idle_own = NULL;
		unsigned all = 0, own = 0;
		TAILQ_FOREACH (session, &proxy->sessions, link) {
			bool is_own = (session->ops != NULL) == is_passed &&
				      sodium_memcmp(session->principal, client->principal, PRINCIPAL_BYTES) == 0;
			all++;
			own += is_own;
			if (session->state == SESSION_READY && !is_in_use(session)) {
				idle = session;
				idle_own = is_own ? session : idle_own;
			}
		}
		if (all < limits->sessions && own < limit)
			return true;
		struct session *victim = own >= limit ? idle_own : idle;
		if (!victim) {
			error_set(error, ERROR_LIMIT, "Too many sessions with the server are in use (limits.%s)",
				all >= limits->sessions ? "sessions"
				: is_passed		? "legacy_sessions"
							: "sessions_per_principal");
			return false;
		}
		session_close(victim, "room for another");
	}
}

/* The session could not even be tried. */
static void give_up(struct session *session, const struct error *error)
{
	session_log(session, LOG_WARNING, "session-failed", "%s", error->text);
	session->proxy->metrics.sessions_lost++;
	doubt_server(session->proxy);
	bury(session);
}

static struct session *open_bridged(struct proxy *proxy, const struct client *client, const struct capabilities *caps,
	const struct request *request, struct error *error)
{
	if (!make_room(proxy, client, false, error))
		return NULL;
	struct session *session = session_new(proxy, client, caps, request->client_info);
	if (!session) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		return NULL;
	}
	if (session_start_handshake(session, error)) {
		give_up(session, error);
		return NULL;
	}
	return session;
}

struct session *session_open(struct proxy *proxy, const struct client *client, const struct session_ops *ops,
	void *owner, bool modern, struct error *error)
{
	const struct capabilities none = {0};
	if (!make_room(proxy, client, true, error))
		return NULL;
	struct session *session = session_new(proxy, client, &none, (struct span){0});
	if (!session) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		return NULL;
	}
	session->modern = modern;
	session->upstream = proxy->upstream->open(proxy->upstream_ctx, session, error);
	if (!session->upstream) {
		give_up(session, error);
		return NULL;
	}
	session->ops = ops;
	session->owner = owner;
	timer_set(&proxy->timers, &session->timer, proxy_now(proxy) + proxy->policy->deadlines.initialize_ms, on_timer,
		session);
	return session;
}

void session_set_ready(struct session *session)
{
	session->state = SESSION_READY;
	/* A modern session is ready before anything was said. */
	if (!session->modern)
		session->proxy->metrics.unreachable_until_ms = 0;
	timer_cancel(&session->proxy->timers, &session->timer);
}

struct session *session_for(struct proxy *proxy, const struct client *client, const struct capabilities *caps,
	const struct request *request, bool may_ask, struct error *error)
{
	struct session *session, *found = NULL;
	unsigned count = 0;
	TAILQ_FOREACH (session, &proxy->sessions, link) {
		if (!is_usable(session, client, caps))
			continue;
		count++;
		/* The most recently used one, unless a call would have to wait there and need not elsewhere. */
		bool busy = may_ask && !(TAILQ_EMPTY(&session->running) && TAILQ_EMPTY(&session->waiting));
		if (!found || (!busy && count <= proxy->policy->limits.pool && !TAILQ_EMPTY(&found->running)))
			found = session;
	}
	bool all_busy = found && may_ask && !TAILQ_EMPTY(&found->running);
	if (!found || (all_busy && count < proxy->policy->limits.pool))
		return open_bridged(proxy, client, caps, request, error);
	session_touch(found, client);
	return found;
}

/* Going on and coming to an end. */

void session_rest(struct session *session)
{
	struct proxy *proxy = session->proxy;
	if (session->state == SESSION_DEAD || is_in_use(session))
		return;
	bool ends = session->state == SESSION_RETIRING || proxy->shutting_down;
	int64_t idle_ms = ends ? 0 : proxy->policy->deadlines.idle_session_ms;
	/* It does not end at once: who called may be in the middle of it. */
	if (ends || session->state == SESSION_READY)
		timer_set(&proxy->timers, &session->timer, proxy_now(proxy) + idle_ms, on_timer, session);
}

void session_on_established(struct session *session)
{
	if (session->state != SESSION_ESTABLISHING)
		return;
	session_set_ready(session);
	/* Servers ask for the roots right after the handshake, and deny what comes before the answer. */
	if (session->caps.roots)
		session_settle(session);
	session_log(session, LOG_INFO, "session-ready", "protocol revision %s", legacy_version_names[session->version]);
	subscriptions_on_ready(session);
	session_pump(session);
}

void session_retire(struct session *session, const char *reason)
{
	if (session->state >= SESSION_RETIRING)
		return;
	session_log(session, LOG_INFO, "session-retired", "%s", reason);
	if (session->state == SESSION_READY) {
		session->state = SESSION_RETIRING;
		timer_cancel(&session->proxy->timers, &session->timer);
		session_rest(session);
	} else {
		session_fail(session, 0, reason);
	}
}

/* Time. */

static void on_timer(void *arg)
{
	struct session *session = arg;
	bool unused = !is_in_use(session);
	if (unused && session->proxy->shutting_down)
		session_close(session, "the proxy is shutting down");
	else if (unused && session->state >= SESSION_READY)
		session_close(session, session->state == SESSION_READY ? "idle" : "retired");
	else if (session->state < SESSION_READY)
		session_fail(session, 0, "the server did not finish the handshake in time (deadlines.initialize)");
}

void session_touch_keepalive(struct session *session)
{
	struct proxy *proxy = session->proxy;
	if (!session->keepalive.armed && !TAILQ_EMPTY(&session->parked))
		timer_set(&proxy->timers, &session->keepalive, proxy_now(proxy) + proxy->policy->deadlines.keepalive_ms,
			on_keepalive, session);
}

static void send_progress(struct session *session, struct server_request *request)
{
	struct buf message = {0};
	buf_printf(&message,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,"
		"\"progress\":%u}}",
		request->progress_token, ++request->progress);
	if (session_send(session, UPSTREAM_NOTIFICATION, 0, &message))
		session_log(session, LOG_DEBUG, "keepalive-failed", "a progress notification could not be sent");
}

/* Idle servers reap their sessions, and some let their own timers run out; people are slow. */
static void on_keepalive(void *arg)
{
	struct session *session = arg;
	struct server_request *request;
	/* An answer that never came is no reason to stop, let alone to give the session up: some servers know no ping. */
	(void)session_ping(session, &session->ping_id);
	TAILQ_FOREACH (request, &session->server_requests, link)
		if (request->state == SERVER_REQUEST_ASSIGNED && request->progress_token)
			send_progress(session, request);
	session_touch_keepalive(session);
}
