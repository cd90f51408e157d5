/* The status page: one page of HTML without script and without anything from elsewhere. Tables of what is now, small charts
 * of the last hour. */
#ifndef MCP_VALET_ADMIN_PAGE_H
#define MCP_VALET_ADMIN_PAGE_H

#include "proxy/proxy.h"

enum { HISTORY_MINUTES = 60 };

/* What was counted up to now, once a minute; zeroed: nothing yet. */
struct history {
	struct sample {
		uint64_t requests, rounds, refusals, parked;
	} samples[HISTORY_MINUTES + 1];
	size_t count; /* of samples ever taken */
};

/* Takes the sample of this minute. */
void history_take(struct history *history, const struct proxy *proxy);

/* Appends the page. */
void admin_page_write(struct buf *out, const struct proxy *proxy, const struct history *history);

#endif
