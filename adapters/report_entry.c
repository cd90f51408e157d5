#include "adapters/report_entry.h"

#include "proxy/bytes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const report_kinds[REPORT_KINDS] = {"elicitation", "sampling", "roots"};

static const json_int_t largest = (json_int_t)1 << 50;

/* Reading. */

static json_int_t bounded(const json_t *value)
{
	json_int_t number = json_integer_value(value);
	return number < 0 ? 0 : number > largest ? largest : number;
}

json_int_t report_number(const json_t *object, const char *key)
{
	return bounded(json_object_get(object, key));
}

const char *report_text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));
	return value ? value : "?";
}

static json_int_t sum(json_t *counts)
{
	const char *key;
	json_t *value;
	json_int_t total = 0;
	json_object_foreach(counts, key, value) total += bounded(value) < largest - total ? bounded(value) : 0;
	return total;
}

static json_t *questions(const json_t *entry, const char *kind)
{
	return json_object_get(json_object_get(entry, "asked"), kind);
}

/* A question of a call that is parked has no outcome yet. */
json_int_t report_asked(const json_t *entry, const char *kind)
{
	json_int_t forwarded = report_number(questions(entry, kind), "forwarded");
	json_int_t ended = sum(questions(entry, kind)) - forwarded;
	return ended > forwarded ? ended : forwarded;
}

bool report_asks(const json_t *entry)
{
	for (size_t i = 0; i < REPORT_KINDS; i++)
		if (report_asked(entry, report_kinds[i]))
			return true;
	return false;
}

json_int_t report_calls(const json_t *entry)
{
	return sum(json_object_get(entry, "calls"));
}

static json_int_t traffic(const json_t *entry)
{
	return report_calls(entry) + report_number(entry, "rounds");
}

enum report_verdict report_judge(const json_t *entry)
{
	if (report_asks(entry) || report_number(entry, "tasks") || report_number(entry, "log_messages"))
		return REPORT_TO_CHANGE;
	if (!traffic(entry) || strcmp(report_text(entry, "subject"), "other") == 0)
		return REPORT_UNSEEN;
	return json_is_false(json_object_get(entry, "known")) ? REPORT_UNKNOWN : REPORT_READY;
}

static int by_traffic(const void *a, const void *b)
{
	json_int_t left = traffic(*(const json_t *const *)a), right = traffic(*(const json_t *const *)b);
	return (left < right) - (left > right);
}

json_t **report_sort(const json_t *entries, size_t *count)
{
	*count = json_array_size(entries);
	json_t **sorted = calloc(*count + 1, sizeof(json_t *));
	for (size_t i = 0; sorted && i < *count; i++)
		sorted[i] = json_array_get(entries, i);
	if (sorted)
		qsort(sorted, *count, sizeof(json_t *), by_traffic);
	return sorted;
}

size_t report_count(json_t *const *entries, size_t count, enum report_verdict verdict)
{
	size_t found = 0;
	for (size_t i = 0; i < count; i++)
		found += report_judge(entries[i]) == verdict;
	return found;
}

/* Saying. */

struct speaker {
	report_say *say;
	void *ctx;
};

static void say(const struct speaker *speaker, const char *label, const char *format, ...) PRINTF_LIKE(3, 4);
static void say(const struct speaker *speaker, const char *label, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	speaker->say(speaker->ctx, label, text);
}

static void describe_calls(const struct speaker *speaker, const json_t *entry)
{
	const json_t *calls = json_object_get(entry, "calls");
	json_int_t people = report_number(entry, "people_count");
	say(speaker, "calls",
		"%" PRIdMAX " answered, %" PRIdMAX " refused (%" PRIdMAX " timed out), %" PRIdMAX
		" cancelled, %" PRIdMAX " abandoned, %" PRIdMAX " lost",
		(intmax_t)report_number(calls, "answered"), (intmax_t)report_number(calls, "refused"),
		(intmax_t)report_number(entry, "timed_out"), (intmax_t)report_number(calls, "cancelled"),
		(intmax_t)report_number(calls, "abandoned"), (intmax_t)report_number(calls, "lost"));
	if (report_number(entry, "rounds"))
		say(speaker, "rounds", "%" PRIdMAX ", up to %" PRIdMAX " in one call",
			(intmax_t)report_number(entry, "rounds"), (intmax_t)report_number(entry, "most_rounds"));
	if (people)
		say(speaker, "people", "%.1f s on average, %.1f s at most (%" PRIdMAX ")",
			(double)report_number(entry, "people_ms") / 1000 / (double)people,
			(double)report_number(entry, "people_longest_ms") / 1000, (intmax_t)people);
}

static void describe_kind(const struct speaker *speaker, const json_t *entry, const char *kind)
{
	static const char *const outcomes[][2] = {{"answered", "answered"}, {"policy", "answered by the policy"},
		{"denied", "denied"}, {"withdrawn", "withdrawn"}, {"failed_closed", "failed closed"}, {"lost", "lost"}};
	const json_t *counts = questions(entry, kind);
	char what[320] = "";
	if (!report_asked(entry, kind))
		return;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
		size_t len = strlen(what);
		if (report_number(counts, outcomes[i][0]))
			snprintf(what + len, sizeof(what) - len, "%s%" PRIdMAX " %s", len ? ", " : ": ",
				(intmax_t)report_number(counts, outcomes[i][0]), outcomes[i][1]);
	}
	say(speaker, "asked", "%s (%" PRIdMAX ")%s", kind, (intmax_t)report_asked(entry, kind), what);
}

static void describe_forms(const struct speaker *speaker, const json_t *entry)
{
	const json_t *form;
	size_t i;
	json_array_foreach(json_object_get(entry, "forms"), i, form)
	{
		say(speaker, "form", "%.400s (%" PRIdMAX ")", report_text(form, "fields"),
			(intmax_t)report_number(form, "count"));
	}
	if (report_number(entry, "other_forms"))
		say(speaker, "form", "other ones (%" PRIdMAX ")", (intmax_t)report_number(entry, "other_forms"));
}

static void advise(const struct speaker *speaker, const json_t *entry)
{
	static const struct {
		const char *member, *use, *advice;
	} features[] = {
		{"url_mode", "URL mode",
			"return elicitation/create with mode url in inputRequests, without elicitationId"},
		{"sampling_with_tools", "sampling with tools",
			"put sampling/createMessage with its tools into inputRequests"},
		{"tasks", "a task for the call", "answer the call itself; a long wait for people becomes a round"},
		{"log_messages", "log messages", "send notifications/message only for requests that carry a logLevel"},
	};
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (report_number(entry, features[i].member))
			say(speaker, "uses", "%s (%" PRIdMAX ")", features[i].use,
				(intmax_t)report_number(entry, features[i].member));
	if (report_asks(entry))
		say(speaker, "to do", "return an InputRequiredResult where it asks, and go on from requestState");
	if (report_number(entry, "most_rounds") > 1)
		say(speaker, "to do",
			"ask in fewer rounds where questions do not depend on each other (now up to %" PRIdMAX ")",
			(intmax_t)report_number(entry, "most_rounds"));
	if (report_asked(entry, "roots"))
		say(speaker, "to do", "ask for roots in the call that needs them, not once a session");
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (report_number(entry, features[i].member))
			say(speaker, "to do", "%s: %s", features[i].use, features[i].advice);
}

void report_describe(const json_t *entry, report_say *say_line, void *ctx)
{
	const struct speaker speaker = {say_line, ctx};
	describe_calls(&speaker, entry);
	for (size_t i = 0; i < REPORT_KINDS; i++)
		describe_kind(&speaker, entry, report_kinds[i]);
	describe_forms(&speaker, entry);
	advise(&speaker, entry);
}
