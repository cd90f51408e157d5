/* Spans (borrowed bytes) and buffers (owned bytes).
 *
 * A span points into somebody else's memory and owns nothing. A buffer owns its memory, grows as it is written, and
 * remembers a failed allocation: writers append without looking, and whoever takes the result asks buf_ok() once.
 * A zeroed struct buf is an empty buffer. */
#ifndef MCP_VALET_BYTES_H
#define MCP_VALET_BYTES_H

#include "proxy/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
	const char *ptr;
	size_t len;
};

struct buf {
	char *data;
	size_t len;
	size_t cap;
	bool failed; /* an allocation failed: the content is not complete */
};

#define SPAN(literal) ((struct span){(literal), sizeof(literal) - 1})

struct span span_of(const char *text);		  /* of a terminated string; NULL gives an empty span */
bool span_equal(struct span a, struct span b);	  /* byte for byte */
bool span_is(struct span span, const char *text); /* byte for byte */
struct span span_trim(struct span span);	  /* without spaces and tabs at its ends */
char *span_dup(struct span span) MUST_CHECK;	  /* terminated copy, to be freed; NULL without memory */

void buf_free(struct buf *buf);			 /* frees the content and makes the buffer empty */
void buf_wipe(struct buf *buf);			 /* the same, and nothing of the content is left in memory */
bool buf_ok(const struct buf *buf) MUST_CHECK;	 /* false if an allocation failed since it was empty */
bool buf_reserve(struct buf *buf, size_t extra); /* makes room for `extra` more bytes; false without memory */
void buf_add(struct buf *buf, const void *bytes, size_t len);
void buf_add_span(struct buf *buf, struct span span);
void buf_add_text(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
/* Appends `bytes` as a JSON string with its quotes, and escapes what is unseen; bytes that are not UTF-8 become U+FFFD. */
void buf_add_json_string(struct buf *buf, struct span bytes);
/* Removes `len` bytes from the front. */
void buf_consume(struct buf *buf, size_t len);
struct span buf_span(const struct buf *buf);
void buf_trim(struct buf *buf); /* gives back what the content does not need, as far as that can be done */
/* Takes the content out: the buffer is empty afterwards and the result owns the memory. */
struct buf buf_take(struct buf *buf);

/* What a digit of base 16 stands for; -1 of any other byte. */
static inline int hex_digit(char byte)
{
	char lower = (char)(byte | 0x20);
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

#endif
