#include "tests/sim/world.h"

#include "tests/sim/ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 1 << 13, LOG_BYTES = 1 << 14, LATE_MS = 50 };

/* The core's environment. */

static int64_t now_ms(void *ctx)
{
	return ((struct world *)ctx)->now_ms;
}

static int64_t wall_ms(void *ctx)
{
	return ((struct world *)ctx)->wall_ms;
}

static void random_bytes(void *ctx, void *out, size_t len)
{
	prng_fill(&((struct world *)ctx)->prng, out, len);
}

static void take_log(void *ctx, const struct log_line *line)
{
	struct world *world = ctx;
	size_t len = strlen(line->event);
	if (world->log_len + len + 2 < LOG_BYTES) {
		memcpy(world->log + world->log_len, line->event, len);
		world->log[world->log_len + len] = '\n';
		world->log_len += len + 1;
		world->log[world->log_len] = '\0';
	}
	world_trace(world, "           log %s [%s %s] %s", line->event, line->session ? line->session : "-",
		line->subject ? line->subject : "-", line->text);
}

bool world_has_logged(const struct world *world, const char *event)
{
	size_t len = strlen(event);
	for (const char *at = world->log; (at = strstr(at, event)); at += len)
		if ((at == world->log || at[-1] == '\n') && at[len] == '\n')
			return true;
	return false;
}

/* Life. */

static const char key_file[] = "v1 01234567 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

void world_init(struct world *world, uint64_t seed, const struct driver *driver, bool verbose)
{
	struct arena arena = world->arena;
	struct keyring *keys = world->keys;
	if (!arena.base)
		arena_init(&arena, (size_t)1 << 30);
	arena_reset(&arena);
	*world = (struct world){
		.arena = arena,
		.driver = driver,
		.verbose = verbose,
		.now_ms = 1000,
		.wall_ms = 1800000000000,
	};
	prng_seed(&world->prng, seed);
	world->events = arena_take(&world->arena, MAX_EVENTS * sizeof(*world->events));
	world->log = arena_take(&world->arena, LOG_BYTES);
	world->log[0] = '\0';
	world->env = (struct env){
		.ctx = world,
		.now_ms = now_ms,
		.wall_ms = wall_ms,
		.random = random_bytes,
		.log = take_log,
		.log_level = LOG_DEBUG,
	};
	world->policy = policy_default();
	world->keys = keys ? keys : keyring_parse(span_of(key_file), "keys", NULL);
	ledger_init(world);
	if (!world->policy || !world->keys) {
		fprintf(stderr, "sim: out of memory\n");
		exit(2);
	}
	world->policy->legacy_clients = POLICY_LEGACY_REFUSE; /* what is simulated is the bridge */
}

void world_start(struct world *world)
{
	world->proxy = proxy_new(&(struct proxy_config){
		.env = &world->env,
		.policy = world->policy,
		.keys = world->keys,
		.upstream = link_ops(world->has_streams),
		.upstream_ctx = world,
	});
	if (!world->proxy) {
		fprintf(stderr, "sim: out of memory\n");
		exit(2);
	}
}

void world_end(struct world *world)
{
	world->ledger->over = true;
	world->verbose = false;
	parties_gone(world);
	proxy_free(world->proxy);
	/* What a driver has put in is the arena's. */
	world->policy->defaults.input_keys = NULL;
	world->policy->defaults.input_key_count = 0;
	memset(world->policy->defaults.answer, 0, sizeof(world->policy->defaults.answer));
	policy_unref(world->policy);
	world->proxy = NULL;
}

/* What happens next. */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

void world_at(struct world *world, int64_t delay_ms, void (*run)(struct world *world, void *arg), void *arg)
{
	if (world->event_count == MAX_EVENTS) {
		world_fail(world, "the simulation has too many events: something goes round in circles");
		return;
	}
	struct event event = {world->now_ms + delay_ms, world->event_order++, run, arg};
	size_t at = world->event_count++;
	while (at && is_before(&event, &world->events[(at - 1) / 2])) {
		world->events[at] = world->events[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	world->events[at] = event;
}

static struct event take_event(struct world *world)
{
	struct event first = world->events[0];
	struct event last = world->events[--world->event_count];
	size_t at = 0;
	for (;;) {
		size_t child = 2 * at + 1;
		if (child >= world->event_count)
			break;
		if (child + 1 < world->event_count && is_before(&world->events[child + 1], &world->events[child]))
			child++;
		if (!is_before(&world->events[child], &last))
			break;
		world->events[at] = world->events[child];
		at = child;
	}
	world->events[at] = last;
	return first;
}

static void move_clock(struct world *world, int64_t to_ms)
{
	if (to_ms <= world->now_ms)
		return;
	world->wall_ms += to_ms - world->now_ms;
	world->now_ms = to_ms;
}

/* One step: an event, or a turn of the core. Several events may share one turn, as in a real loop, but time never passes
 * before the core had its turn. false when nothing happens up to `until_ms`. */
static bool step(struct world *world, int64_t until_ms)
{
	int64_t due_ms = proxy_next_due(world->proxy);
	int64_t event_ms = world->event_count ? world->events[0].at_ms : INT64_MAX;
	bool turn = due_ms < event_ms || (due_ms == event_ms && chance(world, 50));
	if (due_ms < world->now_ms && event_ms <= world->now_ms)
		turn = chance(world, 70);
	if (turn && event_ms - due_ms < LATE_MS && due_ms > world->now_ms && world->late_turns && chance(world, 3))
		turn = false; /* a busy loop comes late to its timers */
	int64_t next_ms = turn ? due_ms : event_ms;
	if (next_ms > until_ms && next_ms > world->now_ms)
		return false;
	if (turn) {
		move_clock(world, due_ms);
		proxy_turn(world->proxy);
	} else {
		struct event event = take_event(world);
		move_clock(world, event.at_ms);
		event.run(world, event.arg);
	}
	ledger_check_step(world);
	return true;
}

void world_run_until(struct world *world, int64_t until_ms)
{
	while (!world->failed && step(world, until_ms))
		;
	move_clock(world, until_ms);
}

void world_drain(struct world *world, int64_t until_ms)
{
	while (!world->failed && step(world, until_ms))
		;
}

void world_check_empty(struct world *world)
{
	struct proxy_counts counts = proxy_counts(world->proxy);
	if (counts.exchanges || counts.calls || counts.parked || counts.sessions || counts.server_requests)
		world_fail(world,
			"invariant 6: left over at the end: %zu exchanges, %zu calls, %zu parked, %zu sessions, "
			"%zu server requests",
			counts.exchanges, counts.calls, counts.parked, counts.sessions, counts.server_requests);
	if (proxy_next_due(world->proxy) != INT64_MAX)
		world_fail(world, "invariant 6: a timer is left over at the end, or something goes round in circles");
	ledger_check_end(world);
}

/* Records. */

void world_fail(struct world *world, const char *format, ...)
{
	if (world->failed)
		return;
	world->failed = true;
	va_list args;
	va_start(args, format);
	vsnprintf(world->failure, sizeof(world->failure), format, args);
	va_end(args);
	world_trace(world, "VIOLATION  %s", world->failure);
}

void world_trace(struct world *world, const char *format, ...)
{
	if (!world->verbose)
		return;
	va_list args;
	va_start(args, format);
	printf("%9.3f  ", (double)world->now_ms / 1000);
	vprintf(format, args);
	putchar('\n');
	va_end(args);
	fflush(stdout);
}

int64_t choose(struct world *world, int64_t low, int64_t high)
{
	return prng_between(&world->prng, low, high);
}

bool chance(struct world *world, unsigned percent)
{
	return prng_chance(&world->prng, percent);
}
