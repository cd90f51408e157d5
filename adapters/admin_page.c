#include "adapters/admin_page.h"

#include "proxy/metrics_write.h"
#include "proxy/view.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>

enum { MAX_PARKED = 200, MAX_SESSIONS = 50, CHART_HEIGHT = 48, BAR_WIDTH = 5 };

static const char style[] =
	":root{color-scheme:light dark;--text:#1c2024;--back:#fff;--faint:#5b6570;--line:#d5dae0;--bar:#1f6feb}"
	"@media(prefers-color-scheme:dark){:root{--text:#e4e8ec;--back:#14171a;--faint:#a2adb8;--line:#363d45;--bar:#"
	"6ea8fe}}"
	"body{font:16px/1.45 system-ui,sans-serif;color:var(--text);background:var(--back);margin:0 auto;padding:1rem;"
	"max-width:70rem}"
	"h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:1.8rem 0 .4rem}p{margin:.3rem "
	"0}.faint{color:var(--faint)}"
	".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
	"th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}"
	"th{font-weight:600;color:var(--faint)}"
	".charts{display:flex;flex-wrap:wrap;gap:1rem "
	"2rem}figure{margin:0}figcaption{color:var(--faint);font-size:.9rem}"
	"svg{display:block;border-bottom:1px solid var(--line);max-width:100%}rect{fill:var(--bar)}";

void admin_page_write_policy(struct buf *out)
{
	unsigned char digest[crypto_hash_sha256_BYTES];
	char text[sodium_base64_ENCODED_LEN(sizeof(digest), sodium_base64_VARIANT_ORIGINAL)];
	crypto_hash_sha256(digest, (const unsigned char *)style, sizeof(style) - 1);
	sodium_bin2base64(text, sizeof(text), digest, sizeof(digest), sodium_base64_VARIANT_ORIGINAL);
	buf_printf(out,
		"default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors "
		"'none'",
		text);
}

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

/* Pieces. */

static void add_text(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '&')
			buf_add_text(out, "&amp;");
		else if (*text == '<')
			buf_add_text(out, "&lt;");
		else
			buf_add(out, text, 1);
	}
}

static void add_cell(struct buf *out, const char *text)
{
	buf_add_text(out, "<td>");
	add_text(out, text);
	buf_add_text(out, "</td>");
}

static void add_number(struct buf *out, uint64_t number)
{
	buf_printf(out, "<td>%" PRIu64 "</td>", number);
}

static void add_time(struct buf *out, int64_t time_ms)
{
	int64_t seconds = time_ms > 0 ? time_ms / 1000 : 0;
	if (seconds < 120)
		buf_printf(out, "<td>%" PRId64 " s</td>", seconds);
	else if (seconds < 7200)
		buf_printf(out, "<td>%" PRId64 " min</td>", seconds / 60);
	else
		buf_printf(out, "<td>%" PRId64 " h</td>", seconds / 3600);
}

/* `columns` are separated by `|`. */
static void begin_table(struct buf *out, const char *id, const char *title, const char *columns)
{
	buf_printf(out,
		"<section><h2 id=\"%s-title\">%s</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" "
		"aria-labelledby=\"%s-title\"><table id=\"%s\"><thead><tr><th scope=\"col\">",
		id, title, id, id);
	for (; *columns; columns++) {
		if (*columns == '|')
			buf_add_text(out, "</th><th scope=\"col\">");
		else
			buf_add(out, columns, 1);
	}
	buf_add_text(out, "</th></tr></thead><tbody>");
}

static void end_table(struct buf *out)
{
	buf_add_text(out, "</tbody></table></div></section>");
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
	add_cell(out, parked->subject);
	add_cell(out, asked);
	add_number(out, parked->round);
	add_time(out, parked->for_ms);
	add_time(out, parked->left_ms);
	add_cell(out, parked->session);
	add_cell(out, parked->hash);
	buf_add_text(out, "</tr>");
}

static void add_session(void *ctx, const struct view_session *session)
{
	struct buf *out = ctx;
	buf_add_text(out, "<tr>");
	add_cell(out, session->name);
	add_cell(out, session->state);
	add_cell(out, session->version);
	add_number(out, session->calls);
	add_number(out, session->parked);
	buf_add_text(out, "</tr>");
}

static void write_live(struct buf *out, const struct proxy *proxy)
{
	begin_table(out, "parked", "Parked calls", "Call|Asked|Round|For|Left|Session|Hash");
	size_t all = view_parked(proxy, MAX_PARKED, add_parked, out);
	end_table(out);
	if (all > MAX_PARKED)
		buf_printf(out, "<p class=\"faint\">and %zu more</p>", all - MAX_PARKED);
	begin_table(out, "sessions", "Sessions with the server", "Session|State|Revision|Calls|Parked");
	all = view_sessions(proxy, MAX_SESSIONS, add_session, out);
	end_table(out);
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
	add_cell(out, row->name ? row->name : "(other)");
	add_cell(out, row->subject ? row->subject : "");
	add_number(out, calls);
	add_number(out, row->rounds);
	for (size_t kind = 0; kind < POLICY_KINDS; kind++)
		add_number(out, row->forwarded[kind]);
	for (size_t i = 1; i < METRICS_ENDS; i++)
		add_number(out, row->ends[i]);
	add_time(out, row->people_count ? (int64_t)(row->people_ms / row->people_count) : 0);
	buf_add_text(out, "</tr>");
}

static void write_totals(struct buf *out, const struct proxy *proxy)
{
	const struct metrics *metrics = view_metrics(proxy);
	begin_table(out, "refusals", "Refusals", "Reason|Count|Newest, ago");
	for (size_t i = 0; i < METRICS_REASONS && metrics->reasons[i].reason; i++) {
		buf_add_text(out, "<tr>");
		add_cell(out, metrics->reasons[i].reason);
		add_number(out, metrics->reasons[i].count);
		add_time(out, view_now_ms(proxy) - metrics->reasons[i].last_ms);
		buf_add_text(out, "</tr>");
	}
	end_table(out);
	begin_table(out, "names", "Tools, prompts and resources",
		"Name|Kind|Ended|Rounds|Elicitation|Sampling|Roots|Refused|Cancelled|Abandoned|Lost|People took");
	for (size_t i = 0; i < metrics->row_count; i++)
		write_row(out, metrics->rows[i]);
	write_row(out, &metrics->other);
	end_table(out);
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
	buf_printf(out,
		"<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>mcp-valet</title>"
		"<meta name=\"viewport\" "
		"content=\"width=device-width,initial-scale=1\"><style>%s</style></head><body><main>"
		"<h1>mcp-valet</h1><p id=\"state\">%s</p>"
		"<p class=\"faint\">%zu open requests, %zu parked calls, %zu sessions",
		style, why ? why : "Ready", counts.exchanges, counts.parked, counts.sessions);
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
	buf_add_text(out, "</main></body></html>\n");
}
