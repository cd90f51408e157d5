#include "adapters/outbox.h"

#include "proxy/error.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

enum { CHUNKS_A_WRITE = 16 };

struct outbox_chunk {
	struct outbox_chunk *next;
	struct buf bytes;
};

bool outbox_add(struct outbox *outbox, struct buf *bytes)
{
	if (buf_ok(bytes) && bytes->len == 0) {
		buf_free(bytes);
		return true;
	}
	struct outbox_chunk *chunk = buf_ok(bytes) ? malloc(sizeof(*chunk)) : NULL;
	if (!chunk) {
		buf_free(bytes);
		return false;
	}
	*chunk = (struct outbox_chunk){.bytes = buf_take(bytes)};
	if (outbox->last)
		outbox->last->next = chunk;
	else
		outbox->first = chunk;
	outbox->last = chunk;
	outbox->bytes += chunk->bytes.len;
	return true;
}

bool outbox_add_text(struct outbox *outbox, const char *text)
{
	struct buf bytes = {0};
	buf_add_text(&bytes, text);
	return outbox_add(outbox, &bytes);
}

static void drop_first(struct outbox *outbox)
{
	struct outbox_chunk *chunk = outbox->first;
	outbox->first = chunk->next;
	if (!outbox->first)
		outbox->last = NULL;
	buf_free(&chunk->bytes);
	free(chunk);
	outbox->offset = 0;
}

static void advance(struct outbox *outbox, size_t written)
{
	outbox->bytes -= written;
	while (written) {
		size_t left = outbox->first->bytes.len - outbox->offset;
		if (written < left) {
			outbox->offset += written;
			return;
		}
		written -= left;
		drop_first(outbox);
	}
}

int outbox_write(struct outbox *outbox, int fd)
{
	while (outbox->bytes) {
		struct iovec parts[CHUNKS_A_WRITE];
		int count = 0;
		size_t offset = outbox->offset;
		for (struct outbox_chunk *chunk = outbox->first; chunk && count < CHUNKS_A_WRITE; chunk = chunk->next) {
			parts[count++] = (struct iovec){chunk->bytes.data + offset, chunk->bytes.len - offset};
			offset = 0;
		}
		ssize_t written = writev(fd, parts, count);
		if (written > 0)
			advance(outbox, (size_t)written);
		else if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		else if (written == 0 || errno != EINTR)
			return ERROR_LOST;
	}
	return 0;
}

size_t outbox_bytes(const struct outbox *outbox)
{
	return outbox->bytes;
}

void outbox_free(struct outbox *outbox)
{
	while (outbox->first)
		drop_first(outbox);
	*outbox = (struct outbox){0};
}
