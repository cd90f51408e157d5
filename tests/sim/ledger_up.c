/* The ledger at the border to the legacy servers: what the core sends them. */
#include "tests/sim/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const calls[] = {"tools/call", "prompts/get", "resources/read", "tools/list", "prompts/list",
	"resources/list", "resources/templates/list", "completion/complete"};

/* Compares members in order, without `_meta` and those in `skip`, as bytes (invariant 5). */
bool ledger_same_members(struct span a, struct span b, const char *const *skip_a, const char *const *skip_b)
{
	struct json_walk walk_a = json_walk(a, NULL), walk_b = json_walk(b, NULL);
	struct json_member x, y;
	for (;;) {
		bool has_x, has_y;
		do {
			has_x = json_next_member(&walk_a, &x);
		} while (has_x && span_in(x.key, skip_a));
		do {
			has_y = json_next_member(&walk_b, &y);
		} while (has_y && span_in(y.key, skip_b));
		if (!has_x || !has_y)
			return has_x == has_y;
		if (!span_equal(x.key, y.key) || !span_equal(x.value, y.value))
			return false;
	}
}

bool span_in(struct span key, const char *const *list)
{
	if (span_is(key, "_meta"))
		return true;
	for (; list && *list; list++)
		if (span_is(key, *list))
			return true;
	return false;
}

/* Requests. */

static struct job *find_job(struct world *world, unsigned number)
{
	for (struct job *job = world->ledger->jobs; job; job = job->next)
		if (job->number == number)
			return job;
	return NULL;
}

static void check_meta(struct link *link, const struct sent *sent, struct span meta)
{
	struct json_member member;
	struct json_walk walk = json_walk(meta, NULL);
	while (json_next_member(&walk, &member))
		if (member.key.len > 22 && memcmp(member.key.ptr, "io.modelcontextprotocol", 23) == 0)
			world_fail(link->world, "invariant 8: %.*s in a legacy request", (int)member.key.len,
				member.key.ptr);
	struct span token = get(meta, "progressToken");
	int64_t number = 0;
	bool good = !token.ptr || (json_integer(token, &number) && (uint64_t)number == sent->id);
	/* A second try, as a task, keeps the token of the first. */
	const struct sent *first = good ? sent : link_find_sent(link, (uint64_t)number);
	if (!good && !(link->has_tasks && first && first->job == sent->job))
		world_fail(link->world, "the progress token upstream is not the request's id");
}

/* Whether its client was asked ahead of the call already: that is done once a call. */
static bool has_told_roots(const struct job *job)
{
	for (const struct round *round = job->rounds; round; round = round->next)
		for (const struct entry *entry = round->entries; entry; entry = entry->next)
			if (entry->kind == POLICY_ROOTS && !entry->question)
				return true;
	return false;
}

/* A request that outside questions for the roots were answered before (filesystem servers deny what comes earlier). */
static void check_roots_first(struct link *link, const struct job *job)
{
	const struct ledger *ledger = link->world->ledger;
	const struct policy_rule *rule = &link->world->policy->defaults;
	if (has_told_roots(job))
		return;
	const struct ask *newest = ledger->asks;
	while (newest && newest->job != job)
		newest = newest->next;
	if (!newest || !newest->caps.roots || rule->asks_never || rule->action[POLICY_ROOTS] != POLICY_FORWARD)
		return;
	for (unsigned i = 1; i <= ledger->question_count; i++) {
		const struct question *question = ledger->questions[i];
		if (question->link == link && question->state == QUESTION_OPEN && question->kind == POLICY_ROOTS &&
			question->alone)
			world_fail(link->world, "%s t%u went out before roots question q%u was answered", job->method,
				job->number, question->number);
	}
}

/* Declared as the client did, or in the plain shape of older revisions, where members do not exist. */
static bool mirrors(const struct capabilities *declared, const struct capabilities *caps)
{
	struct capabilities plain = *caps;
	plain.sampling_tools = plain.sampling_context = plain.elicitation_url = false;
	return capabilities_equal(declared, caps) || capabilities_equal(declared, &plain);
}

/* A rerun is made with what its retry declares. */
static bool mirrors_a_retry(const struct link *link, const struct job *job)
{
	for (const struct ask *ask = link->world->ledger->asks; ask; ask = ask->next)
		if (ask->job == job && mirrors(&link->caps, &ask->caps))
			return true;
	return false;
}

static void check_call(struct link *link, struct sent *sent, struct span params, bool dropped)
{
	static const char *const retry[] = {"inputResponses", "requestState", NULL};
	static const char *const task[] = {"task", NULL};
	struct world *world = link->world;
	struct job *job = find_job(world, mark_of(params, "sim/t", 't'));
	if (!job) {
		world_fail(world, "a legacy request that no client sent");
		return;
	}
	sent->job = job;
	check_meta(link, sent, get(params, "_meta"));
	struct span wanted = span_of(arena_printf(&world->arena, "{%.*s}", (int)job->params.len, job->params.ptr));
	if (get(params, "inputResponses").ptr || get(params, "requestState").ptr)
		world_fail(world, "invariant 8: what belongs to a retry went upstream");
	bool plain = strcmp(sent->method, "completion/complete") != 0;
	if (plain && !ledger_same_members(wanted, params, retry, link->has_tasks ? task : NULL))
		world_fail(world, "invariant 5: the params of t%u changed on their way", job->number);
	if (strcmp(sent->method, job->method) != 0)
		world_fail(world, "t%u went upstream as %s", job->number, sent->method);
	if (job->principal != link->principal)
		world_fail(world, "invariant 4: a request of principal %u on a session of %u", job->principal,
			link->principal);
	if (!mirrors(&link->caps, &job->caps) && !(world->ledger->reruns && mirrors_a_retry(link, job)))
		world_fail(world, "invariant 8: t%u runs in a session that declares other capabilities", job->number);
	if (ledger_has_rounds(job->method))
		check_roots_first(link, job);
	bool again = world->ledger->reruns || (link->has_tasks && get(params, "task").ptr);
	if (job->sends > job->urls_required && !again)
		world_fail(world, "t%u went upstream twice", job->number);
	if (dropped)
		return;
	job->sends++;
	job->link = link;
	job->upstream_id = sent->id;
	job->answered = job->cancelled = false;
	job->has_progress = false;
	sent->wants_progress = get(get(params, "_meta"), "progressToken").ptr != NULL;
}

/* tasks/result brings the result of the call under another id. The simulated servers name a task after its job: task-N. */
static bool take_task_request(struct link *link, struct sent *sent, struct span params)
{
	struct span id = get(params, "taskId");
	struct job *job = id.ptr && id.len > 6 ? find_job(link->world, (unsigned)strtoul(id.ptr + 6, NULL, 10)) : NULL;
	if (job && strcmp(sent->method, "tasks/cancel") == 0) {
		job->cancelled = true;
		return true;
	}
	if (!job || strcmp(sent->method, "tasks/result") != 0)
		return false;
	sent->job = job;
	job->upstream_id = sent->id;
	job->answered = false;
	return true;
}

/* What initialize declares is kept to compare with what the clients of this session declared. */
static void check_initialize(struct link *link, struct span params)
{
	struct error error;
	struct span caps = get(params, "capabilities"), elicitation = get(caps, "elicitation");
	if (!caps.ptr || !get(params, "protocolVersion").ptr || !get(params, "clientInfo").ptr)
		world_fail(link->world, "invariant 8: initialize lacks a member");
	if (get(caps, "tasks").ptr)
		world_fail(link->world, "invariant 8: tasks declared upstream");
	if (capabilities_read(&link->caps, caps, &error))
		world_fail(link->world, "invariant 8: %s", error.text);
	(void)elicitation;
	link->roots_may_change = get(get(caps, "roots"), "listChanged").ptr != NULL;
}

static void take_request(struct link *link, uint64_t request_id, const struct message *message, bool dropped)
{
	struct world *world = link->world;
	int64_t id;
	if (!json_integer(message->id, &id) || id < 1 || (uint64_t)id != request_id)
		world_fail(world, "the id of a request upstream is no integer from 1, or not the one announced");
	if (link_find_sent(link, request_id))
		world_fail(world, "request id %llu was used twice", (unsigned long long)request_id);
	struct sent *sent = arena_alloc(&world->arena, sizeof(*sent));
	sent->id = sent->request = request_id;
	sent->method = unquoted(world, message->method);
	sent->next = link->sent;
	link->sent = sent;
	if (strcmp(sent->method, "initialize") == 0) {
		if (sent->next)
			world_fail(world, "invariant 8: initialize is not the first request");
		check_initialize(link, message->params);
		return;
	}
	if (strcmp(sent->method, "ping") != 0 && !link->initialized)
		world_fail(world, "invariant 8: %s before the handshake was over", sent->method);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strcmp(sent->method, calls[i]) == 0) {
			if (!link->established)
				world_fail(world, "a call before the connection was established");
			check_call(link, sent, message->params, dropped);
			return;
		}
	if (link->has_tasks && take_task_request(link, sent, message->params))
		return;
	if (strcmp(sent->method, "ping") != 0 && strcmp(sent->method, "logging/setLevel") != 0 &&
		strcmp(sent->method, "resources/subscribe") != 0 && strcmp(sent->method, "resources/unsubscribe") != 0)
		world_fail(world, "invariant 8: the legacy server got a request for %s", sent->method);
}

/* Notifications. */

static void check_cancelled(struct link *link, struct span params)
{
	int64_t id = 0;
	struct span value = get(params, "requestId");
	struct sent *sent = value.ptr && json_integer(value, &id) ? link_find_sent(link, (uint64_t)id) : NULL;
	if (!sent)
		world_fail(link->world, "the cancellation of a request that was never sent");
	else if (sent->answered)
		world_fail(link->world, "the cancellation of request %lld, which was answered", (long long)id);
	else if (sent->cancelled)
		world_fail(link->world, "request %lld was cancelled twice", (long long)id);
	else if (strcmp(sent->method, "initialize") == 0)
		world_fail(link->world, "invariant 8: initialize was cancelled");
	if (sent) {
		sent->cancelled = true;
		if (sent->job)
			sent->job->cancelled = true;
	}
}

static void check_keepalive(struct link *link, struct span params)
{
	const struct ledger *ledger = link->world->ledger;
	struct span token = get(params, "progressToken"), value = get(params, "progress");
	for (unsigned i = 1; token.ptr && i <= ledger->question_count; i++) {
		struct question *question = ledger->questions[i];
		if (question->link != link || question->state != QUESTION_OPEN || !question->progress_token ||
			!span_is(token, question->progress_token))
			continue;
		double progress = value.ptr ? strtod(value.ptr, NULL) : 0;
		if (progress <= question->progress)
			world_fail(link->world, "invariant 8: the progress of q%u does not increase", i);
		question->progress = progress;
		return;
	}
	world_fail(link->world, "invariant 8: progress for a token that no open request gave");
}

static void take_notification(struct link *link, const struct message *message)
{
	struct world *world = link->world;
	if (json_string_is(message->method, "notifications/initialized")) {
		if (!link->agreed || link->initialized)
			world_fail(world, "invariant 8: notifications/initialized at the wrong time");
		link->initialized = true;
	} else if (json_string_is(message->method, "notifications/cancelled")) {
		check_cancelled(link, message->params);
	} else if (json_string_is(message->method, "notifications/progress")) {
		check_keepalive(link, message->params);
	} else if (json_string_is(message->method, "notifications/roots/list_changed")) {
		if (!link->roots_may_change)
			world_fail(world, "invariant 8: roots/list_changed without having declared it");
	} else {
		world_fail(world, "invariant 8: the legacy server got %.*s", (int)message->method.len,
			message->method.ptr);
	}
}

/* Answers. */

struct question *ledger_find_question(struct link *link, struct span id)
{
	const struct ledger *ledger = link->world->ledger;
	for (unsigned i = ledger->question_count; i; i--)
		if (ledger->questions[i]->link == link && ledger->questions[i]->state == QUESTION_OPEN &&
			span_is(id, ledger->questions[i]->id))
			return ledger->questions[i];
	return NULL;
}

/* What an answer's client was asked under its key. */
static const struct entry *find_entry(struct world *world, const struct answer *answer)
{
	struct span state = answer->ask->state;
	if (answer->ask->task_method)
		return ledger_task_entry(answer->ask->job, answer->key);
	for (const struct job *job = world->ledger->jobs; state.ptr && job; job = job->next)
		for (const struct round *round = job->rounds; round; round = round->next) {
			if (!span_equal(round->state, state))
				continue;
			for (const struct entry *entry = round->entries; entry; entry = entry->next)
				if (span_equal(entry->key, answer->key))
					return entry;
		}
	return NULL;
}

/* Whether roots that were asked for ahead of a call may answer it: it is nobody's question, or its call is over
 * (and the job may be under way again, in a rerun). */
static bool is_adopted(const struct question *question)
{
	const struct job *job = question->job;
	return question->kind == POLICY_ROOTS &&
	       (ledger_is_loose(question) || job->answered || job->sends > question->run);
}

static unsigned base_of(const struct question *question)
{
	return question->like ? question->like : question->number;
}

static void check_client_answer(struct question *question, struct answer *answer, struct span result)
{
	struct world *world = question->link->world;
	const struct ask *ask = answer->ask;
	const struct entry *entry = find_entry(world, answer);
	bool ahead = !ask->state.ptr && world->ledger->keys_by_policy;
	if (ask->must_fail)
		world_fail(world, "invariant 4: answer a%u of a request that had to be refused went upstream",
			answer->number);
	if (!span_equal(answer->value, result))
		world_fail(world, "invariant 5: answer a%u changed on its way", answer->number);
	if (ask->job->principal != question->link->principal)
		world_fail(world, "invariant 2: answer a%u of principal %u went to a session of %u", answer->number,
			ask->job->principal, question->link->principal);
	if (ahead) {
		if (question->job != ask->job && !ledger_is_loose(question) && !is_adopted(question))
			world_fail(world, "invariant 2: answer a%u went ahead to another call", answer->number);
	} else if (!entry) {
		world_fail(world, "invariant 2: answer a%u went upstream without a question", answer->number);
	} else if (entry->question ? base_of(entry->question) != base_of(question) : !is_adopted(question)) {
		world_fail(world, "invariant 2: answer a%u for q%u went to q%u", answer->number,
			entry->question ? entry->question->number : 0, question->number);
	}
	bool shared =
		((entry && !entry->question) || (ahead && is_adopted(question))) && answer->used_by == question->link;
	if (answer->used && !shared && !world->ledger->reruns)
		world_fail(world, "invariant 2: answer a%u was used twice", answer->number);
	answer->used++;
	answer->used_by = question->link;
}

/* Nobody answered, or policy did. */
static void check_own_answer(struct question *question, struct span result, struct span error)
{
	struct world *world = question->link->world;
	const struct policy_rule *rule = &world->policy->defaults;
	enum policy_action action = rule->action[question->kind];
	int64_t code = 0;
	if (error.ptr && (!json_integer(get(error, "code"), &code) || !get(error, "message").ptr))
		world_fail(world, "invariant 8: a malformed error went upstream");
	if (result.ptr && action == POLICY_ANSWER && span_is(result, rule->answer[question->kind]))
		return;
	switch (question->kind) {
	case POLICY_ELICITATION:
		if (error.ptr && action != POLICY_DENY)
			world_fail(world, "invariant 7: q%u got an error", question->number);
		if (result.ptr && !span_is(result, "{\"action\":\"cancel\"}") &&
			!(action == POLICY_DECLINE && span_is(result, "{\"action\":\"decline\"}")))
			world_fail(world, "invariant 7: q%u got %.*s", question->number, (int)result.len, result.ptr);
		break;
	default:
		if (result.ptr)
			world_fail(world, "invariant 3: q%u got a result that nobody gave", question->number);
		if (error.ptr && code != -1 && code != -32601 && code != -32602 && code != -32603)
			world_fail(world, "invariant 3: q%u got the error %lld", question->number, (long long)code);
	}
}

static void take_answer(struct link *link, const struct message *message)
{
	struct world *world = link->world;
	if (message->id.ptr && message->id.len > 3 && memcmp(message->id.ptr, "\"x-", 3) == 0)
		return; /* pings and unknown requests */
	struct question *question = ledger_find_question(link, message->id);
	if (!question) {
		world_fail(world, "invariant 3: an answer to %.*s, which is not open", (int)message->id.len,
			message->id.ptr);
		return;
	}
	unsigned number = message->result.ptr ? mark_of(message->result, "sim/a", 'a') : 0;
	if (number && number <= world->ledger->answer_count)
		check_client_answer(question, world->ledger->answers[number], message->result);
	else
		check_own_answer(question, message->result, message->error);
	question->state = QUESTION_ANSWERED;
	question->result = message->result;
	question->error = message->error;
}

void ledger_to_server(struct link *link, enum upstream_kind kind, uint64_t request_id, struct span text, bool dropped)
{
	struct world *world = link->world;
	struct span value;
	struct json_index index = {0};
	struct message message;
	struct error error;
	if (!link->open)
		world_fail(world, "a message on a connection that is closed");
	if (json_check(text, &value, &index, &error) || message_parse(&message, value, &index, &error)) {
		world_fail(world, "invariant 8: not a message: %s", error.text);
		return;
	}
	if ((kind == UPSTREAM_REQUEST) != (message.kind == MESSAGE_REQUEST) ||
		(kind == UPSTREAM_RESPONSE) != (message.kind == MESSAGE_RESPONSE))
		world_fail(world, "a message was sent as another kind");
	if (ledger_pass_up(link, &message, request_id, text, dropped))
		return;
	if (message.kind == MESSAGE_REQUEST)
		take_request(link, request_id, &message, dropped);
	else if (message.kind == MESSAGE_NOTIFICATION)
		take_notification(link, &message);
	else
		take_answer(link, &message);
}
