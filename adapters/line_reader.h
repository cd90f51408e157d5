/* Lines out of a byte stream. The reader owns the buffer that the stream is read into, looks at every byte once for a
 * line end, and hands out each complete line as a span into the buffer. It does no I/O.
 *
 *   read into line_reader_space(), tell line_reader_add() how much came, take lines until LINE_NONE.
 *
 * A line ends with LF or CRLF; the end is not part of it. What follows the last line end is no line yet, and never
 * becomes one if the stream ends there (basic/transports/stdio: messages are delimited by newlines). */
#ifndef MCP_VALET_LINE_READER_H
#define MCP_VALET_LINE_READER_H

#include "proxy/bytes.h"

struct line_reader {
	struct buf buf;
	size_t limit_bytes; /* of a line without its end */
	size_t start;	    /* where the current line begins */
	size_t scanned;	    /* where nobody has looked for a line end yet */
	bool skipping;	    /* the rest of the current line was given up */
};

enum line {
	LINE_NONE,     /* no complete line is there */
	LINE_COMPLETE, /* *line is the line, which may be empty */
	LINE_TOO_LONG, /* *line is the beginning of a line over the limit, whose rest is skipped; said once a line */
};

/* Room for at least `room` bytes; sets *room to how many there are. NULL without memory. Spans given out before are
 * then no longer valid. */
char *line_reader_space(struct line_reader *reader, size_t *room) MUST_CHECK;
/* `len` bytes were written into the space. */
void line_reader_add(struct line_reader *reader, size_t len);
/* The next line, valid until line_reader_space() or line_reader_free(). */
enum line line_reader_next(struct line_reader *reader, struct span *line) MUST_CHECK;
/* What came after the last line end: at the end of the stream, a truncated line. */
struct span line_reader_rest(const struct line_reader *reader);
/* Gives the buffer back if nothing is in it, so that an idle stream costs nothing. */
void line_reader_trim(struct line_reader *reader);
void line_reader_free(struct line_reader *reader);

/* The other direction: makes one line of a JSON text. CR and LF become spaces, which is the same JSON, because they are
 * legal between tokens only; a single LF is appended. */
void line_from_json(struct buf *message);

#endif
