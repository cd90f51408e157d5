/* Server-sent events (WHATWG HTML, "Server-sent events"): a byte machine without I/O.
 *
 * Takes a stream in any pieces: LF, CRLF and CR line ends, split anywhere; a BOM; comments; unknown fields; several data
 * lines. An event is reported when its empty line has come; an event without data is reported too, because its id and retry
 * count. The data of one event is bounded. */
#ifndef MCP_VALET_SSE_H
#define MCP_VALET_SSE_H

#include "proxy/bytes.h"

enum { SSE_MAX_FIELD = 4096 }; /* bytes of event, id or retry */

struct sse_event {
	struct span type; /* "" means message */
	struct span data; /* a NULL ptr: the event had no data field */
	struct span id;	  /* the last event id so far; a NULL ptr: none yet */
	int64_t retry_ms; /* -1: not given */
};

struct sse {
	void (*on_event)(void *arg, const struct sse_event *event); /* may set `stopped` */
	void *arg;
	size_t data_limit;
	bool stopped; /* the owner wants no more events of this piece */

	struct buf line, data, type, id;
	bool has_data, has_id, skip_lf, begun;
	int64_t retry_ms;
};

void sse_init(
	struct sse *sse, size_t data_limit, void (*on_event)(void *arg, const struct sse_event *event), void *arg);
void sse_free(struct sse *sse);
/* Takes the next bytes. 0, ERROR_LIMIT when an event is larger than allowed, or ERROR_MEMORY: the stream is useless then. */
int sse_feed(struct sse *sse, struct span bytes) __attribute__((warn_unused_result));

#endif
