/* The simulated world around one core: its clock, its choices, what happens next, and the record of what went wrong.
 *
 * A run is a function of its seed (or of its scenario): nothing else is read, so that a failure can be played again with a
 * trace. The messages themselves cross in link.h (to the legacy servers) and party.h (to the modern clients), where the
 * ledger checks each of them; what the servers and clients do is up to a driver. */
#ifndef MCP_VALET_SIM_WORLD_H
#define MCP_VALET_SIM_WORLD_H

#include "proxy/proxy.h"
#include "tests/sim/arena.h"
#include "tests/sim/random.h"

struct world;
struct link;
struct ask;
struct party;
struct ledger;

/* What plays the servers and the clients: the random models, or a scenario. Bytes are borrowed for the call. */
struct driver {
	/* Server side. A link is one connection that the core opened. */
	bool (*may_open)(struct world *world);
	void (*opened)(struct link *link);
	int (*queue_status)(struct link *link); /* 0, or ERROR_LIMIT: the message is refused */
	void (*from_proxy)(struct link *link, struct span message);
	void (*establish)(struct link *link, const char *version);
	void (*closed)(struct link *link);
	/* Client side. `ask` is NULL for a response to no request that is open. */
	void (*notified)(struct party *party, struct span message);
	void (*responded)(struct party *party, struct ask *ask, int http_status, struct span message);
	/* The core has hung up on a legacy client. */
	void (*hung_up)(struct party *party);
};

struct event {
	int64_t at_ms;
	uint64_t order;
	void (*run)(struct world *world, void *arg);
	void *arg;
};

struct world {
	struct arena arena;
	struct prng prng;
	int64_t now_ms, wall_ms; /* of both clocks; they run alike unless a driver moves them */
	struct event *events;	 /* a heap, earliest first */
	size_t event_count;
	uint64_t event_order;

	struct env env;
	struct policy *policy;
	struct keyring *keys;
	struct proxy *proxy;
	bool has_streams;
	int64_t latency_ms; /* longest way of a message, each direction */
	bool late_turns;    /* timers may fire late */
	unsigned breaks;    /* of a hundred: their connection is found broken after this one */
	unsigned deaf;	    /* of a hundred messages to legacy clients: it does not read this one */

	const struct driver *driver;
	void *model; /* the driver's own */
	struct ledger *ledger;

	bool verbose, failed;
	char failure[1000];
	char *log; /* events that the core logged, one word a line, newest last */
	size_t log_len;
};

/* Makes a world without a proxy; the policy starts as policy_default() and may be changed until world_start(). */
void world_init(struct world *world, uint64_t seed, const struct driver *driver, bool verbose);
void world_start(struct world *world);
/* Frees the proxy and all that this run used; the arena's address space and the keys serve the next run. */
void world_end(struct world *world);

void world_at(struct world *world, int64_t delay_ms, void (*run)(struct world *world, void *arg), void *arg);
/* Lets everything happen up to `until_ms`, and stands there. */
void world_run_until(struct world *world, int64_t until_ms);
/* Lets everything happen until nothing waits any more, or `until_ms`. */
void world_drain(struct world *world, int64_t until_ms);
/* The end of a run: nothing is left in the core. */
void world_check_empty(struct world *world);

/* Records the first violation; the run ends at its next step. */
void world_fail(struct world *world, const char *format, ...) PRINTF_LIKE(2, 3);
void world_trace(struct world *world, const char *format, ...) PRINTF_LIKE(2, 3);
/* Whether the core has logged this event since the log was last cleared. */
bool world_has_logged(const struct world *world, const char *event);

int64_t choose(struct world *world, int64_t low, int64_t high);
bool chance(struct world *world, unsigned percent);

#endif
