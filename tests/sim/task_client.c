/* Modern clients with a task: they poll, answer what it asks, and end it sometimes; others try the same with it. */
#include "tests/sim/client_model.h"

#include <string.h>

enum { MAX_POLLS = 400 };

static struct ask *make_task_ask(struct plan *plan, struct person *person, const char *method)
{
	struct ask *ask = make_ask(plan, person);
	ask->task_method = method;
	ask->task = plan->job->task;
	ask->progress_token = NULL; /* there is none for tasks */
	return ask;
}

/* What is nobody's business, or no task, must be refused and change nothing. */
static void cheat(struct plan *plan)
{
	static const char *const methods[] = {"tasks/get", "tasks/update", "tasks/cancel"};
	struct world *world = plan->person->world;
	struct model *model = world->model;
	struct person *thief = model->persons;
	const char *method = methods[choose(world, 0, 2)];
	while (thief && thief->principal == plan->person->principal)
		thief = thief->next;
	struct ask *ask = make_task_ask(plan, thief ? thief : plan->person, method);
	ask->must_fail = true;
	if (!thief && chance(world, 50)) {
		ask->caps_text = span_of("{\"roots\":{},\"sampling\":{},\"elicitation\":{}}");
	} else if (!thief) {
		struct span id = arena_copy(&world->arena, ask->task);
		char *byte = (char *)id.ptr + choose(world, 0, (int64_t)id.len - 1);
		*byte = *byte == '7' ? '8' : '7';
		ask->task = id;
	}
	if (strcmp(method, "tasks/update") == 0)
		write_answers(ask, plan->round, 100, false);
	ask_send(ask);
}

static void on_poll(struct world *world, void *arg)
{
	struct plan *plan = arg;
	if (plan->over || world->failed)
		return;
	const struct model *model = world->model;
	while (!model->nature.benign && plan->cheats < 6 && chance(world, 10)) {
		plan->cheats++;
		cheat(plan);
	}
	bool ends = !model->nature.benign && chance(world, 3);
	send_honest(plan, make_task_ask(plan, plan->person, ends ? "tasks/cancel" : "tasks/get"));
}

static void on_thought(struct world *world, void *arg)
{
	struct plan *plan = arg;
	if (plan->over || world->failed)
		return;
	const struct model *model = world->model;
	struct ask *ask = make_task_ask(plan, plan->person, "tasks/update");
	write_answers(ask, plan->round, model->nature.benign || chance(world, 70) ? 100 : 50, false);
	send_honest(plan, ask);
}

static void poll_later(struct plan *plan)
{
	struct world *world = plan->person->world;
	if (++plan->tries > MAX_POLLS)
		plan_over(plan);
	else
		world_at(world, chance(world, 50) ? choose(world, 0, 300) : choose(world, 0, 20000), on_poll, plan);
}

void plan_on_task(struct plan *plan, const struct ask *ask)
{
	struct world *world = plan->person->world;
	struct span result = get_response(ask, "result"), status = get(result, "status");
	if (!result.ptr) {
		plan_over(plan); /* it is forgotten */
	} else if (!status.ptr || !ask->task_method || json_string_is(status, "working")) {
		poll_later(plan);
	} else if (json_string_is(status, "input_required")) {
		plan->round = get(result, "inputRequests");
		world_at(world, thinking_ms(world), on_thought, plan);
	} else {
		plan->good_end = json_string_is(status, "completed");
		plan_over(plan);
	}
}
