/* The event stream parser on any bytes: where the input is split makes no difference. */
#include "adapters/sse.h"

#include <stdlib.h>
#include <string.h>

static void note(void *arg, const struct sse_event *event)
{
	struct buf *out = arg;
	buf_printf(out, "%zu %zu %zu %lld\n", event->type.len, event->data.ptr ? event->data.len : (size_t)-1,
		event->id.ptr ? event->id.len : (size_t)-1, (long long)event->retry_ms);
	buf_add_span(out, event->type);
	buf_add_span(out, event->data);
	buf_add_span(out, event->id);
}

static int run(const uint8_t *data, size_t size, size_t step, struct buf *out)
{
	struct sse sse;
	int status = 0;
	sse_init(&sse, 1 << 16, note, out);
	for (size_t at = 0; at < size && !status; at += step) {
		size_t len = size - at < step ? size - at : step;
		char *piece = malloc(len);
		memcpy(piece, data + at, len);
		status = sse_feed(&sse, (struct span){piece, len});
		free(piece);
	}
	sse_free(&sse);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = {0}, pieces = {0};
	if (size < 2)
		return 0;
	int a = run(data + 1, size - 1, size, &whole), b = run(data + 1, size - 1, data[0] % 13 + 1, &pieces);
	if (a == 0 && b == 0 && !span_equal(buf_span(&whole), buf_span(&pieces)))
		abort();
	buf_free(&whole);
	buf_free(&pieces);
	return 0;
}
