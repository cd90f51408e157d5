/* What the programs of the benchmark share: a growing buffer, the framing of HTTP/1.1, and a look at JSON that is enough
 * for messages whose shape the benchmark itself decides. They run out of memory by ending. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
	char *at;
	size_t len, room, sent; /* sent: of an output, what is written already */
};

struct text {
	const char *at;
	size_t len;
};

/* An HTTP message at the front of an input. Zeroed: not begun. Chunks are joined in place while they come in. */
struct http {
	size_t head_len, body_len;
	size_t raw; /* read so far, framing and all; the message's end when it is complete */
	size_t left;
	bool chunked;
};

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

void bytes_reserve(struct bytes *bytes, size_t more);
void bytes_add(struct bytes *bytes, const void *data, size_t len);
void bytes_printf(struct bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bytes_drop(struct bytes *bytes, size_t len);

/* Reads once. 1: something came; 0: nothing now; -1: the end. */
int bytes_read(struct bytes *in, int fd);
/* Writes what the descriptor takes. 1: all is written; 0: not yet; -1: the reader is gone. */
int bytes_write(struct bytes *out, int fd);

/* 1: the message is complete; 0: more is needed. */
int http_parse(struct http *http, struct bytes *in);
/* Takes the complete message off the input and makes ready for the next. */
void http_next(struct http *http, struct bytes *in);
struct text http_body(const struct http *http, const struct bytes *in);

/* What follows the first `mark` in `text`, up to the first of the bytes in `ends`. at is NULL if there is none. */
struct text after(struct text text, const char *mark, const char *ends);
bool contains(struct text text, const char *data, size_t len);
#define SHOWN(text) (int)(text).len, (text).at

/* A listening socket on a loopback port (0: any). Sets *port. */
int listen_on(unsigned *port);
/* The same on a Unix socket that is made at `path`. */
int listen_at(const char *path);
void set_nonblocking(int fd);
/* Starts a command with pipes for its standard input and output. Our ends do not block. */
void start_command(char **argv, int *in, int *out);
#endif
