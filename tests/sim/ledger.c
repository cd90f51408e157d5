#include "tests/sim/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ledger_init(struct world *world)
{
	world->ledger = arena_alloc(&world->arena, sizeof(*world->ledger));
}

struct job *ledger_job(struct world *world, unsigned principal, const char *method, const char *name)
{
	struct job *job = arena_alloc(&world->arena, sizeof(*job));
	job->number = ++world->ledger->job_count;
	job->principal = principal;
	job->method = method;
	job->name = name ? arena_copy(&world->arena, span_of(name)) : (struct span){0};
	job->next = world->ledger->jobs;
	world->ledger->jobs = job;
	return job;
}

struct question *ledger_question(struct link *link, struct job *job, enum policy_kind kind)
{
	struct world *world = link->world;
	struct ledger *ledger = world->ledger;
	struct question *question = arena_alloc(&world->arena, sizeof(*question));
	if (ledger->question_count + 1 >= MAX_QUESTIONS) {
		world_fail(world, "the simulation asks without end");
		return question;
	}
	question->number = ++ledger->question_count;
	question->link = link;
	question->job = job;
	question->run = job ? job->sends : 0;
	question->kind = kind;
	question->loose = !job;
	ledger->questions[question->number] = question;
	if (job) {
		question->next_of_job = job->questions;
		job->questions = question;
	}
	return question;
}

struct question *ledger_marked(struct ledger *ledger, unsigned mark, const struct link *link, enum question_state state)
{
	for (unsigned i = mark; i && i <= ledger->question_count; i++) {
		struct question *question = ledger->questions[i];
		if ((i == mark || question->like == mark) && question->state == state &&
			(!link || question->link == link))
			return question;
	}
	return mark && mark <= ledger->question_count ? ledger->questions[mark] : NULL;
}

bool ledger_has_rounds(const char *method)
{
	return strcmp(method, "tools/call") == 0 || strcmp(method, "prompts/get") == 0 ||
	       strcmp(method, "resources/read") == 0;
}

bool ledger_is_loose(const struct question *question)
{
	const struct job *job = question->job;
	return question->loose || !job || (question->held && job->answered && !job->cancelled);
}

struct answer *ledger_answer(struct ask *ask, struct span key)
{
	struct answer *answer = ledger_answer_question(ask->world, NULL);
	answer->ask = ask;
	answer->key = key;
	return answer;
}

struct answer *ledger_answer_question(struct world *world, struct question *question)
{
	struct ledger *ledger = world->ledger;
	struct answer *answer = arena_alloc(&world->arena, sizeof(*answer));
	if (ledger->answer_count + 1 >= MAX_ANSWERS) {
		world_fail(world, "the simulation answers without end");
		return answer;
	}
	answer->number = ++ledger->answer_count;
	answer->question = question;
	ledger->answers[answer->number] = answer;
	return answer;
}

struct span get(struct span object, const char *key)
{
	struct span value = {0};
	if (object.ptr)
		json_get(object, NULL, key, &value);
	return value;
}

const char *unquoted(struct world *world, struct span spelled)
{
	return arena_printf(&world->arena, "%.*s", (int)(spelled.len - 2), spelled.ptr + 1);
}

unsigned mark_of(struct span object, const char *key, char sort)
{
	unsigned number = 0;
	struct span mark = get(get(object, "_meta"), key);
	if (mark.ptr && mark.len > 3 && mark.len < 20 && mark.ptr[1] == sort)
		number = (unsigned)strtoul(mark.ptr + 2, NULL, 10);
	return number;
}

/* After every step. */

static void check_open_asks(struct world *world)
{
	struct proxy_counts counts = proxy_counts(world->proxy);
	size_t open = 0, links = 0;
	for (const struct ask *ask = world->ledger->asks; ask; ask = ask->next)
		open += ask->is_open && !ask->party->gone && !ask->party->finished;
	for (const struct link *link = world->ledger->links; link; link = link->next)
		links += link->open;
	/* What waits for the server's era to be known is not counted yet. */
	bool may_wait = world->policy->upstream.era == POLICY_ERA_AUTO;
	if (may_wait ? open < counts.exchanges : open != counts.exchanges)
		world_fail(
			world, "invariant 1: %zu requests are open, and the core counts %zu", open, counts.exchanges);
	if (links != counts.sessions)
		world_fail(world, "%zu connections are open, and the core counts %zu sessions", links, counts.sessions);
}

void ledger_check_step(struct world *world)
{
	if (!world->failed)
		check_open_asks(world);
}

/* At the end. */

void ledger_check_end(struct world *world)
{
	const struct ledger *ledger = world->ledger;
	for (const struct ask *ask = ledger->asks; ask; ask = ask->next)
		if (ask->is_open && !ask->detached)
			world_fail(world, "invariant 1: request %s was never answered", ask->id);
	for (unsigned i = 1; i <= ledger->question_count; i++)
		if (ledger->questions[i]->state == QUESTION_OPEN && !ledger->questions[i]->link->modern)
			world_fail(world, "invariant 3: question q%u was neither answered nor withdrawn", i);
	for (const struct link *link = ledger->links; link; link = link->next)
		if (link->open)
			world_fail(world, "invariant 6: connection s%u is still open", link->number);
	ledger_check_dialogs(world);
}
