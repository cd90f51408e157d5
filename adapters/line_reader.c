#include "adapters/line_reader.h"

#include <string.h>

char *line_reader_space(struct line_reader *reader, size_t *room)
{
	struct buf *buf = &reader->buf;
	if (reader->start) {
		buf_consume(buf, reader->start);
		reader->scanned -= reader->start;
		reader->start = 0;
	}
	if (!buf_reserve(buf, *room)) {
		buf->failed = false; /* nothing was lost: the caller may try again later */
		return NULL;
	}
	*room = buf->cap - buf->len;
	return buf->data + buf->len;
}

void line_reader_add(struct line_reader *reader, size_t len)
{
	reader->buf.len += len;
}

static void drop_pending(struct line_reader *reader)
{
	reader->start = reader->scanned = reader->buf.len;
}

enum line line_reader_next(struct line_reader *reader, struct span *line)
{
	while (reader->scanned < reader->buf.len) {
		const char *bytes = reader->buf.data;
		const char *end = memchr(bytes + reader->scanned, '\n', reader->buf.len - reader->scanned);
		const char *begin = bytes + reader->start;
		if (!end) {
			size_t pending = reader->buf.len - reader->start;
			reader->scanned = reader->buf.len;
			if (reader->skipping) {
				drop_pending(reader);
				return LINE_NONE;
			}
			/* One byte more may be the CR of the line end. */
			if (pending <= reader->limit_bytes + 1)
				return LINE_NONE;
			*line = (struct span){begin, reader->limit_bytes};
			reader->skipping = true;
			drop_pending(reader);
			return LINE_TOO_LONG;
		}
		reader->start = reader->scanned = (size_t)(end - bytes) + 1;
		if (reader->skipping) {
			reader->skipping = false;
			continue;
		}
		size_t len = (size_t)(end - begin);
		if (len && begin[len - 1] == '\r')
			len--;
		bool fits = len <= reader->limit_bytes;
		*line = (struct span){begin, fits ? len : reader->limit_bytes};
		return fits ? LINE_COMPLETE : LINE_TOO_LONG;
	}
	return LINE_NONE;
}

struct span line_reader_rest(const struct line_reader *reader)
{
	if (reader->skipping || reader->buf.len == reader->start)
		return (struct span){0};
	return (struct span){reader->buf.data + reader->start, reader->buf.len - reader->start};
}

void line_reader_trim(struct line_reader *reader)
{
	if (reader->start != reader->buf.len)
		return;
	buf_free(&reader->buf);
	reader->start = reader->scanned = 0;
}

void line_reader_free(struct line_reader *reader)
{
	buf_free(&reader->buf);
	reader->start = reader->scanned = 0;
	reader->skipping = false;
}

static void replace(char *bytes, size_t len, char from)
{
	char *end = bytes + len;
	while (bytes < end && (bytes = memchr(bytes, from, (size_t)(end - bytes))))
		*bytes++ = ' ';
}

void line_from_json(struct buf *message)
{
	if (message->data) {
		replace(message->data, message->len, '\n');
		replace(message->data, message->len, '\r');
	}
	buf_add(message, "\n", 1);
}
