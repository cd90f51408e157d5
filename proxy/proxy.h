/* The core as a whole: it owns the sessions, the calls, the timers and the graveyard, and does no I/O. */
#ifndef MCP_VALET_PROXY_H
#define MCP_VALET_PROXY_H

#include "policy/policy.h"
#include "proxy/env.h"
#include "proxy/face.h"
#include "proxy/request_state.h"
#include "proxy/upstream.h"

struct proxy_config {
	const struct env *env;
	struct policy *policy; /* the proxy takes a reference */
	struct keyring *keys;  /* the proxy takes a reference */
	const struct upstream_ops *upstream;
	void *upstream_ctx;
};

/* Returns NULL without memory. The pointers in `config` must outlive the proxy. */
struct proxy *proxy_new(const struct proxy_config *config) MUST_CHECK;

/* Closes every session at once and frees everything. Clients must be gone. */
void proxy_free(struct proxy *proxy);

/* When proxy_turn() must be called at the latest, milliseconds of the monotonic clock; INT64_MAX if nothing waits. */
int64_t proxy_next_due(const struct proxy *proxy);

/* The end of a turn of the event loop: fires what is due and frees what ended during the turn. */
void proxy_turn(struct proxy *proxy);

/* Takes a new policy and new keys for what comes from now on; parked calls keep the rule they were parked under. */
void proxy_reload(struct proxy *proxy, struct policy *policy, struct keyring *keys);

/* Begins the orderly end: new requests are refused, running calls may finish within the policy's `shutdown` deadline,
 * parked calls are abandoned, sessions are closed when they have nothing left. */
void proxy_shutdown(struct proxy *proxy);

/* Whether nothing is left to do: no exchange, no call, no session. */
bool proxy_is_idle(const struct proxy *proxy);

/* Counts for tests and the metrics endpoint. */
struct proxy_counts {
	size_t exchanges, calls, parked, sessions, server_requests;
};
struct proxy_counts proxy_counts(const struct proxy *proxy);

/* Appends all counters as text for Prometheus (metrics_write.c). */
void proxy_write_metrics(const struct proxy *proxy, struct buf *out);
/* Why new calls are not likely to succeed, NULL if nothing is known against it. */
const char *proxy_unready(const struct proxy *proxy);

#endif
