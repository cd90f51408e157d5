/* The legacy server of the benchmark, as fast as it can be, so that it is not what is measured.
 *
 *   stub stdio         one message a line
 *   stub http [PORT]   Streamable HTTP; prints its port
 *
 * Tools: echo answers with its text; ask_once and ask_three ask by elicitation/create, and answer with the text and all
 * answers; big answers with its text and `bytes` further ones. native asks as a modern server does, by an
 * InputRequiredResult, and remembers nothing: what a round trip costs when nothing stands in between. */
#include "tests/bench/wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection {
	int fd;
	struct bytes in, out;
	struct http http;
	struct ask *ask; /* whose question is open on this connection */
	bool streams;	 /* the answer to the request is an event stream */
};

/* A call that waits for an answer. Its index in `asks` is in the id of its question. */
struct ask {
	struct connection *connection;
	struct bytes id, said; /* of the call; its text and the answers so far */
	unsigned left;	       /* answers wanted */
	size_t index;
};

static struct ask **asks;
static size_t *unused; /* indices of asks, a stack */
static size_t ask_count, unused_count;
static bool over_http;
static int epoll;

static const char *const tools =
	"{\"tools\":["
	"{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}},"
	"{\"name\":\"ask_once\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}},"
	"{\"name\":\"ask_three\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}}"
	","
	"{\"name\":\"big\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},"
	"\"bytes\":{\"type\":\"integer\"}}}}]}";

/* Answers. The length of the body stands before it, so what leads up to the body is written when the body is there. */

static struct bytes body;

static void put(struct connection *connection, bool last)
{
	struct bytes *out = &connection->out;
	if (!over_http) {
		bytes_add(&body, "\n", 1);
	} else if (connection->streams) {
		bytes_printf(out, "%zx\r\nevent: message\ndata: ", body.len + 23);
		bytes_add(&body, "\n\n", 2);
		bytes_add(&body, last ? "\r\n0\r\n\r\n" : "\r\n", last ? 7 : 2);
	} else {
		bytes_printf(out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
			body.len);
	}
	bytes_add(out, body.at, body.len);
	bytes_drop(&body, body.len);
	if (last)
		connection->streams = false;
}

static void answer(struct connection *connection, struct text id, const char *result)
{
	bytes_printf(&body, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":%s}", SHOWN(id), result);
	put(connection, true);
}

static void answer_text(struct connection *connection, struct text id, struct text said, size_t more)
{
	bytes_printf(&body,
		"{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%.*s",
		SHOWN(id), SHOWN(said));
	bytes_reserve(&body, more);
	memset(body.at + body.len, 'x', more);
	body.len += more;
	bytes_printf(&body, "\"}]}}");
	put(connection, true);
}

/* Questions. */

static void ask_free(struct ask *ask)
{
	if (over_http)
		ask->connection->ask = NULL;
	unused[unused_count++] = ask->index;
	asks[ask->index] = NULL;
	free(ask->id.at);
	free(ask->said.at);
	free(ask);
}

static void ask_again(struct ask *ask)
{
	bytes_printf(&body,
		"{\"jsonrpc\":\"2.0\",\"id\":\"q%zu\",\"method\":\"elicitation/"
		"create\",\"params\":{\"message\":\"Well?\","
		"\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"string\"}},\"required\":["
		"\"ok\"]}}}",
		ask->index);
	put(ask->connection, false);
}

static void ask_begin(struct connection *connection, struct text id, struct text said, unsigned times)
{
	struct ask *ask = calloc(1, sizeof(*ask));
	if (unused_count == 0) {
		size_t more = ask_count ? ask_count : 1024;
		asks = realloc(asks, (ask_count + more) * sizeof(*asks));
		unused = realloc(unused, (ask_count + more) * sizeof(*unused));
		if (!asks || !unused)
			die("out of memory");
		for (size_t i = more; i > 0; i--)
			unused[unused_count++] = ask_count + i - 1;
		ask_count += more;
	}
	if (!ask)
		die("out of memory");
	ask->index = unused[--unused_count];
	asks[ask->index] = ask;
	ask->connection = connection;
	ask->left = times;
	bytes_add(&ask->id, id.at, id.len);
	bytes_add(&ask->said, said.at, said.len);
	if (over_http) {
		connection->ask = ask;
		connection->streams = true;
		bytes_printf(&connection->out,
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
	}
	ask_again(ask);
}

static void flush(struct connection *connection);

/* The answer to a question; it came on any connection. */
static void on_answer(struct text message)
{
	struct text id = after(message, "\"id\":\"q", "\"");
	struct text ok = after(message, "\"ok\":\"", "\"");
	size_t index = id.at ? strtoul(id.at, NULL, 10) : ask_count;
	struct ask *ask = index < ask_count ? asks[index] : NULL;
	if (!ask)
		return;
	struct connection *connection = ask->connection;
	bytes_printf(&ask->said, " %.*s", SHOWN(ok));
	if (--ask->left) {
		ask_again(ask);
	} else {
		answer_text(connection, (struct text){ask->id.at, ask->id.len},
			(struct text){ask->said.at, ask->said.len}, 0);
		ask_free(ask);
	}
	if (over_http)
		flush(connection);
}

static void answer_natively(struct connection *connection, struct text id, struct text message, struct text said)
{
	struct text ok = after(message, "\"ok\":\"", "\"");
	if (ok.at) {
		struct bytes all = {0};
		bytes_printf(&all, "%.*s %.*s", SHOWN(said), SHOWN(ok));
		answer_text(connection, id, (struct text){all.at, all.len}, 0);
		free(all.at);
		return;
	}
	answer(connection, id,
		"{\"resultType\":\"input_required\",\"inputRequests\":{\"q\":{\"method\":\"elicitation/"
		"create\",\"params\":{"
		"\"mode\":\"form\",\"message\":\"Well?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
		"\"ok\":{"
		"\"type\":\"string\"}},\"required\":[\"ok\"]}}}},\"requestState\":\"none\"}");
}

static void on_call(struct connection *connection, struct text id, struct text message)
{
	struct text name = after(message, "\"name\":\"", "\"");
	struct text arguments = after(message, "\"arguments\":{", "");
	struct text said = after(arguments, "\"text\":\"", "\"");
	struct text more = after(arguments, "\"bytes\":", ",}");
	if (contains(name, "ask_three", 9))
		ask_begin(connection, id, said, 3);
	else if (contains(name, "ask_once", 8))
		ask_begin(connection, id, said, 1);
	else if (contains(name, "native", 6))
		answer_natively(connection, id, message, said);
	else
		answer_text(connection, id, said, more.at ? strtoul(more.at, NULL, 10) : 0);
}

/* Whether a response follows, now or later. */
static bool on_message(struct connection *connection, struct text message)
{
	struct text method = after(message, "\"method\":\"", "\"");
	struct text id = after(message, "\"id\":", ",}");
	if (!method.at)
		on_answer(message);
	if (!method.at || !id.at)
		return false;
	if (contains(method, "tools/call", 10))
		on_call(connection, id, message);
	else if (contains(method, "initialize", 10))
		answer(connection, id,
			"{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},"
			"\"serverInfo\":{\"name\":\"stub\",\"version\":\"1\"}}");
	else
		answer(connection, id, contains(method, "tools/list", 10) ? tools : "{}");
	return true;
}

/* Transports. */

static void serve_stdio(void)
{
	struct connection pipe = {.fd = 0};
	while (bytes_read(&pipe.in, 0) >= 0) {
		const char *end;
		size_t at = 0;
		while ((end = memchr(pipe.in.at + at, '\n', pipe.in.len - at))) {
			on_message(&pipe, (struct text){pipe.in.at + at, (size_t)(end - pipe.in.at) - at});
			at = (size_t)(end - pipe.in.at) + 1;
		}
		bytes_drop(&pipe.in, at);
		if (bytes_write(&pipe.out, 1) < 0)
			return;
	}
}

static void connection_free(struct connection *connection)
{
	if (connection->ask)
		ask_free(connection->ask);
	close(connection->fd);
	free(connection->in.at);
	free(connection->out.at);
	free(connection);
}

static void flush(struct connection *connection)
{
	bool waited = connection->out.sent > 0;
	int written = bytes_write(&connection->out, connection->fd);
	if (written == 1 && !waited)
		return;
	struct epoll_event event = {.events = written == 0 ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = connection};
	epoll_ctl(epoll, EPOLL_CTL_MOD, connection->fd, &event);
}

static void on_request(struct connection *connection)
{
	struct text head = {connection->in.at, connection->http.head_len};
	if (strncmp(head.at, "GET ", 4) == 0) /* a stream of its own for what belongs to no request: not offered */
		bytes_printf(&connection->out, "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
	else if (strncmp(head.at, "DELETE ", 7) == 0)
		bytes_printf(&connection->out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	else if (!on_message(connection, http_body(&connection->http, &connection->in)))
		bytes_printf(&connection->out, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
}

static void on_readable(struct connection *connection)
{
	int came = bytes_read(&connection->in, connection->fd);
	if (came < 0) {
		connection_free(connection);
		return;
	}
	while (connection->in.len && http_parse(&connection->http, &connection->in)) {
		on_request(connection);
		http_next(&connection->http, &connection->in);
	}
	if (connection->out.len)
		flush(connection);
}

static void accept_all(int listener)
{
	int fd, on = 1;
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct connection *connection = calloc(1, sizeof(*connection));
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
		if (!connection)
			die("out of memory");
		connection->fd = fd;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	}
}

static void serve_http(const char *where)
{
	struct epoll_event events[256], event = {.events = EPOLLIN};
	unsigned port = (unsigned)atoi(where);
	int listener = *where == '/' ? listen_at(where) : listen_on(&port);
	over_http = true;
	epoll = epoll_create1(0);
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	printf("%u\n", port);
	fflush(stdout);
	for (;;) {
		int count = epoll_wait(epoll, events, 256, -1);
		for (int i = 0; i < count; i++) {
			struct connection *connection = events[i].data.ptr;
			if (!connection)
				accept_all(listener);
			else if (events[i].events & EPOLLOUT)
				flush(connection);
			else
				on_readable(connection);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "stdio") == 0)
		serve_stdio();
	else if (argc >= 2 && strcmp(argv[1], "http") == 0)
		serve_http(argc > 2 ? argv[2] : "0");
	else
		die("usage: stub stdio | stub http [PORT | /PATH/OF/SOCKET]");
	return 0;
}
