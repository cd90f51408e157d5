#include "adapters/sse.h"

#include "proxy/error.h"

#include <string.h>

void sse_init(struct sse *sse, size_t data_limit, void (*on_event)(void *arg, const struct sse_event *event), void *arg)
{
	*sse = (struct sse){.on_event = on_event, .arg = arg, .data_limit = data_limit, .retry_ms = -1};
}

void sse_free(struct sse *sse)
{
	buf_free(&sse->line);
	buf_free(&sse->data);
	buf_free(&sse->type);
	buf_free(&sse->id);
}

static void dispatch(struct sse *sse)
{
	const struct sse_event event = {
		.type = buf_span(&sse->type),
		/* Data lines are joined by LF; the last one's is not part of the data. */
		.data = sse->has_data ? (struct span){sse->data.data ? sse->data.data : "",
						sse->data.len ? sse->data.len - 1 : 0}
				      : (struct span){0},
		.id = sse->has_id ? (struct span){sse->id.data ? sse->id.data : "", sse->id.len} : (struct span){0},
		.retry_ms = sse->retry_ms,
	};
	bool says_something = sse->has_data || sse->has_id || sse->retry_ms >= 0 || sse->type.len;
	if (says_something)
		sse->on_event(sse->arg, &event);
	buf_free(&sse->data);
	sse->type.len = 0;
	sse->has_data = false;
	sse->retry_ms = -1;
}

static int64_t read_retry(struct span value)
{
	int64_t number = 0;
	if (value.len == 0 || value.len > 9)
		return -1;
	for (size_t i = 0; i < value.len; i++) {
		if (value.ptr[i] < '0' || value.ptr[i] > '9')
			return -1;
		number = number * 10 + (value.ptr[i] - '0');
	}
	return number;
}

static void take_field(struct sse *sse, struct span name, struct span value)
{
	if (span_is(name, "data")) {
		buf_add_span(&sse->data, value);
		buf_add(&sse->data, "\n", 1);
		sse->has_data = true;
	} else if (span_is(name, "event") && value.len <= SSE_MAX_FIELD) {
		sse->type.len = 0;
		buf_add_span(&sse->type, value);
	} else if (span_is(name, "id") && value.len <= SSE_MAX_FIELD &&
		   !(value.len && memchr(value.ptr, '\0', value.len))) {
		sse->id.len = 0;
		buf_add_span(&sse->id, value);
		sse->has_id = true;
	} else if (span_is(name, "retry") && read_retry(value) >= 0) {
		sse->retry_ms = read_retry(value);
	}
}

static void take_line(struct sse *sse, struct span line)
{
	static const char bom[] = "\xEF\xBB\xBF";
	if (!sse->begun && line.len >= 3 && memcmp(line.ptr, bom, 3) == 0) {
		line.ptr += 3;
		line.len -= 3;
	}
	sse->begun = true;
	if (line.len == 0) {
		dispatch(sse);
		return;
	}
	const char *colon = memchr(line.ptr, ':', line.len);
	struct span name = {line.ptr, colon ? (size_t)(colon - line.ptr) : line.len};
	struct span value = {0};
	if (name.len == 0)
		return; /* a comment */
	if (colon)
		value = (struct span){colon + 1, line.len - name.len - 1};
	if (value.len && *value.ptr == ' ') {
		value.ptr++;
		value.len--;
	}
	take_field(sse, name, value);
}

/* Where the first line end is, or the length if there is none. */
static size_t find_line_end(struct span bytes)
{
	const char *lf = memchr(bytes.ptr, '\n', bytes.len);
	size_t len = lf ? (size_t)(lf - bytes.ptr) : bytes.len;
	const char *cr = memchr(bytes.ptr, '\r', len);
	return cr ? (size_t)(cr - bytes.ptr) : len;
}

int sse_feed(struct sse *sse, struct span bytes)
{
	while (bytes.len && !sse->stopped) {
		if (sse->skip_lf && *bytes.ptr == '\n') { /* of a CRLF */
			bytes.ptr++;
			bytes.len--;
			sse->skip_lf = false;
			continue;
		}
		sse->skip_lf = false;
		size_t len = find_line_end(bytes);
		bool complete = len < bytes.len;
		if (sse->line.len + len + sse->data.len > sse->data_limit + SSE_MAX_FIELD)
			return ERROR_LIMIT;
		if (!complete || sse->line.len)
			buf_add(&sse->line, bytes.ptr, len);
		if (complete) {
			struct span whole = {bytes.ptr, len};
			take_line(sse, sse->line.len ? buf_span(&sse->line) : whole);
			buf_free(&sse->line); /* it may have been as large as what it brought */
			sse->skip_lf = bytes.ptr[len] == '\r';
			len++;
		}
		bytes.ptr += len;
		bytes.len -= len;
		if (sse->line.failed || sse->data.failed || sse->type.failed || sse->id.failed)
			return ERROR_MEMORY;
	}
	return 0;
}
