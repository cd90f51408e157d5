/* The core's timers: an intrusive pairing heap. Setting and cancelling never fail and allocate nothing; the outside world
 * only has to call timers_run() when timers_next_due() says so. Times are milliseconds of the monotonic clock. */
#ifndef MCP_VALET_TIMER_H
#define MCP_VALET_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct timer {
	int64_t due_ms;
	void (*fire)(void *arg);
	void *arg;
	struct timer *child, *next, *prev; /* prev is the parent for a first child */
	bool armed;
};

struct timers {
	struct timer *root;
};

void timer_set(struct timers *timers, struct timer *timer, int64_t due_ms, void (*fire)(void *arg), void *arg);
void timer_cancel(struct timers *timers, struct timer *timer);
/* When the earliest timer is due, INT64_MAX if there is none. */
int64_t timers_next_due(const struct timers *timers);
/* Fires everything due at now_ms, earliest first. A timer is no longer armed when it fires. */
void timers_run(struct timers *timers, int64_t now_ms);

#endif
