/* The load of the benchmark: modern clients, each of which sends its next call when it has the answer to the last.
 *
 *   load [OPTION...] http PORT PATH | stdio COMMAND [ARGUMENT...]
 *     -c N   clients: connections over HTTP, calls under way at once on stdio (1)
 *     -t S   seconds that are measured (3), after -w S seconds of warm-up (0.5)
 *     -n N   calls, instead of seconds; nothing is warmed up
 *     -k T   the tool: echo, big, ask_once, ask_three or native (echo); the questions of the last three are answered
 *     -b N   how many bytes the tool big adds
 *     -p     a call whose question has come is left parked, and counts as done
 *
 * Every answer is checked; a wrong one ends the run with exit status 1. Prints one line of JSON. */
#include "tests/bench/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { QUESTION_BYTES = 4096 };

struct client {
	int fd;
	unsigned index;
	struct bytes in, out;
	struct http http;
	uint64_t began_ns, calls, id; /* id: of the newest message */
	unsigned answered;	      /* questions of this call */
	bool busy;
};

static struct {
	unsigned clients;
	double seconds, warm_up;
	uint64_t calls;
	const char *tool, *path;
	size_t more;
	bool parks, stdio;
} options = {1, 3, 0.5, 0, "echo", "/mcp", 0, false, false};

static struct client *clients;
static struct bytes to_server, from_server; /* stdio */
static int epoll, server_in, server_out;
static uint64_t begin_ns, end_ns, started, done, received, last_ns;
static uint32_t *latencies; /* ns, of the calls that began while it is measured */
static size_t latency_count, latency_room;
static unsigned busy;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Sending. */

static void flush(struct client *client)
{
	struct bytes *out = options.stdio ? &to_server : &client->out;
	int fd = options.stdio ? server_in : client->fd;
	bool waited = out->sent > 0;
	int written = bytes_write(out, fd);
	if (written < 0)
		die("the contender has closed the connection");
	if (written == 0 || waited) {
		unsigned read = options.stdio ? 0 : EPOLLIN;
		struct epoll_event event = {.events = written ? read : read | EPOLLOUT, .data.ptr = client};
		epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
	}
}

/* The call, or its retry with one answer and the state. On stdio the id tells whose answer it is. */
static void send_call(struct client *client, struct text key, struct text state)
{
	static struct bytes body;
	client->id = client->id + options.clients;
	bytes_printf(&body,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",\"arguments\":{"
		"\"text\":\"c%u-%llu.\"",
		(unsigned long long)client->id, options.tool, client->index, (unsigned long long)client->calls);
	if (strcmp(options.tool, "big") == 0)
		bytes_printf(&body, ",\"bytes\":%zu", options.more);
	bytes_printf(&body, "}");
	if (key.at)
		bytes_printf(&body,
			",\"inputResponses\":{\"%.*s\":{\"action\":\"accept\",\"content\":{\"ok\":\"a%u.\"}}},"
			"\"requestState\":\"%.*s\"",
			SHOWN(key), client->answered, SHOWN(state));
	bytes_printf(&body, ",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
			    "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"load\",\"version\":\"1\"},"
			    "\"io.modelcontextprotocol/clientCapabilities\":{\"elicitation\":{\"form\":{}}}}}}");
	if (options.stdio) {
		bool idle = to_server.len == 0;
		bytes_add(&to_server, body.at, body.len);
		bytes_add(&to_server, "\n", 1);
		if (idle)
			flush(client);
	} else {
		bytes_printf(&client->out,
			"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
			"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
			"Mcp-Method: tools/call\r\nMcp-Name: %s\r\nContent-Length: %zu\r\n\r\n",
			options.path, options.tool, body.len);
		bytes_add(&client->out, body.at, body.len);
		flush(client);
	}
	bytes_drop(&body, body.len);
}

static void begin_call(struct client *client)
{
	client->began_ns = now_ns();
	if (options.calls ? started == options.calls : client->began_ns >= end_ns)
		return;
	started++;
	busy++;
	client->busy = true;
	client->calls++;
	client->answered = 0;
	send_call(client, (struct text){0}, (struct text){0});
}

/* Receiving. */

static void note(const struct client *client)
{
	last_ns = now_ns();
	if (client->began_ns < begin_ns)
		return;
	if (latency_count == latency_room) {
		latency_room = latency_room ? latency_room * 2 : 65536;
		latencies = realloc(latencies, latency_room * sizeof(*latencies));
		if (!latencies)
			die("out of memory");
	}
	latencies[latency_count++] = (uint32_t)(last_ns - client->began_ns);
}

/* The text of the call, then each answer that was given. */
static void check(const struct client *client, struct text answer)
{
	char want[100];
	int len = snprintf(want, sizeof(want), "\"c%u-%llu.", client->index, (unsigned long long)client->calls);
	for (unsigned i = 1; i <= client->answered; i++)
		len += snprintf(want + len, sizeof(want) - (size_t)len, " a%u.", i);
	bool whole = strcmp(options.tool, "big") != 0 || answer.len > options.more;
	if (!contains(answer, want, (size_t)len) || !whole || contains(answer, "\"isError\":true", 14))
		die("wrong answer: %.*s\nwanted: %s", (int)(answer.len < 1000 ? answer.len : 1000), answer.at, want);
}

static void on_answer(struct client *client, struct text answer)
{
	received += answer.len;
	struct text start = {answer.at, answer.len < QUESTION_BYTES ? answer.len : QUESTION_BYTES};
	if (contains(start, "\"input_required\"", 16)) {
		struct text key = after(answer, "\"inputRequests\":{\"", "\"");
		struct text state = after(answer, "\"requestState\":\"", "\"");
		if (!key.at || !state.at)
			die("no question: %.*s", SHOWN(answer));
		client->answered++;
		if (!options.parks) {
			send_call(client, key, state);
			return;
		}
	} else {
		check(client, answer);
		if (options.parks)
			die("no question: %.*s", SHOWN(answer));
	}
	note(client);
	done++;
	busy--;
	client->busy = false;
	begin_call(client);
}

static void on_client(struct client *client)
{
	int came = bytes_read(&client->in, client->fd);
	if (came < 0)
		die("the contender has closed the connection");
	if (!client->in.len || !http_parse(&client->http, &client->in))
		return;
	struct bytes whole = client->in;
	struct http http = client->http;
	client->in = (struct bytes){0};
	client->http = (struct http){0};
	on_answer(client, http_body(&http, &whole));
	http_next(&http, &whole);
	if (whole.len)
		die("more than one response: %.*s", (int)(whole.len < 1000 ? whole.len : 1000), whole.at);
	free(client->in.at);
	client->in = whole;
}

static void on_server(void)
{
	size_t at = 0, scanned = from_server.len;
	const char *end;
	if (bytes_read(&from_server, server_out) < 0)
		die("the contender has ended");
	while (scanned < from_server.len && (end = memchr(from_server.at + scanned, '\n', from_server.len - scanned))) {
		struct text line = {from_server.at + at, (size_t)(end - from_server.at) - at};
		struct text id = after(line, "\"id\":", ",}");
		struct client *client = id.at ? &clients[strtoull(id.at, NULL, 10) % options.clients] : NULL;
		if (client && client->busy)
			on_answer(client, line);
		at = scanned = (size_t)(end - from_server.at) + 1;
	}
	if (at)
		bytes_drop(&from_server, at);
}

/* Set-up and report. */

static void watch(int fd, unsigned events, void *who)
{
	struct epoll_event event = {.events = events, .data.ptr = who};
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		die("cannot watch");
}

static void connect_to(struct client *client, unsigned port)
{
	int on = 1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	client->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(client->fd, (struct sockaddr *)&address, sizeof(address)))
		die("cannot connect");
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	set_nonblocking(client->fd);
	watch(client->fd, EPOLLIN, client);
}

static int compare(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

static double percentile_us(double part)
{
	size_t at = (size_t)((double)latency_count * part);
	return latency_count ? latencies[at < latency_count ? at : latency_count - 1] / 1000.0 : 0;
}

static void report(void)
{
	double seconds = (double)(last_ns - begin_ns) / 1e9;
	qsort(latencies, latency_count, sizeof(*latencies), compare);
	printf("{\"calls\":%zu,\"all_calls\":%llu,\"seconds\":%.3f,\"per_second\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
	       "\"p999_us\":%.1f,\"bytes\":%llu}\n",
		latency_count, (unsigned long long)done, seconds, (double)latency_count / seconds, percentile_us(0.5),
		percentile_us(0.99), percentile_us(0.999), (unsigned long long)received);
}

static void run(void)
{
	struct epoll_event events[256];
	begin_ns = now_ns() + (options.calls ? 0 : (uint64_t)(options.warm_up * 1e9));
	end_ns = begin_ns + (uint64_t)(options.seconds * 1e9);
	for (unsigned i = 0; i < options.clients; i++)
		begin_call(&clients[i]);
	while (busy) {
		int count = epoll_wait(epoll, events, 256, 60000);
		if (count == 0)
			die("no answer for a minute");
		for (int i = 0; i < count; i++) {
			if (events[i].data.ptr == &from_server)
				on_server();
			else if (events[i].events & EPOLLOUT)
				flush(events[i].data.ptr);
			else if (events[i].data.ptr && !options.stdio)
				on_client(events[i].data.ptr);
		}
	}
}

int main(int argc, char **argv)
{
	int option;
	while ((option = getopt(argc, argv, "+c:t:w:n:k:b:p")) != -1)
		switch (option) {
		case 'c':
			options.clients = (unsigned)atoi(optarg);
			break;
		case 't':
			options.seconds = atof(optarg);
			break;
		case 'w':
			options.warm_up = atof(optarg);
			break;
		case 'n':
			options.calls = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			options.tool = optarg;
			break;
		case 'b':
			options.more = strtoul(optarg, NULL, 10);
			break;
		case 'p':
			options.parks = true;
			break;
		default:
			return 1;
		}
	argv += optind;
	argc -= optind;
	if (argc < 2 || options.clients == 0)
		die("usage: load [OPTION...] http PORT PATH | stdio COMMAND [ARGUMENT...]");
	options.stdio = strcmp(argv[0], "stdio") == 0;
	epoll = epoll_create1(0);
	clients = calloc(options.clients, sizeof(*clients));
	if (!clients)
		die("out of memory");
	if (options.stdio) {
		start_command(argv + 1, &server_in, &server_out);
		watch(server_in, 0, clients);
		watch(server_out, EPOLLIN, &from_server);
	} else {
		options.path = argc > 2 ? argv[2] : "/mcp";
	}
	for (unsigned i = 0; i < options.clients; i++) {
		clients[i].index = i;
		clients[i].id = i;
		if (!options.stdio)
			connect_to(&clients[i], (unsigned)atoi(argv[1]));
	}
	run();
	report();
	return 0;
}
