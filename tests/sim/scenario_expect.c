/* Scenario statements about what must have come. */
#include "tests/sim/scenario.h"

#include <stdlib.h>
#include <string.h>

/* The first response to this client that no line has expected yet. */
static struct ask *next_response(struct labelled_job *job, const struct actor *actor)
{
	for (unsigned i = 0; i < job->count; i++) {
		struct ask *ask = job->asks[i];
		bool over = ask->party->over_http == actor->over_http && ask->party->principal == actor->principal;
		if (job->expected[i] || !ask->response.ptr || !over)
			continue;
		job->expected[i] = true;
		return ask;
	}
	return NULL;
}

static void fail_response(struct scenario *scenario, const struct ask *ask, const char *what)
{
	scenario_fail(scenario, "expected %s, got %.*s", what, (int)ask->response.len, ask->response.ptr);
}

static void expect_error(struct scenario *scenario, const struct ask *ask, char **words)
{
	struct span error = get_response(ask, "error");
	struct span code = get(error, "code"), reason = get(get(error, "data"), "reason");
	if (!error.ptr || (words[0] && !span_is(code, words[0])))
		fail_response(scenario, ask, words[0] ? words[0] : "an error");
	else if (words[0] && words[1] && !(reason.ptr && json_string_is(reason, words[1])))
		fail_response(scenario, ask, words[1]);
}

static void expect_reason(struct scenario *scenario, const struct ask *ask, struct span error, const char *reason)
{
	struct span value = get(get(error, "data"), "reason");
	if (!value.ptr || !json_string_is(value, reason))
		fail_response(scenario, ask, reason);
}

/* expect A j asked KEY=KIND …: these questions and no other. */
static void expect_asked(struct scenario *scenario, const struct ask *ask, char **words)
{
	static const struct {
		const char *word, *method;
	} kinds[] = {{"elicitation", "elicitation/create"}, {"url", "elicitation/create"},
		{"sampling", "sampling/createMessage"}, {"roots", "roots/list"}};
	struct span requests = get(get_response(ask, "result"), "inputRequests");
	struct json_walk walk = json_walk(requests, NULL);
	struct json_member member;
	unsigned wanted = 0, present = 0;
	while (requests.ptr && json_next_member(&walk, &member))
		present++;
	for (; *words; words++, wanted++) {
		char *equals = strchr(*words, '=');
		if (!equals) {
			scenario_fail(scenario, "KEY=KIND, not %s", *words);
			return;
		}
		*equals = '\0';
		struct span entry = get(requests, *words);
		bool good = false;
		for (size_t i = 0; entry.ptr && i < sizeof(kinds) / sizeof(kinds[0]); i++)
			good |= strcmp(equals + 1, kinds[i].word) == 0 &&
				json_string_is(get(entry, "method"), kinds[i].method);
		*equals = '=';
		if (!good)
			fail_response(scenario, ask, *words);
	}
	if (!requests.ptr || wanted != present)
		fail_response(scenario, ask, "these questions and no other");
}

static void expect_response(struct scenario *scenario, struct actor *actor, struct labelled_job *job, char **words)
{
	struct ask *ask = next_response(job, actor);
	if (word_is(words, "nothing")) {
		if (ask)
			fail_response(scenario, ask, "nothing");
		return;
	}
	if (!ask) {
		scenario_fail(scenario, "%s has no response for %s", job->label, actor->name);
		return;
	}
	struct span result = get_response(ask, "result"), type = get(result, "resultType");
	struct span status = get(result, "status");
	if (word_is(words, "task") && words[1]) {
		/* What is polled, or handed out where `new` stands before it. */
		bool is_new = word_is(words + 1, "new");
		words += is_new ? 2 : 1;
		if (!type.ptr || !json_string_is(type, is_new ? "task" : "complete") || !status.ptr || !words[0] ||
			!json_string_is(status, words[0]))
			fail_response(scenario, ask, words[0] ? words[0] : "a task");
		else if (word_is(words, "input_required") && words[1])
			expect_asked(scenario, ask, words + 1);
		else if (word_is(words, "failed") && words[1])
			expect_reason(scenario, ask, get(result, "error"), words[1]);
		return;
	}
	if (word_is(words, "acknowledged")) {
		if (!type.ptr || status.ptr)
			fail_response(scenario, ask, "an acknowledgement");
		return;
	}
	if (word_is(words, "complete")) {
		bool good = actor->dialog ? get_response(ask, "result").ptr && !type.ptr
					  : type.ptr && json_string_is(type, "complete");
		if (!good)
			fail_response(scenario, ask, "a complete result");
	} else if (word_is(words, "asked")) {
		expect_asked(scenario, ask, words + 1);
	} else if (word_is(words, "error")) {
		expect_error(scenario, ask, words + 1);
	} else {
		scenario_fail(scenario, "not understood: %s", words[0] ? words[0] : "");
	}
}

static void expect_call(struct scenario *scenario, const struct job *job, const char *label, char **words)
{
	if (word_is(words, "called") && !job->link)
		scenario_fail(scenario, "%s did not reach the server", label);
	else if (word_is(words, "waiting") && job->link)
		scenario_fail(scenario, "%s reached the server", label);
	else if (word_is(words, "cancelled") && !job->cancelled)
		scenario_fail(scenario, "%s was not cancelled", label);
	else if (word_is(words, "running") && (job->cancelled || !job->link))
		scenario_fail(scenario, "%s was cancelled, or never sent", label);
}

static const char *answer_text(const char *word)
{
	return strcmp(word, "accept") == 0 ? "\"accept\"" : strcmp(word, "decline") == 0 ? "\"decline\"" : "\"cancel\"";
}

static void expect_answer(struct scenario *scenario, const struct labelled_question *labelled, char **words)
{
	const struct question *question = labelled->question;
	struct span action = get(question->result, "action"), code = get(question->error, "code");
	bool good;
	if (word_is(words, "nothing"))
		good = !question->result.ptr && !question->error.ptr;
	else if (word_is(words, "roots"))
		good = get(question->result, "roots").ptr != NULL;
	else if (word_is(words, "text"))
		good = get(question->result, "role").ptr != NULL;
	else if (word_is(words, "error"))
		good = question->error.ptr && (!words[1] || span_is(code, words[1]));
	else if (words[0] && words[0][0] == '{')
		good = question->result.ptr && ledger_same_members(question->result, span_of(words[0]), NULL, NULL);
	else
		good = words[0] && action.ptr && span_is(action, answer_text(words[0]));
	if (!good)
		scenario_fail(scenario, "%s: expected %s, got %.*s%.*s", labelled->label, words[0] ? words[0] : "",
			(int)question->result.len, question->result.len ? question->result.ptr : "",
			(int)question->error.len, question->error.len ? question->error.ptr : "");
}

static void expect_count(struct scenario *scenario, char **words)
{
	struct proxy_counts counts = proxy_counts(scenario->world->proxy);
	const struct {
		const char *word;
		size_t count;
	} known[] = {{"parked", counts.parked}, {"sessions", counts.sessions}, {"calls", counts.calls},
		{"exchanges", counts.exchanges}, {"questions", counts.server_requests}};
	for (size_t i = 0; words[1] && i < sizeof(known) / sizeof(known[0]); i++)
		if (word_is(words, known[i].word)) {
			if (known[i].count != (size_t)atoi(words[1]))
				scenario_fail(
					scenario, "expected %s %s, there are %zu", words[0], words[1], known[i].count);
			return;
		}
	scenario_fail(scenario, "not understood: expect %s", words[0] ? words[0] : "");
}

/* expect A listens N: so many are neither over nor cancelled. */
static void expect_listens(struct scenario *scenario, const char *name, unsigned wanted)
{
	const struct link *link = scenario_link(scenario, name);
	unsigned count = 0;
	for (const struct sent *sent = link ? link->sent : NULL; sent; sent = sent->next)
		count += strcmp(sent->method, "subscriptions/listen") == 0 && !sent->answered && !sent->cancelled &&
			 !sent->forgotten;
	if (count != wanted)
		scenario_fail(scenario, "expected %u subscriptions, there are %u", wanted, count);
}

void play_expectation(struct scenario *scenario, char **words)
{
	struct world *world = scenario->world;
	struct actor *actor = find_actor(scenario, words[0]);
	struct labelled_job *job = words[0] ? find_labelled_job(scenario, words[1]) : NULL;
	struct labelled_question *question = words[0] ? find_labelled_question(scenario, words[1]) : NULL;
	if (actor && job) {
		expect_response(scenario, actor, job, words + 2);
	} else if (actor && word_is(words + 1, "progress") && words[2]) {
		if (actor->progress != strtod(words[2], NULL))
			scenario_fail(scenario, "expected progress %s, the last is %g", words[2], actor->progress);
	} else if (actor && word_is(words + 1, "logs") && words[2]) {
		if (actor->logs != (unsigned)atoi(words[2]))
			scenario_fail(scenario, "expected %s log messages, there are %u", words[2], actor->logs);
	} else if (actor && word_is(words + 1, "listens") && words[2]) {
		expect_listens(scenario, words[0], (unsigned)atoi(words[2]));
	} else if (word_is(words, "server") && job) {
		expect_call(scenario, job->job, job->label, words + 2);
	} else if (word_is(words, "server") && question) {
		expect_answer(scenario, question, words + 2);
	} else if (word_is(words, "log") && words[1]) {
		if (!world_has_logged(world, words[1]))
			scenario_fail(scenario, "the log has no %s", words[1]);
	} else if (word_is(words, "silence") && words[1]) {
		if (world_has_logged(world, words[1]))
			scenario_fail(scenario, "the log has %s", words[1]);
	} else {
		expect_count(scenario, words);
	}
}
