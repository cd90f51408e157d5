#include "adapters/http_session.h"

#include "proxy/json.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void upstream_log(const struct upstream *upstream, enum log_level level, const char *event, const char *text)
{
	const struct env *env = upstream->http->env;
	if (level <= env->log_level)
		env->log(env->ctx, &(struct log_line){.level = level,
					   .event = event,
					   .session = upstream->session ? session_name(upstream->session) : NULL,
					   .text = text});
}

/* Sessions. */

static void upstream_free(struct upstream *upstream)
{
	struct post *post;
	while ((post = TAILQ_FIRST(&upstream->posts)))
		post_free(post);
	stream_close(upstream);
	if (upstream->stream.timer)
		event_free(upstream->stream.timer);
	buf_free(&upstream->handshake);
	free(upstream->session_id);
	free(upstream->endpoint);
	free(upstream);
}

static void on_bury(evutil_socket_t fd, short what, void *arg)
{
	struct http_upstream *http = arg;
	struct upstream *upstream;
	(void)fd;
	(void)what;
	while ((upstream = TAILQ_FIRST(&http->dead))) {
		TAILQ_REMOVE(&http->dead, upstream, link);
		upstream_free(upstream);
	}
}

/* Takes the session off the list; it is freed when the stack below is done. */
static void upstream_end(struct upstream *upstream)
{
	struct http_upstream *http = upstream->http;
	struct post *post;
	upstream->session = NULL;
	TAILQ_FOREACH (post, &upstream->posts, link) {
		if (post->transfer)
			http_transfer_cancel(post->transfer);
		post->transfer = NULL;
		if (post->timer)
			event_del(post->timer);
	}
	stream_close(upstream);
	TAILQ_REMOVE(&http->sessions, upstream, link);
	TAILQ_INSERT_TAIL(&http->dead, upstream, link);
	event_active(http->bury_timer, EV_TIMEOUT, 0);
}

void upstream_lose(struct upstream *upstream, int http_status, const char *why)
{
	struct session *session = upstream->session;
	if (!session)
		return;
	upstream_end(upstream);
	session_on_lost(session, http_status, why);
}

void upstream_established(struct upstream *upstream)
{
	if (!upstream->establishing || !upstream->session)
		return;
	upstream->establishing = false;
	session_on_established(upstream->session);
}

bool upstream_is_response(struct span message, struct span *id)
{
	/* Unchecked bytes: the walk may find nothing, but never reads outside. */
	struct json_walk walk = json_walk(message, NULL);
	struct json_member member;
	bool has_method = false, has_outcome = false;
	*id = (struct span){0};
	while (json_next_member(&walk, &member)) {
		has_method |= json_key_is(member.key, "method");
		has_outcome |= json_key_is(member.key, "result") || json_key_is(member.key, "error");
		if (json_key_is(member.key, "id"))
			*id = member.value;
	}
	return has_outcome && !has_method;
}

void upstream_deliver(struct upstream *upstream, struct span message, uint64_t stream)
{
	if (upstream->session)
		session_on_message(upstream->session, message, stream);
}

/* Takes lines that are ended by LF apart. */
static const char **add_lines(struct header_lines *headers, const char **line, char *text)
{
	const char **last = headers->lines + sizeof(headers->lines) / sizeof(headers->lines[0]) - 1;
	for (char *end; text && (end = strchr(text, '\n')) && line < last; text = end + 1) {
		*end = '\0';
		*line++ = text;
	}
	return line;
}

bool upstream_write_headers(const struct upstream *upstream, struct header_lines *headers, const char *accept,
	struct span body, const char *last_event_id)
{
	const char **line = &headers->lines[0];
	const char *authorization = upstream->session ? session_authorization(upstream->session) : NULL;
	headers->authorization = headers->forwarded = headers->mirrors = (struct buf){0};
	*line++ = accept;
	*line++ = "Accept-Encoding: identity";
	*line++ = "User-Agent: mcp-valet";
	*line++ = "Expect:";
	if (body.ptr)
		*line++ = "Content-Type: application/json";
	if (upstream->session_id) {
		snprintf(headers->session_id, sizeof(headers->session_id), "Mcp-Session-Id: %s", upstream->session_id);
		*line++ = headers->session_id;
	}
	/* The header came with 2025-06-18 (basic/transports "Protocol Version Header"). */
	if (upstream->version && strcmp(upstream->version, "2025-06-18") >= 0) {
		snprintf(headers->version, sizeof(headers->version), "MCP-Protocol-Version: %s", upstream->version);
		*line++ = headers->version;
	}
	if (last_event_id) {
		snprintf(headers->last_event_id, sizeof(headers->last_event_id), "Last-Event-ID: %s", last_event_id);
		*line++ = headers->last_event_id;
	}
	if (authorization) {
		buf_add_text(&headers->authorization, "Authorization: ");
		buf_add(&headers->authorization, authorization, strlen(authorization) + 1);
		*line++ = headers->authorization.data;
	}
	const char *forwarded = upstream->session ? session_forwarded(upstream->session) : NULL;
	if (forwarded) {
		buf_add(&headers->forwarded, forwarded, strlen(forwarded) + 1);
		line = add_lines(headers, line, headers->forwarded.data);
	}
	if (upstream->modern && body.ptr) {
		http_modern_headers(body, &headers->mirrors);
		buf_add_span(
			&headers->mirrors, upstream->session ? session_mirrored(upstream->session) : (struct span){0});
		buf_add(&headers->mirrors, "", 1);
		if (buf_ok(&headers->mirrors))
			line = add_lines(headers, line, headers->mirrors.data);
	}
	*line = NULL;
	return buf_ok(&headers->authorization) && buf_ok(&headers->forwarded) && buf_ok(&headers->mirrors);
}

void header_lines_free(struct header_lines *headers)
{
	buf_wipe(&headers->authorization);
	buf_wipe(&headers->forwarded);
	buf_wipe(&headers->mirrors);
}

/* What the core calls. */

static struct upstream *http_open(void *ctx, struct session *session, struct error *error)
{
	struct http_upstream *http = ctx;
	struct upstream *upstream = calloc(1, sizeof(*upstream));
	if (!upstream) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	upstream->http = http;
	upstream->session = session;
	upstream->modern = session_is_modern(session);
	if (upstream->modern)
		upstream->mode = HTTP_MODE_STREAMABLE;
	upstream->stream.retry_ms = HTTP_RETRY_MS;
	TAILQ_INIT(&upstream->posts);
	TAILQ_INSERT_TAIL(&http->sessions, upstream, link);
	return upstream;
}

static int http_send(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id, struct buf *message)
{
	size_t limit = upstream->http->policy->limits.upstream_queue_bytes * (kind == UPSTREAM_RESPONSE ? 2 : 1);
	if (upstream->unsent_bytes && upstream->unsent_bytes + message->len > limit) {
		buf_free(message);
		return ERROR_LIMIT;
	}
	if (!upstream->modern && !upstream->handshake_id && kind == UPSTREAM_REQUEST) {
		upstream->handshake_id = request_id;
		buf_add_span(&upstream->handshake, buf_span(message));
	}
	return post_start(upstream, kind, request_id, message);
}

static void http_establish(struct upstream *upstream, const char *version)
{
	upstream->version = version;
	upstream->establishing = true;
	buf_free(&upstream->handshake);
	/* HTTP+SSE has its stream already. The GET stream is opened when the server has taken `initialized` (http_post.c). */
	if (upstream->mode == HTTP_MODE_SSE)
		upstream_established(upstream);
}

static void http_forget(struct upstream *upstream, uint64_t request_id)
{
	post_forget(upstream, request_id);
}

static void on_farewell_head(void *arg, const struct http_response *response)
{
	(void)arg;
	(void)response; /* 405: the server does not let clients end sessions */
}

static void on_farewell_data(void *arg, struct span bytes)
{
	(void)arg;
	(void)bytes;
}

static void on_farewell_done(void *arg, const char *fault, bool unsent)
{
	(void)arg;
	(void)fault;
	(void)unsent;
}

/* Sessions that are not ended pile up at the server. */
static void say_farewell(struct upstream *upstream)
{
	static const struct http_handlers handlers = {on_farewell_head, on_farewell_data, on_farewell_done};
	struct header_lines headers;
	if (upstream->mode != HTTP_MODE_STREAMABLE || !upstream->session_id)
		return;
	if (upstream_write_headers(upstream, &headers, "Accept: */*", (struct span){0}, NULL) &&
		!http_transfer_start(upstream->http->client,
			&(struct http_request){.method = "DELETE", .headers = headers.lines}, &handlers, NULL))
		upstream_log(upstream, LOG_DEBUG, "session-not-ended", "out of memory");
	header_lines_free(&headers);
}

static void http_close(struct upstream *upstream)
{
	say_farewell(upstream);
	upstream_end(upstream);
}

const struct upstream_ops http_upstream_ops = {
	.open = http_open,
	.send = http_send,
	.establish = http_establish,
	.forget = http_forget,
	.close = http_close,
	.has_streams = true,
};

/* The target. */

static bool is_local(const char *url)
{
	static const char *const hosts[] = {"//localhost", "//127.", "//[::1]"};
	const char *host = strstr(url, "//");
	for (size_t i = 0; host && i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (strncmp(host, hosts[i], strlen(hosts[i])) == 0)
			return true;
	return false;
}

/* unix:/path/of/socket:/endpoint */
static int parse_unix(struct http_upstream *http, const char *text, struct error *error)
{
	const char *colon = strrchr(text, ':');
	if (!colon || colon == text || colon[1] != '/')
		return error_set(error, ERROR_SYNTAX, "unix:%s: expected unix:/path/of/socket:/endpoint", text);
	struct buf url = {0};
	http->unix_socket = span_dup((struct span){text, (size_t)(colon - text)});
	buf_printf(&url, "http://localhost%s", colon + 1);
	buf_add(&url, "", 1);
	http->url = url.data;
	return http->unix_socket && buf_ok(&url) ? 0 : error_set(error, ERROR_MEMORY, "out of memory");
}

static int parse_url(struct http_upstream *http, const char *url, struct error *error)
{
	if (strncmp(url, "unix:", 5) == 0)
		return parse_unix(http, url + 5, error);
	size_t scheme = strncmp(url, "http://", 7) == 0 ? 7 : strncmp(url, "https://", 8) == 0 ? 8 : 0;
	const char *host = url + scheme;
	if (!scheme || strcspn(host, "/?#:") == 0)
		return error_set(error, ERROR_SYNTAX,
			"--upstream %s: expected http://…, https://… or unix:/socket:/endpoint", url);
	if (memchr(host, '@', strcspn(host, "/?#")))
		return error_set(error, ERROR_SYNTAX,
			"--upstream: a URL with credentials is not taken; clients bring their own");
	http->url = strdup(url);
	return http->url ? 0 : error_set(error, ERROR_MEMORY, "out of memory");
}

/* libcurl would say so at the first request only, and not which file it is. */
static bool can_read(const char *what, const char *path, struct error *error)
{
	if (!path || access(path, R_OK) == 0)
		return true;
	error_set(error, ERROR_SYSTEM, "%s %s: %s", what, path, strerror(errno));
	return false;
}

static bool make_client(struct http_upstream *http, const char *ca_file, struct error *error)
{
	const struct policy *policy = http->policy;
	const char *ca = ca_file ? ca_file : policy->upstream.ca_file;
	if (!can_read(ca_file ? "--upstream-ca" : "upstream.ca_file", ca, error) ||
		!can_read("upstream.certificate", policy->upstream.certificate, error) ||
		!can_read("upstream.key", policy->upstream.key, error))
		return false;
	http->ca_file = ca ? strdup(ca) : NULL;
	http->client = http_client_new(http->base,
		&(struct http_target){.url = http->url,
			.unix_socket = http->unix_socket,
			.ca_file = http->ca_file,
			.certificate = policy->upstream.certificate,
			.key = policy->upstream.key,
			.direct = http->unix_socket || is_local(http->url),
			.connect_ms = policy->deadlines.connect_ms},
		error);
	return http->client && http_upstream_set_policy(http, http->policy, error) == 0;
}

struct http_upstream *http_upstream_new(struct event_base *base, const struct env *env, struct policy *policy,
	const char *url, const char *ca_file, struct error *error)
{
	struct http_upstream *http = calloc(1, sizeof(*http));
	if (!http) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	http->base = base;
	http->env = env;
	http->policy = policy_ref(policy);
	http->first_policy = policy_ref(policy);
	TAILQ_INIT(&http->sessions);
	TAILQ_INIT(&http->dead);
	http->bury_timer = event_new(base, -1, 0, on_bury, http);
	if (!http->bury_timer)
		error_set(error, ERROR_MEMORY, "out of memory");
	if (http->bury_timer && parse_url(http, url, error) == 0 && make_client(http, ca_file, error))
		return http;
	http_upstream_free(http);
	return NULL;
}

int http_upstream_set_policy(struct http_upstream *http, struct policy *policy, struct error *error)
{
	if (policy->upstream.cross_origin && http_client_reach_others(http->client, error))
		return error->code;
	policy_ref(policy);
	policy_unref(http->policy);
	http->policy = policy;
	return 0;
}

bool http_upstream_is_idle(const struct http_upstream *http)
{
	return TAILQ_EMPTY(&http->sessions) && http_client_is_idle(http->client);
}

void http_upstream_free(struct http_upstream *http)
{
	struct upstream *upstream;
	if (!http)
		return;
	while ((upstream = TAILQ_FIRST(&http->sessions)))
		upstream_end(upstream);
	if (http->bury_timer) {
		on_bury(-1, 0, http);
		event_free(http->bury_timer);
	}
	http_client_free(http->client);
	policy_unref(http->policy);
	policy_unref(http->first_policy);
	free(http->url);
	free(http->unix_socket);
	free(http->ca_file);
	free(http);
}
