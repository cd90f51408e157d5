#include "proxy/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_content(const struct buf *buf, struct span expected)
{
	assert_true(buf_ok(buf));
	assert_int_equal(buf->len, expected.len);
	if (expected.len)
		assert_memory_equal(buf->data, expected.ptr, expected.len);
}

static void spans_compare_byte_for_byte(void **state)
{
	(void)state;
	struct span none = span_of(NULL);
	assert_true(none.ptr == NULL && none.len == 0);
	assert_int_equal(span_of("abc").len, 3);
	assert_int_equal(SPAN("a\0b").len, 3);
	assert_true(span_equal(SPAN("abc"), span_of("abc")));
	assert_true(span_equal(none, SPAN("")));
	assert_true(span_equal(SPAN("a\0b"), SPAN("a\0b")));
	assert_false(span_equal(SPAN("a\0b"), SPAN("a\0c")));
	assert_false(span_equal(SPAN("abc"), SPAN("abcd")));
	assert_false(span_equal(SPAN("abc"), SPAN("abC")));
	assert_true(span_is(SPAN("abc"), "abc"));
	assert_false(span_is(SPAN("abc\0"), "abc"));
	assert_false(span_is(none, "abc"));
	assert_true(span_is(none, ""));
}

static void span_dup_copies_and_terminates(void **state)
{
	(void)state;
	char *copy = span_dup((struct span){"abcdef", 3});
	assert_string_equal(copy, "abc");
	free(copy);
	copy = span_dup(span_of(NULL));
	assert_string_equal(copy, "");
	free(copy);
}

static void appends_in_every_way(void **state)
{
	(void)state;
	struct buf buf = {0};
	buf_add(&buf, "one\0", 4);
	buf_add_span(&buf, SPAN("two"));
	buf_add_span(&buf, span_of(NULL));
	buf_add_text(&buf, " three");
	buf_printf(&buf, " %d %s", 4, "five");
	buf_printf(&buf, "%s", "");
	assert_content(&buf, SPAN("one\0two three 4 five"));
	assert_true(span_equal(buf_span(&buf), SPAN("one\0two three 4 five")));
	buf_free(&buf);
	assert_true(buf.data == NULL && buf.len == 0 && buf.cap == 0);
	buf_free(&buf);
}

static void grows_without_losing_a_byte(void **state)
{
	(void)state;
	struct buf buf = {0};
	for (unsigned i = 0; i < 100000; i++) {
		uint8_t byte = (uint8_t)(i * 7);
		buf_add(&buf, &byte, 1);
	}
	assert_true(buf_ok(&buf));
	assert_int_equal(buf.len, 100000);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal((uint8_t)buf.data[i], (uint8_t)(i * 7));
	buf_free(&buf);
	for (int i = 0; i < 1000; i++)
		buf_printf(&buf, "%04d,", i);
	assert_int_equal(buf.len, 5000);
	assert_memory_equal(buf.data + 4995, "0999,", 5);
	buf_free(&buf);
}

static void reserves_room(void **state)
{
	(void)state;
	struct buf buf = {0};
	assert_true(buf_reserve(&buf, 1000));
	assert_true(buf.cap >= 1000 && buf.len == 0);
	char *data = buf.data;
	for (int i = 0; i < 1000; i++)
		buf_add(&buf, "x", 1);
	assert_ptr_equal(buf.data, data);
	buf_free(&buf);
}

/* A failed allocation is remembered, keeps what was there, and stops further writing. */
static void remembers_a_failed_allocation(void **state)
{
	(void)state;
	struct buf buf = {0};
	buf_add_text(&buf, "kept");
	assert_false(buf_reserve(&buf, SIZE_MAX));
	assert_false(buf_ok(&buf));
	buf_add_text(&buf, "lost");
	buf_printf(&buf, "lost");
	buf_add_json_string(&buf, SPAN("lost"));
	assert_false(buf_ok(&buf));
	assert_int_equal(buf.len, 4);
	assert_memory_equal(buf.data, "kept", 4);
	buf_free(&buf);
	assert_true(buf_ok(&buf));
}

static void consumes_from_the_front(void **state)
{
	(void)state;
	struct buf buf = {0};
	buf_consume(&buf, 0);
	buf_add_text(&buf, "abcdef");
	buf_consume(&buf, 0);
	buf_consume(&buf, 2);
	assert_content(&buf, SPAN("cdef"));
	buf_add_text(&buf, "g");
	buf_consume(&buf, 5);
	assert_content(&buf, SPAN(""));
	buf_free(&buf);
}

static void trim_keeps_the_content(void **state)
{
	(void)state;
	struct buf buf = {0};
	buf_trim(&buf);
	buf_add_text(&buf, "abc");
	assert_true(buf.cap > 3);
	buf_trim(&buf);
	assert_int_equal(buf.cap, 3);
	buf_trim(&buf);
	buf_add_text(&buf, "d");
	assert_content(&buf, SPAN("abcd"));
	buf_free(&buf);
}

static void take_moves_the_content(void **state)
{
	(void)state;
	struct buf buf = {0};
	buf_add_text(&buf, "abc");
	char *data = buf.data;
	struct buf taken = buf_take(&buf);
	assert_ptr_equal(taken.data, data);
	assert_content(&taken, SPAN("abc"));
	assert_true(buf.data == NULL && buf.len == 0 && buf.cap == 0);
	buf_free(&taken);
}

/* RFC 8259 section 7 says what must be escaped; RFC 3629 section 4 what is no UTF-8. */
static void writes_json_strings(void **state)
{
	(void)state;
#define U "\xEF\xBF\xBD"
	static const struct {
		struct span bytes;
		struct span json;
	} strings[] = {
		{{NULL, 0}, SPAN("\"\"")},
		{SPAN("plain / text"), SPAN("\"plain / text\"")},
		{SPAN("a\"b\\c"), SPAN("\"a\\\"b\\\\c\"")},
		{SPAN("\0\x01\n\x1F\x7F"), SPAN("\"\\u0000\\u0001\\u000a\\u001f\\u007f\"")},
		{SPAN("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"), SPAN("\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"")},
		{SPAN("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"),
			SPAN("\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"")},
		{SPAN("a\x80z"), SPAN("\"a" U "z\"")},
		{SPAN("a\xC3"), SPAN("\"a" U "\"")},
		{SPAN("a\xC3z"), SPAN("\"a" U "z\"")},
		{SPAN("\xE2\x82"), SPAN("\"" U U "\"")},
		{SPAN("\xC0\xAF"), SPAN("\"" U U "\"")},
		{SPAN("\xE0\x80\xAF"), SPAN("\"" U U U "\"")},
		{SPAN("\xED\xA0\x80"), SPAN("\"" U U U "\"")},
		{SPAN("\xF4\x90\x80\x80"), SPAN("\"" U U U U "\"")},
		{SPAN("\xFF\xFE"), SPAN("\"" U U "\"")},
	};
#undef U
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		/* A copy that ends where its allocation ends, so that the sanitizer sees a read beyond it. */
		size_t len = strings[i].bytes.len;
		char *copy = malloc(len ? len : 1);
		assert_non_null(copy);
		if (len)
			memcpy(copy, strings[i].bytes.ptr, len);
		struct buf buf = {0};
		buf_add_json_string(&buf, (struct span){copy, len});
		assert_content(&buf, strings[i].json);
		buf_free(&buf);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spans_compare_byte_for_byte),
		cmocka_unit_test(span_dup_copies_and_terminates),
		cmocka_unit_test(appends_in_every_way),
		cmocka_unit_test(grows_without_losing_a_byte),
		cmocka_unit_test(reserves_room),
		cmocka_unit_test(remembers_a_failed_allocation),
		cmocka_unit_test(consumes_from_the_front),
		cmocka_unit_test(trim_keeps_the_content),
		cmocka_unit_test(take_moves_the_content),
		cmocka_unit_test(writes_json_strings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
