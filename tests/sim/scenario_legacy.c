/* Scenario statements about legacy clients. */
#include "tests/sim/dialog.h"
#include "tests/sim/scenario.h"

#include <string.h>

void scenario_open(struct scenario *scenario, struct actor *actor)
{
	struct world *world = scenario->world;
	actor->dialog = dialog_new(world, actor->principal, actor->over_http, actor->caps);
	struct job *job = ledger_job(world, actor->principal, "initialize", NULL);
	job->params = span_of(arena_printf(&world->arena,
		"\"protocolVersion\":\"%s\",\"capabilities\":%s,\"clientInfo\":{\"name\":\"old\",\"version\":\"1\"}",
		scenario->version, actor->caps));
	ask_send(dialog_ask(actor->dialog, job));
}

static void on_initialized(struct world *world, void *dialog)
{
	(void)world;
	dialog_say(dialog, SPAN("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
}

void scenario_opened(struct ask *ask)
{
	if (strcmp(ask->job->method, "initialize") == 0 && get_response(ask, "result").ptr)
		world_at(ask->world, 0, on_initialized, ask->party->dialog);
}

/* A answers Q ANSWER */
static void play_answer(struct scenario *scenario, struct actor *actor, char **words)
{
	struct labelled_question *labelled = find_labelled_question(scenario, words[0]);
	struct arena *arena = &scenario->world->arena;
	if (!labelled || !words[1]) {
		scenario_fail(scenario, "answers QUESTION ANSWER");
		return;
	}
	struct question *question = labelled->question;
	const char *id = question->down_id ? question->down_id : question->id;
	struct answer *answer = ledger_answer_question(scenario->world, question);
	answer->value = span_of(scenario_answer(scenario, words[1], answer->number));
	bool is_error = strcmp(words[1], "error") == 0;
	dialog_say(actor->dialog, span_of(arena_printf(arena, "{\"jsonrpc\":\"2.0\",\"id\":%s,%s%s}", id,
					  is_error ? "\"error\":" : "\"result\":",
					  is_error ? "{\"code\":-1,\"message\":\"no\"}" : answer->value.ptr)));
}

/* The connection of a request, the newest one of the job. */
static struct party *connection_of(struct scenario *scenario, const char *label)
{
	struct labelled_job *job = find_labelled_job(scenario, label);
	if (job && job->count)
		return job->asks[job->count - 1]->party;
	scenario_fail(scenario, "no request for %s", label ? label : "nothing");
	return NULL;
}

static void play_loss(struct scenario *scenario, char **words)
{
	struct party *party = connection_of(scenario, words[0]);
	if (party)
		party_vanish(party);
}

static void play_resumption(struct scenario *scenario, struct actor *actor, char **words)
{
	struct party *party = connection_of(scenario, words[0]);
	if (party && !party->event_id)
		scenario_fail(scenario, "%s had no event", words[0]);
	else if (party)
		actor->reader = dialog_listen(actor->dialog, party->event_id);
}

bool play_legacy(struct scenario *scenario, struct actor *actor, char **words)
{
	if (!actor->dialog)
		return false;
	if (word_is(words, "answers"))
		play_answer(scenario, actor, words + 1);
	else if (word_is(words, "says") && words[1])
		dialog_say(actor->dialog, span_of(words[1]));
	else if (word_is(words, "loses"))
		play_loss(scenario, words + 1);
	else if (word_is(words, "resumes"))
		play_resumption(scenario, actor, words + 1);
	else if (word_is(words, "listens"))
		actor->reader = dialog_listen(actor->dialog, NULL);
	else if (word_is(words, "leaves") && actor->reader)
		party_vanish(actor->reader);
	else if (word_is(words, "sleeps") || word_is(words, "wakes"))
		scenario->world->deaf = word_is(words, "sleeps") ? 100 : 0;
	else if (word_is(words, "ends"))
		dialog_end(actor->dialog);
	else if (word_is(words, "vanishes"))
		dialog_vanish(actor->dialog);
	else
		return false;
	return true;
}
