/* A response's bytes, cut where the input says: the reader never reads outside them, where they are cut makes no difference,
 * and what it takes for complete is what a second, simpler reader finds in the whole. */
#include "adapters/http_response.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct outcome {
	enum http_response_part end;
	int status;
	unsigned interim, fields;
	bool keep_alive, until_close;
	size_t used;
	struct buf content;
};

/* Everything that a head points to must still be there. */
static unsigned count_fields(const struct http1_head *head)
{
	unsigned lines = 0;
	for (size_t i = 0; i < head->fields.len; i++)
		lines += head->fields.ptr[i] == '\n';
	return lines;
}

/* `cuts` gives the lengths of the pieces, again and again; without any all comes at once. */
static struct outcome run(struct span bytes, struct span cuts)
{
	struct outcome outcome = {.end = HTTP_RESPONSE_MORE};
	struct http_response_reader reader = {0};
	for (size_t i = 0; outcome.end == HTTP_RESPONSE_MORE && outcome.used < bytes.len; i++) {
		size_t left = bytes.len - outcome.used, len = cuts.len ? (uint8_t)cuts.ptr[i % cuts.len] + 1U : left;
		if (len > left)
			len = left;
		char *copy = malloc(len);
		memcpy(copy, bytes.ptr + outcome.used, len);
		struct span piece = {copy, len};
		do {
			struct http1_head head;
			struct span data = {0};
			outcome.end = http_response_next(&reader, &piece, &head, &data);
			if (outcome.end == HTTP_RESPONSE_HEAD)
				outcome.fields = count_fields(&head);
			else if (outcome.end == HTTP_RESPONSE_DATA)
				buf_add_span(&outcome.content, data);
			if (piece.ptr + piece.len != copy + len || (outcome.end == HTTP_RESPONSE_MORE && piece.len))
				abort();
		} while (outcome.end == HTTP_RESPONSE_HEAD || outcome.end == HTTP_RESPONSE_DATA);
		outcome.used += len - piece.len;
		free(copy);
	}
	outcome.status = reader.status;
	outcome.interim = reader.interim;
	outcome.keep_alive = reader.keep_alive;
	outcome.until_close = reader.until_close;
	http_response_free(&reader);
	return outcome;
}

/* The second reader. What it is given has been found to be good, so that it looks for nothing else. */

static const char *after(const char *from, const char *end, const char *mark)
{
	const char *found = memmem(from, (size_t)(end - from), mark, strlen(mark));
	if (!found)
		abort();
	return found + strlen(mark);
}

/* The value of a field, or NULL. */
static const char *value_of(const char *head, const char *end, const char *name)
{
	for (const char *line = after(head, end, "\r\n"); line < end - 2; line = after(line, end, "\r\n"))
		if (strncasecmp(line, name, strlen(name)) == 0) {
			line += strlen(name);
			return line + strspn(line, " \t");
		}
	return NULL;
}

static const char *read_chunks(const char *at, const char *end, struct buf *content)
{
	unsigned long long len;
	while ((len = strtoull(at, NULL, 16))) {
		at = after(at, end, "\r\n");
		if (len > (size_t)(end - at))
			abort();
		buf_add(content, at, (size_t)len);
		at += len + 2;
	}
	at = after(at, end, "\r\n");
	while (*at != '\r')
		at = after(at, end, "\r\n");
	return at + 2;
}

static void check(struct span bytes, const struct outcome *outcome)
{
	char *text = malloc(bytes.len + 1); /* ended by NUL, for strtoull() */
	memcpy(text, bytes.ptr, bytes.len);
	text[bytes.len] = '\0';
	const char *head = text, *end = text + bytes.len, *body = after(text, end, "\r\n\r\n");
	unsigned interim = 0;
	for (; atoi(head + 9) < 200; interim++) {
		head = body;
		body = after(head, end, "\r\n\r\n");
	}
	int status = atoi(head + 9);
	const char *length = value_of(head, body, "content-length:");
	const char *coding = value_of(head, body, "transfer-encoding:");
	bool in_doubt = coding && (length || head[7] == '0'); /* RFC 9112 sections 6.1 and 6.3 */
	struct buf content = {0};
	if (status != 204 && status != 304) {
		if (coding) {
			body = read_chunks(body, end, &content);
		} else if (length) {
			buf_add(&content, body, (size_t)strtoull(length, NULL, 10));
			body += content.len;
		} else {
			abort(); /* the end of the connection would end it */
		}
	}
	if (status != outcome->status || interim != outcome->interim || outcome->used != (size_t)(body - text) ||
		!span_equal(buf_span(&content), buf_span(&outcome->content)) || (outcome->keep_alive && in_doubt))
		abort();
	buf_free(&content);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t cut_count = size ? data[0] % 8 : 0;
	if (size < 2 + cut_count)
		return 0;
	struct span bytes = {(const char *)data + 1 + cut_count, size - 1 - cut_count};
	struct outcome whole = run(bytes, (struct span){0});
	struct outcome pieces = run(bytes, (struct span){(const char *)data + 1, cut_count});
	struct outcome single = run(bytes, SPAN("\0"));
	const struct outcome *const others[] = {&pieces, &single};
	for (size_t i = 0; i < 2; i++)
		if (whole.end != others[i]->end || whole.status != others[i]->status ||
			whole.interim != others[i]->interim || whole.fields != others[i]->fields ||
			whole.keep_alive != others[i]->keep_alive || whole.until_close != others[i]->until_close ||
			!span_equal(buf_span(&whole.content), buf_span(&others[i]->content)) ||
			(whole.end != HTTP_RESPONSE_BAD && whole.used != others[i]->used))
			abort();
	if (whole.end == HTTP_RESPONSE_DONE)
		check(bytes, &whole);
	buf_free(&whole.content);
	buf_free(&pieces.content);
	buf_free(&single.content);
	return 0;
}
