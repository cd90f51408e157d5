#include "tests/bench/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, BACKLOG = 4096 };

void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void bytes_reserve(struct bytes *bytes, size_t more)
{
	if (bytes->room - bytes->len >= more)
		return;
	while (bytes->room - bytes->len < more)
		bytes->room = bytes->room ? bytes->room * 2 : 1024;
	bytes->at = realloc(bytes->at, bytes->room);
	if (!bytes->at)
		die("out of memory");
}

void bytes_add(struct bytes *bytes, const void *data, size_t len)
{
	bytes_reserve(bytes, len);
	memcpy(bytes->at + bytes->len, data, len);
	bytes->len += len;
}

void bytes_printf(struct bytes *bytes, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	bytes_reserve(bytes, (size_t)len + 1);
	va_start(args, format);
	vsnprintf(bytes->at + bytes->len, (size_t)len + 1, format, args);
	va_end(args);
	bytes->len += (size_t)len;
}

void bytes_drop(struct bytes *bytes, size_t len)
{
	bytes->len -= len;
	memmove(bytes->at, bytes->at + len, bytes->len);
	if (bytes->len == 0 && bytes->room > READ_BYTES) { /* many thousand idle connections have no large buffers */
		free(bytes->at);
		*bytes = (struct bytes){0};
	}
}

/* Small reads go through one buffer for all, so that a waiting connection has a small one. */
int bytes_read(struct bytes *in, int fd)
{
	static char shared[READ_BYTES];
	bool large = in->len > READ_BYTES / 2;
	if (large)
		bytes_reserve(in, READ_BYTES);
	ssize_t len = read(fd, large ? in->at + in->len : shared, READ_BYTES);
	if (len <= 0)
		return len < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
	if (large)
		in->len += (size_t)len;
	else
		bytes_add(in, shared, (size_t)len);
	return 1;
}

int bytes_write(struct bytes *out, int fd)
{
	while (out->sent < out->len) {
		ssize_t len = write(fd, out->at + out->sent, out->len - out->sent);
		if (len < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		out->sent += (size_t)len;
	}
	out->sent = 0;
	bytes_drop(out, out->len);
	return 1;
}

static bool parse_head(struct http *http, struct bytes *in)
{
	const char *end = memmem(in->at, in->len, "\r\n\r\n", 4);
	if (!end)
		return false;
	http->head_len = http->raw = (size_t)(end - in->at) + 4;
	for (const char *line = in->at; line < end; line = (const char *)memchr(line, '\n', in->len) + 1) {
		if (strncasecmp(line, "content-length:", 15) == 0)
			http->left = strtoul(line + 15, NULL, 10);
		if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0)
			http->chunked = true;
	}
	return true;
}

/* The size line of the next chunk. 1: it is there; 0: not yet; 2: it was the last. */
static int next_chunk(struct http *http, struct bytes *in)
{
	const char *line = in->at + http->raw;
	const char *end = memmem(line, in->len - http->raw, "\r\n", 2);
	if (!end)
		return 0;
	size_t size = strtoul(line, NULL, 16), line_len = (size_t)(end - line) + 2;
	if (size == 0) { /* without trailers */
		if (in->len - http->raw < line_len + 2)
			return 0;
		http->raw += line_len + 2;
		return 2;
	}
	http->raw += line_len;
	http->left = size + 2;
	return 1;
}

int http_parse(struct http *http, struct bytes *in)
{
	if (!http->head_len && !parse_head(http, in))
		return 0;
	if (!http->chunked) {
		if (in->len - http->head_len < http->left)
			return 0;
		http->body_len = http->left;
		http->raw = http->head_len + http->left;
		return 1;
	}
	for (;;) {
		if (http->left == 0) {
			int next = next_chunk(http, in);
			if (next != 1)
				return next == 2;
		}
		size_t here = in->len - http->raw, data = http->left > 2 ? http->left - 2 : 0;
		if (here == 0)
			return 0;
		if (data > here)
			data = here;
		memmove(in->at + http->head_len + http->body_len, in->at + http->raw, data);
		http->body_len += data;
		size_t taken = here < http->left ? here : http->left;
		http->raw += taken;
		http->left -= taken;
	}
}

void http_next(struct http *http, struct bytes *in)
{
	bytes_drop(in, http->raw);
	*http = (struct http){0};
}

struct text http_body(const struct http *http, const struct bytes *in)
{
	return (struct text){in->at + http->head_len, http->body_len};
}

struct text after(struct text text, const char *mark, const char *ends)
{
	size_t mark_len = strlen(mark);
	const char *found = text.len ? memmem(text.at, text.len, mark, mark_len) : NULL;
	if (!found)
		return (struct text){0};
	struct text rest = {found + mark_len, 0};
	const char *limit = text.at + text.len;
	while (rest.at + rest.len < limit && !strchr(ends, rest.at[rest.len]))
		rest.len++;
	return rest;
}

bool contains(struct text text, const char *data, size_t len)
{
	return text.len && memmem(text.at, text.len, data, len) != NULL;
}

int listen_on(unsigned *port)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
	socklen_t len = sizeof(address);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) || listen(fd, BACKLOG) ||
		getsockname(fd, (struct sockaddr *)&address, &len))
		die("cannot listen: %s", strerror(errno));
	*port = ntohs(address.sin_port);
	return fd;
}

int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (strlen(path) >= sizeof(address.sun_path))
		die("the path of the socket is too long");
	strcpy(address.sun_path, path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, BACKLOG))
		die("cannot listen: %s", strerror(errno));
	return fd;
}

void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void start_command(char **argv, int *in, int *out)
{
	int to[2], from[2];
	if (pipe(to) || pipe(from))
		die("no pipes");
	if (fork() == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	*in = to[1];
	*out = from[0];
	set_nonblocking(*in);
	set_nonblocking(*out);
}
