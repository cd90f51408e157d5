/* What the migration report says of one tool, prompt or resource: the same words for its text and for its page. Entries are
 * read as they come: a member that is missing counts as nothing, and no number is believed beyond what can be added up. */
#ifndef MCP_VALET_REPORT_ENTRY_H
#define MCP_VALET_REPORT_ENTRY_H

#include <jansson.h>
#include <stdbool.h>

enum { REPORT_KINDS = 3 };

/* "elicitation", "sampling", "roots", in the order of metrics_kind_names, whose header and jansson.h exclude each other. */
extern const char *const report_kinds[REPORT_KINDS];

enum report_verdict {
	REPORT_TO_CHANGE,
	REPORT_READY,	/* nothing to change, as far as was seen */
	REPORT_UNKNOWN, /* called, and never with success: perhaps the server has no such thing */
	REPORT_UNSEEN,	/* nothing was seen that could be said of it */
};

json_int_t report_number(const json_t *object, const char *key); /* never negative */
const char *report_text(const json_t *object, const char *key);	 /* "?" where there is none */

enum report_verdict report_judge(const json_t *entry);
/* How often it asked this, whatever became of it. */
json_int_t report_asked(const json_t *entry, const char *kind);
bool report_asks(const json_t *entry);
json_int_t report_calls(const json_t *entry); /* that have ended */

/* The entries in order of traffic; the array is to be freed. NULL without memory. */
json_t **report_sort(const json_t *entries, size_t *count);

size_t report_count(json_t *const *entries, size_t count, enum report_verdict verdict);

/* Says everything, line by line. Names are in `text` as they came. */
typedef void report_say(void *ctx, const char *label, const char *text);
void report_describe(const json_t *entry, report_say *say, void *ctx);

/* report_page.c: appends the page of a whole report. */
struct buf;
void report_page_write(struct buf *out, const json_t *report, json_t *const *entries, size_t count);

#endif
