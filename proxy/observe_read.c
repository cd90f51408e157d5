/* Reading a report that was written before (observe.c), so that its counts go on. */
#include "proxy/core.h"
#include "proxy/method.h"
#include "proxy/metrics_write.h"

#include <stdlib.h>
#include <string.h>

/* The count of a member, 0 where there is none. */
static uint64_t count_of(struct span object, const char *key, bool *bad)
{
	struct span value;
	int64_t count = 0;
	if (json_get(object, NULL, key, &value) && (!json_integer(value, &count) || count < 0))
		*bad = true;
	return *bad ? 0 : (uint64_t)count;
}

static void read_asked(struct span entry, struct metrics_row *row, bool *bad)
{
	struct span asked, counts;
	if (!json_get(entry, NULL, "asked", &asked))
		return;
	for (size_t kind = 0; kind < POLICY_KINDS; kind++) {
		if (!json_get(asked, NULL, metrics_kind_names[kind], &counts))
			continue;
		row->forwarded[kind] = count_of(counts, "forwarded", bad);
		for (size_t i = 0; i < SERVER_REQUEST_OUTCOMES; i++)
			row->requests[kind][i] = count_of(counts, metrics_outcome_names[i], bad);
	}
}

static void read_forms(struct span entry, struct observed *seen, bool *bad)
{
	struct span forms, form, fields;
	size_t i = 0;
	seen->other_shapes = count_of(entry, "other_forms", bad);
	if (!json_get(entry, NULL, "forms", &forms))
		return;
	struct json_walk walk = json_walk(forms, NULL);
	while (json_next_element(&walk, &form) && i < OBSERVE_SHAPES) {
		char *text = json_get(form, NULL, "fields", &fields) ? json_string_dup(fields) : NULL;
		*bad |= !text || strlen(text) > OBSERVE_SHAPE_BYTES + sizeof("...");
		seen->shapes[i].text = text;
		seen->shapes[i].count = count_of(form, "count", bad);
		i += text != NULL;
	}
}

static void read_row(struct span entry, struct metrics_row *row, bool *bad)
{
	struct span calls, known;
	struct observed *seen = &row->seen;
	if (json_get(entry, NULL, "calls", &calls))
		for (size_t i = 0; i < METRICS_ENDS; i++)
			row->ends[i] = count_of(calls, metrics_end_names[i], bad);
	row->rounds = count_of(entry, "rounds", bad);
	row->people_count = count_of(entry, "people_count", bad);
	row->people_ms = count_of(entry, "people_ms", bad);
	seen->known = json_get(entry, NULL, "known", &known) && json_type(known) == JSON_TRUE;
	seen->timed_out = count_of(entry, "timed_out", bad);
	seen->most_rounds = (uint32_t)count_of(entry, "most_rounds", bad);
	seen->longest_ms = count_of(entry, "people_longest_ms", bad);
	seen->urls = count_of(entry, "url_mode", bad);
	seen->sampling_tools = count_of(entry, "sampling_with_tools", bad);
	seen->tasks = count_of(entry, "tasks", bad);
	seen->logs = count_of(entry, "log_messages", bad);
	read_asked(entry, row, bad);
	read_forms(entry, seen, bad);
}

/* Takes the row that the entry is of; NULL if it is of none. */
static struct metrics_row *take_row(struct metrics *metrics, struct span entry)
{
	struct span subject, value;
	struct metrics_row *row = NULL;
	char *name = NULL;
	if (json_get(entry, NULL, "subject", &subject) && json_get(entry, NULL, "name", &value))
		name = json_string_dup(value);
	if (name && json_string_is(subject, "other"))
		row = metrics_row_take(metrics, POLICY_TOOL, NULL);
	for (int i = POLICY_TOOL; name && i <= POLICY_RESOURCE; i++)
		if (json_string_is(subject, metrics_subject_names[i]))
			row = metrics_row_take(metrics, (enum policy_subject)i, name);
	free(name);
	return row;
}

static void read_entry(struct span entry, struct metrics *metrics, bool *bad)
{
	struct metrics_row read = {0}, *row = take_row(metrics, entry);
	if (!row) {
		*bad = true;
		return;
	}
	read_row(entry, &read, bad);
	metrics_row_add(row, &read);
	metrics_row_release(row);
	observed_free(&read.seen);
}

static bool is_ours(struct span report, struct span *entries)
{
	struct span name, version;
	int64_t number;
	return json_get(report, NULL, "report", &name) && json_string_is(name, "mcp-valet") &&
	       json_get(report, NULL, "version", &version) && json_integer(version, &number) && number == 1 &&
	       json_get(report, NULL, "entries", entries) && json_type(*entries) == JSON_ARRAY;
}

static void add_rows(struct metrics *metrics, const struct metrics *more)
{
	static const enum policy_subject subjects[] = {POLICY_TOOL, POLICY_PROMPT, POLICY_RESOURCE};
	for (size_t i = 0; i < more->row_count; i++) {
		const struct metrics_row *row = more->rows[i];
		size_t subject = 0;
		while (strcmp(row->subject, metrics_subject_names[subjects[subject]]) != 0)
			subject++;
		struct metrics_row *own = metrics_row_take(metrics, subjects[subject], row->name);
		metrics_row_add(own, row);
		metrics_row_release(own);
	}
	metrics_row_add(&metrics->other, &more->other);
}

int proxy_read_report(struct proxy *proxy, struct span text, struct error *error)
{
	struct metrics read = {0};
	struct span report, entries, entry;
	int status = json_check(text, &report, NULL, error);
	if (status)
		return status;
	if (!is_ours(report, &entries))
		return error_set(error, ERROR_SYNTAX, "not a report of this version");
	bool bad = false;
	uint64_t subscriptions = count_of(report, "subscriptions", &bad);
	struct json_walk walk = json_walk(entries, NULL);
	while (!bad && json_next_element(&walk, &entry))
		read_entry(entry, &read, &bad);
	if (!bad) {
		add_rows(&proxy->metrics, &read);
		proxy->metrics.methods[METHOD_LISTEN] += subscriptions;
	}
	metrics_free(&read);
	return bad ? error_set(error, ERROR_SYNTAX, "a report that is damaged") : 0;
}
