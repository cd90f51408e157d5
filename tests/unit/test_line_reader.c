#include "adapters/line_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void feed(struct line_reader *reader, const char *bytes, size_t len)
{
	size_t room = len;
	char *space = line_reader_space(reader, &room);
	assert_non_null(space);
	assert_true(room >= len);
	memcpy(space, bytes, len);
	line_reader_add(reader, len);
}

static void feed_text(struct line_reader *reader, const char *text)
{
	feed(reader, text, strlen(text));
}

static void expect_line(struct line_reader *reader, const char *text)
{
	struct span line;
	assert_int_equal(line_reader_next(reader, &line), LINE_COMPLETE);
	assert_true(span_is(line, text));
}

static void expect_none(struct line_reader *reader)
{
	struct span line;
	assert_int_equal(line_reader_next(reader, &line), LINE_NONE);
}

static void test_lines_in_one_piece(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 100};
	feed_text(&reader, "{\"a\":1}\n\n{\"b\":2}\r\n\r\n[3]\nrest");
	expect_line(&reader, "{\"a\":1}");
	expect_line(&reader, "");
	expect_line(&reader, "{\"b\":2}");
	expect_line(&reader, "");
	expect_line(&reader, "[3]");
	expect_none(&reader);
	assert_true(span_is(line_reader_rest(&reader), "rest"));
	feed_text(&reader, "ored\n");
	expect_line(&reader, "restored");
	assert_int_equal(line_reader_rest(&reader).len, 0);
	line_reader_free(&reader);
}

/* A CR belongs to the line end only directly before the LF. */
static void test_carriage_returns(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 100};
	feed_text(&reader, "a\rb\r\r\n\rc\n");
	expect_line(&reader, "a\rb\r");
	expect_line(&reader, "\rc");
	expect_none(&reader);
	line_reader_free(&reader);
}

/* Every way to cut the stream in two gives the same lines. */
static void test_every_cut(void **state)
{
	(void)state;
	static const char stream[] = "one\r\ntwo\n\nthree and more\r\n";
	for (size_t cut = 1; cut < sizeof(stream) - 1; cut++) {
		struct line_reader reader = {.limit_bytes = 14};
		struct span line;
		static const char *const want[] = {"one", "two", "", "three and more"};
		size_t got = 0;
		const char *part[] = {stream, stream + cut};
		size_t len[] = {cut, sizeof(stream) - 1 - cut};
		for (int i = 0; i < 2; i++) {
			feed(&reader, part[i], len[i]);
			enum line kind;
			while ((kind = line_reader_next(&reader, &line)) != LINE_NONE) {
				assert_int_equal(kind, LINE_COMPLETE);
				assert_true(got < 4 && span_is(line, want[got]));
				got++;
			}
		}
		assert_int_equal(got, 4);
		line_reader_free(&reader);
	}
}

static void test_byte_by_byte(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 10};
	static const char stream[] = "{\"x\":true}\r\n";
	for (size_t i = 0; i + 1 < sizeof(stream) - 1; i++) {
		feed(&reader, stream + i, 1);
		expect_none(&reader);
	}
	feed(&reader, "\n", 1);
	expect_line(&reader, "{\"x\":true}");
	line_reader_free(&reader);
}

/* A line at the limit is a line, one byte more is not; what follows is read again. */
static void test_limit(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 4};
	struct span line;
	feed_text(&reader, "1234\n1234\r\n12345\nnext\n");
	expect_line(&reader, "1234");
	expect_line(&reader, "1234");
	assert_int_equal(line_reader_next(&reader, &line), LINE_TOO_LONG);
	assert_true(span_is(line, "1234"));
	expect_line(&reader, "next");
	expect_none(&reader);
	line_reader_free(&reader);
}

/* A long line is reported once, as soon as it is too long, and its bytes are not kept. */
static void test_long_line_in_pieces(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 4};
	struct span line;
	feed_text(&reader, "1234\r");
	expect_none(&reader);
	feed_text(&reader, "6");
	assert_int_equal(line_reader_next(&reader, &line), LINE_TOO_LONG);
	assert_true(span_is(line, "1234"));
	for (int i = 0; i < 10000; i++) {
		feed_text(&reader, "0123456789");
		expect_none(&reader);
	}
	assert_true(reader.buf.cap < 1000);
	assert_int_equal(line_reader_rest(&reader).len, 0);
	feed_text(&reader, "end\nok\n");
	expect_line(&reader, "ok");
	expect_none(&reader);
	line_reader_free(&reader);
}

static void test_nul_bytes(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 10};
	struct span line;
	feed(&reader, "a\0b\n", 4);
	assert_int_equal(line_reader_next(&reader, &line), LINE_COMPLETE);
	assert_true(span_equal(line, SPAN("a\0b")));
	line_reader_free(&reader);
}

static void test_trim(void **state)
{
	(void)state;
	struct line_reader reader = {.limit_bytes = 10};
	feed_text(&reader, "a\nb");
	expect_line(&reader, "a");
	expect_none(&reader);
	line_reader_trim(&reader);
	assert_true(span_is(line_reader_rest(&reader), "b"));
	feed_text(&reader, "c\n");
	expect_line(&reader, "bc");
	line_reader_trim(&reader);
	assert_null(reader.buf.data);
	feed_text(&reader, "d\n");
	expect_line(&reader, "d");
	line_reader_free(&reader);
}

static void test_line_from_json(void **state)
{
	(void)state;
	struct buf message = {0};
	buf_add_text(&message, "{\r\n\t\"a\": \"\\n\\r\",\n\"b\":1}\n");
	line_from_json(&message);
	assert_true(span_is(buf_span(&message), "{  \t\"a\": \"\\n\\r\", \"b\":1} \n"));
	buf_free(&message);
	buf_add_text(&message, "{}");
	line_from_json(&message);
	assert_true(span_is(buf_span(&message), "{}\n"));
	buf_free(&message);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_in_one_piece),
		cmocka_unit_test(test_carriage_returns),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_byte_by_byte),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_long_line_in_pieces),
		cmocka_unit_test(test_nul_bytes),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_line_from_json),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
