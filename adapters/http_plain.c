/* HTTP/1.1 requests to a server on this machine, over plain sockets. A connection carries one request at a time and is kept
 * for the next one. Bytes are handed over out of one buffer that all connections share, so that a response that is waited
 * for costs little more than its socket. */
#include "adapters/http_address.h"
#include "adapters/http_engine.h"
#include "adapters/http_response.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	READ_BYTES = 65536,
	UNUSED_CONNECTIONS = 256,
	DRAIN_MS = 1000, /* for the end of a body whose content is no longer wanted … */
	DRAIN_READS = 8, /* … and how often something may come of it */
};

TAILQ_HEAD(wire_list, wire);
TAILQ_HEAD(plain_list, plain_transfer);

struct http_plain {
	struct event_base *base;
	int64_t connect_ms;
	char *authority;
	struct http_address addresses[HTTP_MAX_ADDRESSES];
	unsigned address_count;
	struct wire_list idle; /* the last used first */
	struct wire_list draining;
	unsigned unused_count; /* of both */
	struct plain_list transfers;
	const struct plain_transfer *feeding; /* whose handlers may be on the stack */
	char *buffer;			      /* READ_BYTES */
};

/* A connection. */
struct wire {
	TAILQ_ENTRY(wire) link; /* idle or draining */
	struct http_plain *plain;
	struct plain_transfer *transfer; /* NULL: idle or draining */
	int fd;
	unsigned address; /* which one it is, or tries */
	bool connecting, reused;
	unsigned drains; /* reads that are left for that, or 0 */
	struct http_response_reader reader;
	struct event on_read, on_write;
};

struct plain_transfer {
	struct http_transfer base;
	TAILQ_ENTRY(plain_transfer) link;
	struct http_plain *plain;
	struct wire *wire;
	struct buf head, body; /* of the request, until the response begins */
	size_t sent;
	bool cancelled;
	int error; /* of connecting or writing */
	struct http_handlers handlers;
	void *arg;
};

static void on_read(evutil_socket_t fd, short what, void *arg);
static void on_write(evutil_socket_t fd, short what, void *arg);

bool http_plain_serves(const struct http_target *target)
{
	struct http_address addresses[HTTP_MAX_ADDRESSES] = {0};
	return http_find_addresses(target, addresses) > 0;
}

/* Connections. */

static void wire_free(struct wire *wire)
{
	event_del(&wire->on_read);
	event_del(&wire->on_write);
	if (wire->fd >= 0)
		close(wire->fd);
	http_response_free(&wire->reader);
	free(wire);
}

/* Begins to connect. What fails at once is told by on_write(), because nobody is told anything within a start. */
static int try_address(struct wire *wire)
{
	struct http_plain *plain = wire->plain;
	const struct http_address *address = &plain->addresses[wire->address];
	const struct timeval limit = {plain->connect_ms / 1000, plain->connect_ms % 1000 * 1000};
	int on = 1;
	wire->fd = socket(address->name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (wire->fd < 0)
		return errno;
	if (address->name.ss_family != AF_UNIX) {
		setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(wire->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	event_assign(&wire->on_read, plain->base, wire->fd, EV_READ | EV_PERSIST, on_read, wire);
	event_assign(&wire->on_write, plain->base, wire->fd, EV_WRITE, on_write, wire);
	if (connect(wire->fd, (const struct sockaddr *)&address->name, address->len) && errno != EINPROGRESS)
		return errno;
	return event_add(&wire->on_write, &limit) ? ENOMEM : 0;
}

static struct wire *wire_new(struct plain_transfer *transfer)
{
	struct wire *wire = calloc(1, sizeof(*wire));
	if (!wire)
		return NULL;
	wire->plain = transfer->plain;
	wire->transfer = transfer;
	wire->connecting = true;
	wire->fd = -1;
	evtimer_assign(&wire->on_write, transfer->plain->base, on_write, wire);
	evtimer_assign(&wire->on_read, transfer->plain->base, on_read, wire);
	transfer->wire = wire;
	transfer->error = try_address(wire);
	if (transfer->error)
		event_active(&wire->on_write, EV_WRITE, 0);
	return wire;
}

/* Whether nothing came since the last response: what the loop has not told yet is an end, or would be taken for the answer. */
static bool is_quiet(const struct wire *wire)
{
	char byte;
	return recv(wire->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void add_unused(struct wire *wire, struct wire_list *list)
{
	wire->transfer = NULL;
	TAILQ_INSERT_HEAD(list, wire, link);
	wire->plain->unused_count++;
}

static void remove_unused(struct wire *wire)
{
	TAILQ_REMOVE(wire->drains ? &wire->plain->draining : &wire->plain->idle, wire, link);
	wire->plain->unused_count--;
}

/* One to be used again, or NULL. */
static struct wire *take_idle(struct http_plain *plain)
{
	struct wire *wire;
	while ((wire = TAILQ_FIRST(&plain->idle))) {
		remove_unused(wire);
		if (is_quiet(wire))
			return wire;
		wire_free(wire);
	}
	return NULL;
}

/* After a complete response: for the next request, if the server agrees. */
static void wire_release(struct wire *wire, bool keep)
{
	if (!keep || wire->plain->unused_count >= UNUSED_CONNECTIONS) {
		wire_free(wire);
		return;
	}
	wire->reused = true;
	http_response_free(&wire->reader);
	add_unused(wire, &wire->plain->idle);
}

/* Transfers. */

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
	bool unsent = wire->connecting;
	if (error)
		snprintf(fault, sizeof(fault), "%s %.200s: %s", what, wire->plain->authority, strerror(error));
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
	struct wire *wire = arg;
	struct plain_transfer *transfer = wire->transfer;
	int error = transfer->error;
	socklen_t len = sizeof(error);
	(void)fd;
	if (wire->connecting) {
		if (what & EV_TIMEOUT)
			error = ETIMEDOUT;
		else if (!error && getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &len))
			error = errno;
		while (error && ++wire->address < wire->plain->address_count) {
			event_del(&wire->on_write);
			if (wire->fd >= 0)
				close(wire->fd);
			error = transfer->error = try_address(wire);
			if (!error)
				return;
		}
		if (!error && event_add(&wire->on_read, NULL))
			error = ENOMEM;
		if (error) {
			fail(wire, "Cannot connect to", error);
			return;
		}
		wire->connecting = false;
	}
	send_request(wire);
}

/* The server closed a connection that it had kept, while the next request was on its way to it: it did not read that. */
static bool try_again(struct wire *wire, int error)
{
	struct plain_transfer *transfer = wire->transfer;
	socklen_t len = sizeof(error);
	if (!wire->reused || wire->reader.begun)
		return false;
	if (!error)
		error = transfer->error;
	if (!error && getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &len))
		return false;
	/* Without a reset it read the request, and may have done what that says. */
	if (error != ECONNRESET && error != EPIPE)
		return false;
	transfer->sent = 0;
	transfer->error = 0;
	if (!wire_new(transfer))
		return false;
	wire_free(wire);
	return true;
}

static void on_end(struct wire *wire, int error)
{
	struct plain_transfer *transfer = wire->transfer;
	if (!transfer) {
		remove_unused(wire);
		wire_free(wire);
	} else if (wire->reader.until_close && !error) {
		wire_free(wire);
		finish(transfer, NULL, false);
	} else if (!try_again(wire, error)) {
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
	static const struct timeval limit = {DRAIN_MS / 1000, DRAIN_MS % 1000 * 1000};
	bool worth_it = wire->reader.keep_alive && is_sent(wire->transfer) && !wire->reader.until_close &&
			wire->plain->unused_count < UNUSED_CONNECTIONS;
	finish(wire->transfer, NULL, false);
	if (!worth_it || event_add(&wire->on_read, &limit)) {
		wire_free(wire);
		return;
	}
	wire->drains = DRAIN_READS;
	add_unused(wire, &wire->plain->draining);
}

static void drain(struct wire *wire, struct span bytes)
{
	enum http_response_part part = feed(wire, &bytes);
	if (part == HTTP_RESPONSE_MORE && wire->drains > 1) {
		wire->drains--;
		return;
	}
	remove_unused(wire);
	wire->drains = 0;
	event_remove_timer(&wire->on_read);
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
	struct http_plain *plain = wire->plain;
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
	plain->base = base;
	plain->connect_ms = target->connect_ms;
	plain->address_count = http_find_addresses(target, plain->addresses);
	plain->authority = span_dup((struct span){host, strcspn(host, "/?#")});
	plain->buffer = malloc(READ_BYTES);
	TAILQ_INIT(&plain->idle);
	TAILQ_INIT(&plain->draining);
	TAILQ_INIT(&plain->transfers);
	if (plain->authority && plain->buffer)
		return plain;
	http_plain_free(plain);
	return NULL;
}

void http_plain_free(struct http_plain *plain)
{
	struct plain_transfer *transfer;
	struct wire *wire;
	if (!plain)
		return;
	while ((transfer = TAILQ_FIRST(&plain->transfers))) {
		wire_free(transfer->wire);
		transfer_free(transfer);
	}
	while ((wire = TAILQ_FIRST(&plain->idle)) || (wire = TAILQ_FIRST(&plain->draining))) {
		remove_unused(wire);
		wire_free(wire);
	}
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
	buf_printf(head, "%s %s%.*s HTTP/1.1\r\nHost: %s\r\n", request->method, *path == '/' ? "" : "/",
		(int)strcspn(path, "#"), path, transfer->plain->authority);
	for (const char *const *line = request->headers; *line; line++) {
		size_t len = strlen(*line);
		if ((*line)[len - 1] == ':')
			continue; /* libcurl's way to leave one out */
		buf_add(head, *line, len);
		buf_add(head, "\r\n", 2);
	}
	if (request->body)
		buf_printf(head, "Content-Length: %zu\r\n", transfer->body.len);
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
	TAILQ_INSERT_TAIL(&plain->transfers, transfer, link);
	write_head(transfer, request, path);
	struct wire *wire = buf_ok(&transfer->head) ? take_idle(plain) : NULL;
	if (wire) {
		wire->transfer = transfer;
		transfer->wire = wire;
		send_request(wire);
	} else if (!buf_ok(&transfer->head) || !wire_new(transfer)) {
		transfer_free(transfer);
		return NULL;
	}
	return &transfer->base;
}
