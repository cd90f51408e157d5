#include "proxy/metrics.h"

#include "proxy/method.h"
#include "proxy/metrics_write.h"

#include <stdlib.h>
#include <string.h>

const int metrics_bucket_ms[METRICS_BUCKETS] = {1, 5, 10, 50, 100, 500, 1000, 5000, 30000};

static const char *const subjects[] = {
	[POLICY_TOOL] = "tool", [POLICY_PROMPT] = "prompt", [POLICY_RESOURCE] = "resource"};

void metrics_free(struct metrics *metrics)
{
	for (size_t i = 0; i < metrics->row_count; i++) {
		observed_free(&metrics->rows[i]->seen);
		free(metrics->rows[i]->name);
		free(metrics->rows[i]);
	}
	observed_free(&metrics->other.seen);
	metrics->row_count = 0;
}

/* A copy that can be shown anywhere: valid UTF-8 (names decode lone surrogates to three bytes that are none), without
 * control characters, cut at a character's border. */
static char *make_name(const struct method *method, const char *name)
{
	size_t len = method->subject == POLICY_RESOURCE ? strcspn(name, "?#") : strlen(name);
	if (len > METRICS_NAME_BYTES) {
		len = METRICS_NAME_BYTES;
		while (len && ((unsigned char)name[len] & 0xc0) == 0x80)
			len--;
	}
	char *copy = span_dup((struct span){name, len});
	for (size_t i = 0; copy && i < len; i++) {
		unsigned char byte = (unsigned char)copy[i];
		if (byte < 0x20 || byte == 0x7f)
			copy[i] = '?';
		else if (byte == 0xed && i + 2 < len && (unsigned char)copy[i + 1] >= 0xa0)
			memset(copy + i, '?', 3);
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

struct metrics_row *metrics_row(struct metrics *metrics, const struct method *method, const char *name)
{
	char *copy = name ? make_name(method, name) : NULL;
	if (!copy)
		return &metrics->other;
	const char *subject = subjects[method->subject];
	struct metrics_row *row = find(metrics, subject, copy);
	if (!row && metrics->row_count < METRICS_NAMES && (row = calloc(1, sizeof(*row)))) {
		row->subject = subject;
		row->name = copy;
		metrics->rows[metrics->row_count++] = row;
		return row;
	}
	free(copy);
	return row ? row : &metrics->other;
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
