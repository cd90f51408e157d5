#include "proxy/observe.h"

#include "proxy/core.h"
#include "proxy/json_write.h"
#include "proxy/method.h"
#include "proxy/metrics_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void observed_free(struct observed *seen)
{
	for (size_t i = 0; i < OBSERVE_SHAPES; i++)
		free(seen->shapes[i].text);
}

static bool is_required(struct span required, struct span key)
{
	struct span name;
	struct json_walk walk = json_walk(required, NULL);
	while (json_next_element(&walk, &name))
		if (name.len == key.len + 2 && span_equal((struct span){name.ptr + 1, key.len}, key))
			return true;
	return false;
}

/* `name string, age? integer`: names as spelled. */
static void write_shape(struct span schema, struct buf *out)
{
	struct span properties, required = {0}, type;
	struct json_member member;
	if (!json_get(schema, NULL, "properties", &properties))
		return;
	json_get(schema, NULL, "required", &required);
	struct json_walk walk = json_walk(properties, NULL);
	while (json_next_member(&walk, &member)) {
		buf_add_text(out, out->len ? ", " : "");
		buf_add_span(out, member.key);
		buf_add_text(out, is_required(required, member.key) ? " " : "? ");
		if (json_get(member.value, NULL, "type", &type) && json_type(type) == JSON_STRING)
			buf_add(out, type.ptr + 1, type.len - 2);
		else
			buf_add_text(out, "any");
		if (out->len > OBSERVE_SHAPE_BYTES) {
			out->len = OBSERVE_SHAPE_BYTES;
			while (((unsigned char)out->data[out->len] & 0xc0) == 0x80)
				out->len--;
			buf_add_text(out, "...");
			return;
		}
	}
}

static void count_shape(struct observed *seen, struct span shape, uint64_t count)
{
	for (size_t i = 0; i < OBSERVE_SHAPES; i++) {
		if (!seen->shapes[i].text)
			seen->shapes[i].text = span_dup(shape);
		if (seen->shapes[i].text && span_is(shape, seen->shapes[i].text)) {
			seen->shapes[i].count += count;
			return;
		}
	}
	seen->other_shapes += count;
}

void observed_add(struct observed *seen, const struct observed *more)
{
	seen->known |= more->known;
	seen->urls += more->urls;
	seen->sampling_tools += more->sampling_tools;
	seen->tasks += more->tasks;
	seen->logs += more->logs;
	seen->timed_out += more->timed_out;
	seen->longest_ms = more->longest_ms > seen->longest_ms ? more->longest_ms : seen->longest_ms;
	seen->most_rounds = more->most_rounds > seen->most_rounds ? more->most_rounds : seen->most_rounds;
	for (size_t i = 0; i < OBSERVE_SHAPES && more->shapes[i].text; i++)
		count_shape(seen, span_of(more->shapes[i].text), more->shapes[i].count);
	seen->other_shapes += more->other_shapes;
}

void observe_question(struct observed *seen, const struct capability_need *need, struct span params)
{
	struct span schema;
	struct buf shape = {0};
	seen->known = true;
	seen->urls += need->url;
	seen->sampling_tools += need->tools;
	if (need->kind != POLICY_ELICITATION || need->url || !params.len)
		return;
	if (json_get(params, NULL, "requestedSchema", &schema))
		write_shape(schema, &shape);
	if (buf_ok(&shape))
		count_shape(seen, shape.len ? buf_span(&shape) : SPAN("no fields"), 1);
	buf_free(&shape);
}

void observe_answer(struct observed *seen, struct span result, struct span error, const struct json_index *index)
{
	struct span is_error;
	seen->known |=
		!error.ptr && !(json_get(result, index, "isError", &is_error) && json_type(is_error) == JSON_TRUE);
}

static void add_number(struct buf *out, const char *key, uint64_t number)
{
	json_add_key(out, key);
	buf_printf(out, "%" PRIu64, number);
}

static void write_asked(struct buf *out, const struct metrics_row *row)
{
	json_add_key(out, "asked");
	buf_add_text(out, "{");
	for (size_t kind = 0; kind < POLICY_KINDS; kind++) {
		json_add_key(out, metrics_kind_names[kind]);
		buf_add_text(out, "{");
		add_number(out, "forwarded", row->forwarded[kind]);
		for (size_t i = 0; i < SERVER_REQUEST_OUTCOMES; i++)
			add_number(out, metrics_outcome_names[i], row->requests[kind][i]);
		buf_add_text(out, "}");
	}
	buf_add_text(out, "}");
}

static void write_shapes(struct buf *out, const struct observed *seen)
{
	json_add_key(out, "forms");
	buf_add_text(out, "[");
	for (size_t i = 0; i < OBSERVE_SHAPES && seen->shapes[i].text; i++) {
		json_add_separator(out);
		buf_add_text(out, "{\"fields\":");
		buf_add_json_string(out, span_of(seen->shapes[i].text));
		add_number(out, "count", seen->shapes[i].count);
		buf_add_text(out, "}");
	}
	buf_add_text(out, "]");
	add_number(out, "other_forms", seen->other_shapes);
}

static void write_row(struct buf *out, const struct metrics_row *row)
{
	const struct observed *seen = &row->seen;
	json_add_separator(out);
	buf_add_text(out, "{\"subject\":");
	buf_add_json_string(out, span_of(row->subject ? row->subject : "other"));
	json_add_key(out, "name");
	buf_add_json_string(out, span_of(row->name ? row->name : "other"));
	json_add_key(out, "known");
	buf_add_text(out, seen->known ? "true" : "false");
	json_add_key(out, "calls");
	buf_add_text(out, "{");
	for (size_t i = 0; i < METRICS_ENDS; i++)
		add_number(out, metrics_end_names[i], row->ends[i]);
	buf_add_text(out, "}");
	add_number(out, "timed_out", seen->timed_out);
	write_asked(out, row);
	add_number(out, "rounds", row->rounds);
	add_number(out, "most_rounds", seen->most_rounds);
	add_number(out, "people_count", row->people_count);
	add_number(out, "people_ms", row->people_ms);
	add_number(out, "people_longest_ms", seen->longest_ms);
	add_number(out, "url_mode", seen->urls);
	add_number(out, "sampling_with_tools", seen->sampling_tools);
	add_number(out, "tasks", seen->tasks);
	add_number(out, "log_messages", seen->logs);
	write_shapes(out, seen);
	buf_add_text(out, "}");
}

void proxy_write_report(const struct proxy *proxy, struct buf *out)
{
	const struct metrics *metrics = &proxy->metrics;
	buf_add_text(out, "{\"report\":\"mcp-valet\",\"version\":1");
	add_number(out, "subscriptions", metrics->methods[METHOD_LISTEN]);
	add_number(out, "patience_ms", (uint64_t)proxy->patience_ms);
	json_add_key(out, "entries");
	buf_add_text(out, "[");
	for (size_t i = 0; i < metrics->row_count; i++)
		write_row(out, metrics->rows[i]);
	write_row(out, &metrics->other);
	buf_add_text(out, "]}\n");
}
