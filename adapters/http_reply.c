/* What a connection of the HTTP face says: responses, event streams, and the face's side of proxy/face.h. */
#include "adapters/http_check.h"
#include "adapters/http_connection.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { CLOSING_MS = 5000 }; /* for a client to take the last response */

void reply_flush(struct connection *connection)
{
	if (connection->state == CONNECTION_DEAD)
		return;
	if (outbox_write(&connection->outbox, connection->fd)) {
		connection_end(connection);
		return;
	}
	if (outbox_bytes(&connection->outbox)) {
		event_add(connection->write_event, NULL);
		return;
	}
	event_del(connection->write_event);
	if (connection->blocked) {
		connection->blocked = false;
		event_add(connection->read_event, NULL);
		event_active(connection->read_event, EV_READ, 0);
	}
	if (connection->state == CONNECTION_CLOSING) {
		/* Ours is said; what the client still sends is thrown away for a moment, or a reset could eat the response. */
		shutdown(connection->fd, SHUT_WR);
	}
}

void reply_put(struct connection *connection, struct buf *bytes)
{
	if (!outbox_add(&connection->outbox, bytes))
		connection_end(connection);
}

static void add_status(struct connection *connection, struct buf *out, int status)
{
	const char *challenge = connection->client.challenge;
	buf_printf(out, "HTTP/1.1 %d %s\r\n%s%s", status, http_reason(status), status == 405 ? "Allow: POST\r\n" : "",
		connection->keep_alive ? connection->request.is_http10 ? "Connection: keep-alive\r\n" : ""
				       : "Connection: close\r\n");
	if (challenge && (status == 401 || status == 403))
		buf_printf(out, "WWW-Authenticate: %s\r\n", challenge);
	if (connection->client.session_id)
		buf_printf(out, "Mcp-Session-Id: %s\r\n", connection->client.session_id);
}

/* The response is complete: the next request may come, or the connection ends. */
static void response_done(struct connection *connection)
{
	if (connection->state == CONNECTION_DEAD)
		return;
	connection_forget_request(connection);
	connection->streaming = false;
	connection->state = connection->keep_alive && !connection->face->stopped ? CONNECTION_HEAD : CONNECTION_CLOSING;
	connection->scanned = 0;
	connection->since_ms = connection_now_ms(connection);
	connection_set_timer(connection, connection->state == CONNECTION_CLOSING
						 ? CLOSING_MS
						 : connection->face->policy->deadlines.idle_connection_ms);
	reply_flush(connection);
	/* A request may have come meanwhile; it is looked at when the stack below is done. */
	if (connection->state == CONNECTION_HEAD && !connection->processing && connection->in.len)
		event_active(connection->read_event, EV_READ, 0);
}

static void respond_json(struct connection *connection, int status, struct buf *message)
{
	struct buf head = {0};
	add_status(connection, &head, status);
	buf_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", message->len);
	head.failed |= message->failed;
	reply_put(connection, &head);
	if (connection->state != CONNECTION_DEAD)
		reply_put(connection, message);
	buf_free(message);
	response_done(connection);
}

void reply_refuse(struct connection *connection, int status, const char *text, bool close)
{
	struct buf message = {0};
	buf_add_text(&message, "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":");
	buf_add_json_string(&message, span_of(text));
	buf_add_text(&message, "}}");
	connection->keep_alive &= !close;
	respond_json(connection, status, &message);
}

void reply_empty(struct connection *connection, int status)
{
	struct buf head = {0};
	add_status(connection, &head, status);
	buf_add_text(&head, "Content-Length: 0\r\n\r\n");
	reply_put(connection, &head);
	response_done(connection);
}

void reply_document(void *arg, int status, const char *content_type, struct span body)
{
	struct connection *connection = arg;
	struct buf head = {0}, copy = {0};
	connection->fetch = NULL;
	add_status(connection, &head, status ? status : 502);
	buf_printf(&head, "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n",
		content_type[0] ? content_type : "text/plain", body.len);
	buf_add_span(&copy, body);
	head.failed |= copy.failed;
	reply_put(connection, &head);
	if (connection->state != CONNECTION_DEAD)
		reply_put(connection, &copy);
	buf_free(&copy);
	response_done(connection);
}

/* Events. */

void reply_begin_stream(struct connection *connection)
{
	struct buf head = {0};
	/* HTTP/1.0 knows no chunks: there the end of the connection is the end of the stream. */
	if (connection->request.is_http10)
		connection->keep_alive = false;
	add_status(connection, &head, 200);
	buf_printf(&head,
		"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
		connection->request.is_http10 ? "" : "Transfer-Encoding: chunked\r\n");
	connection->streaming = true;
	reply_put(connection, &head);
}

/* Line ends can only stand between tokens of a JSON text, where a space says the same; in an event they would end it. */
static void flatten(struct buf *message)
{
	for (size_t i = 0; i < message->len; i++)
		if (message->data[i] == '\n' || message->data[i] == '\r')
			message->data[i] = ' ';
}

static void put_event(struct connection *connection, struct buf *message)
{
	static const char after[] = "\n\n";
	const char *id = connection->client.event_id;
	char before[96];
	struct buf head = {0};
	struct buf tail = {0};
	flatten(message);
	int len = snprintf(
		before, sizeof(before), "event: message\n%s%s%sdata: ", id ? "id: " : "", id ? id : "", id ? "\n" : "");
	if (!connection->request.is_http10)
		buf_printf(&head, "%zx\r\n", message->len + (size_t)len + sizeof(after) - 1);
	buf_add_text(&head, before);
	buf_add_text(&tail, after);
	if (!connection->request.is_http10)
		buf_add_text(&tail, "\r\n");
	head.failed |= message->failed | tail.failed;
	reply_put(connection, &head);
	if (connection->state != CONNECTION_DEAD)
		reply_put(connection, message);
	if (connection->state != CONNECTION_DEAD)
		reply_put(connection, &tail);
	buf_free(message);
	buf_free(&tail);
}

static bool face_send(struct client *client, struct buf *message)
{
	struct connection *connection = container_of(client, struct connection, client);
	const struct http_face *face = connection->face;
	size_t waiting = outbox_bytes(&connection->outbox);
	if (connection->state != CONNECTION_PENDING ||
		(waiting && waiting + message->len > face->policy->limits.downstream_queue_bytes)) {
		buf_free(message);
		return false;
	}
	if (!connection->streaming)
		reply_begin_stream(connection);
	if (connection->state == CONNECTION_PENDING)
		put_event(connection, message);
	buf_free(message);
	if (connection->state == CONNECTION_PENDING)
		connection_set_timer(connection, face->policy->deadlines.stream_keepalive_ms);
	reply_flush(connection);
	return true;
}

static void face_notify(struct client *client, struct buf *message)
{
	(void)face_send(client, message); /* who reads too slowly misses it */
}

/* The end of an event stream, which may hold nothing. */
static void face_finish(struct client *client)
{
	struct connection *connection = container_of(client, struct connection, client);
	struct buf end = {0};
	if (connection->state != CONNECTION_PENDING)
		return;
	if (!connection->streaming)
		reply_begin_stream(connection);
	if (!connection->request.is_http10)
		buf_add_text(&end, "0\r\n\r\n");
	if (connection->state == CONNECTION_PENDING)
		reply_put(connection, &end);
	buf_free(&end);
	response_done(connection);
}

static void face_respond(struct client *client, int http_status, struct buf *message)
{
	struct connection *connection = container_of(client, struct connection, client);
	if (connection->state != CONNECTION_PENDING) {
		buf_free(message);
		return;
	}
	if (!connection->streaming) {
		respond_json(connection, http_status, message);
		return;
	}
	put_event(connection, message);
	face_finish(client);
}

static bool face_header(const struct client *client, const char *name, struct span *value)
{
	const struct connection *connection =
		(const struct connection *)(const void *)((const char *)client - offsetof(struct connection, client));
	return connection->head.len && http1_field(&connection->request, name, value) == 1;
}

static void face_headers_of(const struct client *client, const char *prefix, struct buf *lines)
{
	const struct connection *connection =
		(const struct connection *)(const void *)((const char *)client - offsetof(struct connection, client));
	size_t prefix_len = strlen(prefix);
	struct span rest = connection->request.fields;
	const char *end;
	while (connection->head.len && rest.len && (end = memchr(rest.ptr, '\n', rest.len))) {
		size_t len = (size_t)(end - rest.ptr) + 1;
		if (len > prefix_len && strncasecmp(rest.ptr, prefix, prefix_len) == 0 && len >= 2) {
			buf_add(lines, rest.ptr, len - 2); /* without CR LF */
			buf_add_text(lines, "\n");
		}
		rest = (struct span){end + 1, rest.len - len};
	}
}

const struct face_ops http_face_ops = {.notify = face_notify,
	.respond = face_respond,
	.send = face_send,
	.finish = face_finish,
	.header = face_header,
	.headers_of = face_headers_of};
