/* The event stream parser: every table entry whole and split at every byte, with each kind of line end. */
#include "adapters/sse.h"
#include "proxy/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Events as text: type|data|id|retry and a semicolon each; "-" where there is none. */
static void note(void *arg, const struct sse_event *event)
{
	struct buf *out = arg;
	buf_add_span(out, event->type);
	buf_add_text(out, "|");
	if (event->data.ptr)
		buf_add_span(out, event->data);
	else
		buf_add_text(out, "-");
	buf_add_text(out, "|");
	if (event->id.ptr)
		buf_add_span(out, event->id);
	else
		buf_add_text(out, "-");
	buf_printf(out, "|%lld;", (long long)event->retry_ms);
}

static void feed(struct sse *sse, const char *bytes, size_t len)
{
	/* A copy of its own, so that reading beyond it is seen. */
	char *copy = malloc(len ? len : 1);
	memcpy(copy, bytes, len);
	assert_int_equal(sse_feed(sse, (struct span){copy, len}), 0);
	free(copy);
}

static void assert_events(const char *text, size_t len, size_t split, const char *expected)
{
	struct buf out = {0};
	struct sse sse;
	sse_init(&sse, 1 << 20, note, &out);
	feed(&sse, text, split);
	feed(&sse, text + split, len - split);
	buf_add(&out, "", 1);
	if (strcmp(out.data, expected) != 0)
		fail_msg("split at %zu of %s\n  gives %s\n  instead of %s", split, text, out.data, expected);
	sse_free(&sse);
	buf_free(&out);
}

static const struct {
	const char *text; /* with LF */
	const char *events;
} cases[] = {
	{"data: a\n\n", "|a|-|-1;"},
	{"data:a\n\n", "|a|-|-1;"},
	{"data:  a\n\n", "| a|-|-1;"},
	{"data: a\ndata: b\n\n", "|a\nb|-|-1;"},
	{"data\n\n", "||-|-1;"},
	{"data:\n\n", "||-|-1;"},
	{"data:\ndata:\n\n", "|\n|-|-1;"},
	{"data: a\n", ""},
	{"data: a", ""},
	{"\n\n\n", ""},
	{": comment\n\n", ""},
	{":\n: ping\ndata: a\n:x\n\n", "|a|-|-1;"},
	{"event: endpoint\ndata: /messages?session_id=x\n\n", "endpoint|/messages?session_id=x|-|-1;"},
	{"event: a\n\ndata: b\n\n", "a|-|-|-1;|b|-|-1;"},
	{"id: 1\ndata: \n\n", "||1|-1;"},
	{"id: 1\n\ndata: a\n\n", "|-|1|-1;|a|1|-1;"},
	{"id: 1\ndata: a\n\nid\ndata: b\n\n", "|a|1|-1;|b||-1;"},
	{"retry: 500\n\n", "|-|-|500;"},
	{"retry: 500\ndata: a\n\ndata: b\n\n", "|a|-|500;|b|-|-1;"},
	{"retry: 5x\ndata: a\n\n", "|a|-|-1;"},
	{"retry: -1\ndata: a\n\n", "|a|-|-1;"},
	{"retry:\ndata: a\n\n", "|a|-|-1;"},
	{"unknown: x\nDATA: y\ndata: a\n\n", "|a|-|-1;"},
	{"data : a\ndata: b\n\n", "|b|-|-1;"},
	{"\xEF\xBB\xBF"
	 "data: a\n\n",
		"|a|-|-1;"},
	{"data: \xEF\xBB\xBF"
	 "a\n\n",
		"|\xEF\xBB\xBF"
		"a|-|-1;"},
	{"data: {\"jsonrpc\":\"2.0\"}\n\ndata: b\n\n", "|{\"jsonrpc\":\"2.0\"}|-|-1;|b|-|-1;"},
};

static void reads_events_split_anywhere(void **unused)
{
	(void)unused;
	static const char *const ends[] = {"\n", "\r\n", "\r"};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t e = 0; e < 3; e++) {
			struct buf text = {0};
			for (const char *p = cases[i].text; *p; p++)
				if (*p == '\n')
					buf_add_text(&text, ends[e]);
				else
					buf_add(&text, p, 1);
			size_t len = text.len;
			buf_add(&text, "", 1);
			for (size_t split = 0; split <= len; split++)
				assert_events(text.data, len, split, cases[i].events);
			buf_free(&text);
		}
}

static void takes_mixed_line_ends(void **unused)
{
	(void)unused;
	static const char text[] = "data: a\r\ndata: b\ndata: c\r\r\ndata: d\n\r\n";
	for (size_t split = 0; split < sizeof(text); split++)
		assert_events(text, sizeof(text) - 1, split, "|a\nb\nc|-|-1;|d|-|-1;");
}

static void refuses_ids_with_nul(void **unused)
{
	(void)unused;
	static const char text[] = "id: a\0b\ndata: x\n\n";
	assert_events(text, sizeof(text) - 1, 3, "|x|-|-1;");
}

static void bounds_events(void **unused)
{
	(void)unused;
	struct buf out = {0};
	struct sse sse;
	char line[1000];
	memset(line, 'x', sizeof(line));
	sse_init(&sse, 10000, note, &out);
	assert_int_equal(sse_feed(&sse, SPAN("data: ")), 0);
	int status = 0;
	for (int i = 0; i < 20 && !status; i++)
		status = sse_feed(&sse, (struct span){line, sizeof(line)});
	assert_int_equal(status, ERROR_LIMIT);
	sse_free(&sse);
	sse_init(&sse, 10000, note, &out);
	status = 0;
	for (int i = 0; i < 20 && !status; i++) {
		status = sse_feed(&sse, SPAN("data: "));
		if (!status)
			status = sse_feed(&sse, (struct span){line, sizeof(line)});
		if (!status)
			status = sse_feed(&sse, SPAN("\n"));
	}
	assert_int_equal(status, ERROR_LIMIT);
	sse_free(&sse);
	buf_free(&out);
}

static void takes_large_events(void **unused)
{
	(void)unused;
	enum { MEGABYTES = 8 << 20 };
	struct buf out = {0}, text = {0};
	struct sse sse;
	buf_add_text(&text, "data: ");
	buf_reserve(&text, MEGABYTES + 2);
	memset(text.data + text.len, 'y', MEGABYTES);
	text.len += MEGABYTES;
	buf_add_text(&text, "\n\n");
	sse_init(&sse, MEGABYTES, note, &out);
	for (size_t at = 0; at < text.len; at += 65536)
		assert_int_equal(
			sse_feed(&sse, (struct span){text.data + at, text.len - at < 65536 ? text.len - at : 65536}),
			0);
	assert_int_equal(out.len, MEGABYTES + strlen("||-|-1;"));
	sse_free(&sse);
	buf_free(&out);
	buf_free(&text);
}

static void stop(void *arg, const struct sse_event *event)
{
	struct sse *sse = arg;
	(void)event;
	assert_false(sse->stopped);
	sse->stopped = true;
}

static void stops_when_told(void **unused)
{
	(void)unused;
	struct sse sse;
	sse_init(&sse, 1000, stop, &sse);
	assert_int_equal(sse_feed(&sse, SPAN("data: a\n\ndata: b\n\n")), 0);
	assert_true(sse.stopped);
	sse_free(&sse);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_events_split_anywhere),
		cmocka_unit_test(takes_mixed_line_ends),
		cmocka_unit_test(refuses_ids_with_nul),
		cmocka_unit_test(bounds_events),
		cmocka_unit_test(takes_large_events),
		cmocka_unit_test(stops_when_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
