#include "proxy/digest.h"

#include <limits.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How many more times reallocarray() succeeds. */
static unsigned allocations_left = UINT_MAX;

/* Stands in for the C library's, which the digest takes its lists from. */
void *reallocarray(void *old, size_t count, size_t size)
{
	if (allocations_left == 0)
		return NULL;
	allocations_left--;
	return realloc(old, count * size);
}

static struct span checked(const char *text)
{
	struct span value;
	struct error error;
	if (json_check(span_of(text), &value, NULL, &error) != 0)
		fail_msg("%.80s: %s", text, error.text);
	return value;
}

static bool same_digest(const char *a, const char *b, const char *const *skip)
{
	uint8_t digest_a[DIGEST_BYTES];
	uint8_t digest_b[DIGEST_BYTES];
	assert_int_equal(digest_json(digest_a, "tools/call", checked(a), skip), 0);
	assert_int_equal(digest_json(digest_b, "tools/call", checked(b), skip), 0);
	return memcmp(digest_a, digest_b, DIGEST_BYTES) == 0;
}

struct pair {
	const char *a;
	const char *b;
};

static void is_the_same_for_two_spellings(void **state)
{
	(void)state;
	static const struct pair pairs[] = {
		{"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"},
		{"{\"a\":[1,{\"x\":null,\"y\":\"z\"}]}", " {\n\"a\" : [ 1 , { \"y\":\"z\",\"x\":null } ] } "},
		{"\"\\u00e9\"", "\"\xC3\xA9\""},
		{"\"\\u00e9\"", "\"\\u00E9\""},
		{"\"a\\/b\"", "\"a/b\""},
		{"\"\\u000a\"", "\"\\n\""},
		{"\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""},
		{"\"\\uD800\"", "\"\\ud800\""},
		{"{\"\\u0061\":1,\"b\":2}", "{\"b\":2,\"a\":1}"},
		{"{\"b\":{\"d\":1,\"c\":2},\"a\":{\"f\":3,\"e\":4}}",
			"{\"a\":{\"e\":4,\"f\":3},\"b\":{\"c\":2,\"d\":1}}"},
		{"{\"ab\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"ab\":1}"},
		{"{\"a\":1,\"b\":0,\"a\":2}", "{\"a\":1,\"a\":2,\"b\":0}"},
		{"[]", "[ ]"},
		{"{}", "{ }"},
		{"1e400", " 1e400"},
	};
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (!same_digest(pairs[i].a, pairs[i].b, NULL))
			fail_msg("%s and %s differ", pairs[i].a, pairs[i].b);
}

static void is_different_for_two_values(void **state)
{
	(void)state;
	/* Each text is another value than every other one. */
	static const char *const texts[] = {
		"1",
		"1.0",
		"1e0",
		"1E0",
		"10e-1",
		"0",
		"-0",
		"9223372036854775807",
		"9223372036854775808",
		"18446744073709551616",
		"1e400",
		"1e401",
		"\"1\"",
		"\"\"",
		"\"null\"",
		"\"true\"",
		"\"\\u0000\"",
		"\"\\u0000\\u0000\"",
		"\"\\ud800\"",
		"\"\\ud801\"",
		"\"\\ud800\\ud800\"",
		"\"\\ufffd\"",
		"\"[]\"",
		"\"\\\\n\"",
		"\"\\n\"",
		"\"e\\u0301\"",
		"\"\\u00e9\"",
		"null",
		"true",
		"false",
		"[]",
		"{}",
		"[[]]",
		"[{}]",
		"[[],[]]",
		"[[[]]]",
		"[[[],[]]]",
		"[null]",
		"[1,2]",
		"[2,1]",
		"[12]",
		"[[1],2]",
		"[1,[2]]",
		"[[1,2]]",
		"[\"a\",\"b\"]",
		"[\"ab\"]",
		"[\"a\",\"\",\"b\"]",
		"[\"a\\\",\\\"b\"]",
		"{\"a\":\"b\"}",
		"{\"b\":\"a\"}",
		"[{\"a\":\"b\"}]",
		"{\"a\":{\"b\":1}}",
		"{\"a\":{},\"b\":1}",
		"{\"a\":1,\"a\":2}",
		"{\"a\":2,\"a\":1}",
		"{\"a\":2}",
		"{\"a\":1}",
		"{\"a\":1,\"a\":1}",
		"{\"a\":1,\"b\":2}",
		"{\"a\":2,\"b\":1}",
		"{\"A\":1}",
		"{\"\":1}",
		"{\"\\u0000\":1}",
		"{\"a\":null}",
		"{\"a\":[1]}",
		"{\"a\":\"1\"}",
	};
	enum { COUNT = sizeof(texts) / sizeof(texts[0]) };
	for (size_t i = 0; i < COUNT; i++)
		for (size_t j = 0; j < i; j++)
			if (same_digest(texts[i], texts[j], NULL))
				fail_msg("%s and %s have the same digest", texts[i], texts[j]);
}

/* The canonical form that digest.c describes, hashed by another BLAKE2b implementation: a key file may be shared by
 * programs of different ages, so the form must not drift. */
static void has_the_documented_form(void **state)
{
	(void)state;
	static const char expected[] = "5f1072cc29356a6ef462beb82e48bc603059430c885e65a7b5d71465d0c61cb0";
	uint8_t digest[DIGEST_BYTES];
	char hex[2 * DIGEST_BYTES + 1];
	assert_int_equal(
		digest_json(digest, "tools/call", checked("{\"b\": [1e400, \"\\u00e9\", null], \"a\": true}"), NULL),
		0);
	assert_string_equal(sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest)), expected);
}

static void covers_the_label(void **state)
{
	(void)state;
	uint8_t call[DIGEST_BYTES];
	uint8_t prompt[DIGEST_BYTES];
	assert_int_equal(digest_json(call, "tools/call", checked("{}"), NULL), 0);
	assert_int_equal(digest_json(prompt, "prompts/get", checked("{}"), NULL), 0);
	assert_memory_not_equal(call, prompt, DIGEST_BYTES);
}

static void leaves_out_members_of_the_outermost_object(void **state)
{
	(void)state;
	static const char *const skip[] = {"_meta", "inputResponses", "requestState", NULL};
	assert_true(same_digest("{\"name\":\"t\",\"arguments\":{\"a\":1}}",
		"{\"_meta\":{\"x\":[1,{}]},\"name\":\"t\",\"requestState\":\"s}\\\"\",\"arguments\":{\"a\":1},"
		"\"inputResponses\":{\"k\":{\"action\":\"accept\"}}}",
		skip));
	assert_true(same_digest("{\"a\":1}", "{\"\\u005fmeta\" : [ ] , \"a\":1,\"_meta\":2}", skip));
	assert_true(same_digest("{}", "{\"_meta\":{}}", skip));
	assert_false(same_digest("{\"arguments\":{}}", "{\"arguments\":{\"_meta\":1}}", skip));
	assert_false(same_digest("[{}]", "[{\"_meta\":1}]", skip));
	assert_false(same_digest("{\"a\":1}", "{\"a\":1,\"_met\":2}", skip));
	assert_false(same_digest("{\"a\":1}", "{\"a\":1,\"_meta\":2}", NULL));
}

/* Keys in an order that sorting has to undo, and duplicates whose order it has to keep. */
static void sorts_many_members(void **state)
{
	(void)state;
	enum { COUNT = 1009 };
	struct buf up = {0}, mixed = {0}, swapped = {0};
	for (int i = 0; i < COUNT; i++) {
		/* COUNT is a prime, so the steps of 17 meet every number once. */
		buf_printf(&up, "%c\"key%d\":%d,\"twin\":%d", i ? ',' : '{', i, i, i);
		buf_printf(&mixed, "%c\"twin\":%d,\"key%d\":%d", i ? ',' : '{', i, i * 17 % COUNT, i * 17 % COUNT);
		buf_printf(&swapped, "%c\"twin\":%d,\"key%d\":%d", i ? ',' : '{', i ^ 1, i, i);
	}
	buf_add(&up, "}", 2);
	buf_add(&mixed, "}", 2);
	buf_add(&swapped, "}", 2);
	assert_true(same_digest(up.data, mixed.data, NULL));
	assert_false(same_digest(up.data, swapped.data, NULL));
	buf_free(&up);
	buf_free(&mixed);
	buf_free(&swapped);
}

static void digests_the_deepest_text(void **state)
{
	(void)state;
	struct buf arrays = {0}, objects = {0};
	for (int i = 0; i < JSON_MAX_DEPTH; i++) {
		buf_add_text(&arrays, "[");
		buf_add_text(&objects, i ? "\"a\":{" : "{");
	}
	for (int i = 0; i < JSON_MAX_DEPTH; i++) {
		buf_add_text(&arrays, "]");
		buf_add_text(&objects, "}");
	}
	buf_add(&arrays, "", 1);
	buf_add(&objects, "", 1);
	assert_true(same_digest(arrays.data, arrays.data, NULL));
	assert_false(same_digest(arrays.data, objects.data, NULL));
	buf_free(&arrays);
	buf_free(&objects);
}

static void reports_missing_memory(void **state)
{
	(void)state;
	uint8_t digest[DIGEST_BYTES];
	struct span value = checked("{\"a\":[{\"\\u0062\":{\"c\":1}}],\"d\":{}}");
	int rc = ERROR_MEMORY;
	for (unsigned n = 0; rc == ERROR_MEMORY; n++) {
		assert_true(n <= 3);
		allocations_left = n;
		rc = digest_json(digest, "x", value, NULL);
		allocations_left = UINT_MAX;
		/* Three objects with members, so the fourth try is the first to succeed. */
		assert_int_equal(rc, n < 3 ? ERROR_MEMORY : 0);
	}
}

static int start_sodium(void **state)
{
	(void)state;
	return sodium_init() < 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_same_for_two_spellings),
		cmocka_unit_test(is_different_for_two_values),
		cmocka_unit_test(has_the_documented_form),
		cmocka_unit_test(covers_the_label),
		cmocka_unit_test(leaves_out_members_of_the_outermost_object),
		cmocka_unit_test(sorts_many_members),
		cmocka_unit_test(digests_the_deepest_text),
		cmocka_unit_test(reports_missing_memory),
	};
	return cmocka_run_group_tests(tests, start_sodium, NULL);
}
