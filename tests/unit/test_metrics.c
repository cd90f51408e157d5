/* The counters: bounded, safe to show, and written as Prometheus reads them. */
#include "proxy/method.h"
#include "proxy/metrics.h"
#include "proxy/metrics_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct method tool = {.subject = POLICY_TOOL}, prompt = {.subject = POLICY_PROMPT},
			   resource = {.subject = POLICY_RESOURCE};

static void names_have_rows_of_their_own(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	struct metrics_row *row = metrics_row(&metrics, &tool, "report");
	assert_string_equal(row->name, "report");
	assert_string_equal(row->subject, "tool");
	assert_ptr_equal(metrics_row(&metrics, &tool, "report"), row);
	assert_ptr_not_equal(metrics_row(&metrics, &prompt, "report"), row);
	assert_ptr_equal(metrics_row(&metrics, &tool, NULL), &metrics.other);
	assert_int_equal(metrics.row_count, 2);
	metrics_free(&metrics);
}

static void names_are_bounded(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	char name[32];
	for (int i = 0; i < METRICS_NAMES * 2; i++) {
		snprintf(name, sizeof(name), "tool-%d", i);
		assert_int_equal(metrics_row(&metrics, &tool, name) == &metrics.other, i >= METRICS_NAMES);
	}
	assert_string_equal(metrics_row(&metrics, &tool, "tool-7")->name, "tool-7");
	metrics_free(&metrics);
}

static void names_are_safe_to_show(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	char long_name[METRICS_NAME_BYTES * 2];
	assert_string_equal(metrics_row(&metrics, &tool, "a\nb\x7f")->name, "a?b?");
	assert_string_equal(metrics_row(&metrics, &tool, "x\xed\xa0\x80y")->name, "x???y");
	assert_string_equal(metrics_row(&metrics, &tool, "\xed\x95\x9c")->name, "\xed\x95\x9c"); /* a Korean syllable */
	assert_string_equal(metrics_row(&metrics, &resource, "db://x?token=secret")->name, "db://x");
	assert_string_equal(metrics_row(&metrics, &tool, "what?")->name, "what?");
	/* The cut falls into the two bytes of the last letter. */
	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	long_name[METRICS_NAME_BYTES - 1] = '\xc3';
	long_name[METRICS_NAME_BYTES] = '\xa4';
	assert_int_equal(strlen(metrics_row(&metrics, &tool, long_name)->name), METRICS_NAME_BYTES - 1);
	metrics_free(&metrics);
}

static void reasons_are_bounded(void **state)
{
	(void)state;
	static char names[METRICS_REASONS + 10][16];
	struct metrics metrics = {0};
	for (int i = 0; i < METRICS_REASONS + 10; i++) {
		snprintf(names[i], sizeof(names[i]), "reason-%d", i);
		metrics_refused(&metrics, names[i], i);
	}
	metrics_refused(&metrics, "reason-3", 500);
	assert_int_equal(metrics.reasons[3].last_ms, 500);
	assert_int_equal(metrics.reasons[3].count, 2);
	assert_string_equal(metrics.reasons[METRICS_REASONS - 1].reason, "other");
	assert_int_equal(metrics.reasons[METRICS_REASONS - 1].count, 11);
}

static void waits_fall_into_buckets(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	metrics_waited(&metrics, 0);
	metrics_waited(&metrics, 1);
	metrics_waited(&metrics, 2);
	metrics_waited(&metrics, 30000);
	metrics_waited(&metrics, 30001);
	assert_int_equal(metrics.wait_buckets[0], 2);
	assert_int_equal(metrics.wait_buckets[1], 1);
	assert_int_equal(metrics.wait_buckets[METRICS_BUCKETS - 1], 1);
	assert_int_equal(metrics.wait_buckets[METRICS_BUCKETS], 1);
	assert_int_equal(metrics.wait_ms, 60004);
}

static void labels_are_escaped(void **state)
{
	(void)state;
	struct buf out = {0};
	metrics_write_label(&out, "a\"b\\c\nd");
	buf_add(&out, "", 1);
	assert_string_equal(out.data, "\"a\\\"b\\\\c\\nd\"");
	buf_free(&out);
}

static void shapes_are_names_and_types_only(void **state)
{
	(void)state;
	static const struct capability_need form = {.kind = POLICY_ELICITATION};
	struct observed seen = {0};
	observe_question(&seen, &form,
		SPAN("{\"message\":\"hush\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"who\":{\"type\":"
		     "\"string\",\"default\":\"hush\"},\"n\":{\"type\":\"integer\"},\"x\":{}},\"required\":[\"n\"]}}"));
	assert_string_equal(seen.shapes[0].text, "who? string, n integer, x? any");
	assert_int_equal(seen.shapes[0].count, 1);
	observe_question(&seen, &form, SPAN("{\"message\":\"hush\"}"));
	observe_question(&seen, &form, SPAN("{\"requestedSchema\":{\"properties\":7}}"));
	observed_free(&seen);
}

static void shapes_are_bounded(void **state)
{
	(void)state;
	static const struct capability_need form = {.kind = POLICY_ELICITATION};
	struct observed seen = {0};
	char params[1024], name[600];
	for (int i = 0; i < OBSERVE_SHAPES + 3; i++) {
		snprintf(params, sizeof(params),
			"{\"requestedSchema\":{\"properties\":{\"f%d\":{\"type\":\"string\"}}}}", i);
		observe_question(&seen, &form, span_of(params));
	}
	assert_int_equal(seen.other_shapes, 3);
	observed_free(&seen);
	/* The cut falls into the second byte of a letter. */
	struct observed cut = {0};
	memset(name, 'a', sizeof(name));
	memcpy(name + OBSERVE_SHAPE_BYTES - 1, "\xc3\xa4", 2);
	name[500] = '\0';
	snprintf(params, sizeof(params), "{\"requestedSchema\":{\"properties\":{\"%s\":{}}}}", name);
	observe_question(&cut, &form, span_of(params));
	assert_int_equal(strlen(cut.shapes[0].text), OBSERVE_SHAPE_BYTES - 1 + 3);
	observed_free(&cut);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_have_rows_of_their_own),
		cmocka_unit_test(shapes_are_names_and_types_only),
		cmocka_unit_test(shapes_are_bounded),
		cmocka_unit_test(names_are_bounded),
		cmocka_unit_test(names_are_safe_to_show),
		cmocka_unit_test(reasons_are_bounded),
		cmocka_unit_test(waits_fall_into_buckets),
		cmocka_unit_test(labels_are_escaped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
