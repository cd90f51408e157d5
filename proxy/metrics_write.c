#include "proxy/metrics_write.h"

#include "proxy/call.h"
#include "proxy/core.h"
#include "proxy/method.h"

#include <inttypes.h>

_Static_assert(METRICS_METHODS == METHOD_TASKS_CANCEL + 1, "a counter for each method");
_Static_assert(METRICS_ENDS == CALL_END_LOST + 1, "a counter for each end");

const char *const metrics_subject_names[] = {
	[POLICY_TOOL] = "tool", [POLICY_PROMPT] = "prompt", [POLICY_RESOURCE] = "resource"};
const char *const metrics_kind_names[POLICY_KINDS] = {"elicitation", "sampling", "roots"};
const char *const metrics_end_names[METRICS_ENDS] = {"answered", "refused", "cancelled", "abandoned", "lost"};
const char *const metrics_outcome_names[SERVER_REQUEST_OUTCOMES] = {
	"answered", "policy", "denied", "withdrawn", "failed_closed", "lost"};

void metrics_write_label(struct buf *out, const char *value)
{
	buf_add(out, "\"", 1);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			buf_add(out, "\\", 1);
		buf_add_text(out, *value == '\n' ? "\\n" : (const char[]){*value, '\0'});
	}
	buf_add(out, "\"", 1);
}

static void family(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP mcp_valet_%s %s\n# TYPE mcp_valet_%s %s\n", name, help, name, type);
}

static void single(struct buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
	family(out, name, type, help);
	buf_printf(out, "mcp_valet_%s %" PRIu64 "\n", name, value);
}

static void row_start(struct buf *out, const char *family_name, const struct metrics_row *row)
{
	buf_printf(out, "mcp_valet_%s{subject=\"%s\",name=", family_name, row->subject ? row->subject : "other");
	metrics_write_label(out, row->name ? row->name : "other");
}

static void row_value(struct buf *out, const char *family_name, const struct metrics_row *row, const char *label,
	const char *word, uint64_t value)
{
	if (!value)
		return;
	row_start(out, family_name, row);
	buf_printf(out, ",%s=\"%s\"} %" PRIu64 "\n", label, word, value);
}

/* The i-th row; the last one is that of everything else. NULL after it. */
static const struct metrics_row *row_at(const struct metrics *metrics, size_t i)
{
	return i < metrics->row_count ? metrics->rows[i] : i == metrics->row_count ? &metrics->other : NULL;
}

static void write_calls(const struct metrics *metrics, struct buf *out)
{
	const struct metrics_row *row;
	family(out, "calls_total", "counter", "Calls of tools, prompts and resources, by how they ended.");
	for (size_t i = 0; (row = row_at(metrics, i)); i++)
		for (size_t end = 0; end < METRICS_ENDS; end++)
			row_value(out, "calls_total", row, "outcome", metrics_end_names[end], row->ends[end]);
	family(out, "rounds_total", "counter", "Answers that ask the client for input.");
	for (size_t i = 0; (row = row_at(metrics, i)); i++) {
		row_start(out, "rounds_total", row);
		buf_printf(out, "} %" PRIu64 "\n", row->rounds);
	}
	family(out, "people_seconds", "summary", "From a round to the retry that answers it.");
	for (size_t i = 0; (row = row_at(metrics, i)); i++) {
		if (!row->people_count)
			continue;
		row_start(out, "people_seconds_sum", row);
		buf_printf(out, "} %" PRIu64 ".%03u\n", row->people_ms / 1000, (unsigned)(row->people_ms % 1000));
		row_start(out, "people_seconds_count", row);
		buf_printf(out, "} %" PRIu64 "\n", row->people_count);
	}
}

static void write_server_requests(const struct metrics *metrics, struct buf *out)
{
	const struct metrics_row *row;
	family(out, "server_requests_forwarded_total", "counter", "Questions that clients were asked.");
	for (size_t i = 0; (row = row_at(metrics, i)); i++)
		for (size_t kind = 0; kind < POLICY_KINDS; kind++)
			row_value(out, "server_requests_forwarded_total", row, "kind", metrics_kind_names[kind],
				row->forwarded[kind]);
	family(out, "server_requests_total", "counter", "Questions of the server, by what became of them.");
	for (size_t i = 0; (row = row_at(metrics, i)); i++)
		for (size_t cell = 0; cell < (size_t)POLICY_KINDS * SERVER_REQUEST_OUTCOMES; cell++) {
			size_t kind = cell / SERVER_REQUEST_OUTCOMES, outcome = cell % SERVER_REQUEST_OUTCOMES;
			if (!row->requests[kind][outcome])
				continue;
			row_start(out, "server_requests_total", row);
			buf_printf(out, ",kind=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", metrics_kind_names[kind],
				metrics_outcome_names[outcome], row->requests[kind][outcome]);
		}
}

static void write_waits(const struct metrics *metrics, struct buf *out)
{
	uint64_t count = 0;
	family(out, "wait_seconds", "histogram",
		"Time of a call in the proxy: for a session, its place, and more questions of a round. The server's "
		"work "
		"and the client's thinking are not in it.");
	for (size_t i = 0; i < METRICS_BUCKETS; i++) {
		count += metrics->wait_buckets[i];
		buf_printf(out, "mcp_valet_wait_seconds_bucket{le=\"%g\"} %" PRIu64 "\n", metrics_bucket_ms[i] / 1000.0,
			count);
	}
	count += metrics->wait_buckets[METRICS_BUCKETS];
	buf_printf(out, "mcp_valet_wait_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n", count);
	buf_printf(out, "mcp_valet_wait_seconds_sum %" PRIu64 ".%03u\nmcp_valet_wait_seconds_count %" PRIu64 "\n",
		metrics->wait_ms / 1000, (unsigned)(metrics->wait_ms % 1000), count);
}

static void write_bytes(const struct metrics *metrics, struct buf *out)
{
	family(out, "bytes_total", "counter", "Bytes of messages, without those of the transport.");
	buf_printf(out,
		"mcp_valet_bytes_total{peer=\"client\",direction=\"in\"} %" PRIu64 "\n"
		"mcp_valet_bytes_total{peer=\"client\",direction=\"out\"} %" PRIu64 "\n"
		"mcp_valet_bytes_total{peer=\"server\",direction=\"in\"} %" PRIu64 "\n"
		"mcp_valet_bytes_total{peer=\"server\",direction=\"out\"} %" PRIu64 "\n",
		metrics->client_bytes_in, metrics->client_bytes_out, metrics->server_bytes_in,
		metrics->server_bytes_out);
}

void proxy_write_metrics(const struct proxy *proxy, struct buf *out)
{
	const struct metrics *metrics = &proxy->metrics;
	family(out, "requests_total", "counter", "Requests of clients that passed the checks, retries included.");
	for (size_t i = 0; i < METRICS_METHODS; i++)
		buf_printf(out, "mcp_valet_requests_total{method=\"%s\"} %" PRIu64 "\n", method_name((enum method_id)i),
			metrics->methods[i]);
	write_calls(metrics, out);
	write_server_requests(metrics, out);
	family(out, "refusals_total", "counter", "Requests and calls that were refused or not finished, by reason.");
	for (size_t i = 0; i < METRICS_REASONS && metrics->reasons[i].reason; i++)
		buf_printf(out, "mcp_valet_refusals_total{reason=\"%s\"} %" PRIu64 "\n", metrics->reasons[i].reason,
			metrics->reasons[i].count);
	family(out, "attribution_doubts_total", "counter",
		"Questions of the server that several calls may have asked.");
	buf_printf(out,
		"mcp_valet_attribution_doubts_total{outcome=\"held\"} %" PRIu64 "\n"
		"mcp_valet_attribution_doubts_total{outcome=\"refused\"} %" PRIu64 "\n",
		metrics->held, metrics->ambiguous);
	write_waits(metrics, out);
	write_bytes(metrics, out);
	single(out, "open_requests", "gauge", "Requests of clients without a response yet.", proxy->counts.exchanges);
	single(out, "parked_calls", "gauge", "Calls that wait for their clients.", proxy->counts.parked);
	single(out, "parked_calls_total", "counter", "Calls that were parked at least once.", metrics->parked);
	single(out, "tasks", "gauge", "Calls that are tasks for their clients, kept ends included.",
		proxy->client_tasks);
	single(out, "tasks_total", "counter", "Calls that became tasks.", metrics->tasks);
	single(out, "open_server_requests", "gauge", "Questions of the server without an answer yet.",
		proxy->counts.server_requests);
	single(out, "sessions", "gauge", "Sessions with the server.", proxy->counts.sessions);
	single(out, "sessions_opened_total", "counter", "Sessions opened.", proxy->sessions_opened);
	single(out, "sessions_lost_total", "counter", "Sessions that ended out of order or could not be opened.",
		metrics->sessions_lost);
	single(out, "handshakes_repeated_total", "counter", "Restarts of a connection within its handshake.",
		metrics->handshakes_repeated);
	family(out, "patience_seconds", "gauge", "How long the server waits for answers, as learned; 0: not known.");
	buf_printf(out, "mcp_valet_patience_seconds %" PRId64 ".%03d\n", proxy->patience_ms / 1000,
		(int)(proxy->patience_ms % 1000));
}

const char *proxy_unready(const struct proxy *proxy)
{
	if (proxy->shutting_down)
		return "shutting down";
	return proxy_now(proxy) < proxy->metrics.unreachable_until_ms
		       ? "the newest session with the server could not be opened"
		       : NULL;
}
