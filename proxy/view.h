/* What the status page shows of the core: a look at it between two turns of the loop. Nothing of this may be kept; answers,
 * request states, principals and credentials are not in it. */
#ifndef MCP_VALET_VIEW_H
#define MCP_VALET_VIEW_H

#include "proxy/metrics.h"
#include "proxy/proxy.h"

/* A call that waits for its client. */
struct view_parked {
	const char *subject; /* method and name */
	const char *hash;    /* the call's, as in the log */
	const char *session;
	unsigned asked[POLICY_KINDS]; /* open questions by kind */
	unsigned round;
	int64_t for_ms, left_ms; /* since when, until when */
};

struct view_session {
	const char *name, *state;
	const char *version;
	unsigned calls, parked;
};

const struct metrics *view_metrics(const struct proxy *proxy);
/* Call `show` for each, at most `max` times. Return how many there are. */
size_t view_parked(
	const struct proxy *proxy, size_t max, void (*show)(void *ctx, const struct view_parked *parked), void *ctx);
size_t view_sessions(
	const struct proxy *proxy, size_t max, void (*show)(void *ctx, const struct view_session *session), void *ctx);
/* How long the server waits for answers, as learned; 0: not known. */
int64_t view_patience_ms(const struct proxy *proxy);
/* The clock that last_ms of a refusal is of. */
int64_t view_now_ms(const struct proxy *proxy);

#endif
