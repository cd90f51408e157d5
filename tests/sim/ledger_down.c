/* The ledger at the border to the modern clients. */
#include "tests/sim/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_error(struct ask *ask, int http_status, struct span error);

static void fail_ask(const struct ask *ask, const char *what)
{
	world_fail(ask->world, "%s (request %s of t%u)", what, ask->id, ask->job ? ask->job->number : 0);
}

/* Two asks are the same retry if state and answers are. */
static bool same_retry(const struct ask *a, const struct ask *b)
{
	return (a->state.ptr != NULL) == (b->state.ptr != NULL) && span_equal(a->state, b->state) &&
	       span_equal(a->answers, b->answers);
}

/* Rounds. */

static const char *entry_method(enum policy_kind kind)
{
	static const char *const methods[POLICY_KINDS] = {
		[POLICY_ELICITATION] = "elicitation/create",
		[POLICY_SAMPLING] = "sampling/createMessage",
		[POLICY_ROOTS] = "roots/list",
	};
	return methods[kind];
}

static void check_payload(const struct ask *ask, const struct question *question, struct span params)
{
	static const char *const legacy[] = {"task", "elicitationId", NULL};
	static const char *const legacy_form[] = {"task", NULL};
	static const char *const added[] = {"requestedSchema", NULL};
	struct span none = SPAN("{}");
	struct span asked = question->params.ptr ? question->params : none;
	if (!ledger_same_members(asked, params.ptr ? params : none, question->url ? legacy : legacy_form,
		    question->no_schema ? added : NULL))
		world_fail(ask->world, "invariant 5: the params of q%u changed on their way", question->number);
	if (get(params, "task").ptr || (question->url && get(params, "elicitationId").ptr) ||
		get(get(params, "_meta"), "progressToken").ptr ||
		get(get(params, "_meta"), "io.modelcontextprotocol/related-task").ptr)
		fail_ask(ask, "invariant 8: an input request with a member that 2026-07-28 does not know");
	if (question->kind == POLICY_ELICITATION && !question->url && !get(params, "requestedSchema").ptr)
		fail_ask(ask, "invariant 8: a form without requestedSchema");
}

static void check_question(const struct ask *ask, struct question *question, bool first)
{
	struct world *world = ask->world;
	if (question->link->principal != ask->job->principal)
		world_fail(world, "invariant 2: q%u of principal %u is asked of %u", question->number,
			question->link->principal, ask->job->principal);
	if (question->job != ask->job && !ledger_is_loose(question))
		world_fail(world, "invariant 2: q%u of t%u is asked in t%u", question->number,
			question->job ? question->job->number : 0, ask->job->number);
	/* A call that is kept nowhere has failed closed when its client is asked. */
	if (first && question->state != QUESTION_OPEN && !world->ledger->reruns)
		world_fail(world, "invariant 3: q%u is asked of the client, and is not open", question->number);
	/* The core takes the one call for waiting now and the other for running: what follows may go wrong as well. */
	if (question->job != ask->job)
		question->link->confused = true;
	question->was_asked = true;
}

static struct entry *read_entry(struct ask *ask, const struct json_member *member, bool first)
{
	struct world *world = ask->world;
	struct entry *entry = arena_alloc(&world->arena, sizeof(*entry));
	struct span method = get(member->value, "method"), params = get(member->value, "params");
	entry->key = span_of(arena_printf(&world->arena, "\"%.*s\"", (int)member->key.len, member->key.ptr));
	struct capability_need need = {.kind = POLICY_KINDS};
	for (int kind = 0; kind < POLICY_KINDS; kind++)
		if (method.ptr && json_string_is(method, entry_method((enum policy_kind)kind)))
			need.kind = (enum policy_kind)kind;
	if (need.kind == POLICY_KINDS) {
		fail_ask(ask, "invariant 8: an input request of no known kind");
		return entry;
	}
	struct span mode = get(params, "mode");
	need.url = need.kind == POLICY_ELICITATION && mode.ptr && json_string_is(mode, "url");
	need.tools = need.kind == POLICY_SAMPLING && (get(params, "tools").ptr || get(params, "toolChoice").ptr);
	entry->kind = need.kind;
	entry->url = need.url;
	if (!capabilities_cover(&ask->caps, &need))
		world_fail(world, "invariant 8: the client of %s is asked for what it did not declare (%s)", ask->id,
			entry_method(need.kind));
	entry->question = ledger_marked(world->ledger, mark_of(params, "sim/q", 'q'), NULL, QUESTION_OPEN);
	if (entry->question) {
		check_question(ask, entry->question, first);
		check_payload(ask, entry->question, params);
	} else if (need.kind != POLICY_ROOTS && !(need.url && ask->job->urls_required)) {
		fail_ask(ask, "invariant 2: an input request that no server made");
	}
	return entry;
}

static void check_keys(const struct ask *ask, const struct round *round)
{
	if (ask->world->ledger->keys_by_policy || ask->world->ledger->reruns)
		return;
	for (const struct round *other = round; other; other = other->next)
		for (const struct entry *a = other->entries; a; a = a->next)
			for (const struct entry *b = round->entries; b; b = b->next)
				if (a != b && span_equal(a->key, b->key) && a->question != b->question)
					fail_ask(ask, "the name of an input request means two questions");
}

static struct round *find_round(struct world *world, struct span state)
{
	for (struct job *job = world->ledger->jobs; job; job = job->next)
		for (struct round *round = job->rounds; round; round = round->next)
			if (span_equal(round->state, state))
				return round;
	return NULL;
}

static void take_round(struct ask *ask, struct span result)
{
	struct world *world = ask->world;
	struct span requests = get(result, "inputRequests"), state = get(result, "requestState");
	if (!requests.ptr || json_type(requests) != JSON_OBJECT || !state.ptr || json_type(state) != JSON_STRING) {
		fail_ask(ask, "invariant 8: an InputRequiredResult without inputRequests or requestState");
		return;
	}
	struct json_member member;
	struct json_walk members = json_walk(result, NULL);
	while (json_next_member(&members, &member))
		if (!span_is(member.key, "resultType") && !span_is(member.key, "inputRequests") &&
			!span_is(member.key, "requestState") && !span_is(member.key, "_meta"))
			fail_ask(ask, "invariant 8: an unknown member in an InputRequiredResult");
	state = (struct span){state.ptr + 1, state.len - 2};
	struct round *known = find_round(world, state);
	if (known) {
		if (known->job != ask->job || !same_retry(known->ask, ask))
			fail_ask(ask, "invariant 4: a request state was given out to another request");
		if (!span_equal(known->body, result))
			fail_ask(ask, "a round was delivered again with another content");
		if (capabilities_equal(&known->ask->caps, &ask->caps))
			return;
	}
	struct round *round = arena_alloc(&world->arena, sizeof(*round));
	round->job = ask->job;
	round->ask = ask;
	round->state = state;
	round->body = result;
	round->issued_ms = world->now_ms;
	struct entry **last = &round->entries;
	struct json_walk walk = json_walk(requests, NULL);
	while (json_next_member(&walk, &member)) {
		*last = read_entry(ask, &member, !known);
		last = &(*last)->next;
	}
	if (!round->entries)
		fail_ask(ask, "a round that asks nothing");
	if (known)
		return;
	round->next = ask->job->rounds;
	ask->job->rounds = round;
	check_keys(ask, round);
}

/* Final outcomes. */

static bool is_list(const char *method)
{
	return strcmp(method + strlen(method) - 5, "/list") == 0;
}

static bool is_cacheable(const char *method)
{
	return is_list(method) || strcmp(method, "resources/read") == 0 || strcmp(method, "server/discover") == 0;
}

static void check_complete(struct ask *ask, struct span result)
{
	static const char *const plain[] = {"resultType", "inputRequests", "requestState", NULL};
	static const char *const cached[] = {
		"resultType", "inputRequests", "requestState", "ttlMs", "cacheScope", NULL};
	struct job *job = ask->job;
	const char *const *skip = is_cacheable(job->method) ? cached : plain;
	unsigned mark = mark_of(result, "sim/r", 't');
	if (get(result, "inputRequests").ptr || get(result, "requestState").ptr)
		fail_ask(ask, "invariant 8: a forged round in a complete result");
	if (is_cacheable(job->method) && (!get(result, "ttlMs").ptr || !get(result, "cacheScope").ptr))
		fail_ask(ask, "invariant 8: a cacheable result without ttlMs or cacheScope");
	if (!mark) { /* of the proxy's own */
		if (strcmp(job->method, "server/discover") != 0 && strcmp(job->method, "subscriptions/listen") != 0 &&
			!job->urls_required)
			fail_ask(ask, "a result that no server gave");
		return;
	}
	if (mark != job->number)
		world_fail(ask->world, "invariant 2: t%u got the result of t%u", job->number, mark);
	else if (!job->answered || !job->result.ptr)
		fail_ask(ask, "a result that the server did not give");
	else if (!is_list(job->method) && !ledger_same_members(job->result, result, skip, skip))
		fail_ask(ask, "invariant 5: the result changed on its way");
}

/* Tasks (SEP-2663). */

struct entry *ledger_task_entry(const struct job *job, struct span key)
{
	for (const struct round *round = job->rounds; round; round = round->next)
		for (struct entry *entry = round->entries; round->of_task && entry; entry = entry->next)
			if (span_equal(entry->key, key))
				return entry;
	return NULL;
}

/* A key means one question for as long as the task lives, and what was answered is not asked again. */
static void take_task_questions(struct ask *ask, struct span requests)
{
	struct world *world = ask->world;
	struct job *job = ask->job;
	struct json_member member;
	struct json_walk walk = json_walk(requests, NULL);
	unsigned count = 0;
	while (json_next_member(&walk, &member)) {
		struct span key = span_of(arena_printf(&world->arena, "\"%.*s\"", (int)member.key.len, member.key.ptr));
		struct entry *known = ledger_task_entry(job, key), *entry = read_entry(ask, &member, true);
		count++;
		if (known && known->question != entry->question)
			fail_ask(ask, "the key of a task's input request means two questions");
		if (known)
			continue;
		struct round *round = arena_alloc(&world->arena, sizeof(*round));
		*round = (struct round){.next = job->rounds, .job = job, .ask = ask, .of_task = true, .entries = entry};
		job->rounds = round;
	}
	if (!count)
		fail_ask(ask, "a task that needs input and asks nothing");
}

static void check_task(struct ask *ask, struct span result, bool detailed)
{
	static const char *const terminal[] = {"completed", "failed", "cancelled"};
	struct job *job = ask->job;
	struct span id = get(result, "taskId"), status = get(result, "status"), ttl = get(result, "ttlMs");
	struct span requests = get(result, "inputRequests"), end = get(result, "result"), error = get(result, "error");
	int64_t ttl_ms = 0;
	if (!id.ptr || id.len < 3 || json_type(id) != JSON_STRING || !status.ptr || !get(result, "createdAt").ptr ||
		!get(result, "lastUpdatedAt").ptr || !ttl.ptr || !json_integer(ttl, &ttl_ms) || ttl_ms < 0) {
		fail_ask(ask, "invariant 8: a malformed task");
		return;
	}
	id = (struct span){id.ptr + 1, id.len - 2};
	if (job->task.ptr && !span_equal(job->task, id))
		fail_ask(ask, "invariant 2: another task than the job's");
	for (const struct job *other = ask->world->ledger->jobs; other; other = other->next)
		if (other != job && other->task.ptr && span_equal(other->task, id))
			fail_ask(ask, "two jobs have one task");
	job->task = id;
	for (size_t i = 0; job->task_status.ptr && i < sizeof(terminal) / sizeof(terminal[0]); i++)
		if (json_string_is(job->task_status, terminal[i]) && !json_string_is(status, terminal[i]))
			fail_ask(ask, "a task came back from its end");
	job->task_status = status;
	if (get(result, "requestState").ptr ||
		(requests.ptr != NULL) != (detailed && json_string_is(status, "input_required")) ||
		(end.ptr != NULL) != (detailed && json_string_is(status, "completed")) ||
		(error.ptr != NULL) != (detailed && json_string_is(status, "failed")))
		fail_ask(ask, "invariant 8: a task with what its status does not allow");
	if (requests.ptr)
		take_task_questions(ask, requests);
	if (end.ptr)
		check_complete(ask, end);
	if (error.ptr)
		check_error(ask, 400, error);
}

static void check_task_response(struct ask *ask, struct span result, struct span type)
{
	if (!json_string_is(type, "complete"))
		fail_ask(ask, "invariant 8: an answer about a task that is not complete");
	else if (strcmp(ask->task_method, "tasks/get") == 0)
		check_task(ask, result, true);
	else if (get(result, "taskId").ptr || get(result, "status").ptr)
		fail_ask(ask, "invariant 8: an acknowledgement that says more");
}

/* Two different sets of answers for one state: at least one of them had to be refused. */
static void take_final(struct ask *ask)
{
	struct job *job = ask->job;
	if (!job->final)
		job->final = ask;
	else if (!same_retry(job->final, ask) && span_equal(job->final->state, ask->state))
		fail_ask(ask, "invariant 2: the final outcome was given out for two different answers");
}

static void check_result(struct ask *ask, struct span result)
{
	struct span type = json_type(result) == JSON_OBJECT ? get(result, "resultType") : (struct span){0};
	struct span ignored;
	if (json_get(result, NULL, "resultType", &ignored) > 1)
		fail_ask(ask, "invariant 8: resultType twice");
	if (ask->must_fail) {
		fail_ask(ask, "invariant 4: a request that had to be refused got a result");
	} else if (!type.ptr) {
		fail_ask(ask, "invariant 8: a result without resultType");
	} else if (!get(result, "_meta").ptr) {
		fail_ask(ask, "a result without _meta");
	} else if (ask->task_method) {
		check_task_response(ask, result, type);
	} else if (json_string_is(type, "task")) {
		if (!ask->caps.tasks || strcmp(ask->job->method, "tools/call") != 0)
			fail_ask(ask, "invariant 8: a task for a client that did not declare tasks");
		check_task(ask, result, false);
	} else if (json_string_is(type, "complete")) {
		check_complete(ask, result);
		take_final(ask);
	} else if (json_string_is(type, "input_required")) {
		if (!ledger_has_rounds(ask->job->method))
			fail_ask(ask, "invariant 8: a round for a method that has none");
		take_round(ask, result);
	} else {
		fail_ask(ask, "invariant 8: an unknown resultType");
	}
}

/* Errors. */

static void check_error(struct ask *ask, int http_status, struct span error)
{
	int64_t code = 0;
	struct span number = get(error, "code"), message = get(error, "message"), data = get(error, "data");
	if (!number.ptr || !json_integer(number, &code) || !message.ptr || json_type(message) != JSON_STRING) {
		fail_ask(ask, "invariant 8: a malformed error");
		return;
	}
	bool modern = code == -32020 || code == -32021 || code == -32022;
	if (code == -32002 || (code <= -32020 && code >= -32099 && !modern))
		fail_ask(ask, "invariant 8: an error code that 2026-07-28 does not allow");
	if (modern && http_status != 400)
		fail_ask(ask, "an error that must come with HTTP 400");
	if (code == -32021 && !get(data, "requiredCapabilities").ptr)
		fail_ask(ask, "invariant 8: -32021 without data.requiredCapabilities");
	struct span reason = get(data, "reason");
	static const char *const wrong[] = {"unverifiable", "other_instance", "mismatch", "used"};
	for (size_t i = 0; ask->must_work && reason.ptr && i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (json_string_is(reason, wrong[i]))
			world_fail(ask->world, "a good retry of t%u was refused as %s", ask->job->number, wrong[i]);
	/* Errors of the simulated servers begin with E:t<job>. */
	unsigned mark = 0;
	if (message.len > 5 && memcmp(message.ptr, "\"E:t", 4) == 0)
		mark = (unsigned)strtoul(message.ptr + 4, NULL, 10);
	if (mark && ask->job && mark != ask->job->number)
		world_fail(ask->world, "invariant 2: t%u got the error of t%u", ask->job->number, mark);
	if (mark && ask->job && !ask->task_method)
		take_final(ask);
}

/* The border. */

static struct ask *find_ask(struct party *party, struct span id)
{
	for (struct ask *ask = party->world->ledger->asks; ask; ask = ask->next)
		if (ask->party == party && ask->is_open &&
			(ask->id && id.ptr ? span_is(id, ask->id) : !ask->id && !id.ptr))
			return ask;
	return NULL;
}

struct ask *ledger_responded(struct party *party, int http_status, struct span text)
{
	struct world *world = party->world;
	struct span value, ignored;
	struct error error;
	if (party->gone)
		world_fail(world, "a response to a client that is gone");
	if (json_check(text, &value, NULL, &error)) {
		world_fail(world, "invariant 8: a response that is no JSON: %s", error.text);
		return NULL;
	}
	struct span id = get(value, "id");
	struct ask *ask = find_ask(party, id);
	if (!ask) {
		world_fail(world, "invariant 1: a response to no open request: %.*s", (int)text.len, text.ptr);
		return NULL;
	}
	ask->is_open = false;
	ask->response = value;
	ask->http_status = http_status;
	bool may_be_502 = ask->upstream;
	if (http_status != 200 && http_status != 400 && http_status != 404 && http_status != 503 &&
		!(may_be_502 && http_status == 502))
		fail_ask(ask, "an unexpected HTTP status");
	if (!json_string_is(get(value, "jsonrpc"), "2.0") || json_get(value, NULL, "id", &ignored) > 1)
		fail_ask(ask, "invariant 8: a malformed response");
	struct span result = get(value, "result"), failure = get(value, "error");
	if ((result.ptr != NULL) == (failure.ptr != NULL))
		fail_ask(ask, "invariant 8: a response needs a result or an error");
	else if (ask->upstream)
		ledger_check_through(ask, http_status);
	else if (result.ptr && !ask->job)
		fail_ask(ask, "a malformed request got a result");
	else if (result.ptr)
		check_result(ask, result);
	else
		check_error(ask, http_status, failure);
	return ask;
}

/* Notifications. */

static void check_progress(struct party *party, struct span params)
{
	struct world *world = party->world;
	struct span token = get(params, "progressToken"), value = get(params, "progress");
	struct span words = get(params, "message");
	for (struct ask *ask = world->ledger->asks; ask && token.ptr; ask = ask->next) {
		if (ask->party != party || !ask->is_open || !ask->progress_token ||
			!span_is(token, ask->progress_token))
			continue;
		double progress = value.ptr ? strtod(value.ptr, NULL) : 0;
		/* What a modern server says of a call of its own client is passed as it is. */
		if (!ask->upstream && (!value.ptr || (ask->has_progress && progress <= ask->progress)))
			fail_ask(ask, "invariant 8: progress that does not increase");
		ask->progress = progress;
		ask->has_progress = true;
		if (words.ptr && words.len > 5 && memcmp(words.ptr, "\"P:t", 4) == 0 &&
			strtoul(words.ptr + 4, NULL, 10) != ask->job->number)
			fail_ask(ask, "invariant 2: progress of another call");
		return;
	}
	world_fail(world, "invariant 8: progress for a request that is not open, or asked for none");
}

static void check_log(struct party *party)
{
	for (const struct ask *ask = party->world->ledger->asks; ask; ask = ask->next)
		if (ask->party == party && ask->is_open && ask->log_level >= 0)
			return;
	world_fail(party->world, "invariant 8: a log message for no request that asked for any");
}

static void check_subscription(struct party *party, struct span method, struct span params)
{
	struct span id = get(get(params, "_meta"), "io.modelcontextprotocol/subscriptionId");
	bool acknowledgement = json_string_is(method, "notifications/subscriptions/acknowledged");
	for (struct ask *ask = party->world->ledger->asks; ask && id.ptr; ask = ask->next) {
		if (ask->party != party || !ask->is_open || !span_is(id, ask->id))
			continue;
		if (ask->acknowledged == acknowledgement)
			fail_ask(ask, "invariant 8: a subscription is acknowledged first, and once");
		ask->acknowledged = true;
		return;
	}
	world_fail(party->world, "invariant 8: a notification for no subscription");
}

void ledger_notified(struct party *party, struct span text)
{
	struct world *world = party->world;
	struct span value;
	struct error error;
	if (party->gone)
		world_fail(world, "a notification to a client that is gone");
	if (json_check(text, &value, NULL, &error)) {
		world_fail(world, "invariant 8: a notification that is no JSON: %s", error.text);
		return;
	}
	struct span method = get(value, "method"), params = get(value, "params");
	if (!method.ptr || get(value, "id").ptr || !json_string_is(get(value, "jsonrpc"), "2.0"))
		world_fail(world, "invariant 8: a malformed notification");
	else if (json_string_is(method, "notifications/progress"))
		check_progress(party, params);
	else if (json_string_is(method, "notifications/message"))
		check_log(party);
	else
		check_subscription(party, method, params);
}
