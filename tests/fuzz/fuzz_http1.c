/* The HTTP/1.1 codec on any bytes: it never reads outside them, and where the input is split makes no difference. */
#include "adapters/http1.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BODY = 1 << 20 };

struct outcome {
	int status;
	enum http1_feed body;
	size_t used;
	struct buf content;
};

/* Runs a request whose bytes arrive in pieces of `step`. */
static struct outcome run(const uint8_t *data, size_t size, size_t step)
{
	struct outcome outcome = {.status = -1};
	struct http1_head head;
	struct http1_body body;
	const char *fault;
	size_t scanned = 0, len = 0, end = 0;
	while (!end && len < size) {
		len = size - len < step ? size : len + step;
		end = http1_find_head_end((struct span){(const char *)data, len}, &scanned);
	}
	if (!end || end == HTTP1_BAD_LINE)
		return outcome;
	char *copy = malloc(end);
	memcpy(copy, data, end);
	outcome.status = http1_parse_head((struct span){copy, end}, &head, &fault);
	outcome.used = end;
	if (!outcome.status)
		http1_body_init(&body, &head);
	free(copy);
	outcome.body = HTTP1_MORE;
	while (!outcome.status && outcome.body == HTTP1_MORE && outcome.used < size && outcome.content.len < MAX_BODY) {
		size_t piece = size - outcome.used < step ? size - outcome.used : step, taken;
		struct span content;
		char *bytes = malloc(piece);
		memcpy(bytes, data + outcome.used, piece);
		outcome.body = http1_body_feed(&body, (struct span){bytes, piece}, &taken, &content);
		buf_add_span(&outcome.content, content);
		outcome.used += taken;
		free(bytes);
		if ((taken == 0 && outcome.body == HTTP1_MORE) || taken > piece)
			abort();
	}
	return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	struct outcome whole = run(data + 1, size - 1, size), pieces = run(data + 1, size - 1, data[0] % 17 + 1);
	if (whole.status != pieces.status || whole.body != pieces.body || whole.used != pieces.used ||
		!span_equal(buf_span(&whole.content), buf_span(&pieces.content)))
		abort();
	buf_free(&whole.content);
	buf_free(&pieces.content);
	return 0;
}
