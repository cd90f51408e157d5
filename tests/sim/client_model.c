/* Modern clients: persons who send jobs, get asked, think, and come back, or do not. Those who cheat are in client_cheat.c. */
#include "tests/sim/client_model.h"
#include "tests/sim/dialog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct model *model_of(struct world *world)
{
	return world->model;
}

static bool is_benign(struct world *world)
{
	return model_of(world)->nature.benign;
}

void plan_over(struct plan *plan)
{
	if (plan->over)
		return;
	plan->over = true;
	model_of(plan->person->world)->plans_over++;
}

/* Sending. */

struct party *party_for(struct person *person)
{
	if (person->over_http)
		return party_new(person->world, person->principal, true);
	if (!person->pipe || person->pipe->gone)
		person->pipe = party_new(person->world, person->principal, false);
	return person->pipe;
}

struct ask *make_ask(struct plan *plan, struct person *person)
{
	struct world *world = person->world;
	struct ask *ask = ask_new(party_for(person), plan->job, plan->person->caps);
	ask->model = plan;
	if (chance(world, 40))
		ask->progress_token =
			arena_printf(&world->arena, chance(world, 50) ? "\"p\\u0020%u\"" : "%u", ask->number + 500);
	if (person->logs)
		ask->log_level = (int)choose(world, 0, 7);
	return ask;
}

static void on_impatient(struct world *world, void *arg)
{
	struct ask *ask = arg;
	struct plan *plan = ask->model;
	(void)world;
	if (!ask->is_open)
		return;
	ask_cancel(ask);
	plan_over(plan);
}

void send_honest(struct plan *plan, struct ask *ask)
{
	struct world *world = ask->world;
	plan->waiting_for = plan->last = ask;
	if (!is_benign(world) && chance(world, 6))
		world_at(world, choose(world, 0, 8000), on_impatient, ask);
	ask_send(ask);
}

/* Answers. */

static const char *elicitation_answer(struct world *world, unsigned number)
{
	switch (choose(world, 0, 5)) {
	case 0:
		return arena_printf(&world->arena, "{\"action\":\"decline\",\"_meta\":{\"sim/a\":\"a%u\"}}", number);
	case 1:
		return arena_printf(&world->arena, "{\"_meta\":{\"sim/a\":\"a%u\"},\"action\":\"cancel\"}", number);
	default:
		return arena_printf(&world->arena,
			"{\"action\":\"accept\",\"content\":{\"x\":%s},\"_meta\":{\"sim/a\":\"a%u\"}}", payload(world),
			number);
	}
}

const char *model_answer(struct world *world, struct span method, unsigned number)
{
	if (json_string_is(method, "elicitation/create"))
		return elicitation_answer(world, number);
	if (json_string_is(method, "sampling/createMessage"))
		return arena_printf(&world->arena,
			"{\"role\":\"assistant\",\"content\":{\"type\":\"text\",\"text\":\"hi\",\"v\":%s},\"model\":"
			"\"m\","
			"\"_meta\":{\"sim/a\":\"a%u\"}}",
			payload(world), number);
	return arena_printf(&world->arena,
		"{\"roots\":[{\"uri\":\"file:///x\",\"v\":%s}],\"_meta\":{\"sim/a\":\"a%u\"}}", payload(world), number);
}

const char *model_bad_answer(struct world *world)
{
	static const char *const bad[] = {"{}", "[]", "null", "\"accept\"", "{\"action\":\"yes\",\"role\":7}",
		"{\"action\":1,\"roots\":{}}", "{\"action\":\"accept\",\"action\":\"cancel\",\"content\":[]}",
		"{\"role\":\"assistant\",\"model\":\"m\"}"};
	return bad[choose(world, 0, 7)];
}

void write_answers(struct ask *ask, struct span round, unsigned percent, bool bad)
{
	struct world *world = ask->world;
	struct buf out = {0};
	struct json_member member;
	struct json_walk walk = json_walk(round, NULL);
	bool first = true;
	buf_add_text(&out, "{");
	if (chance(world, 10)) {
		buf_add_text(&out, "\"unknown\":7");
		first = false;
	}
	while (json_next_member(&walk, &member)) {
		struct span key = span_of(arena_printf(&world->arena, "\"%.*s\"", (int)member.key.len, member.key.ptr));
		if (!chance(world, percent))
			continue;
		struct answer *answer = ledger_answer(ask, key);
		answer->value = span_of(bad ? model_bad_answer(world)
					    : model_answer(world, get(member.value, "method"), answer->number));
		buf_printf(&out, "%s%s:", first ? "" : ",", key.ptr);
		buf_add_span(&out, answer->value);
		first = false;
	}
	buf_add_text(&out, "}");
	ask->answers = arena_copy(&world->arena, buf_span(&out));
	buf_free(&out);
}

/* Coming back. */

bool is_fresh(const struct plan *plan)
{
	const struct round *round = plan->job->rounds;
	while (round && !span_equal(round->state, plan->state))
		round = round->next;
	const struct world *world = plan->person->world;
	return round && round == plan->job->rounds && !round->brought_back && !world->ledger->shut_down &&
	       !world->ledger->clock_set && world->now_ms < round->issued_ms + world->policy->defaults.park_ms &&
	       world->policy->limits.kept > 1000;
}

void mark_brought_back(struct plan *plan)
{
	for (struct round *round = plan->job->rounds; round; round = round->next)
		if (span_equal(round->state, plan->state))
			round->brought_back = true;
}

static const char *fewer_caps(struct world *world)
{
	static const char *const some[] = {"{}", "{\"roots\":{}}", "{\"sampling\":{}}", "{\"elicitation\":{}}"};
	return some[choose(world, 0, 3)];
}

static void come_back(struct plan *plan, unsigned percent)
{
	struct world *world = plan->person->world;
	struct ask *ask = make_ask(plan, plan->person);
	ask->state = plan->state;
	write_answers(ask, plan->round, percent, false);
	ask->must_work = is_fresh(plan);
	if (!is_benign(world) && chance(world, 4)) {
		ask->caps_text = span_of(fewer_caps(world));
		struct error error;
		if (capabilities_read(&ask->caps, ask->caps_text, &error))
			world_fail(world, "%s", error.text);
	}
	mark_brought_back(plan);
	send_honest(plan, ask);
}

/* The same once more, while the first is under way or over. */
static void on_repeat(struct world *world, void *arg)
{
	struct ask *first = arg;
	struct plan *plan = first->model;
	(void)world;
	struct ask *again = make_ask(plan, plan->person);
	again->caps = first->caps;
	again->caps_text = first->caps_text;
	again->state = first->state;
	again->answers = first->answers;
	ask_send(again);
}

static void repeat_later(struct plan *plan)
{
	struct world *world = plan->person->world;
	int64_t count = plan->last->state.ptr ? choose(world, 1, 3) : 0; /* without a state it would be a new call */
	for (int64_t i = 0; i < count; i++)
		world_at(world, chance(world, 50) ? choose(world, 0, 20) : choose(world, 0, 60000), on_repeat,
			plan->last);
}

static void on_comeback(struct world *world, void *arg)
{
	struct plan *plan = arg;
	if (plan->over || world->failed)
		return;
	if (is_benign(world)) {
		come_back(plan, 100);
		return;
	}
	while (!model_of(world)->passed && plan->cheats < 6 && chance(world, 25))
		plan_cheat(plan);
	int64_t dice = choose(world, 0, 99);
	if (dice < 6) {
		plan_over(plan); /* never comes back */
		return;
	}
	come_back(plan, dice < 20 ? 50 : dice < 24 ? 0 : 100);
	if (chance(world, 20))
		repeat_later(plan);
}

static void on_try_again(struct world *world, void *arg)
{
	struct plan *plan = arg;
	if (plan->over)
		return;
	struct ask *ask = make_ask(plan, plan->person);
	ask->state = plan->last->state;
	ask->answers = plan->last->answers;
	ask->caps = plan->last->caps;
	ask->caps_text = plan->last->caps_text;
	(void)world;
	send_honest(plan, ask);
}

/* What comes back from the core. */

int64_t thinking_ms(struct world *world)
{
	int64_t dice = choose(world, 0, 99);
	if (is_benign(world))
		return choose(world, 0, 30000);
	return dice < 50 ? choose(world, 0, 50) : dice < 90 ? choose(world, 0, 90000) : choose(world, 0, 700000);
}

static void on_round(struct plan *plan, struct span result)
{
	struct world *world = plan->person->world;
	struct span state = get(result, "requestState");
	plan->old_state = plan->state;
	plan->state = (struct span){state.ptr + 1, state.len - 2};
	plan->round = get(result, "inputRequests");
	if (++plan->rounds > 30)
		plan_over(plan);
	world_at(world, thinking_ms(world), on_comeback, plan);
}

static void on_error(struct plan *plan, struct span error)
{
	struct world *world = plan->person->world;
	struct span reason = get(get(error, "data"), "reason");
	if (reason.ptr && json_string_is(reason, "busy") && plan->last->state.ptr && plan->tries++ < 5)
		world_at(world, choose(world, 10, 5000), on_try_again, plan);
	else
		plan_over(plan);
}

void model_responded(struct party *party, struct ask *ask, int http_status, struct span message)
{
	(void)http_status;
	(void)message;
	if (party->dialog) {
		legacy_responded(party, ask);
		return;
	}
	struct plan *plan = ask ? ask->model : NULL;
	if (!plan || plan->waiting_for != ask)
		return;
	struct world *world = ask->world;
	plan->waiting_for = NULL;
	struct span result = get_response(ask, "result");
	if (plan->over)
		return;
	if (ask->task_method || (result.ptr && json_string_is(get(result, "resultType"), "task"))) {
		plan_on_task(plan, ask);
	} else if (!result.ptr) {
		on_error(plan, get_response(ask, "error"));
	} else if (json_string_is(get(result, "resultType"), "input_required") && ledger_has_rounds(ask->job->method)) {
		on_round(plan, result);
		if (!is_benign(world) && chance(world, 10)) /* the response was lost on its way */
			repeat_later(plan);
	} else {
		plan->good_end = true;
		plan_over(plan);
		if (!is_benign(world) && plan->last->state.ptr && chance(world, 20))
			repeat_later(plan);
	}
}

void model_notified(struct party *party, struct span message)
{
	if (party->dialog)
		legacy_notified(party, message);
}

/* Starting. */

const char *model_caps(struct world *world)
{
	static const char *const all[] = {
		"{\"roots\":{},\"sampling\":{\"tools\":{}},\"elicitation\":{\"form\":{},\"url\":{}}}",
		"{\"roots\":{},\"sampling\":{},\"elicitation\":{}}",
		"{\"elicitation\":{}}",
		"{\"elicitation\":{\"url\":{}}}",
		"{\"sampling\":{\"context\":{}}}",
		"{\"roots\":{}}",
		"{\"roots\":{\"x\":1},\"elicitation\":{\"form\":{}}}",
		"{}",
	};
	return all[choose(world, 0, sizeof(all) / sizeof(all[0]) - 1)];
}

static struct job *some_job(struct world *world, unsigned principal)
{
	static const char *const names[] = {"tool-1", "tool-2", "tool \xC3\xA9", "report"};
	const char *name = names[choose(world, 0, 3)];
	struct job *job;
	int64_t dice = choose(world, 0, 99);
	if (dice < (int64_t)model_of(world)->nature.lists) {
		bool list = chance(world, 60);
		job = ledger_job(world, principal, list ? "tools/list" : "server/discover", NULL);
	} else if (dice < 85) {
		job = ledger_job(world, principal, "tools/call", name);
		job->params = span_of(
			arena_printf(&world->arena, "\"name\":\"%s\",\"arguments\":{\"v\":%s}", name, payload(world)));
	} else if (dice < 93) {
		job = ledger_job(world, principal, "prompts/get", name);
		job->params = span_of(arena_printf(&world->arena, "\"arguments\":{},\"name\":\"%s\"", name));
	} else {
		job = ledger_job(world, principal, "resources/read", "sim://a");
		job->params = span_of("\"uri\":\"sim://a\"");
	}
	return job;
}

static void on_start(struct world *world, void *arg)
{
	struct plan *plan = arg;
	if (world->failed)
		return;
	struct ask *ask = make_ask(plan, plan->person);
	if (model_of(world)->keys_ahead && strcmp(plan->job->method, "tools/call") == 0 && chance(world, 50))
		write_answers(ask,
			span_of("{\"first\":{\"method\":\"elicitation/create\"},\"second\":{\"method\":\"roots/"
				"list\"}}"),
			80, false);
	send_honest(plan, ask);
}

static void listen(struct world *world, void *arg)
{
	struct person *person = arg;
	struct job *job = ledger_job(world, person->principal, "subscriptions/listen", NULL);
	job->params = span_of("\"notifications\":{\"toolsListChanged\":true,\"resourceSubscriptions\":[\"sim://a\"]}");
	struct ask *ask = ask_new(party_for(person), job, person->caps);
	ask_send(ask);
}

static void send_bad(struct world *world, void *arg)
{
	static const struct {
		const char *id, *text;
	} bad[] = {
		{NULL, "{"},
		{NULL, ""},
		{NULL, "[]"},
		{NULL, "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/list\"}"},
		{"9001", "{\"jsonrpc\":\"2.0\",\"id\":9001,\"method\":\"tools/list\"}"},
		{"9002", "{\"jsonrpc\":\"2.0\",\"id\":9002,\"method\":\"tools/call\",\"params\":{\"_meta\":{}}}"},
		{"9003", "{\"jsonrpc\":\"2.0\",\"id\":9003,\"method\":\"initialize\",\"params\":{}}"},
		{NULL, "{\"jsonrpc\":\"2.0\",\"id\":9004,\"result\":{}}"},
	};
	struct person *person = arg;
	size_t which = (size_t)choose(world, 0, sizeof(bad) / sizeof(bad[0]) - 1);
	if (!world->failed)
		party_send_bad(party_for(person), bad[which].id, span_of(bad[which].text), NULL);
}

static void vanish(struct world *world, void *arg)
{
	struct person *person = arg;
	(void)world;
	if (person->pipe)
		party_vanish(person->pipe);
}

static struct person *add_person(struct world *world)
{
	struct model *model = model_of(world);
	struct person *person = arena_alloc(&world->arena, sizeof(*person));
	person->world = world;
	person->principal = (unsigned)choose(world, 1, 3);
	person->caps = model_caps(world);
	if (world->policy->tasks && chance(world, 80))
		person->caps = arena_printf(&world->arena, "{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}%s%s",
			person->caps[1] == '}' ? "" : ",", person->caps + 1);
	person->over_http = chance(world, 50);
	person->logs = chance(world, 20);
	person->next = model->persons;
	model->persons = person;
	model->person_count++;
	return person;
}

static void add_plan(struct world *world, struct person *person, int64_t spread_ms)
{
	struct plan *plan = arena_alloc(&world->arena, sizeof(*plan));
	plan->person = person;
	plan->job = some_job(world, person->principal);
	model_of(world)->plans++;
	world_at(world, choose(world, 0, spread_ms), on_start, plan);
}

void model_start_clients(struct world *world)
{
	int64_t persons = choose(world, 1, 4);
	for (int64_t i = 0; i < persons; i++) {
		if (model_of(world)->passed && chance(world, 65)) {
			legacy_start_client(world);
			continue;
		}
		struct person *person = add_person(world);
		int64_t jobs = choose(world, 1, 5);
		int64_t spread_ms = chance(world, 50) ? 200 : 60000;
		for (int64_t k = 0; k < jobs; k++)
			add_plan(world, person, spread_ms);
		if (chance(world, 20))
			world_at(world, choose(world, 0, 2000), listen, person);
		if (is_benign(world))
			continue;
		if (!model_of(world)->passed && chance(world, 30))
			world_at(world, choose(world, 0, 60000), send_bad, person);
		if (chance(world, 10))
			world_at(world, choose(world, 0, 60000), vanish, person);
	}
}

void model_stop_clients(struct world *world)
{
	for (struct ask *ask = world->ledger->asks; ask; ask = ask->next)
		if (ask->is_open && ask->job && !ask->party->dialog &&
			(model_of(world)->passed || strcmp(ask->job->method, "subscriptions/listen") == 0))
			ask_cancel(ask);
	legacy_check(world);
	legacy_stop_clients(world);
}

void model_check_jobs(struct world *world)
{
	if (!is_benign(world))
		return;
	for (const struct ask *ask = world->ledger->asks; ask; ask = ask->next) {
		const struct plan *plan = ask->model;
		/* Roots that the server wanted for no call may have been asked for one that was running, and then more. */
		if (plan && !ask->party->dialog && !plan->good_end && !(plan->job->link && plan->job->link->confused))
			world_fail(world, "nothing went wrong, and t%u has no result", plan->job->number);
	}
}
