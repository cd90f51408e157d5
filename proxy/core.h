/* The inside of the core: the one struct that everything hangs on, the graveyard, and logging. Only files of proxy/
 * include this. */
#ifndef MCP_VALET_CORE_H
#define MCP_VALET_CORE_H

#include "proxy/metrics.h"
#include "proxy/proxy.h"
#include "proxy/timer.h"

#include <sodium.h>

struct call;

/* An object that has ended waits here until the turn of the loop is over, so that no function deep in the stack finds it
 * gone. Embedded in each such object. */
struct grave {
	struct grave *next;
	void (*free)(struct grave *grave);
};

/* Names of tools, learned from the lists that pass. */
struct tool_names {
	char **names; /* decoded */
	size_t count;
};

/* What one principal uses (account.c). Exists while it uses anything. */
struct account;

/* Outcomes that are kept, their number and what memory they need. */
enum kept_measure { KEPT_COUNT, KEPT_BYTES, KEPT_MEASURES };

TAILQ_HEAD(session_list, session);
TAILQ_HEAD(call_list, call);
TAILQ_HEAD(subscription_list, subscription);

struct proxy {
	const struct env *env;
	struct policy *policy;
	struct keyring *keys;
	const struct upstream_ops *upstream;
	void *upstream_ctx;
	uint8_t instance[INSTANCE_BYTES];
	uint8_t table_key[crypto_shorthash_KEYBYTES];
	struct timers timers;
	struct grave *graveyard;

	struct session_list sessions;	   /* most recently used first */
	struct subscription_list homeless; /* subscriptions without a session */
	struct call *tickets;		   /* table of the calls that a request state names */
	struct account *accounts;	   /* table by principal */
	struct relay *relays;		   /* table by session id: legacy clients over HTTP */
	struct call_list kept;		   /* finished calls whose outcome may still be asked for, oldest first */

	struct proxy_counts counts;
	struct metrics metrics;
	struct log_rate warnings; /* about what the server sends */
	size_t kept_sums[KEPT_MEASURES];
	unsigned places;		    /* of parked calls, and of tasks whose end is not told: limits.parked */
	unsigned client_tasks;		    /* calls that are tasks for their clients, kept ones included */
	struct tool_names task_tools;	    /* can only be called as a task (task.h) */
	struct tool_names repeatable_tools; /* say that they only read, or may be repeated (rerun.h) */
	uint64_t sessions_opened;	    /* ever; names sessions */
	int64_t patience_ms;		    /* how long this target waits for its own requests, as seen; 0: not known */
	enum policy_era era;		    /* of the server; POLICY_ERA_AUTO: not known yet */
	struct session *probe;		    /* asks for it, or NULL (era.h) */
	TAILQ_HEAD(, undecided) undecided;  /* requests that wait for it */
	unsigned undecided_count;
	bool serial;	   /* this target sends requests outside the streams of its calls */
	bool tasks_before; /* a policy before this one had tasks */
	bool shutting_down;
	struct timer shutdown_timer;
};

static inline int64_t proxy_now(const struct proxy *proxy)
{
	return proxy->env->now_ms(proxy->env->ctx);
}

/* Buries an object: grave_free() is called at the end of the turn. */
void proxy_bury(struct proxy *proxy, struct grave *grave, void (*grave_free)(struct grave *grave));

/* Counts a call among the parked ones of its principal. false without memory or beyond a limit; *error says which. */
bool proxy_account_park(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES], struct error *error) MUST_CHECK;
void proxy_account_unpark(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES]);

/* Counts the outcome of a call that is about to finish among those of its principal. false without memory. */
bool proxy_account_keep(struct call *call) MUST_CHECK;
void proxy_account_unkeep(struct call *call);
/* Beyond a limit, the principal that keeps the most loses: first what it was told already, then the oldest. */
void proxy_account_trim(struct proxy *proxy);

/* Logs an event that belongs to no session or call. */
void proxy_log(const struct proxy *proxy, enum log_level level, const char *event, const char *format, ...)
	PRINTF_LIKE(4, 5);

#endif
