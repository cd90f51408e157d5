#include "proxy/metrics.h"

#include "proxy/metrics_write.h"

#include <stdlib.h>
#include <string.h>

const int metrics_bucket_ms[METRICS_BUCKETS] = {1, 5, 10, 50, 100, 500, 1000, 5000, 30000};

static void row_clear(struct metrics_row *row)
{
	observed_free(&row->seen);
	free(row->name);
	*row = (struct metrics_row){0};
}

void metrics_free(struct metrics *metrics)
{
	for (size_t i = 0; i < metrics->row_count; i++) {
		row_clear(metrics->rows[i]);
		free(metrics->rows[i]);
	}
	row_clear(&metrics->other);
	metrics->row_count = 0;
}

/* A copy that can be shown anywhere: valid UTF-8 (names decode lone surrogates to three bytes that are none), without
 * control characters, cut at a character's border. What was made so once stays the same when it is made again. */
static char *make_name(enum policy_subject subject, const char *name)
{
	size_t whole = strlen(name), len = subject == POLICY_RESOURCE ? strcspn(name, "?#") : whole;
	const char *rest = len == whole ? "" : name[len] == '?' ? "?\u2026" : "#\u2026";
	if (len > METRICS_NAME_BYTES) {
		len = METRICS_NAME_BYTES;
		while (len && ((unsigned char)name[len] & 0xc0) == 0x80)
			len--;
		rest = "\u2026";
	}
	char *copy = malloc(len + strlen(rest) + 1);
	if (!copy)
		return NULL;
	const char odd = subject == POLICY_RESOURCE ? '_' : '?'; /* there, ? would begin a query */
	memcpy(copy, name, len);
	strcpy(copy + len, rest);
	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)copy[i];
		if (byte < 0x20 || byte == 0x7f)
			copy[i] = odd;
		else if (byte == 0xed && i + 2 < len && (unsigned char)copy[i + 1] >= 0xa0)
			memset(copy + i, odd, 3);
	}
	return copy;
}

static struct metrics_row *find(struct metrics *metrics, const char *subject, const char *name)
{
	for (size_t i = 0; i < metrics->row_count; i++)
		if (metrics->rows[i]->subject == subject && strcmp(metrics->rows[i]->name, name) == 0)
			return metrics->rows[i];
	return NULL;
}

static bool is_resource(const struct metrics_row *row)
{
	return row->subject == metrics_subject_names[POLICY_RESOURCE];
}

/* Empties the row that is missed least: of a name that the server has not shown to know, the one taken longest ago. NULL if
 * there is none. */
static struct metrics_row *make_room(struct metrics *metrics, bool among_resources)
{
	struct metrics_row *oldest = NULL;
	for (size_t i = 0; i < metrics->row_count; i++) {
		struct metrics_row *row = metrics->rows[i];
		if (!row->seen.known && !row->users && (is_resource(row) || !among_resources) &&
			(!oldest || row->taken < oldest->taken))
			oldest = row;
	}
	if (oldest) {
		metrics_row_add(&metrics->other, oldest);
		row_clear(oldest);
	}
	return oldest;
}

static struct metrics_row *new_row(struct metrics *metrics, enum policy_subject subject)
{
	size_t resources = 0;
	for (size_t i = 0; i < metrics->row_count; i++)
		resources += is_resource(metrics->rows[i]);
	bool is_one_too_many = subject == POLICY_RESOURCE && resources >= METRICS_RESOURCES;
	if (is_one_too_many || metrics->row_count == METRICS_NAMES)
		return make_room(metrics, is_one_too_many);
	struct metrics_row *row = calloc(1, sizeof(*row));
	if (row)
		metrics->rows[metrics->row_count++] = row;
	return row;
}

struct metrics_row *metrics_row_take(struct metrics *metrics, enum policy_subject subject, const char *name)
{
	char *copy = name ? make_name(subject, name) : NULL;
	struct metrics_row *row = copy ? find(metrics, metrics_subject_names[subject], copy) : NULL;
	if (copy && !row && (row = new_row(metrics, subject))) {
		row->subject = metrics_subject_names[subject];
		row->name = copy;
		copy = NULL;
	}
	free(copy);
	if (!row)
		row = &metrics->other;
	row->users++;
	row->taken = ++metrics->takings;
	return row;
}

void metrics_row_release(struct metrics_row *row)
{
	row->users--;
}

void metrics_row_add(struct metrics_row *row, const struct metrics_row *more)
{
	row->rounds += more->rounds;
	for (size_t i = 0; i < METRICS_ENDS; i++)
		row->ends[i] += more->ends[i];
	for (size_t kind = 0; kind < POLICY_KINDS; kind++) {
		row->forwarded[kind] += more->forwarded[kind];
		for (size_t i = 0; i < SERVER_REQUEST_OUTCOMES; i++)
			row->requests[kind][i] += more->requests[kind][i];
	}
	row->people_ms += more->people_ms;
	row->people_count += more->people_count;
	observed_add(&row->seen, &more->seen);
}

void metrics_refused(struct metrics *metrics, const char *reason, int64_t now_ms)
{
	size_t i = 0;
	while (i < METRICS_REASONS - 1 && metrics->reasons[i].reason && strcmp(metrics->reasons[i].reason, reason) != 0)
		i++;
	metrics->reasons[i].reason = i < METRICS_REASONS - 1 ? reason : "other";
	metrics->reasons[i].count++;
	metrics->reasons[i].last_ms = now_ms;
}

void metrics_waited(struct metrics *metrics, int64_t wait_ms)
{
	size_t i = 0;
	while (i < METRICS_BUCKETS && wait_ms > metrics_bucket_ms[i])
		i++;
	metrics->wait_buckets[i]++;
	metrics->wait_ms += (uint64_t)wait_ms;
}
