#include "adapters/admin_page.h"

#include "adapters/page.h"
#include "proxy/metrics_write.h"
#include "proxy/view.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_PARKED = 200, MAX_SESSIONS = 50, CHART_HEIGHT = 48, BAR_WIDTH = 5 };

/* History. */

static struct sample now_of(const struct proxy *proxy)
{
	const struct metrics *metrics = view_metrics(proxy);
	struct sample sample = {.parked = proxy_counts(proxy).parked, .rounds = metrics->other.rounds};
	for (size_t i = 0; i < METRICS_METHODS; i++)
		sample.requests += metrics->methods[i];
	for (size_t i = 0; i < metrics->row_count; i++)
		sample.rounds += metrics->rows[i]->rounds;
	for (size_t i = 0; i < METRICS_REASONS; i++)
		sample.refusals += metrics->reasons[i].count;
	return sample;
}

void history_take(struct history *history, const struct proxy *proxy)
{
	history->samples[history->count++ % (HISTORY_MINUTES + 1)] = now_of(proxy);
}

/* The sections. */

static void add_parked(void *ctx, const struct view_parked *parked)
{
	struct buf *out = ctx;
	char asked[96];
	int used = 0;
	asked[0] = '\0';
	for (size_t kind = 0; kind < POLICY_KINDS; kind++)
		if (parked->asked[kind])
			used += snprintf(asked + used, sizeof(asked) - (size_t)used, "%s%s%s", used ? ", " : "",
				metrics_kind_names[kind], parked->asked[kind] > 1 ? " (several)" : "");
	buf_add_text(out, "<tr>");
	page_add_cell(out, parked->subject);
	page_add_cell(out, asked);
	page_add_number(out, parked->round);
	page_add_time(out, parked->for_ms);
	page_add_time(out, parked->left_ms);
	page_add_cell(out, parked->session);
	page_add_cell(out, parked->hash);
	buf_add_text(out, "</tr>");
}

static void add_session(void *ctx, const struct view_session *session)
{
	struct buf *out = ctx;
	buf_add_text(out, "<tr>");
	page_add_cell(out, session->name);
	page_add_cell(out, session->state);
	page_add_cell(out, session->version);
	page_add_number(out, session->calls);
	page_add_number(out, session->parked);
	buf_add_text(out, "</tr>");
}

static void write_live(struct buf *out, const struct proxy *proxy)
{
	page_begin_table(out, "parked", "Parked calls", "Call|Asked|Round|For|Left|Session|Hash");
	size_t all = view_parked(proxy, MAX_PARKED, add_parked, out);
	page_end_table(out);
	if (all > MAX_PARKED)
		buf_printf(out, "<p class=\"faint\">and %zu more</p>", all - MAX_PARKED);
	page_begin_table(out, "sessions", "Sessions with the server", "Session|State|Revision|Calls|Parked");
	all = view_sessions(proxy, MAX_SESSIONS, add_session, out);
	page_end_table(out);
	if (all > MAX_SESSIONS)
		buf_printf(out, "<p class=\"faint\">and %zu more</p>", all - MAX_SESSIONS);
}

static void write_row(struct buf *out, const struct metrics_row *row)
{
	uint64_t calls = 0;
	for (size_t i = 0; i < METRICS_ENDS; i++)
		calls += row->ends[i];
	if (!calls && !row->rounds)
		return;
	buf_add_text(out, "<tr>");
	page_add_cell(out, row->name ? row->name : "(other)");
	page_add_cell(out, row->subject ? row->subject : "");
	page_add_number(out, calls);
	page_add_number(out, row->rounds);
	for (size_t kind = 0; kind < POLICY_KINDS; kind++)
		page_add_number(out, row->forwarded[kind]);
	for (size_t i = 1; i < METRICS_ENDS; i++)
		page_add_number(out, row->ends[i]);
	page_add_time(out, row->people_count ? (int64_t)(row->people_ms / row->people_count) : 0);
	buf_add_text(out, "</tr>");
}

static void write_totals(struct buf *out, const struct proxy *proxy)
{
	const struct metrics *metrics = view_metrics(proxy);
	page_begin_table(out, "refusals", "Refusals", "Reason|Count|Newest, ago");
	for (size_t i = 0; i < METRICS_REASONS && metrics->reasons[i].reason; i++) {
		buf_add_text(out, "<tr>");
		page_add_cell(out, metrics->reasons[i].reason);
		page_add_number(out, metrics->reasons[i].count);
		page_add_time(out, view_now_ms(proxy) - metrics->reasons[i].last_ms);
		buf_add_text(out, "</tr>");
	}
	page_end_table(out);
	page_begin_table(out, "names", "Tools, prompts and resources",
		"Name|Kind|Ended|Rounds|Elicitation|Sampling|Roots|Refused|Cancelled|Abandoned|Lost|People took");
	for (size_t i = 0; i < metrics->row_count; i++)
		write_row(out, metrics->rows[i]);
	write_row(out, &metrics->other);
	page_end_table(out);
}

static void write_chart(struct buf *out, const struct history *history, const char *title, bool difference,
	uint64_t (*value)(const struct sample *sample))
{
	uint64_t bars[HISTORY_MINUTES] = {0}, most = 0;
	size_t known = history->count > HISTORY_MINUTES ? HISTORY_MINUTES : history->count ? history->count - 1 : 0;
	for (size_t i = 0; i < known; i++) {
		size_t at = history->count - known + i;
		uint64_t after = value(&history->samples[at % (HISTORY_MINUTES + 1)]);
		uint64_t before = value(&history->samples[(at - 1) % (HISTORY_MINUTES + 1)]);
		bars[i] = difference ? after - before : after;
		most = bars[i] > most ? bars[i] : most;
	}
	int width = HISTORY_MINUTES * BAR_WIDTH;
	buf_printf(out,
		"<figure><svg role=\"img\" aria-label=\"%s: at most %" PRIu64
		" in a minute\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\">",
		title, most, width, CHART_HEIGHT, width, CHART_HEIGHT);
	for (size_t i = 0; i < known; i++) {
		int height = most ? (int)((double)bars[i] * CHART_HEIGHT / (double)most) : 0;
		size_t slot = HISTORY_MINUTES - known + i;
		if (height)
			buf_printf(out, "<rect x=\"%zu\" y=\"%d\" width=\"%d\" height=\"%d\"/>", slot * BAR_WIDTH,
				CHART_HEIGHT - height, BAR_WIDTH - 1, height);
	}
	buf_printf(out, "</svg><figcaption>%s (at most %" PRIu64 ")</figcaption></figure>", title, most);
}

static uint64_t requests_of(const struct sample *sample)
{
	return sample->requests;
}

static uint64_t rounds_of(const struct sample *sample)
{
	return sample->rounds;
}

static uint64_t refusals_of(const struct sample *sample)
{
	return sample->refusals;
}

static uint64_t parked_of(const struct sample *sample)
{
	return sample->parked;
}

void admin_page_write(struct buf *out, const struct proxy *proxy, const struct history *history)
{
	const char *why = proxy_unready(proxy);
	struct proxy_counts counts = proxy_counts(proxy);
	int64_t patience_ms = view_patience_ms(proxy);
	page_begin(out, "mcp-valet", false);
	buf_printf(out, "<p id=\"state\">%s</p><p class=\"faint\">%zu open requests, %zu parked calls, %zu sessions",
		why ? why : "Ready", counts.exchanges, counts.parked, counts.sessions);
	if (patience_ms)
		buf_printf(out, "; the server waits %" PRId64 " s for answers", patience_ms / 1000);
	buf_add_text(out, "</p><section><h2>The last hour, minute by minute</h2><div class=\"charts\">");
	write_chart(out, history, "Requests", true, requests_of);
	write_chart(out, history, "Rounds", true, rounds_of);
	write_chart(out, history, "Refusals", true, refusals_of);
	write_chart(out, history, "Parked calls", false, parked_of);
	buf_add_text(out, "</div></section>");
	write_live(out, proxy);
	write_totals(out, proxy);
	page_end(out);
}
