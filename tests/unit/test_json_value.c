#include "proxy/json_value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A copy that ends where its allocation ends, so that the sanitizer sees a read beyond it. */
static struct span exact_copy(struct span text)
{
	char *copy = malloc(text.len ? text.len : 1);
	assert_non_null(copy);
	if (text.len)
		memcpy(copy, text.ptr, text.len);
	return (struct span){copy, text.len};
}

static void release(struct span copy)
{
	free((void *)(uintptr_t)copy.ptr);
}

static void assert_span(struct span span, struct span expected)
{
	assert_int_equal(span.len, expected.len);
	assert_memory_equal(span.ptr, expected.ptr, expected.len);
}

static void compares_decoded_keys(void **state)
{
	(void)state;
	static const struct {
		struct span key;
		const char *text;
		bool equal;
	} keys[] = {
		{SPAN("method"), "method", true},
		{SPAN("meth\\u006fd"), "method", true},
		{SPAN("meth\\u006Fd"), "method", true},
		{SPAN("method"), "metho", false},
		{SPAN("metho"), "method", false},
		{SPAN("Method"), "method", false},
		{SPAN("method\\u0000"), "method", false},
		{SPAN("\\u0000"), "", false},
		{SPAN(""), "", true},
		{SPAN("a\\/b"), "a/b", true},
		{SPAN("\\\"\\\\\\/\\b\\f\\n\\r\\t"), "\"\\/\b\f\n\r\t", true},
		{SPAN("\\n"), "\\n", false},
		{SPAN("\\u005cn"), "\\n", true},
		{SPAN("\\u00e9"), "\xC3\xA9", true},
		{SPAN("\\u20ac"), "\xE2\x82\xAC", true},
		{SPAN("\\ud83d\\ude00"), "\xF0\x9F\x98\x80", true},
		{SPAN("\\ud83d"), "\xED\xA0\xBD", false},
		{SPAN("\\ude00\\ud83d"), "\xF0\x9F\x98\x80", false},
	};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct buf quoted = {0};
		buf_printf(&quoted, "\"%.*s\"", (int)keys[i].key.len, keys[i].key.ptr);
		assert_int_equal(json_key_is(keys[i].key, keys[i].text), keys[i].equal);
		assert_int_equal(json_string_is(buf_span(&quoted), keys[i].text), keys[i].equal);
		buf_free(&quoted);
	}
	assert_false(json_string_is(SPAN("1"), "1"));
	assert_false(json_string_is(SPAN("null"), "null"));
	assert_false(json_string_is((struct span){NULL, 0}, ""));
}

static void tells_keys_that_others_take_for_the_same(void **state)
{
	(void)state;
	assert_false(json_key_resembles(SPAN("task"), "task"));
	assert_false(json_key_resembles(SPAN("t\\u0061sk"), "task"));
	assert_true(json_key_resembles(SPAN("tasK"), "task"));
	assert_false(json_key_resembles(SPAN("tasks"), "task"));
	assert_true(json_key_folds_to(SPAN("task"), "task"));
	assert_true(json_key_folds_to(SPAN("\\u0054as\xe2\x84\xaa"), "task"));
	assert_false(json_key_folds_to(SPAN("tas"), "task"));
	assert_false(json_key_folds_to(SPAN("tas\xe2\x84"), "task"));
}

static void decodes_strings(void **state)
{
	(void)state;
	static const struct {
		struct span string;
		struct span decoded;
		bool is_text; /* a C string can hold it */
	} strings[] = {
		{SPAN("\"\""), SPAN(""), true},
		{SPAN("\"plain\""), SPAN("plain"), true},
		{SPAN("\"a\\nb\\\"c\\\\d\\/\""), SPAN("a\nb\"c\\d/"), true},
		{SPAN("\"\\u0041\\u00DF\\u6771\\ud834\\udd1e\""), SPAN("A\xC3\x9F\xE6\x9D\xB1\xF0\x9D\x84\x9E"), true},
		{SPAN("\"\xC3\x9F\""), SPAN("\xC3\x9F"), true},
		{SPAN("\"a\\u0000b\""), SPAN("a\0b"), false},
		{SPAN("\"\\ud800\""), SPAN("\xED\xA0\x80"), true},
		{SPAN("\"\\udfff\\ud800\""), SPAN("\xED\xBF\xBF\xED\xA0\x80"), true},
		{SPAN("\"\\ud800\\u0041\""),
			SPAN("\xED\xA0\x80"
			     "A"),
			true},
		{SPAN("\"\\ud800\\ud800\\udc00\""), SPAN("\xED\xA0\x80\xF0\x90\x80\x80"), true},
	};
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		struct span string = exact_copy(strings[i].string);
		struct buf out = {0};
		buf_add_text(&out, "<");
		json_decode_string(string, &out);
		assert_true(buf_ok(&out));
		assert_span((struct span){out.data + 1, out.len - 1}, strings[i].decoded);
		char *text = json_string_dup(string);
		assert_int_equal(text != NULL, strings[i].is_text);
		if (text)
			assert_memory_equal(text, strings[i].decoded.ptr, strings[i].decoded.len + 1);
		free(text);
		buf_free(&out);
		release(string);
	}
	assert_null(json_string_dup(SPAN("12")));
	assert_null(json_string_dup((struct span){NULL, 0}));
}

static void reads_integers(void **state)
{
	(void)state;
	static const struct {
		struct span value;
		bool fits;
		int64_t number;
	} integers[] = {
		{SPAN("0"), true, 0},
		{SPAN("-0"), true, 0},
		{SPAN("42"), true, 42},
		{SPAN("-32602"), true, -32602},
		{SPAN("9223372036854775807"), true, INT64_MAX},
		{SPAN("-9223372036854775808"), true, INT64_MIN},
		{SPAN("9223372036854775808"), false, 0},
		{SPAN("-9223372036854775809"), false, 0},
		{SPAN("18446744073709551616"), false, 0},
		{SPAN("1.0"), true, 1},
		{SPAN("-1e2"), true, -100},
		{SPAN("12.5e1"), true, 125},
		{SPAN("1.5"), false, 0},
		{SPAN("1e-1"), false, 0},
		{SPAN("9007199254740993.0"), false, 0}, /* no double is that */
		{SPAN("1e300"), false, 0},
		{SPAN("1e400"), false, 0},
		{SPAN("\"1\""), false, 0},
		{SPAN("true"), false, 0},
		{SPAN("-"), false, 0},
		{SPAN(""), false, 0},
		{{NULL, 0}, false, 0},
	};
	for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
		int64_t number = 77;
		assert_int_equal(json_integer(integers[i].value, &number), integers[i].fits);
		assert_true(number == (integers[i].fits ? integers[i].number : 77));
	}
}

static void finds_the_same_under_other_spellings(void **state)
{
	static const struct {
		struct span one, other;
		bool same;
	} pairs[] = {
		{SPAN("1"), SPAN("1"), true},
		{SPAN("-0"), SPAN("0"), true},
		{SPAN("1"), SPAN("\"1\""), false},
		{SPAN("1"), SPAN("2"), false},
		{SPAN("12345678901234567890123"), SPAN("12345678901234567890123"), true},
		{SPAN("12345678901234567890123"), SPAN("1.2345678901234568e+22"), true},
		{SPAN("12345678901234567890123"), SPAN("12345678901234567890124"), false},
		{SPAN("1e2"), SPAN("100"), true},
		{SPAN("1e2"), SPAN("10E1"), true},
		{SPAN("1.0"), SPAN("1"), true},
		{SPAN("1.5"), SPAN("1"), false},
		{SPAN("1000000000000000000"), SPAN("1e18"), true},
		{SPAN("9007199254740993"), SPAN("9007199254740992"), false},
		{SPAN("true"), SPAN("1"), false},
		{SPAN("null"), SPAN("0"), false},
		{SPAN("\"\""), SPAN("\"\""), true},
		{SPAN("\"\""), SPAN("\"a\""), false},
		{SPAN("\"a/b\""), SPAN("\"a\\/b\""), true},
		{SPAN("\"\\u0061\""), SPAN("\"a\""), true},
		{SPAN("\"\\u00e9\""), SPAN("\"\xc3\xa9\""), true},
		{SPAN("\"\\ud83d\\ude00\""), SPAN("\"\xf0\x9f\x98\x80\""), true},
		{SPAN("\"\\u00e9\""), SPAN("\"\xc3\""), false},
		{SPAN("\"a\\u0000\""), SPAN("\"a\""), false},
		{SPAN("\"a\\u0000b\""), SPAN("\"a\\u0000c\""), false},
		{SPAN("\"\\\\u0061\""), SPAN("\"a\""), false},
		{SPAN("\"ab\""), SPAN("\"a\""), false},
		{{NULL, 0}, SPAN("\"\""), false},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct span one = exact_copy(pairs[i].one), other = exact_copy(pairs[i].other);
		assert_int_equal(json_same(one, other), pairs[i].same);
		assert_int_equal(json_same(other, one), pairs[i].same);
		release(one);
		release(other);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(compares_decoded_keys),
		cmocka_unit_test(tells_keys_that_others_take_for_the_same),
		cmocka_unit_test(decodes_strings),
		cmocka_unit_test(reads_integers),
		cmocka_unit_test(finds_the_same_under_other_spellings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
