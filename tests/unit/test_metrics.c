/* The counters: bounded, safe to show, and written as Prometheus reads them. */
#include "proxy/metrics.h"
#include "proxy/metrics_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The row for a name that nobody uses any more. */
static struct metrics_row *row_of(struct metrics *metrics, enum policy_subject subject, const char *name)
{
	struct metrics_row *row = metrics_row_take(metrics, subject, name);
	metrics_row_release(row);
	return row;
}

static struct metrics_row *row_if_any(struct metrics *metrics, const char *name)
{
	for (size_t i = 0; i < metrics->row_count; i++)
		if (strcmp(metrics->rows[i]->name, name) == 0)
			return metrics->rows[i];
	return NULL;
}

static void names_have_rows_of_their_own(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	struct metrics_row *row = row_of(&metrics, POLICY_TOOL, "report");
	assert_string_equal(row->name, "report");
	assert_string_equal(row->subject, "tool");
	assert_ptr_equal(row_of(&metrics, POLICY_TOOL, "report"), row);
	assert_ptr_not_equal(row_of(&metrics, POLICY_PROMPT, "report"), row);
	assert_ptr_equal(row_of(&metrics, POLICY_TOOL, NULL), &metrics.other);
	assert_int_equal(metrics.row_count, 2);
	metrics_free(&metrics);
}

static uint64_t answered(const struct metrics *metrics)
{
	uint64_t sum = metrics->other.ends[0];
	for (size_t i = 0; i < metrics->row_count; i++)
		sum += metrics->rows[i]->ends[0];
	return sum;
}

static void invented_names_keep_no_real_one_out(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	char name[32];
	row_of(&metrics, POLICY_TOOL, "early")->seen.known = true;
	struct metrics_row *busy = metrics_row_take(&metrics, POLICY_TOOL, "busy");
	for (int i = 0; i < METRICS_NAMES * 2; i++) {
		snprintf(name, sizeof(name), "invented-%d", i);
		struct metrics_row *row = row_of(&metrics, POLICY_TOOL, name);
		assert_ptr_not_equal(row, &metrics.other);
		row->ends[0]++;
		assert_true(metrics.row_count <= METRICS_NAMES);
	}
	row_of(&metrics, POLICY_TOOL, "late")->seen.known = true;
	for (int i = 0; i < METRICS_NAMES * 2; i++) {
		snprintf(name, sizeof(name), "more-%d", i);
		row_of(&metrics, POLICY_PROMPT, name)->ends[0]++;
	}
	/* What is known stays, and what is in use; of the others those that came last. Nothing is lost from the sum. */
	assert_non_null(row_if_any(&metrics, "early"));
	assert_non_null(row_if_any(&metrics, "late"));
	assert_ptr_equal(row_if_any(&metrics, "busy"), busy);
	assert_null(row_if_any(&metrics, "invented-399"));
	assert_null(row_if_any(&metrics, "more-202"));
	assert_non_null(row_if_any(&metrics, "more-203"));
	assert_int_equal(answered(&metrics), METRICS_NAMES * 4);
	assert_false(metrics.other.seen.known);
	metrics_row_release(busy);
	metrics_free(&metrics);
}

static void real_names_are_bounded(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	char name[32];
	for (int i = 0; i < METRICS_NAMES * 2; i++) {
		snprintf(name, sizeof(name), "tool-%d", i);
		struct metrics_row *row = row_of(&metrics, POLICY_TOOL, name);
		row->seen.known = true;
		assert_int_equal(row == &metrics.other, i >= METRICS_NAMES);
	}
	assert_string_equal(row_of(&metrics, POLICY_TOOL, "tool-7")->name, "tool-7");
	metrics_free(&metrics);
}

static void resources_leave_room_for_tools(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	char name[32];
	for (int i = 0; i < METRICS_NAMES * 2; i++) {
		snprintf(name, sizeof(name), "db://row/%d", i);
		row_of(&metrics, POLICY_RESOURCE, name)->seen.known = i % 2;
	}
	assert_int_equal(metrics.row_count, METRICS_RESOURCES);
	/* The last ones that are known had to go elsewhere: all rows were of known ones by then. */
	assert_ptr_equal(row_of(&metrics, POLICY_RESOURCE, "db://row/399"), &metrics.other);
	for (int i = 0; i < METRICS_NAMES - METRICS_RESOURCES; i++) {
		snprintf(name, sizeof(name), "tool-%d", i);
		row_of(&metrics, POLICY_TOOL, name)->seen.known = true;
	}
	assert_non_null(row_if_any(&metrics, "tool-99"));
	assert_non_null(row_if_any(&metrics, "db://row/1"));
	metrics_free(&metrics);
}

static void names_are_safe_to_show(void **state)
{
	(void)state;
	struct metrics metrics = {0};
	char long_name[METRICS_NAME_BYTES * 2];
	assert_string_equal(row_of(&metrics, POLICY_TOOL, "a\nb\x7f")->name, "a?b?");
	assert_string_equal(row_of(&metrics, POLICY_TOOL, "x\xed\xa0\x80y")->name, "x???y");
	assert_string_equal(
		row_of(&metrics, POLICY_TOOL, "\xed\x95\x9c")->name, "\xed\x95\x9c"); /* a Korean syllable */
	assert_string_equal(row_of(&metrics, POLICY_RESOURCE, "a\nb\xed\xa0\x80y")->name, "a_b___y");
	assert_string_equal(row_of(&metrics, POLICY_TOOL, "what?")->name, "what?");
	assert_string_equal(row_of(&metrics, POLICY_RESOURCE, "db://x?token=secret")->name, "db://x?\u2026");
	assert_string_equal(row_of(&metrics, POLICY_RESOURCE, "db://x#secret")->name, "db://x#\u2026");
	assert_string_equal(row_of(&metrics, POLICY_RESOURCE, "db://x")->name, "db://x");
	/* The cut falls into the two bytes of the last letter. */
	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(strlen(row_of(&metrics, POLICY_TOOL, long_name)->name), METRICS_NAME_BYTES + 3);
	long_name[METRICS_NAME_BYTES - 1] = '\xc3';
	long_name[METRICS_NAME_BYTES] = '\xa4';
	assert_string_equal(row_of(&metrics, POLICY_TOOL, long_name)->name + METRICS_NAME_BYTES - 2, "a\u2026");
	/* A name that was made is not made anew. */
	size_t count = metrics.row_count;
	for (size_t i = 0; i < count; i++) {
		bool is_resource = strcmp(metrics.rows[i]->subject, "resource") == 0;
		char *again = strdup(metrics.rows[i]->name);
		assert_ptr_equal(row_of(&metrics, is_resource ? POLICY_RESOURCE : POLICY_TOOL, again), metrics.rows[i]);
		free(again);
	}
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
		cmocka_unit_test(invented_names_keep_no_real_one_out),
		cmocka_unit_test(real_names_are_bounded),
		cmocka_unit_test(resources_leave_room_for_tools),
		cmocka_unit_test(names_are_safe_to_show),
		cmocka_unit_test(reasons_are_bounded),
		cmocka_unit_test(waits_fall_into_buckets),
		cmocka_unit_test(labels_are_escaped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
