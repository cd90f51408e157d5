/* Bytes on their way out of a non-blocking descriptor: a queue of buffers, written with writev. It knows nothing of the
 * event loop; its owner asks for write readiness while outbox_bytes() is not zero. A zeroed struct is an empty outbox. */
#ifndef MCP_VALET_OUTBOX_H
#define MCP_VALET_OUTBOX_H

#include "proxy/bytes.h"

struct outbox_chunk;

struct outbox {
	struct outbox_chunk *first, *last;
	size_t offset; /* of the first chunk, already written */
	size_t bytes;  /* still to be written */
};

/* Takes the content of *bytes and queues it. false without memory (also when *bytes had failed): nothing is queued then,
 * and the content is freed. */
bool outbox_add(struct outbox *outbox, struct buf *bytes) MUST_CHECK;
bool outbox_add_text(struct outbox *outbox, const char *text) MUST_CHECK;
/* Writes what the descriptor takes. 0: all written, or it would block; ERROR_LOST: the reader is gone. */
int outbox_write(struct outbox *outbox, int fd) MUST_CHECK;
size_t outbox_bytes(const struct outbox *outbox);
void outbox_free(struct outbox *outbox);

#endif
