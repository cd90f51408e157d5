/* Scenario statements about clients. */
#include "proxy/logging.h"
#include "tests/sim/dialog.h"
#include "tests/sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct party *party_of(struct scenario *scenario, struct actor *actor)
{
	if (actor->over_http || !actor->party || actor->party->gone)
		actor->party = party_new(scenario->world, actor->principal, actor->over_http);
	return actor->party;
}

const char *scenario_answer(struct scenario *scenario, const char *text, unsigned number)
{
	static const struct {
		const char *word, *text;
	} known[] = {
		{"accept", "{\"action\":\"accept\",\"content\":{},\"_meta\":{\"sim/a\":\"a%u\"}}"},
		{"decline", "{\"action\":\"decline\",\"_meta\":{\"sim/a\":\"a%u\"}}"},
		{"cancel", "{\"action\":\"cancel\",\"_meta\":{\"sim/a\":\"a%u\"}}"},
		{"roots", "{\"roots\":[{\"uri\":\"file:///r\"}],\"_meta\":{\"sim/a\":\"a%u\"}}"},
		{"text", "{\"role\":\"assistant\",\"content\":{\"type\":\"text\",\"text\":\"t\"},\"model\":\"m\",\"_"
			 "meta\":"
			 "{\"sim/a\":\"a%u\"}}"},
	};
	struct arena *arena = &scenario->world->arena;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(text, known[i].word) == 0) {
			const char *mark = strstr(known[i].text, "%u");
			return arena_printf(
				arena, "%.*s%u%s", (int)(mark - known[i].text), known[i].text, number, mark + 2);
		}
	if (text[0] == '{' && !strstr(text, "sim/a"))
		text = arena_printf(arena, "%.*s%s\"_meta\":{\"sim/a\":\"a%u\"}}", (int)strlen(text) - 1, text,
			text[1] == '}' ? "" : ",", number);
	return text;
}

/* `word` is KEY=ANSWER. */
static void add_answer(struct scenario *scenario, struct ask *ask, const char *word, struct buf *out)
{
	struct arena *arena = &scenario->world->arena;
	const char *equals = strchr(word, '=');
	struct answer *answer =
		ledger_answer(ask, span_of(arena_printf(arena, "\"%.*s\"", (int)(equals - word), word)));
	const char *text = scenario_answer(scenario, equals + 1, answer->number);
	answer->value = span_of(text);
	buf_printf(out, "%s%s:%s", out->len > 1 ? "," : "", answer->key.ptr, text);
}

/* Takes the words KEY=ANSWER at `words` as inputResponses. Returns what follows them. */
static char **take_answers(struct scenario *scenario, struct ask *ask, char **words)
{
	struct buf out = {0};
	buf_add_text(&out, "{");
	for (; *words && strchr(*words, '='); words++)
		add_answer(scenario, ask, *words, &out);
	buf_add_text(&out, "}");
	ask->answers = arena_copy(&scenario->world->arena, buf_span(&out));
	buf_free(&out);
	return words;
}

static void send(struct scenario *scenario, struct labelled_job *job, struct ask *ask)
{
	if (job->count == sizeof(job->asks) / sizeof(job->asks[0])) {
		scenario_fail(scenario, "too many requests for %s", job->label);
		return;
	}
	ask->model = job;
	job->asks[job->count++] = ask;
	ask_send(ask);
}

/* The level of the log messages that are wanted, all of them if none is named. Whether the word was one. */
static int take_level(const char *word, int *level)
{
	char quoted[32];
	snprintf(quoted, sizeof(quoted), "\"%s\"", word ? word : "");
	*level = LOGGING_DEBUG;
	return logging_read_level(span_of(quoted), level);
}

/* A calls LABEL METHOD NAME … */
static void play_call(struct scenario *scenario, struct actor *actor, char **words, bool named)
{
	struct world *world = scenario->world;
	if (!words[0] || !words[1] || (named && !words[2]) || scenario->job_count == MAX_NAMED) {
		scenario_fail(scenario, "calls LABEL METHOD NAME");
		return;
	}
	struct labelled_job *job = &scenario->jobs[scenario->job_count++];
	job->label = words[0];
	job->job = ledger_job(world, actor->principal, words[1], named ? words[2] : NULL);
	const char *arguments = "{}";
	const char *name = named ? words[2] : NULL;
	struct ask *ask = actor->dialog ? dialog_ask(actor->dialog, job->job)
					: ask_new(party_of(scenario, actor), job->job, actor->caps);
	for (words += named ? 3 : 2; *words; words++) {
		if (word_is(words, "arguments") && words[1])
			arguments = *++words;
		else if (word_is(words, "progress") && words[1])
			ask->progress_token = *++words;
		else if (word_is(words, "logs"))
			words += take_level(words[1], &ask->log_level);
		else if (word_is(words, "answers"))
			words = take_answers(scenario, ask, words + 1) - 1;
		else
			scenario_fail(scenario, "not understood: %s", *words);
	}
	if (named && strncmp(job->job->method, "resources/", 10) == 0)
		job->job->params = span_of(arena_printf(&world->arena, "\"uri\":\"%s\"", name));
	else if (named)
		job->job->params =
			span_of(arena_printf(&world->arena, "\"name\":\"%s\",\"arguments\":%s", name, arguments));
	send(scenario, job, ask);
}

static void declare(struct ask *ask, const char *caps)
{
	struct error error;
	ask->caps_text = span_of(caps);
	if (capabilities_read(&ask->caps, ask->caps_text, &error))
		world_fail(ask->world, "%s", error.text);
}

static struct span tamper(struct world *world, struct span state)
{
	state = arena_copy(&world->arena, state);
	char *byte = (char *)state.ptr + state.len / 2;
	*byte = *byte == 'A' ? 'B' : 'A';
	return state;
}

/* A retries LABEL KEY=ANSWER … */
static void play_retry(struct scenario *scenario, struct actor *actor, char **words)
{
	struct labelled_job *job = find_labelled_job(scenario, words[0]);
	if (!job || job->rounds == 0) {
		scenario_fail(scenario, "nothing was asked for %s", words[0] ? words[0] : "this");
		return;
	}
	/* `as` names another request, which then brings this one's state. */
	char **as = words + 1;
	while (*as && strcmp(*as, "as") != 0)
		as++;
	struct labelled_job *other = *as ? find_labelled_job(scenario, as[1]) : job;
	struct ask *ask = ask_new(party_of(scenario, actor), other->job, actor->caps);
	ask->state = job->states[job->rounds - 1];
	ask->must_fail = other != job || actor->principal != job->job->principal;
	for (words = take_answers(scenario, ask, words + 1); *words; words++) {
		if (word_is(words, "as")) {
			words++;
		} else if (word_is(words, "round") && words[1]) {
			ask->state = job->states[(atoi(*++words) - 1) & 15];
		} else if (word_is(words, "tampered")) {
			ask->state = tamper(scenario->world, ask->state);
			ask->must_fail = true;
		} else if (word_is(words, "progress") && words[1]) {
			ask->progress_token = *++words;
		} else if (word_is(words, "declares") && words[1]) {
			declare(ask, caps_text(scenario, *++words));
		} else {
			scenario_fail(scenario, "not understood: %s", *words);
		}
	}
	send(scenario, other, ask);
}

/* A repeats LABEL [N] */
static void play_repeat(struct scenario *scenario, struct actor *actor, char **words)
{
	struct labelled_job *job = find_labelled_job(scenario, words[0]);
	unsigned number = job && words[1] ? (unsigned)atoi(words[1]) : job ? job->count : 0;
	if (number == 0 || number > job->count) {
		scenario_fail(scenario, "nothing to repeat");
		return;
	}
	const struct ask *first = job->asks[number - 1];
	struct ask *ask = ask_new(party_of(scenario, actor), job->job, actor->caps);
	ask->state = first->state;
	ask->answers = first->answers;
	send(scenario, job, ask);
}

/* A polls j | A updates j KEY=ANSWER … | A ends j, of the task of j, or of one that never was with `unknown`. */
static void play_task(struct scenario *scenario, struct actor *actor, const char *method, char **words)
{
	struct labelled_job *job = find_labelled_job(scenario, words[0]);
	if (!job || !job->job->task.ptr) {
		scenario_fail(scenario, "%s is no task", words[0] ? words[0] : "nothing");
		return;
	}
	struct ask *ask = ask_new(party_of(scenario, actor), job->job, actor->caps);
	ask->task_method = method;
	ask->task = job->job->task;
	ask->must_fail = actor->principal != job->job->principal;
	words++;
	if (word_is(words, "unknown")) {
		ask->task = span_of("00112233445566778899aabbccddeeff");
		ask->must_fail = true;
		words++;
	}
	if (strcmp(method, "tasks/update") == 0)
		words = take_answers(scenario, ask, words);
	if (*words)
		scenario_fail(scenario, "not understood: %s", *words);
	send(scenario, job, ask);
}

static void play_cancel(struct scenario *scenario, char **words)
{
	struct labelled_job *job = find_labelled_job(scenario, words[0]);
	for (unsigned i = 0; job && i < job->count; i++)
		if (job->asks[i]->is_open) {
			ask_cancel(job->asks[i]);
			return;
		}
	scenario_fail(scenario, "%s has no open request", words[0] ? words[0] : "nothing");
}

void play_actor(struct scenario *scenario, struct actor *actor, char **words)
{
	if (play_legacy(scenario, actor, words))
		return;
	if (word_is(words, "calls"))
		play_call(scenario, actor, words + 1, true);
	else if (word_is(words, "sends"))
		play_call(scenario, actor, words + 1, false);
	else if (word_is(words, "retries"))
		play_retry(scenario, actor, words + 1);
	else if (word_is(words, "repeats"))
		play_repeat(scenario, actor, words + 1);
	else if (word_is(words, "polls"))
		play_task(scenario, actor, "tasks/get", words + 1);
	else if (word_is(words, "updates"))
		play_task(scenario, actor, "tasks/update", words + 1);
	else if (word_is(words, "ends"))
		play_task(scenario, actor, "tasks/cancel", words + 1);
	else if (word_is(words, "cancels"))
		play_cancel(scenario, words + 1);
	else if (word_is(words, "vanishes") && actor->party)
		party_vanish(actor->party);
	else
		scenario_fail(scenario, "not understood: %s %s", actor->name, words[0] ? words[0] : "");
}
