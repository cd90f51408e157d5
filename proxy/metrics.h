/* Plain counters of what the proxy does, for the admin endpoint. No I/O, no clock, bounded memory: at most METRICS_NAMES
 * tools, prompts and resources have a row of their own, what comes later shares one. A name that clients made up must not
 * keep a real one out: a row that the server has not shown to know makes room. Resources, whose names clients may make up
 * from a template, have half of the rows at most. Answers, request states and principals
 * are never in them. */
#ifndef MCP_VALET_METRICS_H
#define MCP_VALET_METRICS_H

#include "proxy/observe.h"

struct proxy;

enum {
	METRICS_NAMES = 200,
	METRICS_RESOURCES = METRICS_NAMES / 2,
	METRICS_NAME_BYTES = 128, /* longer names are cut, and end with an ellipsis then */
	METRICS_REASONS = 48,	  /* literal words of the program; what comes later is "other" */
	METRICS_METHODS = 13,
	METRICS_ENDS = 5, /* enum call_end */
	METRICS_BUCKETS = 9,
};

/* What became of a server request. */
enum server_request_outcome {
	SERVER_REQUEST_ANSWERED,      /* by the client */
	SERVER_REQUEST_BY_POLICY,     /* with a result that the policy holds */
	SERVER_REQUEST_DENIED,	      /* denied, declined or cancelled by the policy */
	SERVER_REQUEST_WITHDRAWN,     /* by the server */
	SERVER_REQUEST_FAILED_CLOSED, /* nobody answered */
	SERVER_REQUEST_LOST,	      /* the session went before */
	SERVER_REQUEST_OUTCOMES,
};

/* One tool, prompt or resource, or what stands for all that are not named. */
struct metrics_row {
	const char *subject; /* "tool", "prompt", "resource" or "other" */
	char *name;
	unsigned users; /* who counts in it now */
	uint64_t taken; /* which taking of a row was the newest of this one */
	uint64_t rounds;
	uint64_t ends[METRICS_ENDS];
	uint64_t forwarded[POLICY_KINDS];
	uint64_t requests[POLICY_KINDS][SERVER_REQUEST_OUTCOMES];
	uint64_t people_ms, people_count; /* from a round to the retry that answers it */
	struct observed seen;
};

struct metrics {
	struct metrics_row *rows[METRICS_NAMES];
	size_t row_count;
	uint64_t takings;
	struct metrics_row other; /* names beyond the limit, and what belongs to no call */
	uint64_t methods[METRICS_METHODS];
	struct {
		const char *reason;
		uint64_t count;
		int64_t last_ms; /* the newest one, monotonic clock */
	} reasons[METRICS_REASONS];
	uint64_t parked, tasks, held, ambiguous;
	uint64_t sessions_lost, handshakes_repeated;
	uint64_t client_bytes_in, client_bytes_out, server_bytes_in, server_bytes_out;
	uint64_t wait_buckets[METRICS_BUCKETS + 1], wait_ms; /* the last one: everything above */
	int64_t unreachable_until_ms; /* the newest attempt at a session failed, and how long that counts; 0 */
};

void metrics_free(struct metrics *metrics);

/* Takes the row for a name, made if need be; never NULL. To be given back. A URI loses its query, which may hold a secret:
 * an ellipsis stands for it. `name` may be NULL. */
struct metrics_row *metrics_row_take(struct metrics *metrics, enum policy_subject subject, const char *name) MUST_CHECK;
void metrics_row_release(struct metrics_row *row);
/* Adds all counts of another row. */
void metrics_row_add(struct metrics_row *row, const struct metrics_row *more);
/* Counts a refusal. `reason` is a literal. */
void metrics_refused(struct metrics *metrics, const char *reason, int64_t now_ms);
/* A call is over that waited so long in the proxy. */
void metrics_waited(struct metrics *metrics, int64_t wait_ms);

#endif
