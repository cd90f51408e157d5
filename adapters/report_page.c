/* The migration report as a page: one file without script and without anything from elsewhere. */
#include "adapters/page.h"
#include "adapters/report_entry.h"

#include <inttypes.h>

static void add_name(struct buf *out, const json_t *entry)
{
	buf_add_text(out, "<bdi>");
	page_add_text(out, report_text(entry, "name"));
	buf_add_text(out, "</bdi> <span class=\"faint\">");
	page_add_text(out, report_text(entry, "subject"));
	buf_add_text(out, "</span>");
}

static void add_row(struct buf *out, const json_t *entry)
{
	json_int_t people = report_number(entry, "people_count");
	buf_add_text(out, "<tr>");
	page_add_cell(out, report_text(entry, "name"));
	page_add_cell(out, report_text(entry, "subject"));
	page_add_number(out, (uint64_t)report_calls(entry));
	page_add_number(out, (uint64_t)report_number(entry, "rounds"));
	for (size_t i = 0; i < REPORT_KINDS; i++)
		page_add_number(out, (uint64_t)report_asked(entry, report_kinds[i]));
	page_add_time(out, people ? report_number(entry, "people_ms") / people : 0);
	page_add_number(out, (uint64_t)report_number(json_object_get(entry, "calls"), "abandoned"));
	page_add_number(out, (uint64_t)report_number(entry, "timed_out"));
	buf_add_text(out, "</tr>");
}

static void add_line(void *ctx, const char *label, const char *text)
{
	struct buf *out = ctx;
	buf_printf(out, "<dt>%s</dt><dd>", label);
	page_add_text(out, text);
	buf_add_text(out, "</dd>");
}

static void add_details(struct buf *out, json_t *const *entries, size_t count)
{
	buf_add_text(out, "<section id=\"details\"><h2>One by one</h2>");
	for (size_t i = 0; i < count; i++) {
		if (report_judge(entries[i]) != REPORT_TO_CHANGE)
			continue;
		buf_add_text(out, "<h3>");
		add_name(out, entries[i]);
		buf_add_text(out, "</h3><dl>");
		report_describe(entries[i], add_line, out);
		buf_add_text(out, "</dl>");
	}
	buf_add_text(out, "</section>");
}

static void add_list(struct buf *out, const char *id, const char *title, enum report_verdict verdict,
	json_t *const *entries, size_t count)
{
	if (!report_count(entries, count, verdict))
		return;
	buf_printf(out, "<section><h2>%s</h2><ul id=\"%s\">", title, id);
	for (size_t i = 0; i < count; i++) {
		if (report_judge(entries[i]) != verdict)
			continue;
		buf_add_text(out, "<li>");
		add_name(out, entries[i]);
		buf_add_text(out, "</li>");
	}
	buf_add_text(out, "</ul></section>");
}

void report_page_write(struct buf *out, const json_t *report, json_t *const *entries, size_t count)
{
	size_t changes = report_count(entries, count, REPORT_TO_CHANGE);
	page_begin(out, "Migration to 2026-07-28", true);
	buf_printf(out, "<p id=\"summary\">%zu to change, %zu with nothing to change, as far as was seen</p>", changes,
		report_count(entries, count, REPORT_READY));
	if (report_number(report, "subscriptions"))
		buf_printf(out,
			"<p id=\"subscriptions\">Clients subscribe: serve subscriptions/listen (%" PRIdMAX
			" so far)</p>",
			(intmax_t)report_number(report, "subscriptions"));
	if (changes) {
		page_begin_table(out, "to-change", "To change, in order of traffic",
			"Name|Kind|Calls|Rounds|Elicitation|Sampling|Roots|People took|Abandoned|Timed out");
		for (size_t i = 0; i < count; i++)
			if (report_judge(entries[i]) == REPORT_TO_CHANGE)
				add_row(out, entries[i]);
		page_end_table(out);
		add_details(out, entries, count);
	}
	add_list(out, "ready", "Nothing to change, as far as was seen", REPORT_READY, entries, count);
	add_list(out, "unknown", "Called, and never with success", REPORT_UNKNOWN, entries, count);
	page_end(out);
}
