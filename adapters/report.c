#include "adapters/report.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPORT_BYTES = 16 << 20, FETCH_SECONDS = 10 };

/* As metrics_kind_names has them, whose header and jansson.h exclude each other. */
static const char *const kinds[] = {"elicitation", "sampling", "roots"};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Getting it. */

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
	struct buf *body = arg;
	(void)size;
	if (body->len + count > MAX_REPORT_BYTES)
		return 0;
	buf_add(body, bytes, count);
	return body->failed ? 0 : count;
}

static int fetch(const char *address, struct buf *body, struct error *error)
{
	char url[256];
	long status = 0;
	bool is_unix = strncmp(address, "unix:", 5) == 0;
	snprintf(url, sizeof(url), "http://%s/report.json", is_unix ? "localhost" : address);
	CURL *easy = curl_global_init(CURL_GLOBAL_DEFAULT) ? NULL : curl_easy_init();
	if (!easy)
		return error_set(error, ERROR_MEMORY, "out of memory");
	bool bad = curl_easy_setopt(easy, CURLOPT_URL, url) || curl_easy_setopt(easy, CURLOPT_PROXY, "") ||
		   curl_easy_setopt(easy, CURLOPT_TIMEOUT, (long)FETCH_SECONDS) ||
		   curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) ||
		   curl_easy_setopt(easy, CURLOPT_WRITEDATA, body) ||
		   (is_unix && curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, address + 5));
	CURLcode code = bad ? CURLE_OUT_OF_MEMORY : curl_easy_perform(easy);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(easy);
	curl_global_cleanup();
	if (code)
		return error_set(error, ERROR_SYSTEM, "no admin endpoint at %s: %s (mcp-valet --admin %s serves one)",
			address, curl_easy_strerror(code), address);
	if (status != 200)
		return error_set(error, ERROR_REFUSED, "%s: HTTP status %ld instead of a report", address, status);
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

/* Looking at it. */

static json_int_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));
	return value ? value : "?";
}

/* How often it asked this, whatever became of it; a question of a call that is parked has no outcome yet. */
static json_int_t asked(const json_t *entry, const char *kind)
{
	const char *key;
	json_t *value;
	const json_t *counts = json_object_get(json_object_get(entry, "asked"), kind);
	json_int_t forwarded = number(counts, "forwarded"), ended = -forwarded;
	json_object_foreach((json_t *)counts, key, value) ended += json_integer_value(value);
	return ended > forwarded ? ended : forwarded;
}

static bool asks(const json_t *entry)
{
	for (size_t i = 0; i < KINDS; i++)
		if (asked(entry, kinds[i]))
			return true;
	return false;
}

static json_int_t traffic(const json_t *entry)
{
	const char *key;
	json_t *value;
	json_int_t sum = 0;
	json_object_foreach(json_object_get(entry, "calls"), key, value) sum += json_integer_value(value);
	return sum + number(entry, "rounds");
}

static int by_traffic(const void *a, const void *b)
{
	json_int_t left = traffic(*(const json_t *const *)a), right = traffic(*(const json_t *const *)b);
	return (left < right) - (left > right);
}

/* The entries in order of traffic; the array is to be freed. */
static json_t **sort(const json_t *entries, size_t *count)
{
	*count = json_array_size(entries);
	json_t **sorted = calloc(*count + 1, sizeof(json_t *));
	for (size_t i = 0; sorted && i < *count; i++)
		sorted[i] = json_array_get(entries, i);
	if (sorted)
		qsort(sorted, *count, sizeof(json_t *), by_traffic);
	return sorted;
}

/* Names come from the network: on a terminal nothing but letters. */
static void put(FILE *out, const char *name)
{
	for (; *name; name++)
		putc((unsigned char)*name < 0x20 || *name == 0x7f || (unsigned char)*name == 0xc2 ? '?' : *name, out);
}

/* Text. */

/* What it is about: a kind and a name, or the row that all requests without a row of their own share. */
static void put_subject(FILE *out, const json_t *entry)
{
	const char *subject = text(entry, "subject");
	if (strcmp(subject, "other") == 0) {
		fprintf(out, "lists and all other requests\n");
		return;
	}
	fprintf(out, "%s ", subject);
	put(out, text(entry, "name"));
	putc('\n', out);
}

static void advise(FILE *out, const json_t *entry)
{
	static const struct {
		const char *member, *advice;
	} features[] = {
		{"url_mode", "uses URL mode: return elicitation/create with mode url in inputRequests, without "
			     "elicitationId"},
		{"sampling_with_tools",
			"samples with tools: put sampling/createMessage with its tools into inputRequests"},
		{"tasks", "runs as a task: answer the call itself; a long wait for people becomes a round"},
		{"log_messages", "logs: send notifications/message only for requests that carry a logLevel"},
	};
	if (asks(entry))
		fprintf(out, "    to do: return an InputRequiredResult where it asks, and go on from requestState\n");
	if (number(entry, "most_rounds") > 1)
		fprintf(out,
			"    to do: ask in fewer rounds where questions do not depend on each other (now up to "
			"%" PRIdMAX ")\n",
			(intmax_t)number(entry, "most_rounds"));
	if (asked(entry, "roots"))
		fprintf(out, "    to do: roots are asked in the call that needs them, not once a session\n");
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (number(entry, features[i].member))
			fprintf(out, "    to do: %s\n", features[i].advice);
}

static void write_entry(FILE *out, const json_t *entry)
{
	const json_t *calls = json_object_get(entry, "calls"), *form;
	size_t i;
	json_int_t people = number(entry, "people_count");
	putc('\n', out);
	put_subject(out, entry);
	fprintf(out,
		"    calls: %" PRIdMAX " answered, %" PRIdMAX " refused (%" PRIdMAX " timed out), %" PRIdMAX
		" cancelled, %" PRIdMAX " abandoned, %" PRIdMAX " lost\n",
		(intmax_t)number(calls, "answered"), (intmax_t)number(calls, "refused"),
		(intmax_t)number(entry, "timed_out"), (intmax_t)number(calls, "cancelled"),
		(intmax_t)number(calls, "abandoned"), (intmax_t)number(calls, "lost"));
	for (i = 0; i < KINDS; i++)
		if (asked(entry, kinds[i]))
			fprintf(out, "    asked: %s (%" PRIdMAX ")\n", kinds[i], (intmax_t)asked(entry, kinds[i]));
	json_array_foreach(json_object_get(entry, "forms"), i, form)
	{
		fprintf(out, "    form: ");
		put(out, text(form, "fields"));
		fprintf(out, " (%" PRIdMAX ")\n", (intmax_t)number(form, "count"));
	}
	if (people)
		fprintf(out, "    people: %.1f s on average, %.1f s at most (%" PRIdMAX ")\n",
			(double)number(entry, "people_ms") / 1000 / (double)people,
			(double)number(entry, "people_longest_ms") / 1000, (intmax_t)people);
	advise(out, entry);
}

static bool is_ready(const json_t *entry)
{
	return !asks(entry) && !number(entry, "tasks") && !number(entry, "log_messages");
}

static void write_text(FILE *out, const json_t *report, json_t *const *entries, size_t count)
{
	size_t ready = 0;
	fprintf(out, "Migration to 2026-07-28, in order of traffic\n");
	for (size_t i = 0; i < count; i++)
		if (!is_ready(entries[i]))
			write_entry(out, entries[i]);
	fprintf(out, "\nNothing to change, as far as was seen:\n");
	for (size_t i = 0; i < count; i++) {
		if (!is_ready(entries[i]) || !traffic(entries[i]))
			continue;
		fprintf(out, "    ");
		put_subject(out, entries[i]);
		ready++;
	}
	if (!ready)
		fprintf(out, "    (none)\n");
	if (number(report, "subscriptions"))
		fprintf(out, "\nClients subscribe: serve subscriptions/listen (%" PRIdMAX " so far)\n",
			(intmax_t)number(report, "subscriptions"));
}

/* Policy. */

/* Twice what the slowest person took, in whole minutes; the default where nobody was that slow. */
static void write_park(FILE *out, const json_t *entry)
{
	json_int_t minutes = (number(entry, "people_longest_ms") * 2 + 59999) / 60000;
	if (minutes > 10)
		fprintf(out, "    park: %" PRIdMAX "m  # the slowest person took %" PRIdMAX " s\n",
			(intmax_t)(minutes < 1440 ? minutes : 1440),
			(intmax_t)number(entry, "people_longest_ms") / 1000);
}

static void write_rule(FILE *out, const json_t *entry)
{
	char *name = json_dumps(json_object_get(entry, "name"), JSON_ENCODE_ANY);
	if (!name)
		return;
	fprintf(out, "  - match: { %s: %s }  # %" PRIdMAX " rounds\n", text(entry, "subject"), name,
		(intmax_t)number(entry, "rounds"));
	for (size_t i = 0; i < KINDS; i++)
		fprintf(out, "    %s: %s\n", kinds[i], asked(entry, kinds[i]) ? "forward" : "deny  # never seen");
	if (number(entry, "most_rounds"))
		fprintf(out, "    rounds: %" PRIdMAX "  # seen: %" PRIdMAX "\n",
			(intmax_t)number(entry, "most_rounds") * 2 < 1000 ? (intmax_t)number(entry, "most_rounds") * 2
									  : 1000,
			(intmax_t)number(entry, "most_rounds"));
	write_park(out, entry);
	free(name);
}

/* Whether a rule can mean this entry alone: a pattern has no way to spell * and ? themselves. */
static bool is_nameable(const json_t *entry)
{
	static const char *const subjects[] = {"tool", "prompt", "resource"};
	const char *name = text(entry, "name"), *subject = text(entry, "subject");
	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		if (strcmp(subject, subjects[i]) == 0)
			return *name && !strpbrk(name, "*?");
	return false;
}

static void write_policy(FILE *out, json_t *const *entries, size_t count)
{
	bool any = false;
	fprintf(out, "# What was observed, as a policy to begin with; read it before you use it.\n"
		     "# Names with * or ? are left out; resources were seen without their query.\n"
		     "version: 1\n");
	for (size_t i = 0; i < count; i++) {
		if (!asks(entries[i]) || !is_nameable(entries[i]))
			continue;
		if (!any)
			fprintf(out, "rules:\n");
		any = true;
		write_rule(out, entries[i]);
	}
	fprintf(out, "# Not seen to ask. A tool that surely never asks may run beside other calls with asks: never:\n");
	for (size_t i = 0; i < count; i++) {
		char *name = asks(entries[i]) || !traffic(entries[i]) || !is_nameable(entries[i])
				     ? NULL
				     : json_dumps(json_object_get(entries[i], "name"), JSON_ENCODE_ANY);
		if (name)
			fprintf(out, "#  - match: { %s: %s }\n#    asks: never\n", text(entries[i], "subject"), name);
		free(name);
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
		if (!report || number(report, "version") != 1)
			status = error_set(
				error, ERROR_SYNTAX, "%s: not a report of this version", address ? address : file);
	}
	if (!status) {
		entries = sort(json_object_get(report, "entries"), &count);
		status = entries ? 0 : error_set(error, ERROR_MEMORY, "out of memory");
	}
	if (!status && form == REPORT_JSON)
		fwrite(body.data, 1, body.len, out);
	else if (!status && form == REPORT_TEXT)
		write_text(out, report, entries, count);
	else if (!status)
		write_policy(out, entries, count);
	free(entries);
	json_decref(report);
	buf_free(&body);
	return status;
}
