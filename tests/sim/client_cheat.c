/* Clients that cheat: each of these must be refused, and change nothing. */
#include "tests/sim/client_model.h"

#include <string.h>

static void cheat_tamper(struct plan *plan)
{
	struct world *world = plan->person->world;
	struct ask *ask = make_ask(plan, plan->person);
	struct span state = arena_copy(&world->arena, plan->state);
	char *byte = (char *)state.ptr + choose(world, 0, (int64_t)state.len - 1);
	*byte = *byte == 'A' ? 'B' : 'A';
	if (chance(world, 20))
		state.len--;
	ask->state = state;
	ask->must_fail = true;
	write_answers(ask, plan->round, 100, false);
	ask_send(ask);
}

static void cheat_steal(struct plan *plan)
{
	const struct model *model = plan->person->world->model;
	for (struct person *thief = model->persons; thief; thief = thief->next) {
		if (thief->principal == plan->person->principal)
			continue;
		struct ask *ask = make_ask(plan, thief);
		ask->state = plan->state;
		ask->must_fail = true;
		write_answers(ask, plan->round, 100, false);
		ask_send(ask);
		return;
	}
}

static void cheat_other_request(struct plan *plan)
{
	struct world *world = plan->person->world;
	struct job *job = ledger_job(world, plan->person->principal, plan->job->method, "tool-other");
	job->params = span_of("\"name\":\"tool-other\",\"arguments\":{\"x\":1},\"uri\":\"tool-other\"");
	if (strcmp(job->method, "resources/read") == 0)
		job->params = span_of("\"uri\":\"tool-other\"");
	struct ask *ask = ask_new(party_for(plan->person), job, plan->person->caps);
	ask->state = plan->state;
	ask->must_fail = true;
	write_answers(ask, plan->round, 100, false);
	ask_send(ask);
}

static void cheat_replay(struct plan *plan)
{
	if (!plan->old_state.ptr)
		return;
	struct ask *ask = make_ask(plan, plan->person);
	ask->state = plan->old_state;
	ask->must_fail = true;
	write_answers(ask, plan->round, 100, false);
	ask_send(ask);
}

/* Only while somebody waits for these answers can they be wrong; later they are simply used. */
static bool is_waited_for(const struct plan *plan)
{
	const struct round *round = plan->job->rounds;
	if (!is_fresh(plan) || plan->job->answered || plan->job->lost || !round->entries)
		return false;
	for (const struct entry *entry = round->entries; entry; entry = entry->next)
		if (entry->question && entry->question->state != QUESTION_OPEN)
			return false;
	return true;
}

static void cheat_malformed(struct plan *plan)
{
	if (!is_waited_for(plan))
		return;
	struct ask *ask = make_ask(plan, plan->person);
	ask->state = plan->state;
	ask->must_fail = true;
	write_answers(ask, plan->round, 100, true);
	ask_send(ask);
	/* A call that was over took the retry as it is, and handed out its outcome. */
	struct span words = get(get_response(ask, "error"), "message");
	if (!words.ptr || words.len < 16 || memcmp(words.ptr, "\"inputResponses", 15) != 0)
		mark_brought_back(plan);
}

void plan_cheat(struct plan *plan)
{
	static void (*const cheats[])(struct plan * plan) = {
		cheat_tamper, cheat_steal, cheat_other_request, cheat_replay, cheat_malformed};
	plan->cheats++;
	cheats[choose(plan->person->world, 0, 4)](plan);
}
