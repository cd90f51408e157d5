#include "proxy/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COUNT = 64 };

struct world {
	struct timers timers;
	struct item {
		struct world *world;
		struct timer timer;
		int64_t due_ms; /* what the reference says: INT64_MAX while not armed */
	} items[COUNT];
	int64_t now_ms;
	int64_t last_due_ms;
	unsigned fired;
	uint64_t seed;
};

/* xorshift64: the same sequence everywhere */
static unsigned draw(struct world *world, unsigned below)
{
	world->seed ^= world->seed << 13;
	world->seed ^= world->seed >> 7;
	world->seed ^= world->seed << 17;
	return (unsigned)(world->seed >> 33) % below;
}

static struct item *reference_earliest(struct world *world)
{
	struct item *earliest = &world->items[0];
	for (size_t i = 1; i < COUNT; i++)
		if (world->items[i].due_ms < earliest->due_ms)
			earliest = &world->items[i];
	return earliest;
}

static void fire(void *arg);

static void set(struct item *item, int64_t due_ms)
{
	timer_set(&item->world->timers, &item->timer, due_ms, fire, item);
	item->due_ms = due_ms;
}

static void cancel(struct item *item)
{
	timer_cancel(&item->world->timers, &item->timer);
	item->due_ms = INT64_MAX;
}

static void fire(void *arg)
{
	struct item *item = arg;
	struct world *world = item->world;
	assert_false(item->timer.armed);
	assert_true(item->due_ms <= world->now_ms);
	assert_true(item->due_ms == reference_earliest(world)->due_ms);
	item->due_ms = INT64_MAX;
	world->fired++;
	/* Callbacks set and cancel timers, their own included; what they set is never due at once here. */
	if (draw(world, 4) == 0)
		set(item, world->now_ms + 1 + draw(world, 50));
	if (draw(world, 4) == 0)
		cancel(&world->items[draw(world, COUNT)]);
	if (draw(world, 4) == 0)
		set(&world->items[draw(world, COUNT)], world->now_ms + 1 + draw(world, 50));
}

static struct world *world_new(uint64_t seed)
{
	struct world *world = calloc(1, sizeof(*world));
	assert_non_null(world);
	world->seed = seed;
	for (size_t i = 0; i < COUNT; i++) {
		world->items[i].world = world;
		world->items[i].due_ms = INT64_MAX;
	}
	return world;
}

static void agrees_with_an_array(void **state)
{
	(void)state;
	unsigned fired = 0;
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct world *world = world_new(seed * 0x9E3779B97F4A7C15);
		for (int step = 0; step < 1000; step++) {
			struct item *item = &world->items[draw(world, COUNT)];
			unsigned choice = draw(world, 10);
			if (choice < 6) {
				set(item, world->now_ms + 1 + draw(world, 100));
			} else if (choice < 8) {
				cancel(item);
			} else {
				world->now_ms += draw(world, 20);
				timers_run(&world->timers, world->now_ms);
				assert_true(reference_earliest(world)->due_ms > world->now_ms);
			}
			assert_true(timers_next_due(&world->timers) == reference_earliest(world)->due_ms);
			for (size_t i = 0; i < COUNT; i++)
				assert_int_equal(world->items[i].timer.armed, world->items[i].due_ms != INT64_MAX);
		}
		fired += world->fired;
		free(world);
	}
	assert_true(fired > 10000);
}

struct log {
	struct timers timers;
	struct entry {
		struct log *log;
		struct timer timer;
		char name;
	} entries[4];
	char fired[16];
	size_t len;
};

static void note(void *arg)
{
	struct entry *entry = arg;
	entry->log->fired[entry->log->len++] = entry->name;
}

static void note_and_set_again(void *arg)
{
	struct entry *entry = arg;
	note(arg);
	if (entry->log->len < 3)
		timer_set(&entry->log->timers, &entry->timer, 5, note_and_set_again, entry);
}

static void log_init(struct log *log)
{
	*log = (struct log){0};
	for (size_t i = 0; i < 4; i++)
		log->entries[i] = (struct entry){.log = log, .name = (char)('a' + i)};
}

static void log_set(struct log *log, size_t i, int64_t due_ms)
{
	timer_set(&log->timers, &log->entries[i].timer, due_ms, note, &log->entries[i]);
}

static void fires_in_order_and_not_too_early(void **state)
{
	(void)state;
	struct log log;
	log_init(&log);
	assert_true(timers_next_due(&log.timers) == INT64_MAX);
	timers_run(&log.timers, INT64_MAX);
	log_set(&log, 0, 30);
	log_set(&log, 1, 10);
	log_set(&log, 2, -20);
	log_set(&log, 3, 20);
	assert_true(timers_next_due(&log.timers) == -20);
	timers_run(&log.timers, -21);
	assert_string_equal(log.fired, "");
	timers_run(&log.timers, 19);
	assert_string_equal(log.fired, "cb");
	assert_true(timers_next_due(&log.timers) == 20);
	timers_run(&log.timers, 30);
	assert_string_equal(log.fired, "cbda");
	assert_true(timers_next_due(&log.timers) == INT64_MAX);
}

static void setting_again_moves_a_timer(void **state)
{
	(void)state;
	struct log log;
	log_init(&log);
	log_set(&log, 0, 10);
	log_set(&log, 1, 20);
	log_set(&log, 0, 30);
	timers_run(&log.timers, 25);
	assert_string_equal(log.fired, "b");
	log_set(&log, 0, 5);
	assert_true(timers_next_due(&log.timers) == 5);
	timers_run(&log.timers, 25);
	assert_string_equal(log.fired, "ba");
	timers_run(&log.timers, 100);
	assert_string_equal(log.fired, "ba");
}

static void cancelling_twice_is_harmless(void **state)
{
	(void)state;
	struct log log;
	log_init(&log);
	log_set(&log, 0, 10);
	log_set(&log, 1, 10);
	timer_cancel(&log.timers, &log.entries[0].timer);
	timer_cancel(&log.timers, &log.entries[0].timer);
	timer_cancel(&log.timers, &log.entries[2].timer);
	timers_run(&log.timers, 10);
	assert_string_equal(log.fired, "b");
}

static void a_timer_may_set_itself_again(void **state)
{
	(void)state;
	struct log log;
	log_init(&log);
	timer_set(&log.timers, &log.entries[0].timer, 5, note_and_set_again, &log.entries[0]);
	timers_run(&log.timers, 5);
	assert_string_equal(log.fired, "aaa");
	assert_true(timers_next_due(&log.timers) == INT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_an_array),
		cmocka_unit_test(fires_in_order_and_not_too_early),
		cmocka_unit_test(setting_again_moves_a_timer),
		cmocka_unit_test(cancelling_twice_is_harmless),
		cmocka_unit_test(a_timer_may_set_itself_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
