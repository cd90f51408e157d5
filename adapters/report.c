#include "adapters/report.h"

#include "adapters/http_client.h"
#include "adapters/report_entry.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPORT_BYTES = 16 << 20, FETCH_SECONDS = 10 };

/* Getting it. */

struct fetch {
	struct event_base *base;
	struct buf *body;
	int status;
	char fault[512]; /* empty: it came */
};

static void on_head(void *arg, const struct http_response *response)
{
	struct fetch *fetch = arg;
	fetch->status = response->status;
}

static void end_fetch(struct fetch *fetch, const char *fault)
{
	snprintf(fetch->fault, sizeof(fetch->fault), "%s", fault);
	event_base_loopbreak(fetch->base);
}

static void on_data(void *arg, struct span bytes)
{
	struct fetch *fetch = arg;
	if (fetch->body->len + bytes.len <= MAX_REPORT_BYTES)
		buf_add_span(fetch->body, bytes);
	else
		end_fetch(fetch, "too large for a report");
}

static void on_done(void *arg, const char *fault, bool unsent)
{
	struct fetch *fetch = arg;
	(void)unsent;
	end_fetch(fetch, fault ? fault : buf_ok(fetch->body) ? "" : "out of memory");
}

static int fetch(const char *address, struct buf *body, struct error *error)
{
	static const struct http_handlers handlers = {on_head, on_data, on_done};
	static const char *const headers[] = {"Accept: application/json", "User-Agent: mcp-valet", NULL};
	const struct timeval limit = {FETCH_SECONDS, 0};
	const struct http_request request = {.method = "GET", .headers = headers};
	struct fetch fetch = {.base = event_base_new(), .body = body, .fault = "no answer in time"};
	char url[256];
	bool is_unix = strncmp(address, "unix:", 5) == 0;
	snprintf(url, sizeof(url), "http://%s/report.json", is_unix ? "localhost" : address);
	const struct http_target target = {.url = url,
		.unix_socket = is_unix ? address + 5 : NULL,
		.direct = true,
		.connect_ms = FETCH_SECONDS * 1000};
	void (*on_pipe)(int) = signal(SIGPIPE, SIG_IGN);
	error_set(error, ERROR_MEMORY, "out of memory");
	struct http_client *client = fetch.base ? http_client_new(fetch.base, &target, error) : NULL;
	bool started = client && http_transfer_start(client, &request, &handlers, &fetch) &&
		       event_base_loopexit(fetch.base, &limit) == 0 && event_base_dispatch(fetch.base) >= 0;
	http_client_free(client);
	if (fetch.base)
		event_base_free(fetch.base);
	signal(SIGPIPE, on_pipe);
	if (!started)
		return error->code;
	if (fetch.fault[0])
		return error_set(error, ERROR_SYSTEM, "no admin endpoint at %s: %s (mcp-valet --admin %s serves one)",
			address, fetch.fault, address);
	if (fetch.status != 200)
		return error_set(error, ERROR_REFUSED, "%s: HTTP status %d instead of a report", address, fetch.status);
	return 0;
}

static int read_file(const char *path, struct buf *body, struct error *error)
{
	char bytes[4096];
	size_t len;
	FILE *file = fopen(path, "re");
	if (!file)
		return error_set(error, ERROR_SYSTEM, "%s: %s", path, strerror(errno));
	while ((len = fread(bytes, 1, sizeof(bytes), file)) && body->len <= MAX_REPORT_BYTES)
		buf_add(body, bytes, len);
	bool bad = ferror(file) || body->len > MAX_REPORT_BYTES || !buf_ok(body);
	fclose(file);
	return bad ? error_set(error, ERROR_SYSTEM, "%s: cannot be read, or is too large", path) : 0;
}

/* Names come from the network: on a terminal nothing but letters. */
static void put(FILE *out, const char *name)
{
	for (; *name; name++)
		putc((unsigned char)*name < 0x20 || *name == 0x7f || (unsigned char)*name == 0xc2 ? '?' : *name, out);
}

/* Text. */

static void write_line(void *ctx, const char *label, const char *text)
{
	FILE *out = ctx;
	fprintf(out, "    %s: ", label);
	put(out, text);
	putc('\n', out);
}

static void write_name(FILE *out, const json_t *entry)
{
	const char *subject = report_text(entry, "subject");
	/* The row that all requests without a row of their own share. */
	if (strcmp(subject, "other") == 0) {
		fprintf(out, "lists and all other requests\n");
		return;
	}
	fprintf(out, "%s ", subject);
	put(out, report_text(entry, "name"));
	putc('\n', out);
}

static size_t write_names(FILE *out, enum report_verdict verdict, json_t *const *entries, size_t count)
{
	size_t written = 0;
	for (size_t i = 0; i < count; i++) {
		if (report_judge(entries[i]) != verdict)
			continue;
		fprintf(out, "    ");
		write_name(out, entries[i]);
		written++;
	}
	return written;
}

static void write_text(FILE *out, const json_t *report, json_t *const *entries, size_t count)
{
	fprintf(out, "Migration to 2026-07-28, in order of traffic\n");
	for (size_t i = 0; i < count; i++) {
		if (report_judge(entries[i]) != REPORT_TO_CHANGE)
			continue;
		putc('\n', out);
		write_name(out, entries[i]);
		report_describe(entries[i], write_line, out);
	}
	fprintf(out, "\nNothing to change, as far as was seen:\n");
	if (!write_names(out, REPORT_READY, entries, count))
		fprintf(out, "    (none)\n");
	if (report_count(entries, count, REPORT_UNKNOWN)) {
		fprintf(out, "\nCalled, and never with success:\n");
		write_names(out, REPORT_UNKNOWN, entries, count);
	}
	if (report_number(report, "subscriptions"))
		fprintf(out, "\nClients subscribe: serve subscriptions/listen (%" PRIdMAX " so far)\n",
			(intmax_t)report_number(report, "subscriptions"));
}

static int write_page(FILE *out, const json_t *report, json_t *const *entries, size_t count, struct error *error)
{
	struct buf page = {0};
	report_page_write(&page, report, entries, count);
	bool ok = buf_ok(&page);
	if (ok)
		fwrite(page.data, 1, page.len, out);
	buf_free(&page);
	return ok ? 0 : error_set(error, ERROR_MEMORY, "out of memory");
}

/* Policy. */

/* Twice what the slowest person took, in whole minutes; the default where nobody was that slow. */
static void write_park(FILE *out, const json_t *entry)
{
	json_int_t minutes = (report_number(entry, "people_longest_ms") * 2 + 59999) / 60000;
	if (minutes > 10)
		fprintf(out, "    park: %" PRIdMAX "m  # the slowest person took %" PRIdMAX " s\n",
			(intmax_t)(minutes < 1440 ? minutes : 1440),
			(intmax_t)report_number(entry, "people_longest_ms") / 1000);
}

/* The pattern, as YAML, that means this entry and no other that was seen; NULL if there is none: a pattern has no way to spell
 * * and ? themselves. An ellipsis stands for what was left out of a name. To be freed. */
static char *make_pattern(const json_t *entry)
{
	static const char *const subjects[] = {"tool", "prompt", "resource"};
	static const char ellipsis[] = "\u2026";
	const char *name = report_text(entry, "name"), *subject = report_text(entry, "subject"), *rest = "";
	size_t len = strlen(name), i = 0;
	while (i < sizeof(subjects) / sizeof(subjects[0]) && strcmp(subject, subjects[i]) != 0)
		i++;
	if (i == sizeof(subjects) / sizeof(subjects[0]))
		return NULL;
	if (len >= sizeof(ellipsis) - 1 && strcmp(name + len - (sizeof(ellipsis) - 1), ellipsis) == 0) {
		len -= sizeof(ellipsis) - 1;
		rest = len && name[len - 1] == '?' ? "?*" : "*";
		len -= strlen(rest) - 1;
	}
	if (!len || strcspn(name, "*?") < len)
		return NULL;
	json_t *pattern = json_sprintf("%.*s%s", (int)len, name, rest);
	char *text = pattern ? json_dumps(pattern, JSON_ENCODE_ANY) : NULL;
	json_decref(pattern);
	return text;
}

static void write_rule(FILE *out, const json_t *entry, const char *pattern)
{
	fprintf(out, "  - match: { %s: %s }  # %" PRIdMAX " rounds\n", report_text(entry, "subject"), pattern,
		(intmax_t)report_number(entry, "rounds"));
	for (size_t i = 0; i < REPORT_KINDS; i++)
		fprintf(out, "    %s: %s\n", report_kinds[i],
			report_asked(entry, report_kinds[i]) ? "forward" : "deny  # never seen");
	if (report_number(entry, "most_rounds"))
		fprintf(out, "    rounds: %" PRIdMAX "  # seen: %" PRIdMAX "\n",
			(intmax_t)report_number(entry, "most_rounds") * 2 < 1000
				? (intmax_t)report_number(entry, "most_rounds") * 2
				: 1000,
			(intmax_t)report_number(entry, "most_rounds"));
	write_park(out, entry);
}

static void write_policy(FILE *out, json_t *const *entries, size_t count)
{
	bool any = false;
	fprintf(out, "# What was observed, as a policy to begin with; read it before you use it.\n"
		     "# Names with * or ? are left out. Of long names, and of resources with a query, it has the "
		     "beginning.\n"
		     "version: 1\n");
	for (size_t i = 0; i < count; i++) {
		char *pattern = report_asks(entries[i]) ? make_pattern(entries[i]) : NULL;
		if (pattern && !any)
			fprintf(out, "rules:\n");
		if (pattern)
			write_rule(out, entries[i], pattern);
		any |= pattern != NULL;
		free(pattern);
	}
	fprintf(out, "# Not seen to ask. A tool that surely never asks may run beside other calls with asks: never:\n");
	for (size_t i = 0; i < count; i++) {
		enum report_verdict verdict = report_judge(entries[i]);
		bool is_wanted = !report_asks(entries[i]) && verdict != REPORT_UNSEEN && verdict != REPORT_UNKNOWN;
		char *pattern = is_wanted ? make_pattern(entries[i]) : NULL;
		if (pattern)
			fprintf(out, "#  - match: { %s: %s }\n#    asks: never\n", report_text(entries[i], "subject"),
				pattern);
		free(pattern);
	}
}

int report_write(const char *address, const char *file, enum report_form form, FILE *out, struct error *error)
{
	struct buf body = {0};
	json_t *report = NULL;
	json_t **entries = NULL;
	size_t count = 0;
	int status = address ? fetch(address, &body, error) : read_file(file, &body, error);
	if (!status) {
		report = json_loadb(body.data ? body.data : "", body.len, 0, NULL);
		if (!report || report_number(report, "version") != 1)
			status = error_set(
				error, ERROR_SYNTAX, "%s: not a report of this version", address ? address : file);
	}
	if (!status) {
		entries = report_sort(json_object_get(report, "entries"), &count);
		status = entries ? 0 : error_set(error, ERROR_MEMORY, "out of memory");
	}
	if (!status && form == REPORT_JSON)
		fwrite(body.data, 1, body.len, out);
	else if (!status && form == REPORT_TEXT)
		write_text(out, report, entries, count);
	else if (!status && form == REPORT_HTML)
		status = write_page(out, report, entries, count, error);
	else if (!status)
		write_policy(out, entries, count);
	free(entries);
	json_decref(report);
	buf_free(&body);
	return status;
}
