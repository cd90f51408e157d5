/* One run of the random models: what this run's world is like, and its course. */
#include "tests/sim/model.h"

#include "tests/sim/sim.h"

#include <stdlib.h>

enum { HOUR_MS = 3600000 };

static bool may_open(struct world *world)
{
	const struct model *model = world->model;
	return !chance(world, model->nature.no_open);
}

const struct driver model_driver = {
	.may_open = may_open,
	.opened = model_opened,
	.queue_status = model_queue_status,
	.from_proxy = model_from_proxy,
	.establish = model_establish,
	.closed = model_closed,
	.notified = model_notified,
	.responded = model_responded,
	.hung_up = legacy_hung_up,
};

static void choose_faults(struct world *world, struct nature *nature)
{
	static const unsigned amounts[] = {0, 0, 0, 2, 10, 40};
	unsigned *const faults[] = {&nature->ignores_cancel, &nature->answers_cancelled, &nature->crashes,
		&nature->undeclared, &nature->strays, &nature->malformed};
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		*faults[i] = amounts[choose(world, 0, 5)];
	nature->full_queue = chance(world, 5) ? 5 : 0;
	nature->no_open = chance(world, 5) ? 50 : 0;
	nature->handshake =
		chance(world, 70) ? HANDSHAKE_GOOD : (unsigned)choose(world, HANDSHAKE_GOOD, HANDSHAKE_STRANGE);
	nature->knows_no_ping = chance(world, 20);
	nature->tasks = chance(world, 10);
}

static void choose_nature(struct world *world, struct nature *nature)
{
	static const char *const versions[] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2025-11-25"};
	*nature = (struct nature){
		.benign = chance(world, 20),
		.version = versions[choose(world, 0, 4)],
		.roots_at_once = chance(world, 25),
		.roots_later = chance(world, 15),
		.streams_used = chance(world, 70),
		.lists = chance(world, 50) ? 10 : 40,
	};
	/* Roots that come late are asked for a call that happens to run, which then seems to wait and does not. */
	nature->roots_later &= !nature->benign;
	if (!nature->benign)
		choose_faults(world, nature);
}

static void choose_keys(struct world *world)
{
	struct policy_rule *rule = &world->policy->defaults;
	struct model *model = world->model;
	rule->input_keys = arena_alloc(&world->arena, 2 * sizeof(*rule->input_keys));
	rule->input_keys[0] = arena_printf(&world->arena, "first");
	rule->input_keys[1] = arena_printf(&world->arena, "second");
	rule->input_key_count = 2;
	model->keys_ahead = world->ledger->keys_by_policy = true;
}

static void choose_actions(struct world *world)
{
	struct policy_rule *rule = &world->policy->defaults;
	rule->action[POLICY_ELICITATION] = (enum policy_action)choose(world, POLICY_FORWARD, POLICY_ANSWER);
	rule->action[POLICY_SAMPLING] = chance(world, 50) ? POLICY_DENY : POLICY_FORWARD;
	rule->action[POLICY_ROOTS] = chance(world, 30)	 ? POLICY_DENY
				     : chance(world, 30) ? POLICY_ANSWER
							 : POLICY_FORWARD;
	if (rule->action[POLICY_ELICITATION] == POLICY_ANSWER)
		rule->answer[POLICY_ELICITATION] =
			arena_printf(&world->arena, "{\"action\":\"accept\",\"content\":{\"by\":\"policy\"}}");
	if (rule->action[POLICY_ROOTS] == POLICY_ANSWER)
		rule->answer[POLICY_ROOTS] = arena_printf(&world->arena, "{\"roots\":[{\"uri\":\"file:///policy\"}]}");
}

static void choose_policy(struct world *world, bool benign)
{
	struct policy *policy = world->policy;
	struct policy_rule *rule = &policy->defaults;
	struct policy_limits *limits = &policy->limits;
	struct policy_deadlines *deadlines = &policy->deadlines;
	policy->upstream.overlap_ms = chance(world, 50) ? 1000 : chance(world, 50) ? -1 : choose(world, 0, 5000);
	policy->upstream.attribution = (enum policy_attribution)choose(world, 0, 2);
	limits->pool = (unsigned)choose(world, 1, 3);
	if (benign)
		return;
	struct model *model = world->model;
	model->actions = chance(world, 25);
	if (model->actions && chance(world, 60))
		choose_actions(world);
	if (model->actions && chance(world, 40))
		choose_keys(world);
	if (chance(world, 30))
		rule->undeclared = POLICY_UNDECLARED_REFUSE;
	if (chance(world, 10))
		rule->asks_never = true;
	if (chance(world, 10)) {
		rule->rerun = POLICY_RERUN_IF_LOST;
		world->ledger->reruns = true;
	}
	if (chance(world, 40))
		rule->park_ms = choose(world, 100, 60000);
	if (chance(world, 20))
		rule->call_ms = choose(world, 100, 10000);
	if (chance(world, 20))
		rule->rounds = (unsigned)choose(world, 1, 3);
	if (chance(world, 30)) {
		limits->parked = (unsigned)choose(world, 1, 6);
		limits->parked_per_principal = (unsigned)choose(world, 1, 4);
		limits->exchanges = (unsigned)choose(world, 1, 10);
		limits->waiting = (unsigned)choose(world, 1, 3);
		limits->kept = (unsigned)choose(world, 1, 4);
		limits->server_requests = (unsigned)choose(world, 1, 3);
		limits->sessions = (unsigned)choose(world, 1, 5);
		limits->sessions_per_principal = (unsigned)choose(world, 1, 2);
		limits->kept_bytes = (size_t)choose(world, 1000, 20000);
	}
	if (chance(world, 30)) {
		deadlines->wait_ms = choose(world, 10, 5000);
		deadlines->gather_ms = choose(world, 0, 100);
		deadlines->hold_ms = choose(world, 0, 3000);
		deadlines->redeliver_ms = choose(world, 0, 30000);
		deadlines->grace_ms = choose(world, 0, 5000);
		deadlines->idle_session_ms = choose(world, 0, 20000);
		deadlines->initialize_ms = choose(world, 100, 5000);
		deadlines->settle_ms = choose(world, 0, 500);
		deadlines->keepalive_ms = choose(world, 100, 30000);
	}
}

/* The operator changes the policy and the keys; states that the old key sealed still open. */
static void reload(struct world *world, void *arg)
{
	static const char keys[] = "v1 89abcdef 1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100\n"
				   "v1 01234567 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
	(void)arg;
	struct policy *policy = policy_default();
	struct keyring *ring = keyring_parse(span_of(keys), "keys", NULL);
	if (!policy || !ring)
		abort();
	policy->legacy_clients = world->policy->legacy_clients;
	policy->upstream.era = world->policy->upstream.era;
	world_trace(world, "reload");
	proxy_reload(world->proxy, policy, ring);
	policy_unref(policy);
	keyring_unref(ring);
}

/* Somebody sets the clock. */
static void set_clock(struct world *world, void *arg)
{
	(void)arg;
	world->ledger->clock_set = true;
	world->wall_ms += choose(world, -100000, 100000);
	world_trace(world, "the wall clock is set");
}

static void shut_down(struct world *world, void *arg)
{
	(void)arg;
	world_trace(world, "shutdown");
	world->ledger->shut_down = true;
	proxy_shutdown(world->proxy);
}

/* The server becomes another one, of the other era. */
static void change_era(struct world *world, void *arg)
{
	struct model *model = world->model;
	(void)arg;
	model->nature.modern = !model->nature.modern;
	world_trace(world, "the server is replaced: it is %s now", model->nature.modern ? "modern" : "legacy");
	for (struct link *link = world->ledger->links; link; link = link->next)
		if (link->open)
			link_lose(link, 0, "the simulated server was replaced");
}

/* Legacy clients, or a modern server, or both. */
static void choose_passed(struct world *world)
{
	struct model *model = world->model;
	struct policy *policy = world->policy;
	struct nature *nature = &model->nature;
	nature->modern = chance(world, 60);
	nature->tasks = false;
	policy->legacy_clients = POLICY_LEGACY_SERVE;
	policy->upstream.era = chance(world, 40) ? POLICY_ERA_AUTO
			       : nature->modern	 ? POLICY_ERA_MODERN
						 : POLICY_ERA_LEGACY;
	if (nature->benign)
		return;
	if (policy->upstream.era == POLICY_ERA_AUTO && chance(world, 30))
		world_at(world, choose(world, 0, 60000), change_era, NULL);
	if (chance(world, 20))
		policy->limits.replay_bytes = (size_t)choose(world, 0, 4000);
	if (chance(world, 20))
		policy->limits.legacy_sessions = (unsigned)choose(world, 1, 2);
	if (chance(world, 20))
		policy->deadlines.probe_ms = choose(world, 10, 1000);
	world->deaf = chance(world, 20) ? 5 : 0;
	world->breaks = chance(world, 20) ? 5 : 0;
}

static void choose_tasks(struct world *world)
{
	struct policy *policy = world->policy;
	policy->tasks = chance(world, 30);
	if (policy->tasks)
		policy->defaults.task_after_ms = chance(world, 50) ? 0 : choose(world, 1, 5000);
}

void model_run(struct world *world, bool passed)
{
	struct model *model = arena_alloc(&world->arena, sizeof(*model));
	world->model = model;
	choose_nature(world, &model->nature);
	choose_policy(world, model->nature.benign);
	model->passed = passed;
	if (passed)
		choose_passed(world);
	else
		choose_tasks(world);
	world->has_streams = chance(world, 40);
	world->late_turns = chance(world, 30);
	/* What a benign server asks at once has to arrive within the time of gathering. */
	world->latency_ms = model->nature.benign ? choose(world, 0, 2) : chance(world, 50) ? 0 : choose(world, 1, 100);
	world_start(world);
	model_start_clients(world);
	if (!model->nature.benign && chance(world, 8))
		world_at(world, choose(world, 0, 100000), shut_down, NULL);
	bool rules = model->actions || world->policy->defaults.asks_never;
	if (!model->nature.benign && !rules && chance(world, 8))
		world_at(world, choose(world, 0, 100000), reload, NULL);
	if (!model->nature.benign && chance(world, 5))
		world_at(world, choose(world, 0, 100000), set_clock, NULL);
	world_run_until(world, world->now_ms + HOUR_MS);
	if (!world->failed)
		model_stop_clients(world);
	if (!world->failed)
		world_drain(world, world->now_ms + 24 * (int64_t)HOUR_MS);
	if (!world->failed)
		world_check_empty(world);
	if (!world->failed)
		model_check_jobs(world);
}
