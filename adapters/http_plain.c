/* HTTP/1.1 requests to a server on this machine, over plain sockets. A connection carries one request at a time. Bytes are
 * handed over out of one buffer that all connections share, so that a response that is waited for costs little more than its
 * socket. */
#include "adapters/http_engine.h"
#include "adapters/http_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_BYTES = 65536 };

TAILQ_HEAD(plain_list, plain_transfer);

struct http_plain {
	struct wires wires;
	char *authority;
	struct plain_list transfers;
	const struct plain_transfer *feeding; /* whose handlers may be on the stack */
	char *buffer;			      /* READ_BYTES */
};

struct plain_transfer {
	struct http_transfer base;
	TAILQ_ENTRY(plain_transfer) link;
	struct http_plain *plain;
	struct wire *wire;
	struct buf head, body; /* of the request, until the response begins */
	size_t sent;
	bool repeatable, cancelled;
	bool written; /* some of it, ever */
	int error;    /* of writing */
	struct http_handlers handlers;
	void *arg;
};

bool http_plain_serves(const struct http_target *target)
{
	struct http_address addresses[HTTP_MAX_ADDRESSES] = {0};
	return http_find_addresses(target, addresses) > 0;
}

static void transfer_free(struct plain_transfer *transfer)
{
	TAILQ_REMOVE(&transfer->plain->transfers, transfer, link);
	buf_free(&transfer->head);
	buf_free(&transfer->body);
	free(transfer);
}

/* The end, of which nobody has to hear who has cancelled. The wire has been dealt with. */
static void finish(struct plain_transfer *transfer, const char *fault, bool unsent)
{
	bool cancelled = transfer->cancelled;
	struct http_handlers handlers = transfer->handlers;
	void *arg = transfer->arg;
	transfer->plain->feeding = NULL;
	transfer_free(transfer);
	if (!cancelled)
		handlers.on_done(arg, fault, unsent);
}

static void fail(struct wire *wire, const char *what, int error)
{
	struct plain_transfer *transfer = wire->transfer;
	char fault[300];
	bool unsent = !transfer->written;
	if (error)
		snprintf(fault, sizeof(fault), "%s %.200s: %s", what, transfer->plain->authority, strerror(error));
	else
		snprintf(fault, sizeof(fault), "%s", what);
	wire_free(wire);
	finish(transfer, fault, unsent);
}

static bool is_sent(const struct plain_transfer *transfer)
{
	return transfer->sent == transfer->head.len + transfer->body.len;
}

/* Writes what the socket takes. A reader that is gone is found out by reading: it may have answered before. */
static void send_request(struct wire *wire)
{
	struct plain_transfer *transfer = wire->transfer;
	while (!is_sent(transfer)) {
		size_t of_head = transfer->sent < transfer->head.len ? transfer->head.len - transfer->sent : 0;
		size_t of_body = transfer->sent + of_head - transfer->head.len;
		struct iovec parts[2] = {{transfer->head.data + transfer->head.len - of_head, of_head},
			{transfer->body.len ? transfer->body.data + of_body : NULL, transfer->body.len - of_body}};
		ssize_t written = writev(wire->fd, parts, 2);
		if (written >= 0) {
			transfer->sent += (size_t)written;
			transfer->written |= written > 0;
		} else if (errno == EAGAIN) {
			event_add(&wire->on_write, NULL);
			return;
		} else if (errno != EINTR) {
			transfer->error = errno;
			return;
		}
	}
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	send_request(arg);
}

static void on_connected(struct wire *wire, int error)
{
	if (error)
		fail(wire, "Cannot connect to", error);
	else
		send_request(wire);
}

/* A server may close a connection that it had kept while the next request is on its way, and nobody can tell whether that was
 * read, and done. It goes out once more if it may, or if nothing of it had gone out. */
static bool try_again(struct wire *wire)
{
	struct plain_transfer *transfer = wire->transfer;
	if (!wire->reused || wire->reader.begun)
		return false;
	wires_distrust(wire->wires);
	if (transfer->sent && !transfer->repeatable)
		return false;
	struct wire *fresh = wire_open(wire->wires, transfer);
	if (!fresh)
		return false;
	transfer->wire = fresh;
	transfer->sent = 0;
	transfer->error = 0;
	wire_free(wire);
	return true;
}

static void on_end(struct wire *wire, int error)
{
	struct plain_transfer *transfer = wire->transfer;
	if (!transfer && wire->drains) {
		wire_end_drain(wire);
		wire_free(wire);
	} else if (!transfer) {
		wire_drop_idle(wire);
	} else if (wire->reader.until_close && !error) {
		wire_free(wire);
		finish(transfer, NULL, false);
	} else if (!try_again(wire)) {
		fail(wire,
			error		     ? "The connection broke to"
			: wire->reader.begun ? "The server closed the connection in the middle of its response"
					     : "The server closed the connection without a response",
			error);
	}
}

/* false if there is such a field, but it does not fit, or is not such a value. */
static bool copy_field(
	const struct http1_head *head, const char *name, bool (*is_value)(struct span), char *out, size_t size)
{
	struct span value;
	*out = '\0';
	if (!http1_field(head, name, &value))
		return true;
	if (value.len >= size || !is_value(value))
		return false;
	memcpy(out, value.ptr, value.len);
	out[value.len] = '\0';
	return true;
}

static void tell_head(struct wire *wire, const struct http1_head *head)
{
	char type[256], session_id[HTTP_MAX_SESSION_ID], challenge[HTTP_MAX_CHALLENGE];
	struct plain_transfer *transfer = wire->transfer;
	(void)copy_field(head, "content-type", http1_is_value, type, sizeof(type));
	(void)copy_field(head, "www-authenticate", http1_is_value, challenge, sizeof(challenge));
	bool good = copy_field(head, "mcp-session-id", http1_is_visible, session_id, sizeof(session_id));
	if (is_sent(transfer)) {
		buf_free(&transfer->head);
		buf_free(&transfer->body);
		transfer->sent = 0;
	}
	transfer->handlers.on_head(transfer->arg, &(struct http_response){.status = wire->reader.status,
							  .content_type = type,
							  .session_id = *session_id ? session_id : NULL,
							  .bad_session_id = !good,
							  .challenge = *challenge ? challenge : NULL});
}

/* Tells what comes, as long as somebody wants to hear it. */
static enum http_response_part feed(struct wire *wire, struct span *bytes)
{
	struct plain_transfer *transfer = wire->transfer;
	enum http_response_part part;
	struct http1_head head;
	struct span data;
	do {
		part = http_response_next(&wire->reader, bytes, &head, &data);
		if (!transfer || transfer->cancelled)
			continue;
		if (part == HTTP_RESPONSE_HEAD)
			tell_head(wire, &head);
		else if (part == HTTP_RESPONSE_DATA)
			transfer->handlers.on_data(transfer->arg, data);
	} while (part == HTTP_RESPONSE_HEAD || part == HTTP_RESPONSE_DATA);
	return part;
}

/* The handlers ended the transfer, but its body may be about to end: then the connection can be used again. */
static void begin_drain(struct wire *wire)
{
	bool worth_it = wire->reader.keep_alive && is_sent(wire->transfer) && !wire->reader.until_close;
	finish(wire->transfer, NULL, false);
	if (!worth_it || !wire_drain(wire))
		wire_free(wire);
}

static void drain(struct wire *wire, struct span bytes)
{
	enum http_response_part part = feed(wire, &bytes);
	if (part == HTTP_RESPONSE_MORE && wire->drains > 1) {
		wire->drains--;
		return;
	}
	wire_end_drain(wire);
	wire_release(wire, part == HTTP_RESPONSE_DONE && !bytes.len);
}

static void on_bytes(struct wire *wire, struct span bytes)
{
	struct plain_transfer *transfer = wire->transfer;
	enum http_response_part part = feed(wire, &bytes);
	if (part == HTTP_RESPONSE_DONE) {
		wire_release(wire, wire->reader.keep_alive && is_sent(transfer) && !bytes.len);
		finish(transfer, NULL, false);
	} else if (part != HTTP_RESPONSE_MORE) {
		fail(wire, part == HTTP_RESPONSE_BAD ? "The server's response is no HTTP/1.1" : "out of memory", 0);
	} else if (transfer->cancelled) {
		begin_drain(wire);
	}
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct wire *wire = arg;
	struct http_plain *plain = container_of(wire->wires, struct http_plain, wires);
	ssize_t len = what & EV_TIMEOUT ? 0 : read(fd, plain->buffer, READ_BYTES);
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	struct span bytes = {plain->buffer, len > 0 ? (size_t)len : 0};
	plain->feeding = wire->transfer;
	if (len <= 0)
		on_end(wire, len < 0 ? errno : 0);
	else if (wire->transfer)
		on_bytes(wire, bytes);
	else if (wire->drains)
		drain(wire, bytes);
	else
		on_end(wire, 0); /* nobody asked for that */
	plain->feeding = NULL;
}

/* The whole. */

struct http_plain *http_plain_new(struct event_base *base, const struct http_target *target)
{
	struct http_plain *plain = calloc(1, sizeof(*plain));
	if (!plain)
		return NULL;
	const char *host = strstr(target->url, "//") + 2;
	wires_init(&plain->wires, base, target->connect_ms);
	plain->wires.address_count = http_find_addresses(target, plain->wires.addresses);
	plain->wires.on_read = on_read;
	plain->wires.on_write = on_write;
	plain->wires.on_connected = on_connected;
	plain->authority = span_dup((struct span){host, strcspn(host, "/?#")});
	plain->buffer = malloc(READ_BYTES);
	TAILQ_INIT(&plain->transfers);
	if (plain->authority && plain->buffer)
		return plain;
	http_plain_free(plain);
	return NULL;
}

void http_plain_free(struct http_plain *plain)
{
	struct plain_transfer *transfer;
	if (!plain)
		return;
	while ((transfer = TAILQ_FIRST(&plain->transfers))) {
		wire_free(transfer->wire);
		transfer_free(transfer);
	}
	wires_free(&plain->wires);
	free(plain->authority);
	free(plain->buffer);
	free(plain);
}

bool http_plain_is_idle(const struct http_plain *plain)
{
	return TAILQ_EMPTY(&plain->transfers);
}

static void cancel(struct http_transfer *base)
{
	struct plain_transfer *transfer = container_of(base, struct plain_transfer, base);
	transfer->cancelled = true;
	if (transfer == transfer->plain->feeding)
		return; /* it ends when the stack below is done */
	wire_free(transfer->wire);
	transfer_free(transfer);
}

static void write_head(struct plain_transfer *transfer, const struct http_request *request, const char *path)
{
	struct buf *head = &transfer->head;
	buf_reserve(head, 512);
	buf_add_text(head, request->method);
	buf_add_text(head, *path == '/' ? " " : " /");
	buf_add(head, path, strcspn(path, "#"));
	buf_add_text(head, " HTTP/1.1\r\nHost: ");
	buf_add_text(head, transfer->plain->authority);
	buf_add(head, "\r\n", 2);
	for (const char *const *line = request->headers; *line; line++) {
		size_t len = strlen(*line);
		if ((*line)[len - 1] == ':')
			continue; /* libcurl's way to leave one out */
		buf_add(head, *line, len);
		buf_add(head, "\r\n", 2);
	}
	if (request->body) {
		buf_add_text(head, "Content-Length: ");
		buf_add_number(head, transfer->body.len);
		buf_add(head, "\r\n", 2);
	}
	buf_add(head, "\r\n", 2);
}

struct http_transfer *http_plain_start(struct http_plain *plain, const struct http_request *request, const char *path,
	const struct http_handlers *handlers, void *arg)
{
	struct plain_transfer *transfer = calloc(1, sizeof(*transfer));
	struct buf body = request->body ? buf_take(request->body) : (struct buf){0};
	if (!transfer) {
		buf_free(&body);
		return NULL;
	}
	transfer->base.cancel = cancel;
	transfer->plain = plain;
	transfer->handlers = *handlers;
	transfer->arg = arg;
	transfer->body = body;
	transfer->repeatable = request->repeatable;
	TAILQ_INSERT_TAIL(&plain->transfers, transfer, link);
	write_head(transfer, request, path);
	struct wire *kept = buf_ok(&transfer->head) ? wire_take(&plain->wires, transfer->repeatable) : NULL;
	transfer->wire = kept || !buf_ok(&transfer->head) ? kept : wire_open(&plain->wires, transfer);
	if (!transfer->wire) {
		transfer_free(transfer);
		return NULL;
	}
	if (kept) {
		kept->transfer = transfer;
		send_request(kept);
	}
	return &transfer->base;
}
