#include "adapters/http_response.h"

#include <strings.h>

enum { MAX_SECONDS = 86400 };

static struct span without(struct span bytes, size_t len)
{
	return (struct span){bytes.ptr + len, bytes.len - len};
}

/* Keep-Alive (RFC 2068 section 19.7.1.1, and still what servers say): `timeout=5, max=100`. */
static int announced_time(const struct http1_head *head)
{
	static const char name[] = "timeout=";
	struct span rest;
	int seconds = 0;
	if (!http1_field(head, "keep-alive", &rest))
		return -1;
	while (rest.len >= sizeof(name) && strncasecmp(rest.ptr, name, sizeof(name) - 1) != 0)
		rest = without(rest, 1);
	if (rest.len < sizeof(name))
		return -1;
	for (rest = without(rest, sizeof(name) - 1); rest.len && *rest.ptr >= '0' && *rest.ptr <= '9';
		rest = without(rest, 1))
		seconds = seconds < MAX_SECONDS ? seconds * 10 + (*rest.ptr - '0') : seconds;
	return seconds;
}

/* A head that is complete. 1xx are passed over: they are told by none. */
static enum http_response_part take_head(struct http_response_reader *reader, struct span text, struct http1_head *head)
{
	int status = http1_parse_response(text, head);
	if (!status || status == 101)
		return HTTP_RESPONSE_BAD;
	if (status < 200)
		return ++reader->interim > HTTP_RESPONSE_MAX_INTERIM ? HTTP_RESPONSE_BAD : HTTP_RESPONSE_MORE;
	reader->status = status;
	reader->keep_alive = head->keep_alive;
	reader->keep_s = announced_time(head);
	reader->until_close = !head->chunked && head->content_length == HTTP1_UNTIL_CLOSE;
	http1_body_init(&reader->framing, head);
	return HTTP_RESPONSE_HEAD;
}

/* Mostly a head comes in one piece, and is read where it is. */
static enum http_response_part next_head(
	struct http_response_reader *reader, struct span *bytes, struct http1_head *head)
{
	enum http_response_part part = HTTP_RESPONSE_MORE;
	while (part == HTTP_RESPONSE_MORE && bytes->len) {
		struct span whole = *bytes;
		size_t before = reader->partial.len;
		buf_free(&reader->told);
		if (before) {
			buf_add_span(&reader->partial, *bytes);
			whole = buf_span(&reader->partial);
		}
		size_t len = http1_find_head_end(whole, &reader->scanned);
		if (len == HTTP1_BAD_LINE || len > HTTP_RESPONSE_MAX_HEAD ||
			(!len && whole.len > HTTP_RESPONSE_MAX_HEAD))
			return HTTP_RESPONSE_BAD;
		if (!len && !before)
			buf_add_span(&reader->partial, *bytes);
		if (!buf_ok(&reader->partial))
			return HTTP_RESPONSE_NO_MEMORY;
		*bytes = without(*bytes, len ? len - before : bytes->len);
		if (!len)
			return HTTP_RESPONSE_MORE;
		part = take_head(reader, (struct span){whole.ptr, len}, head);
		reader->told = buf_take(&reader->partial);
		reader->scanned = 0;
	}
	return part;
}

enum http_response_part http_response_next(
	struct http_response_reader *reader, struct span *bytes, struct http1_head *head, struct span *data)
{
	reader->begun |= bytes->len > 0;
	if (!reader->status)
		return next_head(reader, bytes, head);
	buf_free(&reader->told);
	size_t taken;
	enum http1_feed result = http1_body_feed(&reader->framing, *bytes, &taken, data);
	*bytes = without(*bytes, taken);
	if (result == HTTP1_BAD)
		return HTTP_RESPONSE_BAD;
	if (data->len)
		return HTTP_RESPONSE_DATA;
	return result == HTTP1_DONE ? HTTP_RESPONSE_DONE : HTTP_RESPONSE_MORE;
}

void http_response_free(struct http_response_reader *reader)
{
	buf_free(&reader->partial);
	buf_free(&reader->told);
	*reader = (struct http_response_reader){0};
}
