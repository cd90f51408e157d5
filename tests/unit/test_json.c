#include "proxy/json.h"

#include "tests/unit/json_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
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

static struct span repeat(struct span text, size_t times)
{
	char *copy = malloc(text.len * times + 1);
	assert_non_null(copy);
	for (size_t i = 0; i < times; i++)
		memcpy(copy + i * text.len, text.ptr, text.len);
	return (struct span){copy, text.len * times};
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

static struct span checked(struct span text, struct json_index *index)
{
	struct span value;
	struct error error = {0};
	if (json_check(text, &value, index, &error) != 0)
		fail_msg("%.80s: %s", text.ptr, error.text);
	return value;
}

static void accepts_and_refuses_the_public_cases(void **state)
{
	(void)state;
	size_t count = sizeof(json_cases) / sizeof(json_cases[0]);
	for (size_t i = 0; i < count; i++) {
		const struct json_case *c = &json_cases[i];
		struct span text = repeat(c->text, c->times);
		struct span exact = exact_copy(text);
		struct span value;
		struct error error = {0};
		int rc = json_check(exact, &value, NULL, &error);
		if (c->name[0] != 'i')
			assert_int_equal(c->accepted, c->name[0] == 'y');
		if ((rc == 0) != c->accepted)
			fail_msg("%s: %s", c->name, rc == 0 ? "accepted" : error.text);
		if (rc != 0)
			assert_true(strstr(error.text, " at byte ") != NULL && error.code == (enum error_code)rc);
		release(exact);
		release(text);
	}
}

static struct span nested(size_t depth)
{
	char *text = malloc(depth * 2);
	assert_non_null(text);
	memset(text, '[', depth);
	memset(text + depth, ']', depth);
	return (struct span){text, depth * 2};
}

static void limits_the_depth(void **state)
{
	(void)state;
	/* 500: the public case i_structure_500_nested_arrays, which we accept */
	static const size_t accepted[] = {1, 2, 500, JSON_MAX_DEPTH};
	for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++) {
		struct span text = nested(accepted[i]);
		assert_span(checked(text, NULL), text);
		release(text);
	}
	struct span text = nested(JSON_MAX_DEPTH + 1);
	struct span value;
	struct error error;
	assert_int_equal(json_check(text, &value, NULL, &error), ERROR_LIMIT);
	assert_string_equal(error.text, "nested too deep at byte 512");
	release(text);
}

static void names_the_fault_and_its_byte(void **state)
{
	(void)state;
	static const struct {
		struct span text;
		const char *message;
	} faults[] = {
		{SPAN(""), "unexpected end at byte 0"},
		{SPAN("  "), "unexpected end at byte 2"},
		{SPAN("{\"a\":1,\"b\":tru}"), "unexpected character at byte 14"},
		{SPAN("{\"a\":1,\"b\":true x"), "unexpected character at byte 16"},
		{SPAN("{\"a\" 1}"), "unexpected character at byte 5"},
		{SPAN("{\"a\":1,}"), "unexpected character at byte 7"},
		{SPAN("[1,]"), "unexpected character at byte 3"},
		{SPAN("[1}"), "unexpected character at byte 2"},
		{SPAN("1 2"), "unexpected character at byte 2"},
		{SPAN("[\"abc"), "unexpected end at byte 5"},
		{SPAN("[\"a\x01\"]"), "control character in a string at byte 3"},
		{SPAN("[\"a\x00\"]"), "control character in a string at byte 3"},
		{SPAN("[\"a\\x\"]"), "bad escape at byte 3"},
		{SPAN("[\"a\\u12g4\"]"), "bad escape at byte 3"},
		{SPAN("[\"a\\u12"), "unexpected end at byte 7"},
		{SPAN("[\"\xC3\"]"), "malformed UTF-8 at byte 2"},
		{SPAN("[\"\xE2\x82\xAC\xE2\x82\"]"), "malformed UTF-8 at byte 5"},
		{SPAN("[01]"), "leading zero at byte 1"},
		{SPAN("[-]"), "unexpected character at byte 2"},
		{SPAN("[1.]"), "unexpected character at byte 3"},
		{SPAN("[1e+]"), "unexpected character at byte 4"},
		{SPAN("1e"), "unexpected end at byte 2"},
		{SPAN("\xEF\xBB\xBF{}"), "byte order mark at byte 0"},
	};
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct span text = exact_copy(faults[i].text);
		struct span value;
		struct error error = {0};
		assert_int_equal(json_check(text, &value, NULL, &error), ERROR_SYNTAX);
		assert_string_equal(error.text, faults[i].message);
		assert_int_equal(json_check(text, &value, NULL, NULL), ERROR_SYNTAX);
		release(text);
	}
}

/* The well-formed byte sequences of RFC 3629 section 4, and their neighbours outside. */
static void validates_utf8(void **state)
{
	(void)state;
	static const struct {
		struct span bytes;
		bool valid;
	} sequences[] = {
		{SPAN("\x7F"), true},
		{SPAN("\x80"), false},
		{SPAN("\xC1\xBF"), false},
		{SPAN("\xC2\x80"), true},
		{SPAN("\xC2\x7F"), false},
		{SPAN("\xC2\xC0"), false},
		{SPAN("\xDF\xBF"), true},
		{SPAN("\xE0\x9F\xBF"), false},
		{SPAN("\xE0\xA0\x80"), true},
		{SPAN("\xE1\x80\x7F"), false},
		{SPAN("\xED\x9F\xBF"), true},
		{SPAN("\xED\xA0\x80"), false},
		{SPAN("\xEE\x80\x80"), true},
		{SPAN("\xEF\xBF\xBF"), true},
		{SPAN("\xF0\x8F\xBF\xBF"), false},
		{SPAN("\xF0\x90\x80\x80"), true},
		{SPAN("\xF4\x8F\xBF\xBF"), true},
		{SPAN("\xF4\x90\x80\x80"), false},
		{SPAN("\xF5\x80\x80\x80"), false},
		{SPAN("\xFF"), false},
	};
	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
		/* At every place of a sixteen-byte step, and cut off at the end of the text. */
		for (size_t before = 0; before < 20; before++) {
			struct buf text = {0};
			struct span value;
			buf_add_text(&text, "\"");
			for (size_t n = 0; n < before; n++)
				buf_add_text(&text, "x");
			buf_add_span(&text, sequences[i].bytes);
			buf_add_text(&text, "\"");
			struct span whole = exact_copy(buf_span(&text));
			assert_int_equal(json_check(whole, &value, NULL, NULL) == 0, sequences[i].valid);
			for (size_t len = 1; len < whole.len; len++) {
				struct span cut = exact_copy((struct span){whole.ptr, len});
				assert_int_equal(json_check(cut, &value, NULL, NULL), ERROR_SYNTAX);
				release(cut);
			}
			release(whole);
			buf_free(&text);
		}
	}
}

/* Values that other parsers change: each must come back from a walk as it was spelled (invariant 5). */
static void walks_byte_for_byte(void **state)
{
	(void)state;
	static const struct span spellings[] = {
		SPAN("9223372036854775807"),
		SPAN("18446744073709551616"),
		SPAN("1e400"),
		SPAN("-0"),
		SPAN("1.0"),
		SPAN("0.1e1"),
		SPAN("\"\\ud800\""),
		SPAN("\"\\u0000\""),
		SPAN("\"\\u00e9\\/\xC3\xA9\""),
		SPAN("\"\""),
		SPAN("\"]}\\\"[{\""),
		SPAN("\"\\\\\""),
		SPAN("{\"a\":1,\"a\" : 2}"),
		SPAN("[ ]"),
		SPAN("{ \"\" : { } }"),
		SPAN("[[1 , 2] ,[]]"),
		SPAN("true"),
		SPAN("false"),
		SPAN("null"),
	};
	enum { COUNT = sizeof(spellings) / sizeof(spellings[0]) };
	struct buf array = {0};
	struct buf object = {0};
	for (size_t i = 0; i < COUNT; i++) {
		buf_add_text(&array, i ? " ,\n" : "\t[ ");
		buf_add_span(&array, spellings[i]);
		buf_printf(&object, "%s\"k%zu\" :\r\n", i ? "," : " {", i);
		buf_add_span(&object, spellings[i]);
	}
	buf_add_text(&array, " ] ");
	buf_add_text(&object, "}\n");

	struct span element;
	struct json_walk walk = json_walk(checked(buf_span(&array), NULL), NULL);
	for (size_t i = 0; i < COUNT; i++) {
		assert_true(json_next_element(&walk, &element));
		assert_span(element, spellings[i]);
	}
	assert_false(json_next_element(&walk, &element));
	assert_false(json_next_element(&walk, &element));

	struct json_member member;
	walk = json_walk(checked(buf_span(&object), NULL), NULL);
	for (size_t i = 0; i < COUNT; i++) {
		char key[8];
		snprintf(key, sizeof(key), "k%zu", i);
		assert_true(json_next_member(&walk, &member));
		assert_span(member.key, span_of(key));
		assert_span(member.value, spellings[i]);
		assert_int_equal(json_get(checked(buf_span(&object), NULL), NULL, key, &element), 1);
		assert_ptr_equal(element.ptr, member.value.ptr);
	}
	assert_false(json_next_member(&walk, &member));
	buf_free(&array);
	buf_free(&object);
}

static void trims_the_value(void **state)
{
	(void)state;
	assert_span(checked(SPAN(" \t\r\n[1 ] \n"), NULL), SPAN("[1 ]"));
	assert_span(checked(SPAN(" 1e400 "), NULL), SPAN("1e400"));
}

static void walks_nothing_but_its_own_kind(void **state)
{
	(void)state;
	static const struct span others[] = {SPAN("1"), SPAN("\"a\""), SPAN("null"), SPAN("[]"), SPAN("{}"), {NULL, 0}};
	struct span value;
	struct json_member member;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct json_walk walk = json_walk(others[i], NULL);
		assert_false(json_next_element(&walk, &value));
		walk = json_walk(others[i], NULL);
		assert_false(json_next_member(&walk, &member));
		assert_int_equal(json_get(others[i], NULL, "a", &value), 0);
	}
	struct json_walk walk = json_walk(SPAN("{\"a\":1}"), NULL);
	assert_false(json_next_element(&walk, &value));
	walk = json_walk(SPAN("[\"a\",1]"), NULL);
	assert_false(json_next_member(&walk, &member));
}

static void finds_the_last_of_duplicate_keys(void **state)
{
	(void)state;
	struct span object = checked(SPAN("{\"a\":1,\"b\":{\"a\":9},\"\\u0061\":2,\"c\":0}"), NULL);
	struct span value;
	assert_int_equal(json_get(object, NULL, "a", &value), 2);
	assert_span(value, SPAN("2"));
	assert_int_equal(json_get(object, NULL, "b", &value), 1);
	assert_span(value, SPAN("{\"a\":9}"));
	assert_int_equal(json_get(object, NULL, "d", &value), 0);
	assert_int_equal(json_get(object, NULL, "", &value), 0);
}

static void counts_keys_that_others_take_for_the_same(void **state)
{
	(void)state;
	static const char object[] =
		"{\"task\":1,\"TASK\":2,\"\\u0054ask\":3,\"ta\xc5\xbf\xe2\x84\xaa\":4,\"ta\\u017F\\u212a\":5,"
		"\"tas\":6,\"tasks\":7,\"t\xc3\xa4sk\":8,\"\":9,\"ta\\u0000k\":10}";
	assert_int_equal(json_count(SPAN(object), NULL, "task"), 5);
	assert_int_equal(json_count(SPAN(object), NULL, "Tasks"), 1);
	assert_int_equal(json_count(SPAN(object), NULL, ""), 1);
	assert_int_equal(json_count(SPAN("[]"), NULL, "task"), 0);
}

static void tells_types(void **state)
{
	(void)state;
	assert_int_equal(json_type(SPAN("null")), JSON_NULL);
	assert_int_equal(json_type(SPAN("false")), JSON_FALSE);
	assert_int_equal(json_type(SPAN("true")), JSON_TRUE);
	assert_int_equal(json_type(SPAN("-1")), JSON_NUMBER);
	assert_int_equal(json_type(SPAN("0")), JSON_NUMBER);
	assert_int_equal(json_type(SPAN("\"\"")), JSON_STRING);
	assert_int_equal(json_type(SPAN("[]")), JSON_ARRAY);
	assert_int_equal(json_type(SPAN("{}")), JSON_OBJECT);
}

static bool is_indexed(const struct json_index *index, struct span value)
{
	for (unsigned i = 0; i < index->count; i++)
		if (index->values[i].ptr == value.ptr && index->values[i].len == value.len)
			return true;
	return false;
}

/* Five megabytes in one string, and an index that spares a walk from reading it. */
static void indexes_a_large_string(void **state)
{
	(void)state;
	enum { LARGE_BYTES = 5 << 20 };
	struct buf text = {0};
	buf_add_text(&text, "{\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
	size_t start = text.len - 1;
	assert_true(buf_reserve(&text, LARGE_BYTES));
	memset(text.data + text.len, 'x', LARGE_BYTES);
	memcpy(text.data + text.len + 1000, "\\\"}]", 4);
	text.len += LARGE_BYTES;
	buf_add_text(&text, "\"}],\"small\":[1]}}");

	struct json_index index;
	struct span message = checked(buf_span(&text), &index);
	struct span result, content, value;
	assert_int_equal(json_get(message, &index, "result", &result), 1);
	assert_int_equal(json_get(result, &index, "content", &content), 1);
	assert_true(is_indexed(&index, result) && is_indexed(&index, content));
	struct json_walk walk = json_walk(content, &index);
	assert_true(json_next_element(&walk, &value));
	assert_true(is_indexed(&index, value));
	assert_int_equal(json_get(value, &index, "text", &value), 1);
	assert_ptr_equal(value.ptr, text.data + start);
	assert_int_equal(value.len, LARGE_BYTES + 2);
	assert_int_equal(json_get(result, &index, "small", &value), 1);
	assert_false(is_indexed(&index, value));
	buf_free(&text);
}

/* When there are more large values than places, the largest ones keep theirs: skipping those is what matters. */
static void keeps_the_largest_in_the_index(void **state)
{
	(void)state;
	struct buf text = {0};
	buf_add_text(&text, "{\"result\":{\"content\":[");
	for (int i = 0; i < 100; i++)
		buf_printf(&text, "%s\"%0*d\"", i ? "," : "", JSON_INDEX_MIN_BYTES, i);
	buf_add_text(&text, "]}}");
	struct json_index index;
	struct span message = checked(buf_span(&text), &index);
	struct span result, content;
	assert_int_equal(index.count, JSON_INDEX_SIZE);
	assert_int_equal(json_get(message, NULL, "result", &result), 1);
	assert_int_equal(json_get(result, NULL, "content", &content), 1);
	assert_true(is_indexed(&index, result));
	assert_true(is_indexed(&index, content));
	buf_free(&text);
}

static void leaves_no_index_after_a_fault(void **state)
{
	(void)state;
	struct buf text = {0};
	struct span value;
	struct json_index index = {.count = 3};
	buf_printf(&text, "[\"%0500d\",]", 0);
	assert_int_equal(json_check(buf_span(&text), &value, &index, NULL), ERROR_SYNTAX);
	assert_int_equal(index.count, 0);
	buf_free(&text);
}

/* Text that json_check() would refuse: a walk may yield anything, but must end and stay inside. */
static void stays_inside_unchecked_text(void **state)
{
	(void)state;
	static const struct span texts[] = {
		SPAN("{"),
		SPAN("["),
		SPAN("{\""),
		SPAN("{\"a"),
		SPAN("{\"a\\"),
		SPAN("{\"a\""),
		SPAN("{\"a\":"),
		SPAN("{\"a\":\"b"),
		SPAN("{\"a\":1"),
		SPAN("{\"a\":1,"),
		SPAN("[1,"),
		SPAN("[,"),
		SPAN("[:]"),
		SPAN("[[[["),
		SPAN("[{]}"),
		SPAN("[\"\\"),
		SPAN("[\"\\u"),
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct span text = exact_copy(texts[i]);
		struct json_walk walk = json_walk(text, NULL);
		struct json_member member;
		struct span value;
		for (size_t steps = 0; json_next_element(&walk, &value); steps++)
			assert_true(steps < text.len);
		walk = json_walk(text, NULL);
		for (size_t steps = 0; json_next_member(&walk, &member); steps++)
			assert_true(steps < text.len);
		json_get(text, NULL, "a", &value);
		release(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepts_and_refuses_the_public_cases),
		cmocka_unit_test(limits_the_depth),
		cmocka_unit_test(names_the_fault_and_its_byte),
		cmocka_unit_test(validates_utf8),
		cmocka_unit_test(walks_byte_for_byte),
		cmocka_unit_test(trims_the_value),
		cmocka_unit_test(walks_nothing_but_its_own_kind),
		cmocka_unit_test(finds_the_last_of_duplicate_keys),
		cmocka_unit_test(counts_keys_that_others_take_for_the_same),
		cmocka_unit_test(tells_types),
		cmocka_unit_test(indexes_a_large_string),
		cmocka_unit_test(keeps_the_largest_in_the_index),
		cmocka_unit_test(leaves_no_index_after_a_fault),
		cmocka_unit_test(stays_inside_unchecked_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
