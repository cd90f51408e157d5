#include "adapters/http_connection.h"

#include "adapters/http_check.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	READ_BYTES = 65536,
	MAX_UNREAD_BYTES = 1 << 20, /* of responses, before the next request is looked at */
	BODY_ALLOWANCE_MS = 5000,   /* before the minimum rate counts */
	BODY_CHECK_MS = 1000,
};

static void process(struct connection *connection);
static void on_timer(evutil_socket_t fd, short what, void *arg);

int64_t connection_now_ms(const struct connection *connection)
{
	const struct env *env = connection->face->env;
	return env->now_ms(env->ctx);
}

void connection_set_timer(struct connection *connection, int64_t delay_ms)
{
	struct timeval delay = {delay_ms / 1000, (delay_ms % 1000) * 1000};
	event_add(connection->timer, &delay);
}

/* Life. */

void connection_forget_request(struct connection *connection)
{
	if (connection->authorization)
		sodium_memzero(connection->authorization, strlen(connection->authorization));
	free(connection->authorization);
	connection->authorization = NULL;
	connection->client.authorization = NULL;
	buf_wipe(&connection->head);
	buf_wipe(&connection->body);
}

/* Takes bytes off the front of the input. Nothing of them stays in memory, and only they are wiped: the room is much larger. */
static void consume(struct connection *connection, size_t len)
{
	struct buf *in = &connection->in;
	buf_consume(in, len);
	if (len)
		explicit_bzero(in->data + in->len, len);
}

static void free_input(struct connection *connection)
{
	consume(connection, connection->in.len);
	buf_free(&connection->in);
}

void connection_free(struct connection *connection)
{
	if (connection->read_event)
		event_free(connection->read_event);
	if (connection->write_event)
		event_free(connection->write_event);
	if (connection->timer)
		event_free(connection->timer);
	if (connection->fd >= 0)
		close(connection->fd);
	connection_forget_request(connection);
	free_input(connection);
	outbox_free(&connection->outbox);
	free(connection);
}

void connection_end(struct connection *connection)
{
	struct http_face *face = connection->face;
	static const struct timeval soon = {0, 0};
	if (connection->state == CONNECTION_DEAD)
		return;
	connection->state = CONNECTION_DEAD;
	client_gone(face->proxy, &connection->client);
	if (connection->fetch)
		http_fetch_cancel(connection->fetch);
	connection->fetch = NULL;
	event_del(connection->read_event);
	event_del(connection->write_event);
	event_del(connection->timer);
	close(connection->fd);
	connection->fd = -1;
	TAILQ_REMOVE(&face->connections, connection, link);
	TAILQ_INSERT_TAIL(&face->dead, connection, link);
	face->count--;
	event_add(face->bury_timer, &soon);
}

/* Requests. */

static struct span field(const struct connection *connection, const char *name)
{
	struct span value = {0};
	http1_field(&connection->request, name, &value);
	return value;
}

/* GET and DELETE of a legacy client's session. */
static void dispatch_session(struct connection *connection, bool is_get)
{
	struct http_face *face = connection->face;
	struct client *client = &connection->client;
	int status = is_get ? proxy_listen(face->proxy, client) : proxy_end_session(face->proxy, client);
	if (connection->state != CONNECTION_PENDING)
		return;
	if (status != 200) {
		reply_refuse(connection, status,
			status == 404 ? "Session not found" : "Last-Event-ID names no stream that can be resumed",
			false);
	} else if (!is_get) {
		reply_empty(connection, 200);
	} else if (!connection->streaming) {
		reply_begin_stream(connection);
		connection_set_timer(connection, face->policy->deadlines.stream_keepalive_ms);
		reply_flush(connection);
	}
}

/* The body is complete: the core's turn. */
static void dispatch(struct connection *connection)
{
	struct http_face *face = connection->face;
	const struct request_headers headers = {.protocol_version = field(connection, "mcp-protocol-version"),
		.method = field(connection, "mcp-method"),
		.name = field(connection, "mcp-name")};
	struct span authorization = field(connection, "authorization");
	http_principal(&connection->request, face->policy, connection->client.principal);
	if (authorization.ptr && !(connection->authorization = span_dup(authorization))) {
		reply_refuse(connection, 503, "Out of memory", false);
		return;
	}
	connection->client.authorization = connection->authorization;
	connection->state = CONNECTION_PENDING;
	event_del(connection->timer);
	if (!span_is(connection->request.method, "POST")) {
		dispatch_session(connection, span_is(connection->request.method, "GET"));
		return;
	}
	struct buf body = buf_take(&connection->body);
	enum received received = proxy_receive(face->proxy, &connection->client, buf_span(&body), &headers);
	buf_wipe(&body);
	if (received == RECEIVED_NOTIFICATION && connection->state == CONNECTION_PENDING)
		reply_empty(connection, 202);
}

/* Whether a path may be appended to the server's address and still lead to where it seems to: no other way to write a
 * segment, and none that leads upwards. */
static bool is_plain_path(struct span path)
{
	return !path.len || (*path.ptr == '/' && !memchr(path.ptr, '%', path.len) &&
				    !memchr(path.ptr, '\\', path.len) && !memmem(path.ptr, path.len, "/.", 2));
}

/* Clients look for the authorization of the server behind us at our own address. */
static bool serve_metadata(struct connection *connection)
{
	static const char well_known[] = "/.well-known/oauth-protected-resource";
	const struct http1_head *request = &connection->request;
	struct span rest = {request->path.ptr + sizeof(well_known) - 1, request->path.len - (sizeof(well_known) - 1)};
	const char *fault;
	if (!connection->face->metadata || !span_is(request->method, "GET") || request->content_length ||
		request->chunked || request->path.len < sizeof(well_known) - 1 ||
		memcmp(request->path.ptr, well_known, sizeof(well_known) - 1) != 0 || !is_plain_path(rest))
		return false;
	if (http_check_origin(request, connection->face->listener.is_loopback, connection->face->policy, &fault)) {
		reply_refuse(connection, 403, fault, false);
		return true;
	}
	connection->state = CONNECTION_PENDING;
	event_del(connection->timer);
	connection->fetch = http_fetch_start(connection->face->metadata, request->path, reply_document, connection);
	if (!connection->fetch)
		reply_refuse(connection, 503, "Out of memory", false);
	return true;
}

static void begin_body(struct connection *connection)
{
	struct http_face *face = connection->face;
	const struct http1_head *request = &connection->request;
	const char *fault;
	bool has_body = request->chunked || request->content_length;
	connection->keep_alive = request->keep_alive;
	if (serve_metadata(connection))
		return;
	int status = http_check_head(request, face->path, face->listener.is_loopback, face->policy, &fault);
	if (status) {
		reply_refuse(connection, status, fault, has_body);
		return;
	}
	if (request->content_length > face->policy->limits.message_bytes) {
		reply_refuse(connection, 413, "The body is larger than the limit (limits.message)", true);
		return;
	}
	if (request->expects_continue && has_body && !connection->in.len) {
		struct buf go_on = {0};
		buf_add_text(&go_on, "HTTP/1.1 100 Continue\r\n\r\n");
		reply_put(connection, &go_on);
		reply_flush(connection);
	}
	if (connection->state == CONNECTION_DEAD)
		return;
	http1_body_init(&connection->framing, request);
	connection->state = CONNECTION_BODY;
	connection->since_ms = connection_now_ms(connection);
	connection_set_timer(connection, BODY_CHECK_MS);
}

/* false if more bytes are needed. */
static bool take_head(struct connection *connection)
{
	const struct policy_limits *limits = &connection->face->policy->limits;
	const char *fault;
	size_t len = http1_find_head_end(buf_span(&connection->in), &connection->scanned);
	connection->keep_alive = false;
	connection->request = (struct http1_head){0};
	if (len == HTTP1_BAD_LINE) {
		reply_refuse(connection, 400, "A line does not end with CRLF", true);
		return true;
	}
	if (len > limits->head_bytes || (!len && connection->in.len > limits->head_bytes)) {
		reply_refuse(connection, 431, "The head is larger than the limit (limits.head)", true);
		return true;
	}
	if (!len)
		return false;
	buf_add(&connection->head, connection->in.data, len);
	consume(connection, len);
	connection->scanned = 0;
	if (!buf_ok(&connection->head)) {
		connection_end(connection);
		return true;
	}
	int status = http1_parse_head(buf_span(&connection->head), &connection->request, &fault);
	if (status)
		reply_refuse(connection, status, fault, true);
	else
		begin_body(connection);
	return true;
}

static bool take_body(struct connection *connection)
{
	size_t limit = connection->face->policy->limits.message_bytes;
	size_t used = 0, taken;
	enum http1_feed result = HTTP1_MORE;
	struct span data;
	do {
		struct span rest = {connection->in.data + used, connection->in.len - used};
		result = http1_body_feed(&connection->framing, rest, &taken, &data);
		used += taken;
		buf_add_span(&connection->body, data);
	} while (result == HTTP1_MORE && used < connection->in.len && connection->body.len <= limit);
	consume(connection, used);
	if (result == HTTP1_BAD)
		reply_refuse(connection, 400, "Bad chunk", true);
	else if (connection->body.len > limit)
		reply_refuse(connection, 413, "The body is larger than the limit (limits.message)", true);
	else if (!buf_ok(&connection->body))
		reply_refuse(connection, 503, "Out of memory", true);
	else if (result == HTTP1_DONE)
		dispatch(connection);
	else
		return false;
	return true;
}

static void process(struct connection *connection)
{
	bool more = true;
	connection->processing = true;
	while (more) {
		if (connection->state == CONNECTION_HEAD && outbox_bytes(&connection->outbox) > MAX_UNREAD_BYTES) {
			/* Who does not read responses gets no more of them. */
			connection->blocked = true;
			event_del(connection->read_event);
			more = false;
		} else if (connection->state == CONNECTION_HEAD)
			more = connection->in.len && take_head(connection);
		else if (connection->state == CONNECTION_BODY)
			more = take_body(connection);
		else
			more = false;
	}
	connection->processing = false;
	/* A waiting connection is to be small. */
	if (connection->state == CONNECTION_CLOSING ||
		(connection->in.len == 0 && connection->state != CONNECTION_BODY))
		free_input(connection);
	/* While the core has a request, the client may send the next one, but not more than a head's worth. */
	if (connection->state == CONNECTION_PENDING && connection->in.len > connection->face->policy->limits.head_bytes)
		connection_end(connection);
}

/* Reading. */

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct connection *connection = arg;
	(void)what;
	if (!buf_reserve(&connection->in, READ_BYTES)) {
		connection_end(connection);
		return;
	}
	ssize_t len = read(fd, connection->in.data + connection->in.len, READ_BYTES);
	if (len == 0 || (len < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
		connection_end(connection);
		return;
	}
	if (len > 0 && connection->state == CONNECTION_HEAD && connection->in.len == 0) {
		connection->since_ms = connection_now_ms(connection);
		connection_set_timer(connection, connection->face->policy->deadlines.head_ms);
	}
	connection->in.len += len > 0 ? (size_t)len : 0;
	process(connection);
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	reply_flush(arg);
}

/* The minimum rate of a body, after a short allowance. */
static bool is_body_slow(const struct connection *connection)
{
	int64_t elapsed_ms = connection_now_ms(connection) - connection->since_ms - BODY_ALLOWANCE_MS;
	return elapsed_ms > 0 &&
	       (int64_t)connection->body.len < elapsed_ms * (int64_t)connection->face->policy->min_body_rate / 1000;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct connection *connection = arg;
	(void)fd;
	(void)what;
	switch (connection->state) {
	case CONNECTION_HEAD:
		if (outbox_bytes(&connection->outbox) &&
			outbox_bytes(&connection->outbox) != connection->unread_bytes) {
			connection->unread_bytes = outbox_bytes(&connection->outbox); /* slow, but it reads */
			connection_set_timer(connection, connection->face->policy->deadlines.idle_connection_ms);
			break;
		}
		if (!connection->in.len || connection->blocked) {
			connection_end(connection); /* idle */
			break;
		}
		connection->keep_alive = false;
		reply_refuse(connection, 408, "The head did not arrive in time (deadlines.head)", true);
		break;
	case CONNECTION_BODY:
		if (is_body_slow(connection))
			reply_refuse(connection, 408, "The body arrives too slowly (limits.body_rate)", true);
		else
			connection_set_timer(connection, BODY_CHECK_MS);
		break;
	case CONNECTION_PENDING: {
		struct buf comment = {0};
		/* Whoever has not read what is there needs no sign of life. */
		if (!outbox_bytes(&connection->outbox)) {
			buf_add_text(&comment, connection->request.is_http10 ? ":\n\n" : "3\r\n:\n\n\r\n");
			reply_put(connection, &comment);
		}
		if (connection->state == CONNECTION_PENDING)
			connection_set_timer(connection, connection->face->policy->deadlines.stream_keepalive_ms);
		reply_flush(connection);
		break;
	}
	default:
		connection_end(connection);
		break;
	}
}

bool connection_open(struct http_face *face, int fd, const char *peer)
{
	int on = 1;
	struct connection *connection = calloc(1, sizeof(*connection));
	if (!connection) {
		close(fd);
		return false;
	}
	connection->face = face;
	connection->fd = fd;
	snprintf(connection->peer, sizeof(connection->peer), "%s", peer);
	client_init(&connection->client, &http_face_ops);
	connection->read_event = event_new(face->base, fd, EV_READ | EV_PERSIST, on_read, connection);
	connection->write_event = event_new(face->base, fd, EV_WRITE | EV_PERSIST, on_write, connection);
	connection->timer = event_new(face->base, -1, 0, on_timer, connection);
	if (!connection->read_event || !connection->write_event || !connection->timer ||
		event_add(connection->read_event, NULL)) {
		connection_free(connection);
		return false;
	}
	if (!face->listener.is_unix)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	TAILQ_INSERT_TAIL(&face->connections, connection, link);
	face->count++;
	connection->since_ms = connection_now_ms(connection);
	connection_set_timer(connection, face->policy->deadlines.head_ms);
	return true;
}
