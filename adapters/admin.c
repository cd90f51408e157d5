#include "adapters/admin.h"

#include "adapters/admin_page.h"
#include "adapters/http1.h"
#include "adapters/http_check.h"
#include "adapters/listener.h"
#include "adapters/outbox.h"
#include "adapters/page.h"
#include "proxy/observe.h"
#include "proxy/proxy.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VISITORS = 16, MAX_HEAD_BYTES = 8192, VISIT_SECONDS = 5, READ_BYTES = 2048, PAUSE_MS = 100 };

/* One connection with its one request. */
struct visitor {
	TAILQ_ENTRY(visitor) link;
	struct admin *admin;
	int fd;
	struct event *event; /* reading the head, then writing the response, then reading to the end */
	struct timeval until;
	struct buf in;
	size_t scanned;
	struct outbox outbox;
	enum { VISITOR_ASKS, VISITOR_LISTENS, VISITOR_LEAVES } state;
};

struct admin {
	struct event_base *base;
	const struct proxy *proxy;
	struct listener listener;
	struct event *accept_event;
	struct event *pause_timer; /* after running out of descriptors */
	TAILQ_HEAD(, visitor) visitors;
	size_t count;
	struct event *minute;
	struct history history;
};

static void visitor_free(struct visitor *visitor)
{
	struct admin *admin = visitor->admin;
	TAILQ_REMOVE(&admin->visitors, visitor, link);
	admin->count--;
	if (visitor->event)
		event_free(visitor->event);
	close(visitor->fd);
	buf_free(&visitor->in);
	outbox_free(&visitor->outbox);
	free(visitor);
}

/* What there is to see. */

struct answer {
	int status;
	const char *type;
	bool is_page;
	struct buf body;
};

static void show_health(const struct admin *admin, struct answer *answer)
{
	(void)admin;
	buf_add_text(&answer->body, "ok\n");
}

static void show_readiness(const struct admin *admin, struct answer *answer)
{
	const char *why = proxy_unready(admin->proxy);
	answer->status = why ? 503 : 200;
	buf_printf(&answer->body, "%s\n", why ? why : "ready");
}

static void show_metrics(const struct admin *admin, struct answer *answer)
{
	answer->type = "text/plain; version=0.0.4; charset=utf-8";
	proxy_write_metrics(admin->proxy, &answer->body);
}

static void show_report(const struct admin *admin, struct answer *answer)
{
	answer->type = "application/json";
	proxy_write_report(admin->proxy, &answer->body);
}

static void show_page(const struct admin *admin, struct answer *answer)
{
	answer->type = "text/html; charset=utf-8";
	answer->is_page = true;
	admin_page_write(&answer->body, admin->proxy, &admin->history);
}

static const struct {
	const char *path;
	void (*show)(const struct admin *admin, struct answer *answer);
} pages[] = {{"/healthz", show_health}, {"/readyz", show_readiness}, {"/metrics", show_metrics},
	{"/report.json", show_report}, {"/", show_page}};

static void refuse(struct answer *answer, int status, const char *why)
{
	answer->status = status;
	buf_printf(&answer->body, "%s\n", why);
}

static void answer_head(const struct admin *admin, const struct http1_head *head, struct answer *answer)
{
	/* A page of another site that a browser on this machine shows must not read it by way of a name of its own. */
	if (admin->listener.is_loopback && head->authority.ptr && !http_names_this_machine(head->authority)) {
		refuse(answer, 403, "The Host header names another machine");
		return;
	}
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		if (!span_is(head->path, pages[i].path))
			continue;
		if (span_is(head->method, "GET") || span_is(head->method, "HEAD"))
			pages[i].show(admin, answer);
		else
			refuse(answer, 405, "Only GET and HEAD are served here");
		return;
	}
	refuse(answer, 404, "There is nothing at this path");
}

/* The visit. */

static bool respond(struct visitor *visitor, struct answer *answer, bool with_body)
{
	struct buf head = {0};
	buf_printf(&head,
		"HTTP/1.1 %d %s\r\n%sContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
		"X-Content-Type-Options: nosniff\r\nConnection: close\r\n",
		answer->status, http_reason(answer->status), answer->status == 405 ? "Allow: GET, HEAD\r\n" : "",
		answer->type, answer->body.len);
	if (answer->is_page) {
		buf_add_text(&head, "Refresh: 5\r\nContent-Security-Policy: ");
		page_write_policy(&head);
		buf_add_text(&head, "\r\n");
	}
	buf_add_text(&head, "\r\n");
	bool ok = buf_ok(&answer->body) && outbox_add(&visitor->outbox, &head);
	buf_free(&head);
	if (ok && with_body)
		ok = outbox_add(&visitor->outbox, &answer->body);
	buf_free(&answer->body);
	return ok;
}

/* false if the head is not complete yet; or there was no memory for the response: *over is set then. */
static bool take_request(struct visitor *visitor, bool *over)
{
	struct answer answer = {.status = 200, .type = "text/plain; charset=utf-8"};
	struct http1_head head = {0};
	const char *fault = "A line does not end with CRLF";
	size_t len = http1_find_head_end(buf_span(&visitor->in), &visitor->scanned);
	int status = len == HTTP1_BAD_LINE ? 400 : 0;
	if (!status && (len ? len : visitor->in.len) > MAX_HEAD_BYTES) {
		status = 431;
		fault = "The head is too large";
	}
	if (!status && !len)
		return false;
	if (!status)
		status = http1_parse_head((struct span){visitor->in.data, len}, &head, &fault);
	if (status)
		refuse(&answer, status, fault);
	else
		answer_head(visitor->admin, &head, &answer);
	*over = !respond(visitor, &answer, status || !span_is(head.method, "HEAD"));
	return !*over;
}

static void on_visitor(evutil_socket_t fd, short what, void *arg);

/* Waits for the descriptor once more, no longer than until the visit is over. */
static bool watch(struct visitor *visitor, short what)
{
	struct timeval now, left;
	event_base_gettimeofday_cached(visitor->admin->base, &now);
	evutil_timersub(&visitor->until, &now, &left);
	return left.tv_sec >= 0 &&
	       event_assign(visitor->event, visitor->admin->base, visitor->fd, what, on_visitor, visitor) == 0 &&
	       event_add(visitor->event, &left) == 0;
}

/* Reads once. false if the peer is gone. */
static bool read_some(struct visitor *visitor)
{
	char bytes[READ_BYTES];
	ssize_t count = read(visitor->fd, bytes, sizeof(bytes));
	if (count > 0 && visitor->state == VISITOR_ASKS)
		buf_add(&visitor->in, bytes, (size_t)count);
	if (count < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
	return count > 0 && buf_ok(&visitor->in);
}

static bool write_some(struct visitor *visitor)
{
	if (outbox_write(&visitor->outbox, visitor->fd))
		return false;
	if (outbox_bytes(&visitor->outbox))
		return watch(visitor, EV_WRITE);
	/* What the peer still sends is thrown away for a moment, or a reset could eat the response. */
	visitor->state = VISITOR_LEAVES;
	shutdown(visitor->fd, SHUT_WR);
	return watch(visitor, EV_READ);
}

static bool go_on(struct visitor *visitor)
{
	bool over = false;
	if (visitor->state == VISITOR_LISTENS)
		return write_some(visitor);
	if (!read_some(visitor))
		return false;
	if (visitor->state == VISITOR_LEAVES || !take_request(visitor, &over))
		return !over && watch(visitor, EV_READ);
	visitor->state = VISITOR_LISTENS;
	return write_some(visitor);
}

static void on_visitor(evutil_socket_t fd, short what, void *arg)
{
	struct visitor *visitor = arg;
	(void)fd;
	if ((what & EV_TIMEOUT) || !go_on(visitor))
		visitor_free(visitor);
}

static void welcome(struct admin *admin, int fd)
{
	struct visitor *visitor = calloc(1, sizeof(*visitor));
	if (!visitor) {
		close(fd);
		return;
	}
	visitor->admin = admin;
	visitor->fd = fd;
	TAILQ_INSERT_TAIL(&admin->visitors, visitor, link);
	admin->count++;
	event_base_gettimeofday_cached(admin->base, &visitor->until);
	visitor->until.tv_sec += VISIT_SECONDS;
	visitor->event = event_new(admin->base, fd, EV_READ, on_visitor, visitor);
	if (!visitor->event || !watch(visitor, EV_READ))
		visitor_free(visitor);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval pause = {0, PAUSE_MS * 1000};
	struct admin *admin = arg;
	(void)what;
	int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (accepted >= 0) {
		/* Whoever has been here longest had the time to ask; many who say nothing must not keep a probe waiting. */
		if (admin->count >= MAX_VISITORS)
			visitor_free(TAILQ_FIRST(&admin->visitors));
		welcome(admin, accepted);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
		event_del(admin->accept_event);
		event_add(admin->pause_timer, &pause);
	}
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct admin *admin = arg;
	(void)fd;
	(void)what;
	event_add(admin->accept_event, NULL);
}

static void on_minute(evutil_socket_t fd, short what, void *arg)
{
	struct admin *admin = arg;
	(void)fd;
	(void)what;
	history_take(&admin->history, admin->proxy);
}

struct admin *admin_new(
	struct event_base *base, const struct proxy *proxy, const char *address, bool allow_remote, struct error *error)
{
	static const struct timeval minute = {60, 0};
	struct admin *admin = calloc(1, sizeof(*admin));
	if (!admin) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	admin->base = base;
	admin->proxy = proxy;
	TAILQ_INIT(&admin->visitors);
	admin->listener.fd = -1;
	if (listener_open(&admin->listener, address, allow_remote, error) == 0) {
		admin->accept_event = event_new(base, admin->listener.fd, EV_READ | EV_PERSIST, on_accept, admin);
		admin->pause_timer = event_new(base, -1, 0, on_pause_over, admin);
		admin->minute = event_new(base, -1, EV_PERSIST, on_minute, admin);
		history_take(&admin->history, proxy);
		if (admin->accept_event && admin->pause_timer && admin->minute &&
			event_add(admin->accept_event, NULL) == 0 && event_add(admin->minute, &minute) == 0)
			return admin;
		error_set(error, ERROR_MEMORY, "out of memory");
	}
	admin_free(admin);
	return NULL;
}

const char *admin_address(const struct admin *admin)
{
	return admin->listener.name;
}

void admin_free(struct admin *admin)
{
	struct visitor *visitor;
	if (!admin)
		return;
	while ((visitor = TAILQ_FIRST(&admin->visitors)))
		visitor_free(visitor);
	if (admin->accept_event)
		event_free(admin->accept_event);
	if (admin->pause_timer)
		event_free(admin->pause_timer);
	if (admin->minute)
		event_free(admin->minute);
	listener_close(&admin->listener);
	free(admin);
}
