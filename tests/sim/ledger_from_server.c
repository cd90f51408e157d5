/* The ledger at the border to the legacy servers: what comes from them. */
#include "tests/sim/ledger.h"

#include <string.h>

static void server_answers(struct link *link, const struct message *message)
{
	int64_t id;
	struct sent *sent =
		message->id.ptr && json_integer(message->id, &id) ? link_find_sent(link, (uint64_t)id) : NULL;
	if (!sent || sent->answered)
		return;
	sent->answered = true;
	if (strcmp(sent->method, "initialize") == 0 && message->result.ptr) {
		struct span version = get(message->result, "protocolVersion");
		link->agreed = true;
		link->has_tasks = get(get(message->result, "capabilities"), "tasks").ptr != NULL;
		link->version = version.ptr ? unquoted(link->world, version) : "";
	}
	struct job *job = sent->job;
	if (!job || job->upstream_id != sent->id || job->link != link)
		return;
	job->answered = true;
	job->result = arena_copy(&link->world->arena, message->result);
	if (!message->result.ptr)
		job->result = (struct span){0};
	job->error = message->error.ptr ? arena_copy(&link->world->arena, message->error) : (struct span){0};
	int64_t code;
	struct span value = get(job->error, "code");
	if (value.ptr && json_integer(value, &code) && code == -32042)
		job->urls_required++;
}

/* Whether a request of the job waits for its response. */
static bool is_awaited(const struct world *world, const struct job *job)
{
	for (const struct ask *ask = world->ledger->asks; ask; ask = ask->next)
		if (ask->job == job && ask->is_open)
			return true;
	return false;
}

/* What the core cannot know: the call is over for it; or it waits with its client, and the server asks more without
 * saying for whom. */
static bool is_loose(const struct link *link, const struct job *job, uint64_t stream)
{
	if (!job || job->answered || job->cancelled || job->lost || job->link != link)
		return true;
	if (link->confused && !stream)
		return true;
	for (const struct question *other = job->questions; other && !stream; other = other->next_of_job)
		if (other->state == QUESTION_OPEN && (other->was_asked || !is_awaited(link->world, job)))
			return true;
	return false;
}

/* How many calls that may ask are under way. */
static unsigned count_running(const struct link *link)
{
	unsigned count = 0;
	for (const struct sent *sent = link->sent; sent; sent = sent->next)
		count += sent->job && !sent->answered && !sent->cancelled && ledger_has_rounds(sent->job->method);
	return count;
}

static bool is_busy(const struct link *link)
{
	for (const struct sent *sent = link->sent; sent; sent = sent->next)
		if (sent->job && !sent->answered)
			return true;
	return false;
}

static void server_asks(struct link *link, const struct message *message, uint64_t stream)
{
	struct question *question =
		ledger_marked(link->world->ledger, mark_of(message->params, "sim/q", 'q'), link, QUESTION_NEW);
	if (!question || question->state != QUESTION_NEW)
		return;
	if (ledger_find_question(link, message->id)) { /* the id of another open one: it is ignored */
		question->state = QUESTION_VOID;
		return;
	}
	question->state = QUESTION_OPEN;
	question->open_ms = link->world->now_ms;
	question->params = message->params;
	question->loose = is_loose(link, question->job, stream);
	question->alone = !stream && !is_busy(link);
	question->held = !stream && count_running(link) > 1;
}

static void server_notifies(struct link *link, const struct message *message)
{
	if (json_string_is(message->method, "notifications/cancelled")) {
		struct span id = get(message->params, "requestId");
		struct question *question = id.ptr ? ledger_find_question(link, id) : NULL;
		if (question)
			question->state = QUESTION_WITHDRAWN;
	}
}

static void take_from_server(struct link *link, struct span value, uint64_t stream)
{
	struct message message;
	struct json_index index = {0};
	struct error error;
	if (message_parse(&message, value, &index, &error))
		return;
	ledger_pass_down(link, &message, value);
	if (link->modern)
		return;
	if (message.kind == MESSAGE_RESPONSE)
		server_answers(link, &message);
	else if (message.kind == MESSAGE_REQUEST)
		server_asks(link, &message, stream);
	else
		server_notifies(link, &message);
}

void ledger_from_server(struct link *link, struct span text, uint64_t stream)
{
	struct span value, element;
	struct error error;
	if (json_check(text, &value, NULL, &error))
		return;
	if (json_type(value) != JSON_ARRAY) {
		take_from_server(link, value, stream);
		return;
	}
	if (!link->dialog && !link->modern && (!link->version || strcmp(link->version, "2025-03-26") != 0))
		return; /* a batch where there are none: ignored as a whole */
	struct json_walk walk = json_walk(value, NULL);
	while (json_next_element(&walk, &element))
		take_from_server(link, element, stream);
}

void ledger_link_over(struct link *link, bool by_core)
{
	struct ledger *ledger = link->world->ledger;
	for (unsigned i = 1; i <= ledger->question_count; i++) {
		struct question *question = ledger->questions[i];
		if (question->link != link || question->state != QUESTION_OPEN)
			continue;
		if (by_core && !ledger->over && !link->dialog && !link->modern)
			world_fail(link->world, "invariant 3: the proxy closed s%u without an answer to q%u",
				link->number, question->number);
		question->state = QUESTION_VOID;
	}
	for (struct job *job = ledger->jobs; job; job = job->next)
		if (job->link == link && !job->answered)
			job->lost = true;
}
