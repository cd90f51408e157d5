/* What a child process writes: lines out of pieces of any size, and each line as a JSON-RPC message. Where the input is cut
 * makes no difference, and what a message is taken apart into lies inside its line. */
#include "adapters/line_reader.h"
#include "proxy/message.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 4096 };

static void require_part(struct span part, struct span line)
{
	struct span again;
	if (!part.ptr)
		return;
	if (part.ptr < line.ptr || part.ptr + part.len > line.ptr + line.len)
		abort();
	if (json_check(part, &again, NULL, NULL) != 0 || again.len != part.len)
		abort();
}

static void take_apart(struct span line)
{
	struct message message = {0};
	struct json_index index;
	struct error error = {0};
	struct span value;
	if (json_check(line, &value, &index, &error) != 0)
		return;
	int rc = message_parse(&message, value, &index, &error);
	if (rc && (rc != ERROR_SYNTAX || !error.text[0]))
		abort();
	require_part(message.id, line);
	if (message.id.ptr && !rc) {
		struct buf answer = message_error(message.id, RPC_INTERNAL_ERROR, "x", NULL);
		if (json_check(buf_span(&answer), &value, NULL, NULL) != 0)
			abort();
		buf_free(&answer);
	}
	if (rc)
		return;
	require_part(message.method, line);
	require_part(message.params, line);
	require_part(message.result, line);
	require_part(message.error, line);
	bool response = message.result.ptr || message.error.ptr;
	if ((message.kind == MESSAGE_RESPONSE) != response || (message.kind == MESSAGE_REQUEST && !message.id.ptr) ||
		(message.kind != MESSAGE_RESPONSE && !message.method.ptr))
		abort();
}

static void run(const uint8_t *data, size_t size, size_t step, struct buf *lines)
{
	struct line_reader reader = {.limit_bytes = LIMIT};
	for (size_t at = 0; at < size; at += step) {
		size_t len = size - at < step ? size - at : step, room = len;
		char *space = line_reader_space(&reader, &room);
		if (!space || room < len)
			abort();
		memcpy(space, data + at, len);
		line_reader_add(&reader, len);
		struct span line;
		enum line kind;
		while ((kind = line_reader_next(&reader, &line)) != LINE_NONE) {
			buf_printf(lines, "%d %zu\n", (int)kind, line.len);
			buf_add_span(lines, line);
			if (line.len > LIMIT)
				abort();
			if (kind == LINE_COMPLETE)
				take_apart(line);
		}
	}
	line_reader_free(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = {0}, pieces = {0};
	if (size < 2)
		return 0;
	run(data + 1, size - 1, size, &whole);
	run(data + 1, size - 1, data[0] % 13 + 1, &pieces);
	if (!span_equal(buf_span(&whole), buf_span(&pieces)))
		abort();
	buf_free(&whole);
	buf_free(&pieces);
	return 0;
}
