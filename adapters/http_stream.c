/* The stream that belongs to no request: the standalone GET of Streamable HTTP, or the one of HTTP+SSE, which carries
 * everything (2024-11-05 basic/transports "HTTP with SSE"). */
#include "adapters/http_session.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_WAIT_MS = 2000, WATCH_MS = 5000 };

static void on_head(void *arg, const struct http_response *response);
static void on_data(void *arg, struct span bytes);
static void on_done(void *arg, const char *fault, bool unsent);

static const struct http_handlers handlers = {on_head, on_data, on_done};

static void set_timer(struct upstream *upstream, int64_t ms)
{
	struct timeval delay = {ms / 1000, (ms % 1000) * 1000};
	if (upstream->stream.timer)
		event_add(upstream->stream.timer, &delay);
}

void stream_close(struct upstream *upstream)
{
	struct stream *stream = &upstream->stream;
	if (stream->transfer)
		http_transfer_cancel(stream->transfer);
	stream->transfer = NULL;
	stream->is_open = false;
	if (stream->timer)
		event_del(stream->timer);
	sse_free(&stream->sse);
	stream->sse = (struct sse){.stopped = true};
	free(stream->last_event_id);
	stream->last_event_id = NULL;
}

/* Takes the segments `.` and `..` out of the path that begins here (RFC 3986 5.2.4). */
static void remove_dots(char *path)
{
	char *out = path;
	const char *in = path, *end = path + strcspn(path, "?#");
	while (in < end) {
		size_t len = 1 + strcspn(in + 1, "/?#");
		bool is_dot = len == 2 && in[1] == '.', is_double = len == 3 && in[1] == '.' && in[2] == '.';
		if (is_double)
			while (out > path && *--out != '/')
				;
		if (!is_dot && !is_double) {
			memmove(out, in, len);
			out += len;
		} else if (in + len == end) {
			*out++ = '/';
		}
		in += len;
	}
	memmove(out, end, strlen(end) + 1);
}

static bool has_origin(struct span url, struct span origin)
{
	return url.len >= origin.len && strncasecmp(url.ptr, origin.ptr, origin.len) == 0 &&
	       (url.len == origin.len || strchr("/?", url.ptr[origin.len]));
}

/* The endpoint of HTTP+SSE: relative, an absolute path, or an absolute URL of the same origin; of another one by policy. NULL
 * if it is refused. */
static char *resolve_endpoint(const struct http_upstream *http, struct span endpoint)
{
	struct buf url = {0};
	const char *host = strstr(http->url, "//") + 2;
	size_t origin_len = (size_t)(host - http->url) + strcspn(host, "/?#");
	struct span base = {http->url, origin_len};
	for (size_t i = 0; i < endpoint.len; i++)
		if ((unsigned char)endpoint.ptr[i] <= ' ' || endpoint.ptr[i] == 0x7F)
			return NULL;
	if (endpoint.len > 8 && memmem(endpoint.ptr, endpoint.len, "://", 3) && *endpoint.ptr != '/') {
		if (!has_origin(endpoint, base)) {
			bool is_http = strncasecmp(endpoint.ptr, "http://", 7) == 0 ||
				       strncasecmp(endpoint.ptr, "https://", 8) == 0;
			return is_http && http->policy->upstream.cross_origin ? span_dup(endpoint) : NULL;
		}
		endpoint = (struct span){endpoint.ptr + origin_len, endpoint.len - origin_len};
	} else if (endpoint.len >= 2 && endpoint.ptr[0] == '/' && endpoint.ptr[1] == '/') {
		return NULL; /* another host in disguise */
	} else if (!endpoint.len || endpoint.ptr[0] != '/') {
		/* Relative to the last slash of the URL's path. */
		base.len = strcspn(http->url, "?#");
		while (base.len > origin_len && http->url[base.len - 1] != '/')
			base.len--;
	}
	buf_add_span(&url, base);
	if (base.len == origin_len && (!endpoint.len || endpoint.ptr[0] != '/'))
		buf_add_text(&url, "/");
	buf_add_span(&url, endpoint);
	buf_add(&url, "", 1);
	if (buf_ok(&url)) {
		remove_dots(url.data + origin_len);
		return url.data;
	}
	buf_free(&url);
	return NULL;
}

static void on_endpoint(struct upstream *upstream, struct span endpoint)
{
	if (upstream->endpoint)
		return;
	upstream->endpoint = resolve_endpoint(upstream->http, endpoint);
	if (!upstream->endpoint) {
		upstream_lose(upstream, 0,
			"the server's endpoint is of another origin, or none (upstream.cross_origin permits it)");
		return;
	}
	session_has_no_streams(upstream->session);
	/* Now the handshake can begin. */
	struct buf message = buf_take(&upstream->handshake);
	if (post_start(upstream, UPSTREAM_REQUEST, upstream->handshake_id, &message))
		upstream_lose(upstream, 0, "out of memory");
}

static void on_event(void *arg, const struct sse_event *event)
{
	struct upstream *upstream = arg;
	struct stream *stream = &upstream->stream;
	stream->retries = 0;
	if (event->retry_ms >= 0)
		stream->retry_ms = event->retry_ms;
	if (event->id.ptr) {
		free(stream->last_event_id);
		stream->last_event_id = event->id.len ? span_dup(event->id) : NULL;
	}
	if (upstream->mode == HTTP_MODE_SSE && span_is(event->type, "endpoint"))
		on_endpoint(upstream, event->data);
	else if (event->data.len && (!event->type.len || span_is(event->type, "message")))
		upstream_deliver(upstream, event->data, 0);
}

static void on_head(void *arg, const struct http_response *response)
{
	struct upstream *upstream = arg;
	struct stream *stream = &upstream->stream;
	int status = response->status;
	stream->status = status;
	stream->is_open = status / 100 == 2 && strncasecmp(response->content_type, "text/event-stream", 17) == 0;
	stream->was_open |= stream->is_open;
	event_del(stream->timer);
	if (stream->is_open) {
		sse_init(&stream->sse, upstream->http->policy->limits.message_bytes, on_event, upstream);
		if (upstream->mode == HTTP_MODE_SSE)
			set_timer(upstream, upstream->http->policy->deadlines.initialize_ms);
	} else {
		/* 405, 404, 406 …: this server has no such stream. */
		http_transfer_cancel(stream->transfer);
		stream->transfer = NULL;
	}
	if (upstream->mode == HTTP_MODE_SSE && !stream->is_open) {
		char why[100];
		snprintf(why, sizeof(why), "the server speaks neither Streamable HTTP nor HTTP+SSE here (HTTP %d)",
			status);
		upstream_lose(upstream, status, why);
	} else if (!stream->is_open && status == 404 && stream->was_open) {
		session_on_gone(upstream->session, 0, "the server does not know the session any more");
	} else if (upstream->mode == HTTP_MODE_STREAMABLE) {
		upstream_established(upstream);
	}
}

static void on_data(void *arg, struct span bytes)
{
	struct upstream *upstream = arg;
	if (!upstream->stream.is_open)
		return;
	if (sse_feed(&upstream->stream.sse, bytes))
		upstream_lose(upstream, 0, "the server sent an event larger than the limit (limits.message)");
}

static void on_done(void *arg, const char *fault, bool unsent)
{
	struct upstream *upstream = arg;
	struct stream *stream = &upstream->stream;
	(void)unsent;
	stream->transfer = NULL;
	bool was_open = stream->is_open;
	stream->is_open = false;
	if (!upstream->session)
		return;
	if (upstream->mode == HTTP_MODE_SSE) {
		upstream_lose(upstream, 0, fault ? fault : "the server closed the event stream");
		return;
	}
	sse_free(&stream->sse);
	stream->sse = (struct sse){.stopped = true};
	/* It may be polled: closed by the server and opened again. Where it never opened, there is none. */
	if ((was_open || stream->was_open) && ++stream->retries <= HTTP_MAX_RETRIES)
		set_timer(upstream, stream->retry_ms);
	upstream_established(upstream);
}

static bool waits_for_head(const struct upstream *upstream)
{
	const struct post *post;
	TAILQ_FOREACH (post, &upstream->posts, link)
		if (post->kind == UPSTREAM_REQUEST && post->transfer && !post->status)
			return true;
	return false;
}

/* One timer for what the stream waits for. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct upstream *upstream = arg;
	struct stream *stream = &upstream->stream;
	(void)fd;
	(void)what;
	if (upstream->mode == HTTP_MODE_SSE) {
		if (!upstream->endpoint)
			upstream_lose(upstream, 0, "the server did not name its endpoint in time");
	} else if (!stream->transfer) {
		stream_open(upstream);
	} else if (upstream->establishing) {
		/* Some servers send the head with the first event only. */
		upstream_established(upstream);
	} else if (!stream->is_open && waits_for_head(upstream)) {
		upstream_log(upstream, LOG_WARNING, "stream-closed",
			"the server does not answer while its GET stream is open: from now on without it");
		upstream->http->without_get = true;
		http_transfer_cancel(stream->transfer);
		stream->transfer = NULL;
	}
}

void stream_open(struct upstream *upstream)
{
	struct stream *stream = &upstream->stream;
	struct header_lines headers;
	if (stream->transfer || (upstream->mode == HTTP_MODE_STREAMABLE && upstream->http->without_get)) {
		upstream_established(upstream);
		return;
	}
	if (!stream->timer)
		stream->timer = event_new(upstream->http->base, -1, 0, on_timer, upstream);
	if (stream->timer && upstream_write_headers(upstream, &headers, "Accept: text/event-stream", (struct span){0},
				     stream->last_event_id)) {
		stream->transfer = http_transfer_start(upstream->http->client,
			&(struct http_request){.method = "GET", .headers = headers.lines}, &handlers, upstream);
		header_lines_free(&headers);
	}
	if (!stream->transfer) {
		upstream_lose(upstream, 0, "out of memory");
		return;
	}
	set_timer(upstream,
		upstream->mode == HTTP_MODE_SSE ? upstream->http->policy->deadlines.initialize_ms : HEAD_WAIT_MS);
}

void stream_watch(struct upstream *upstream)
{
	struct stream *stream = &upstream->stream;
	if (upstream->mode == HTTP_MODE_STREAMABLE && stream->transfer && !stream->is_open && !upstream->establishing &&
		!event_pending(stream->timer, EV_TIMEOUT, NULL))
		set_timer(upstream, WATCH_MS);
}
