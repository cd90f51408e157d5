#include "proxy/timer.h"

#include <stddef.h>

static struct timer *meld(struct timer *a, struct timer *b)
{
	if (!a)
		return b;
	if (!b)
		return a;
	if (b->due_ms < a->due_ms) {
		struct timer *swap = a;
		a = b;
		b = swap;
	}
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	b->prev = a;
	a->child = b;
	return a;
}

/* Melds a list of siblings into one heap, in pairs from the left and then from the right: the amortised logarithm of a
 * pairing heap depends on the two passes. */
static struct timer *meld_siblings(struct timer *first)
{
	struct timer *pairs = NULL;
	while (first) {
		struct timer *a = first;
		struct timer *b = a->next;
		first = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	struct timer *root = NULL;
	while (pairs) {
		struct timer *next = pairs->next;
		pairs->next = NULL;
		root = meld(root, pairs);
		pairs = next;
	}
	return root;
}

void timer_cancel(struct timers *timers, struct timer *timer)
{
	if (!timer->armed)
		return;
	struct timer *rest = meld_siblings(timer->child);
	if (timers->root == timer) {
		timers->root = rest;
	} else {
		if (timer->prev->child == timer)
			timer->prev->child = timer->next;
		else
			timer->prev->next = timer->next;
		if (timer->next)
			timer->next->prev = timer->prev;
		timers->root = meld(timers->root, rest);
	}
	timer->child = timer->next = timer->prev = NULL;
	timer->armed = false;
}

void timer_set(struct timers *timers, struct timer *timer, int64_t due_ms, void (*fire)(void *arg), void *arg)
{
	timer_cancel(timers, timer);
	*timer = (struct timer){.due_ms = due_ms, .fire = fire, .arg = arg, .armed = true};
	timers->root = meld(timers->root, timer);
}

int64_t timers_next_due(const struct timers *timers)
{
	return timers->root ? timers->root->due_ms : INT64_MAX;
}

void timers_run(struct timers *timers, int64_t now_ms)
{
	while (timers->root && timers->root->due_ms <= now_ms) {
		struct timer *timer = timers->root;
		timer_cancel(timers, timer);
		timer->fire(timer->arg);
	}
}
