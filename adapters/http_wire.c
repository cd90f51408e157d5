#include "adapters/http_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_UNUSED = 256,
	/* How long one is kept. A server that closes it while a request is on its way leaves it open whether that was done, so
	 * that it must be given up before: servers close after 2 s (gunicorn), 5 s (Node.js, uvicorn) and more, not all of
	 * them say so, and to connect on this machine costs next to nothing. */
	KEPT_MS = 1000,
	KEEP_MARGIN_MS = 1000,	/* before the end that a server announces */
	MAX_KEPT_MS = 60000,	/* whatever it announces */
	DISTRUST_MS = 2000,	/* of a server that did not keep to that; each time anew */
	DRAIN_MS = 1000,	/* for the end of a body whose content is no longer wanted … */
	DRAIN_READS = 8,	/* … and how often something may come of it */
	FIRST_PAUSE_MS = 5,	/* before a socket is tried again whose queue is full … */
	LONGEST_PAUSE_MS = 100, /* … which is doubled each time up to this */
};

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct timeval delay_of(int64_t ms)
{
	return (struct timeval){ms / 1000, ms % 1000 * 1000};
}

/* Making them. */

void wire_free(struct wire *wire)
{
	event_del(&wire->on_read);
	event_del(&wire->on_write);
	if (wire->fd >= 0)
		close(wire->fd);
	http_response_free(&wire->reader);
	free(wire);
}

static void on_connect(evutil_socket_t fd, short what, void *arg);

static void close_socket(struct wire *wire)
{
	event_del(&wire->on_write);
	if (wire->fd >= 0)
		close(wire->fd);
	wire->fd = -1;
}

/* The queue of a Unix socket is full: unlike TCP, the kernel does not wait for room in it. */
static int wait_for_room(struct wire *wire)
{
	const struct timeval delay = delay_of(wire->pause);
	if (now_ms() + wire->pause >= wire->deadline)
		return EAGAIN;
	wire->pause = wire->pause * 2 < LONGEST_PAUSE_MS ? wire->pause * 2 : LONGEST_PAUSE_MS;
	close_socket(wire);
	evtimer_assign(&wire->on_write, wire->wires->base, on_connect, wire);
	return event_add(&wire->on_write, &delay) ? ENOMEM : 0;
}

static int try_address(struct wire *wire)
{
	const struct http_address *address = &wire->wires->addresses[wire->address];
	int64_t left = wire->deadline - now_ms();
	const struct timeval limit = delay_of(left > 0 ? left : 0);
	int on = 1;
	wire->fd = socket(address->name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (wire->fd < 0)
		return errno;
	if (address->name.ss_family != AF_UNIX) {
		setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(wire->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	event_assign(&wire->on_write, wire->wires->base, wire->fd, EV_WRITE, on_connect, wire);
	if (connect(wire->fd, (const struct sockaddr *)&address->name, address->len) && errno != EINPROGRESS)
		return errno == EAGAIN ? wait_for_room(wire) : errno;
	return event_add(&wire->on_write, &limit) ? ENOMEM : 0;
}

static int outcome_of_connecting(struct wire *wire, short what)
{
	int error = wire->error;
	socklen_t len = sizeof(error);
	wire->error = 0;
	if (error)
		return error;
	if (what & EV_TIMEOUT)
		return ETIMEDOUT;
	return getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
	struct wire *wire = arg;
	struct wires *wires = wire->wires;
	int error;
	(void)fd;
	if (wire->fd < 0 && !wire->error) {
		error = try_address(wire); /* again */
		if (!error)
			return;
	} else {
		error = outcome_of_connecting(wire, what);
	}
	while (error && wire->address + 1 < wires->address_count) {
		wire->address++;
		close_socket(wire);
		error = try_address(wire);
		if (!error)
			return;
	}
	if (!error) {
		event_assign(&wire->on_read, wires->base, wire->fd, EV_READ | EV_PERSIST, wires->on_read, wire);
		event_assign(&wire->on_write, wires->base, wire->fd, EV_WRITE, wires->on_write, wire);
		if (event_add(&wire->on_read, NULL))
			error = ENOMEM;
	}
	wires->on_connected(wire, error);
}

struct wire *wire_open(struct wires *wires, struct plain_transfer *transfer)
{
	struct wire *wire = calloc(1, sizeof(*wire));
	if (!wire)
		return NULL;
	wire->wires = wires;
	wire->transfer = transfer;
	wire->fd = -1;
	wire->deadline = now_ms() + wires->connect_ms;
	wire->pause = FIRST_PAUSE_MS;
	evtimer_assign(&wire->on_read, wires->base, wires->on_read, wire);
	evtimer_assign(&wire->on_write, wires->base, on_connect, wire);
	wire->error = try_address(wire);
	if (wire->error)
		event_active(&wire->on_write, EV_WRITE, 0);
	return wire;
}

/* Keeping them. */

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
	wire->wires->unused_count++;
}

static void remove_unused(struct wire *wire, struct wire_list *list)
{
	TAILQ_REMOVE(list, wire, link);
	wire->wires->unused_count--;
}

void wires_distrust(struct wires *wires)
{
	wires->distrusted_until = now_ms() + DISTRUST_MS;
}

void wire_drop_idle(struct wire *wire)
{
	wires_distrust(wire->wires);
	remove_unused(wire, &wire->wires->idle);
	wire_free(wire);
}

struct wire *wire_take(struct wires *wires, bool repeatable)
{
	int64_t now = now_ms();
	struct wire *wire;
	while ((repeatable || now >= wires->distrusted_until) && (wire = TAILQ_FIRST(&wires->idle))) {
		bool in_time = now < wire->kept_until, quiet = is_quiet(wire);
		remove_unused(wire, &wires->idle);
		if (quiet && in_time)
			return wire;
		if (in_time)
			wires_distrust(wires);
		wire_free(wire);
	}
	return NULL;
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct wires *wires = arg;
	const struct timeval delay = delay_of(KEPT_MS);
	int64_t now = now_ms();
	struct wire *wire, *next;
	(void)fd;
	(void)what;
	for (wire = TAILQ_FIRST(&wires->idle); wire; wire = next) {
		next = TAILQ_NEXT(wire, link);
		if (now >= wire->kept_until) {
			remove_unused(wire, &wires->idle);
			wire_free(wire);
		}
	}
	if (!TAILQ_EMPTY(&wires->idle))
		event_add(&wires->sweep, &delay);
}

/* How long the server that sent this response lets it be kept, as far as one can tell. */
static int64_t time_to_keep(const struct http_response_reader *reader)
{
	if (reader->keep_s < 0)
		return KEPT_MS;
	int64_t announced = (int64_t)reader->keep_s * 1000 - KEEP_MARGIN_MS;
	return announced < MAX_KEPT_MS ? announced : MAX_KEPT_MS;
}

void wire_release(struct wire *wire, bool keep)
{
	struct wires *wires = wire->wires;
	const struct timeval delay = delay_of(KEPT_MS);
	int64_t now = now_ms(), kept_ms = time_to_keep(&wire->reader);
	/* While few take one, one is enough: it shows whether the server still closes them. */
	bool plenty = now < wires->distrusted_until && !TAILQ_EMPTY(&wires->idle);
	if (!keep || plenty || kept_ms <= 0 || wires->unused_count >= MAX_UNUSED) {
		wire_free(wire);
		return;
	}
	wire->reused = true;
	wire->kept_until = now + kept_ms;
	http_response_free(&wire->reader);
	add_unused(wire, &wires->idle);
	if (!evtimer_pending(&wires->sweep, NULL))
		event_add(&wires->sweep, &delay);
}

bool wire_drain(struct wire *wire)
{
	const struct timeval limit = delay_of(DRAIN_MS);
	if (wire->wires->unused_count >= MAX_UNUSED || event_add(&wire->on_read, &limit))
		return false;
	wire->drains = DRAIN_READS;
	add_unused(wire, &wire->wires->draining);
	return true;
}

void wire_end_drain(struct wire *wire)
{
	wire->drains = 0;
	event_remove_timer(&wire->on_read);
	remove_unused(wire, &wire->wires->draining);
}

/* All of them. */

void wires_init(struct wires *wires, struct event_base *base, int64_t connect_ms)
{
	wires->base = base;
	wires->connect_ms = connect_ms;
	TAILQ_INIT(&wires->idle);
	TAILQ_INIT(&wires->draining);
	evtimer_assign(&wires->sweep, base, on_sweep, wires);
}

void wires_free(struct wires *wires)
{
	struct wire_list *const lists[] = {&wires->idle, &wires->draining};
	struct wire *wire;
	for (size_t i = 0; i < 2; i++)
		while ((wire = TAILQ_FIRST(lists[i]))) {
			remove_unused(wire, lists[i]);
			wire_free(wire);
		}
	event_del(&wires->sweep);
}
