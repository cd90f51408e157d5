/* One HTTP/1.1 response, as its bytes come: a byte machine without I/O. A zeroed struct waits for a response. */
#ifndef MCP_VALET_HTTP_RESPONSE_H
#define MCP_VALET_HTTP_RESPONSE_H

#include "adapters/http1.h"

enum { HTTP_RESPONSE_MAX_HEAD = 65536, HTTP_RESPONSE_MAX_INTERIM = 8 };

struct http_response_reader {
	struct buf partial; /* a head that is not complete … */
	struct buf told;    /* … and one that was, until the next call */
	size_t scanned;
	unsigned interim; /* how many 1xx came before the response */
	int status;	  /* 0: its head has not come */
	bool begun;	  /* something has come */
	bool keep_alive;
	int keep_s;	  /* for so long, as `Keep-Alive: timeout=` announces; -1: it does not */
	bool until_close; /* the end of the connection ends the body */
	struct http1_body framing;
};

enum http_response_part {
	HTTP_RESPONSE_MORE, /* all bytes are taken, and it goes on */
	HTTP_RESPONSE_HEAD, /* *head: until the next call */
	HTTP_RESPONSE_DATA, /* *data: some of the body */
	HTTP_RESPONSE_DONE, /* it is complete; what is left in *bytes does not belong to it */
	HTTP_RESPONSE_BAD,
	HTTP_RESPONSE_NO_MEMORY,
};

/* Takes the next part off the front of *bytes. */
enum http_response_part http_response_next(
	struct http_response_reader *reader, struct span *bytes, struct http1_head *head, struct span *data) MUST_CHECK;
void http_response_free(struct http_response_reader *reader);

#endif
