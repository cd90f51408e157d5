/* The HTTP/1.1 codec against hostile requests (RFC 9112), whole and split at every byte. */
#include "adapters/http1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"

static void judges_heads(void **unused)
{
	(void)unused;
	static const struct {
		const char *head;
		int status; /* 0: accepted */
	} cases[] = {
		{"POST /mcp HTTP/1.1\r\n" HOST "\r\n", 0},
		{"\r\nPOST /mcp HTTP/1.1\r\n" HOST "\r\n", 0},
		{"\r\n\r\nPOST /mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST /mcp HTTP/1.0\r\n\r\n", 0},
		{"POST http://a/mcp HTTP/1.1\r\n" HOST "\r\n", 0},
		{"POST http:///mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST http://a b/mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST /m\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST /a#b HTTP/1.1\r\n" HOST "\r\n", 400},
		{"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 0},
		{"POST  /mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST /mcp  HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST /mcp\r\n" HOST "\r\n", 400},
		{"P(ST /mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{" /mcp HTTP/1.1\r\n" HOST "\r\n", 400},
		{"POST /mcp HTTP/2.0\r\n" HOST "\r\n", 505},
		{"POST /mcp HTTP/0.9\r\n" HOST "\r\n", 505},
		{"POST /mcp HTTP/1.10\r\n" HOST "\r\n", 400},
		{"POST /mcp http/1.1\r\n" HOST "\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST HOST "\r\n", 400},
		{"POST /mcp HTTP/1.1\r\nHost:\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 0},
		{"POST /mcp HTTP/1.1\r\nHost : a\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n Host: a\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "X\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST ": a\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "X: a\x01"
		 "b\r\n\r\n",
			400},
		{"POST /mcp HTTP/1.1\r\n" HOST "X: a\x7f\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "X: \t a\tb \xc3\xa9 \t\r\n\r\n", 0},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n", 0},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 5x\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0},
		{"POST /mcp HTTP/1.1\r\n" HOST "transfer-encoding: CHUNKED\r\n\r\n", 0},
		{"POST /mcp HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", 501},
		{"POST /mcp HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
		{"POST /mcp HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
		{"POST /mcp HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"POST /mcp HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"POST /mcp HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n", 0},
		{"POST /mcp HTTP/1.1\r\n" HOST "Expect: tea\r\n\r\n", 417},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http1_head head;
		const char *fault = NULL;
		int status = http1_parse_head(span_of(cases[i].head), &head, &fault);
		if (status != cases[i].status)
			fail_msg("%s\n  gives %d instead of %d", cases[i].head, status, cases[i].status);
		assert_int_equal(fault == NULL, status == 0);
	}
}

static void refuses_nul_bytes(void **unused)
{
	(void)unused;
	static const char text[] = "POST /mcp HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n";
	struct http1_head head;
	const char *fault;
	assert_int_equal(http1_parse_head(SPAN(text), &head, &fault), 400);
}

static void takes_heads_apart(void **unused)
{
	(void)unused;
	struct http1_head head;
	const char *fault;
	struct span value;
	assert_int_equal(
		http1_parse_head(SPAN("POST http://B:8/mcp?q=1 HTTP/1.1\r\nHost: a\r\nMCP-NAME:  x y \r\nx: 1\r\n"
				      "X: 2\r\nConnection: foo, Close\r\nContent-Length: 007\r\n\r\n"),
			&head, &fault),
		0);
	assert_true(span_is(head.method, "POST"));
	assert_true(span_is(head.path, "/mcp"));
	assert_true(span_is(head.authority, "B:8"));
	assert_int_equal(http1_field(&head, "mcp-name", &value), 1);
	assert_true(span_is(value, "x y"));
	assert_int_equal(http1_field(&head, "x", &value), 2);
	assert_true(span_is(value, "2"));
	assert_int_equal(http1_field(&head, "y", &value), 0);
	assert_false(head.keep_alive);
	assert_int_equal(head.content_length, 7);
	assert_int_equal(http1_parse_head(SPAN("POST / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), &head, &fault), 0);
	assert_true(head.keep_alive);
	assert_int_equal(http1_parse_head(SPAN("POST / HTTP/1.0\r\n\r\n"), &head, &fault), 0);
	assert_false(head.keep_alive);
}

static void limits_fields(void **unused)
{
	(void)unused;
	struct buf text = {0};
	struct http1_head head;
	const char *fault;
	buf_add_text(&text, "POST / HTTP/1.1\r\nHost: a\r\n");
	for (int i = 0; i < HTTP1_MAX_FIELDS - 1; i++)
		buf_add_text(&text, "x: y\r\n");
	size_t len = text.len;
	buf_add_text(&text, "\r\n");
	assert_int_equal(http1_parse_head(buf_span(&text), &head, &fault), 0);
	text.len = len;
	buf_add_text(&text, "x: y\r\n\r\n");
	assert_int_equal(http1_parse_head(buf_span(&text), &head, &fault), 431);
	buf_free(&text);
}

static void finds_the_end_of_a_head_in_any_pieces(void **unused)
{
	(void)unused;
	static const char text[] = "POST / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n";
	for (size_t split = 0; split < sizeof(text) - 1; split++) {
		size_t scanned = 0;
		size_t end = http1_find_head_end((struct span){text, split}, &scanned);
		assert_int_equal(end, split >= 28 ? 28 : 0);
		if (!end)
			assert_int_equal(http1_find_head_end(SPAN(text), &scanned), 28);
	}
	size_t scanned = 0;
	assert_true(http1_find_head_end(SPAN("POST / HTTP/1.1\nHost: a\n\n"), &scanned) == HTTP1_BAD_LINE);
	scanned = 0;
	assert_true(http1_find_head_end(SPAN("\n"), &scanned) == HTTP1_BAD_LINE);
}

/* Feeds a body in pieces of `step` bytes. Returns what came out, and how it ended. */
static enum http1_feed feed(struct span bytes, const char *fields, size_t step, struct buf *out, size_t *used)
{
	struct http1_head head;
	struct http1_body body;
	const char *fault;
	struct buf text = {0};
	buf_printf(&text, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
	assert_int_equal(http1_parse_head(buf_span(&text), &head, &fault), 0);
	buf_free(&text);
	http1_body_init(&body, &head);
	*used = 0;
	enum http1_feed result = HTTP1_MORE;
	while (result == HTTP1_MORE && *used < bytes.len) {
		size_t len = bytes.len - *used < step ? bytes.len - *used : step;
		/* A copy of its own, so that reading beyond it is seen. */
		char *piece = malloc(len);
		size_t taken;
		struct span data;
		memcpy(piece, bytes.ptr + *used, len);
		result = http1_body_feed(&body, (struct span){piece, len}, &taken, &data);
		assert_true(taken > 0 && taken <= len);
		buf_add_span(out, data);
		*used += taken;
		free(piece);
	}
	return result;
}

/* tchar of RFC 9110 section 5.6.2, byte by byte. */
static void knows_the_bytes_of_names(void **unused)
{
	(void)unused;
	static const char others[] = "!#$%&'*+-.^_`|~";
	for (int c = 1; c < 256; c++) {
		char text[] = "POST / HTTP/1.1\r\n" HOST "X?X: 1\r\n\r\n";
		struct http1_head head;
		const char *fault;
		bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
		*strchr(text, '?') = (char)c;
		int status = http1_parse_head(span_of(text), &head, &fault);
		/* "X" is a name too: what follows its colon is the value. */
		assert_int_equal(status, letter || c == ':' || strchr(others, c) ? 0 : 400);
	}
}

static void judges_bodies(void **unused)
{
	(void)unused;
	static const char chunked[] = "Transfer-Encoding: chunked\r\n", five[] = "Content-Length: 5\r\n";
	static const struct {
		const char *fields, *bytes;
		enum http1_feed result;
		const char *content;
		size_t used;
	} cases[] = {
		{five, "hello", HTTP1_DONE, "hello", 5},
		{five, "helloPOST", HTTP1_DONE, "hello", 5},
		{five, "hell", HTTP1_MORE, "hell", 4},
		{chunked, "5\r\nhello\r\n0\r\n\r\nPOST", HTTP1_DONE, "hello", 15},
		{chunked, "2\r\nhe\r\n03\r\nllo\r\n000\r\nT: x\r\nU: y\r\n\r\n", HTTP1_DONE, "hello", 35},
		{chunked, "5;a=b;c=\"d\"\r\nhello\r\n0;x\r\n\r\n", HTTP1_DONE, "hello", 27},
		{chunked, "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", HTTP1_DONE, "01234567890123456789", 35},
		{chunked, "0\r\n\r\n", HTTP1_DONE, "", 5},
		{chunked, "0x2\r\nhe\r\n", HTTP1_BAD, "", 2},
		{chunked, "\r\n", HTTP1_BAD, "", 1},
		{chunked, "-1\r\n", HTTP1_BAD, "", 1},
		{chunked, "+1\r\n", HTTP1_BAD, "", 1},
		{chunked, " 1\r\n", HTTP1_BAD, "", 1},
		{chunked, "g\r\n", HTTP1_BAD, "", 1},
		{chunked, "1\nh", HTTP1_BAD, "", 2},
		{chunked, "1\r\r\n", HTTP1_BAD, "", 3},
		{chunked, "1\r\nhe", HTTP1_BAD, "h", 5},
		{chunked, "1\r\nh\rx", HTTP1_BAD, "h", 6},
		{chunked, "1234567890123456\r\n", HTTP1_BAD, "", 16},
		{chunked, "0\r\n\n", HTTP1_BAD, "", 4},
		{chunked, "0\r\nT: x\r\r", HTTP1_BAD, "", 9},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t step = 1; step <= 40; step++) {
			struct buf out = {0};
			size_t used;
			enum http1_feed result = feed(span_of(cases[i].bytes), cases[i].fields, step, &out, &used);
			if (result != cases[i].result || !span_is(buf_span(&out), cases[i].content) ||
				used != cases[i].used)
				fail_msg("case %zu in steps of %zu: %d, %zu bytes used, \"%.*s\"", i, step, (int)result,
					used, (int)out.len, out.data ? out.data : "");
			buf_free(&out);
		}
}

static void bounds_what_frames_chunks(void **unused)
{
	(void)unused;
	struct buf text = {0}, out = {0};
	size_t used;
	buf_add_text(&text, "1;");
	for (int i = 0; i < HTTP1_MAX_CHUNK_LINE + 10; i++)
		buf_add_text(&text, "x");
	assert_int_equal(feed(buf_span(&text), "Transfer-Encoding: chunked\r\n", 7, &out, &used), HTTP1_BAD);
	text.len = 0;
	buf_add_text(&text, "0\r\n");
	for (int i = 0; i < HTTP1_MAX_TRAILERS / 8 + 10; i++)
		buf_add_text(&text, "trail: x\r\n");
	assert_int_equal(feed(buf_span(&text), "Transfer-Encoding: chunked\r\n", 7, &out, &used), HTTP1_BAD);
	buf_free(&text);
	buf_free(&out);
}

static void searches_lists(void **unused)
{
	(void)unused;
	assert_true(http1_list_has(SPAN("keep-alive, Close"), "close"));
	assert_true(http1_list_has(SPAN(" close\t"), "close"));
	assert_false(http1_list_has(SPAN("closed, xclose"), "close"));
	assert_false(http1_list_has((struct span){0}, "close"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(judges_heads),
		cmocka_unit_test(refuses_nul_bytes),
		cmocka_unit_test(takes_heads_apart),
		cmocka_unit_test(limits_fields),
		cmocka_unit_test(finds_the_end_of_a_head_in_any_pieces),
		cmocka_unit_test(knows_the_bytes_of_names),
		cmocka_unit_test(judges_bodies),
		cmocka_unit_test(bounds_what_frames_chunks),
		cmocka_unit_test(searches_lists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
