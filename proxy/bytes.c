#include "proxy/bytes.h"

#include "proxy/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct span span_of(const char *text)
{
	return (struct span){text, text ? strlen(text) : 0};
}

bool span_equal(struct span a, struct span b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool span_is(struct span span, const char *text)
{
	return span_equal(span, span_of(text));
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

struct span span_trim(struct span span)
{
	for (; span.len && is_blank(*span.ptr); span.len--)
		span.ptr++;
	while (span.len && is_blank(span.ptr[span.len - 1]))
		span.len--;
	return span;
}

char *span_dup(struct span span)
{
	char *copy = malloc(span.len + 1);
	if (!copy)
		return NULL;
	if (span.len)
		memcpy(copy, span.ptr, span.len);
	copy[span.len] = '\0';
	return copy;
}

void buf_free(struct buf *buf)
{
	free(buf->data);
	*buf = (struct buf){0};
}

void buf_wipe(struct buf *buf)
{
	if (buf->data)
		explicit_bzero(buf->data, buf->cap);
	buf_free(buf);
}

bool buf_ok(const struct buf *buf)
{
	return !buf->failed;
}

bool buf_reserve(struct buf *buf, size_t extra)
{
	if (buf->failed)
		return false;
	if (extra <= buf->cap - buf->len)
		return true;
	size_t cap = buf->cap + buf->cap / 2;
	if (extra > SIZE_MAX / 2 || cap < buf->len + extra)
		cap = buf->len + extra;
	if (cap < 128)
		cap = 128;
	char *data = extra > SIZE_MAX / 2 ? NULL : realloc(buf->data, cap);
	if (!data) {
		buf->failed = true;
		return false;
	}
	buf->data = data;
	buf->cap = cap;
	return true;
}

void buf_add(struct buf *buf, const void *bytes, size_t len)
{
	if (len == 0 || !buf_reserve(buf, len))
		return;
	memcpy(buf->data + buf->len, bytes, len);
	buf->len += len;
}

void buf_add_span(struct buf *buf, struct span span)
{
	buf_add(buf, span.ptr, span.len);
}

void buf_add_text(struct buf *buf, const char *text)
{
	buf_add(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *format, ...)
{
	/* Mostly there is room already, and one pass does. */
	size_t need = buf->cap ? 0 : 1;
	while (buf_reserve(buf, need)) {
		size_t room = buf->cap - buf->len;
		va_list args;
		va_start(args, format);
		int len = vsnprintf(buf->data + buf->len, room, format, args);
		va_end(args);
		if (len < 0) {
			buf->failed = true;
		} else if ((size_t)len < room) {
			buf->len += (size_t)len;
			return;
		}
		need = (size_t)len + 1;
	}
}

static unsigned code_point(const unsigned char *p, size_t len)
{
	return len == 2 ? (p[0] & 0x1FU) << 6 | (p[1] & 0x3FU)
			: (p[0] & 0x0FU) << 12 | (p[1] & 0x3FU) << 6 | (p[2] & 0x3FU);
}

void buf_add_json_string(struct buf *buf, struct span bytes)
{
	buf_add(buf, "\"", 1);
	while (bytes.len) {
		unsigned char c = (unsigned char)bytes.ptr[0];
		size_t len = utf8_sequence(bytes);
		if (c == '"' || c == '\\')
			buf_add(buf, (char[]){'\\', (char)c}, 2);
		else if (c < 0x20 || c == 0x7F)
			buf_printf(buf, "\\u%04x", c);
		else if (len == 0)
			buf_add_text(buf, "\xEF\xBF\xBD");
		else if (utf8_is_unseen(bytes, len))
			buf_printf(buf, "\\u%04x", code_point((const unsigned char *)bytes.ptr, len));
		else
			buf_add(buf, bytes.ptr, len);
		len = len ? len : 1;
		bytes.ptr += len;
		bytes.len -= len;
	}
	buf_add(buf, "\"", 1);
}

void buf_consume(struct buf *buf, size_t len)
{
	if (len == 0)
		return;
	memmove(buf->data, buf->data + len, buf->len - len);
	buf->len -= len;
}

struct span buf_span(const struct buf *buf)
{
	return (struct span){buf->data, buf->len};
}

void buf_trim(struct buf *buf)
{
	char *data = buf->len && buf->len < buf->cap ? realloc(buf->data, buf->len) : NULL;
	if (!data)
		return;
	buf->data = data;
	buf->cap = buf->len;
}

struct buf buf_take(struct buf *buf)
{
	struct buf taken = *buf;
	*buf = (struct buf){0};
	return taken;
}
