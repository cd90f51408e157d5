/* A strict HTTP/1.1 server codec (RFC 9112): a byte machine without I/O and without allocation.
 *
 * The caller collects bytes until http1_find_head_end() sees the end of the head, takes the head apart with
 * http1_parse_head(), and feeds what follows to http1_body_feed(). What RFC 9112 says must be rejected is rejected with
 * the status to answer; after any fault the connection cannot be used further. Lines end with CRLF; a bare LF is a fault. */
#ifndef MCP_VALET_HTTP1_H
#define MCP_VALET_HTTP1_H

#include "proxy/bytes.h"

enum { HTTP1_MAX_FIELDS = 100, HTTP1_MAX_CHUNK_LINE = 256, HTTP1_MAX_TRAILERS = 8192 };

/* A request head taken apart; spans point into it. */
struct http1_head {
	struct span method;
	struct span path;      /* without the query */
	struct span authority; /* of an absolute-form target, else of Host; a NULL ptr if there is none (HTTP/1.0) */
	struct span fields;    /* all field lines, for http1_field() */
	uint64_t marks;	       /* of the names in it, which tell what is not there; and of those that come again */
	uint64_t marks_again;
	bool keep_alive;
	bool expects_continue;
	bool is_http10;
	bool chunked;
	uint64_t content_length; /* 0 if the head says nothing of a body */
};

/* Looks for the end of a head in `bytes`, of which the first *scanned bytes were looked at before. Returns the length of
 * the head with its empty line; 0 and a new *scanned if it is not there yet; HTTP1_BAD_LINE if a line ends with a bare LF. */
#define HTTP1_BAD_LINE ((size_t)-1)
size_t http1_find_head_end(struct span bytes, size_t *scanned);

/* Takes a head apart. Returns 0, or the status to answer (400, 417, 431, 501, 505) and words in *fault. */
int http1_parse_head(struct span head, struct http1_head *out, const char **fault) MUST_CHECK;

/* Finds a field by its lower-case name. Returns how many field lines of that name there are, and the last one's value. */
unsigned http1_field(const struct http1_head *head, const char *name, struct span *value);

/* Takes the head of a response apart, from the status line on; `out` is as for a request, without method, path and
 * authority. Returns the status, or 0 if this is no HTTP/1 response. A body that the end of the connection ends has a
 * content_length of HTTP1_UNTIL_CLOSE. */
#define HTTP1_UNTIL_CLOSE UINT64_MAX
int http1_parse_response(struct span head, struct http1_head *out) MUST_CHECK;

/* The body of one message. */
struct http1_body {
	bool chunked;
	uint64_t left; /* of the body, or of the chunk */
	unsigned state;
	unsigned digits;   /* of the chunk size */
	unsigned line_len; /* of a chunk or trailer line */
	unsigned trailers_len;
};

enum http1_feed { HTTP1_MORE, HTTP1_DONE, HTTP1_BAD };

void http1_body_init(struct http1_body *body, const struct http1_head *head);
/* Takes some of `bytes`: *taken says how many, *data (perhaps empty) what of them is content. Call again while HTTP1_MORE
 * and bytes are left. */
enum http1_feed http1_body_feed(struct http1_body *body, struct span bytes, size_t *taken, struct span *data);

/* Whether a header field may have this value: line ends and other control characters would be more than a value. */
bool http1_is_value(struct span value);
/* Whether all of it is visible ASCII, as an Mcp-Session-Id must be (2025-11-25 basic/transports "Session Management"). */
bool http1_is_visible(struct span value);

/* Whether a comma-separated list of tokens holds `token`, without regard to case. */
bool http1_list_has(struct span list, const char *token);

#endif
