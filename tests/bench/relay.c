/* The physical limit: HTTP to a child on a pipe and back, and nothing else. It reads no JSON, checks nothing, and takes it
 * that the child answers in order, with one line for each.
 *
 *   relay COMMAND [ARGUMENT...]   prints its port */
#include "tests/bench/wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_WAITING = 4096 };

struct connection {
	int fd;
	struct bytes in, out;
	struct http http;
};

static struct connection *waiting[MAX_WAITING]; /* a ring: who gets the next lines */
static unsigned first, count;
static struct bytes to_child, from_child;
static int epoll, child_in, child_out;

static void watch(int how, int fd, unsigned events, void *who)
{
	struct epoll_event event = {.events = events, .data.ptr = who};
	epoll_ctl(epoll, how, fd, &event);
}

static void feed_child(void)
{
	int written = bytes_write(&to_child, child_in);
	if (written < 0)
		die("the child is gone");
	watch(EPOLL_CTL_MOD, child_in, written ? 0 : EPOLLOUT, &to_child);
}

static void flush(struct connection *connection)
{
	bool waited = connection->out.sent > 0;
	int written = bytes_write(&connection->out, connection->fd);
	if (written == 0 || waited)
		watch(EPOLL_CTL_MOD, connection->fd, written ? EPOLLIN : EPOLLIN | EPOLLOUT, connection);
}

static void on_request(struct connection *connection)
{
	int came = bytes_read(&connection->in, connection->fd);
	if (came < 0) { /* with nothing under way */
		close(connection->fd);
		free(connection->in.at);
		free(connection->out.at);
		free(connection);
		return;
	}
	if (!connection->in.len || !http_parse(&connection->http, &connection->in))
		return;
	struct text body = http_body(&connection->http, &connection->in);
	if (count == MAX_WAITING)
		die("too many clients");
	waiting[(first + count++) % MAX_WAITING] = connection;
	bytes_add(&to_child, body.at, body.len);
	bytes_add(&to_child, "\n", 1);
	http_next(&connection->http, &connection->in);
	if (!to_child.sent) {
		if (bytes_write(&to_child, child_in) != 1)
			feed_child();
	}
}

static void on_child(void)
{
	size_t at = 0, scanned = from_child.len;
	const char *end;
	if (bytes_read(&from_child, child_out) < 0)
		die("the child is gone");
	while (scanned < from_child.len && (end = memchr(from_child.at + scanned, '\n', from_child.len - scanned))) {
		struct connection *connection = waiting[first++ % MAX_WAITING];
		size_t len = (size_t)(end - from_child.at) - at;
		count--;
		bytes_printf(&connection->out,
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", len);
		bytes_add(&connection->out, from_child.at + at, len);
		flush(connection);
		at = scanned = at + len + 1;
	}
	if (at)
		bytes_drop(&from_child, at);
}

static void accept_all(int listener)
{
	int fd, on = 1;
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct connection *connection = calloc(1, sizeof(*connection));
		if (!connection)
			die("out of memory");
		connection->fd = fd;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		watch(EPOLL_CTL_ADD, fd, EPOLLIN, connection);
	}
}

int main(int argc, char **argv)
{
	struct epoll_event events[256];
	unsigned port = 0;
	if (argc < 2)
		die("usage: relay COMMAND [ARGUMENT...]");
	signal(SIGPIPE, SIG_IGN);
	start_command(argv + 1, &child_in, &child_out);
	int listener = listen_on(&port);
	epoll = epoll_create1(0);
	watch(EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
	watch(EPOLL_CTL_ADD, child_out, EPOLLIN, &from_child);
	watch(EPOLL_CTL_ADD, child_in, 0, &to_child);
	printf("%u\n", port);
	fflush(stdout);
	for (;;) {
		int ready = epoll_wait(epoll, events, 256, -1);
		for (int i = 0; i < ready; i++) {
			void *who = events[i].data.ptr;
			if (!who)
				accept_all(listener);
			else if (who == &from_child)
				on_child();
			else if (who == &to_child)
				feed_child();
			else if (events[i].events & EPOLLOUT)
				flush(who);
			else
				on_request(who);
		}
	}
}
