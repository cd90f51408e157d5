/* The ledger for what is passed through: legacy clients to legacy servers (relays), to modern servers (elders), and modern
 * clients to modern servers. What comes to legacy clients is in ledger_legacy.c. A relay changes nothing, so its messages are parcels that are compared as a whole; elsewhere the
 * marks say what belongs together, and members are compared as bytes. */
#include "tests/sim/dialog.h"
#include "tests/sim/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job *find_job(const struct world *world, unsigned number)
{
	struct job *job = world->ledger->jobs;
	while (job && job->number != number)
		job = job->next;
	return job;
}

static struct sent *add_sent(struct link *link, const struct message *message, uint64_t id, uint64_t request)
{
	struct sent *sent = arena_alloc(&link->world->arena, sizeof(*sent));
	sent->id = id;
	sent->request = request;
	sent->method = unquoted(link->world, message->method);
	sent->next = link->sent;
	link->sent = sent;
	return sent;
}

static void begin_job(struct link *link, struct sent *sent, struct job *job)
{
	sent->job = job;
	job->sends++;
	job->link = link;
	job->upstream_id = sent->id;
	job->answered = job->cancelled = job->has_progress = false;
}

/* Up a relay. */

/* Finds the parcel that this is. What came before it has crossed, was not taken, or was answered by the core; what named no
 * session has no place in it. */
static struct parcel *cross_up(struct link *link, struct span text)
{
	struct dialog *dialog = link->dialog;
	for (struct parcel *parcel = dialog->up; parcel; parcel = parcel->next) {
		if (parcel->strayed)
			continue;
		if (!parcel->crossed && span_equal(parcel->text, text)) {
			parcel->crossed = true;
			return parcel;
		}
		if (!parcel->crossed && !parcel->dropped && !(parcel->ask && !parcel->ask->is_open))
			world_fail(link->world, "invariant 1: d%u was overtaken by its own %.*s", dialog->number,
				(int)text.len, text.ptr);
	}
	world_fail(link->world, "invariant 5: the server got what d%u never said, or said once: %.*s", dialog->number,
		(int)text.len, text.ptr);
	return NULL;
}

static void relay_request(struct link *link, const struct message *message, uint64_t request_id)
{
	struct world *world = link->world;
	int64_t id = 0;
	struct error error;
	struct job *job = find_job(world, mark_of(message->params, "sim/t", 't'));
	if (!json_integer(message->id, &id) || !job) {
		world_fail(world, "a request that no legacy client sent");
		return;
	}
	begin_job(link, add_sent(link, message, (uint64_t)id, request_id), job);
	if (strcmp(job->method, "initialize") == 0 &&
		capabilities_read(&link->caps, get(message->params, "capabilities"), &error))
		world_fail(world, "%s", error.text);
}

static struct sent *sent_of(const struct link *link, struct span id)
{
	int64_t number = 0;
	return id.ptr && json_integer(id, &number) ? link_find_sent(link, (uint64_t)number) : NULL;
}

static void relay_notification(struct link *link, const struct message *message, bool dropped)
{
	struct sent *sent = sent_of(link, get(message->params, "requestId"));
	if (json_string_is(message->method, "notifications/initialized")) {
		link->initialized |= !dropped;
	} else if (json_string_is(message->method, "notifications/cancelled") && dropped) {
		struct ask *ask = dialog_find_ask(link->dialog, get(message->params, "requestId"));
		if (ask && ask->is_gone && !ask->response.ptr) { /* it was not said, after all */
			ask->is_open = true;
			ask->is_gone = false;
		}
	} else if (json_string_is(message->method, "notifications/cancelled") && sent) {
		sent->cancelled = true;
		if (sent->job)
			sent->job->cancelled = true;
	}
}

static void relay_answer(struct link *link, const struct message *message)
{
	struct question *question = ledger_find_question(link, message->id);
	if (!question)
		return; /* it was withdrawn, or answered before */
	question->state = QUESTION_ANSWERED;
	question->result = message->result;
	question->error = message->error;
}

static void relay_up(
	struct link *link, const struct message *message, uint64_t request_id, struct span text, bool dropped)
{
	struct parcel *parcel = cross_up(link, text);
	if (!parcel)
		return;
	parcel->dropped = dropped;
	if (message->kind == MESSAGE_NOTIFICATION)
		relay_notification(link, message, dropped);
	else if (!dropped && message->kind == MESSAGE_REQUEST)
		relay_request(link, message, request_id);
	else if (!dropped)
		relay_answer(link, message);
}

/* Up to a modern server. */

static void check_modern_meta(struct link *link, struct span meta, const struct capabilities *wanted)
{
	struct capabilities caps;
	struct error error;
	struct span version = get(meta, "io.modelcontextprotocol/protocolVersion"),
		    declared = get(meta, "io.modelcontextprotocol/clientCapabilities");
	if (!version.ptr || !json_string_is(version, "2026-07-28") || !declared.ptr ||
		capabilities_read(&caps, declared, &error))
		world_fail(link->world, "invariant 8: a request to a modern server without its _meta");
	else if (wanted && !capabilities_equal(&caps, wanted))
		world_fail(link->world, "invariant 8: other capabilities than the client's");
}

static struct question *question_of_key(const struct job *job, struct span key)
{
	struct question *question = job->questions;
	while (question && !(question->state == QUESTION_OPEN && span_is(key, question->id)))
		question = question->next_of_job;
	return question;
}

static void check_elder_answer(struct link *link, struct question *question, struct span value)
{
	struct world *world = link->world;
	unsigned number = mark_of(value, "sim/a", 'a');
	const struct answer *answer =
		number && number <= world->ledger->answer_count ? world->ledger->answers[number] : NULL;
	if (answer && answer->question != question)
		world_fail(world, "invariant 2: answer a%u for q%u went to q%u", number,
			answer->question ? answer->question->number : 0, question->number);
	else if (answer && !span_equal(answer->value, value))
		world_fail(world, "invariant 5: answer a%u changed on its way", number);
	else if (!answer && !(question->kind == POLICY_ELICITATION && span_is(value, "{\"action\":\"cancel\"}")))
		world_fail(world, "invariant 7: q%u got %.*s", question->number, (int)value.len, value.ptr);
	question->state = QUESTION_ANSWERED;
	question->result = value;
}

/* A retry answers all that was asked, and brings the state. */
static void check_elder_retry(struct link *link, const struct job *job, struct span params)
{
	struct world *world = link->world;
	struct json_member member;
	struct span answers = get(params, "inputResponses"), state = get(params, "requestState");
	if ((state.ptr != NULL) != (job->state.ptr != NULL) || !span_equal(state, job->state))
		world_fail(world, "invariant 5: the retry of t%u brings another state", job->number);
	struct json_walk walk = json_walk(answers, NULL);
	while (answers.ptr && json_next_member(&walk, &member)) {
		struct question *question = question_of_key(
			job, span_of(arena_printf(&world->arena, "\"%.*s\"", (int)member.key.len, member.key.ptr)));
		if (question)
			check_elder_answer(link, question, member.value);
		else
			world_fail(world, "invariant 2: an answer for nothing that was asked in t%u", job->number);
	}
	for (const struct question *question = job->questions; question; question = question->next_of_job)
		if (question->state == QUESTION_OPEN)
			world_fail(world, "invariant 3: t%u is retried without an answer to q%u", job->number,
				question->number);
}

static void elder_request(struct link *link, struct sent *sent, struct job *job, struct span params, bool dropped)
{
	static const char *const retry[] = {"inputResponses", "requestState", NULL};
	struct world *world = link->world;
	struct span wanted = span_of(arena_printf(&world->arena, "{%.*s}", (int)job->params.len, job->params.ptr));
	if (link->dialog && link->dialog != job->dialog)
		world_fail(world, "invariant 2: t%u of d%u went out in the session of d%u", job->number,
			job->dialog->number, link->dialog->number);
	link->dialog = job->dialog;
	job->dialog->link = link;
	check_modern_meta(link, get(params, "_meta"), &job->dialog->caps);
	if (!ledger_same_members(wanted, params, NULL, retry))
		world_fail(world, "invariant 5: the params of t%u changed on their way", job->number);
	if (job->sends > job->rounds_asked)
		world_fail(world, "t%u went upstream twice", job->number);
	if (job->sends)
		check_elder_retry(link, job, params);
	if (!dropped)
		begin_job(link, sent, job);
}

/* Which ask this is: the first that has not gone upstream, with its answers and its state. */
static void through_request(struct link *link, struct sent *sent, struct job *job, struct span params, bool dropped)
{
	struct world *world = link->world;
	struct ask *found = NULL;
	check_modern_meta(link, get(params, "_meta"), NULL);
	for (struct ask *ask = world->ledger->asks; ask; ask = ask->next) {
		struct span sent_params = get(ask->sent_text, "params");
		if (ask->job == job && ask->is_open && !ask->upstream &&
			ledger_same_members(sent_params, params, NULL, NULL))
			found = ask;
	}
	if (!found)
		world_fail(world, "invariant 5: a request of t%u that its client did not send, or not so often",
			job->number);
	else
		found->upstream = sent;
	if (link->dialog)
		world_fail(world, "invariant 2: t%u went out in the session of d%u", job->number, link->dialog->number);
	if (!dropped)
		begin_job(link, sent, job);
}

static void modern_request(struct link *link, const struct message *message, uint64_t request_id, bool dropped)
{
	struct world *world = link->world;
	int64_t id = 0;
	struct job *job = find_job(world, mark_of(message->params, "sim/t", 't'));
	if (!json_integer(message->id, &id) || (uint64_t)id != request_id)
		world_fail(world, "the id of a request is not what the transport was told");
	struct sent *sent = add_sent(link, message, request_id, request_id);
	if (job && job->principal != link->principal)
		world_fail(world, "invariant 4: a request of principal %u on a session of %u", job->principal,
			link->principal);
	if (job && strcmp(job->method, sent->method) != 0)
		world_fail(world, "t%u went upstream as %s", job->number, sent->method);
	/* Without a session a legacy client's requests pass as they are, for the server to refuse. */
	bool is_plain = !get(get(message->params, "_meta"), "io.modelcontextprotocol/protocolVersion").ptr;
	if (job && job->dialog && is_plain && !link->dialog)
		begin_job(link, sent, job);
	else if (job && job->dialog)
		elder_request(link, sent, job, message->params, dropped);
	else if (job)
		through_request(link, sent, job, message->params, dropped);
	else if (strcmp(sent->method, "server/discover") == 0 || strcmp(sent->method, "subscriptions/listen") == 0)
		check_modern_meta(link, get(message->params, "_meta"), NULL);
	else
		world_fail(world, "invariant 8: the modern server got a request for %s", sent->method);
}

static void modern_up(struct link *link, const struct message *message, uint64_t request_id, bool dropped)
{
	struct world *world = link->world;
	if (message->kind == MESSAGE_REQUEST) {
		modern_request(link, message, request_id, dropped);
		return;
	}
	struct sent *sent = sent_of(link, get(message->params, "requestId"));
	if (message->kind != MESSAGE_NOTIFICATION || !json_string_is(message->method, "notifications/cancelled"))
		world_fail(world, "invariant 8: the modern server got what belongs to no session");
	else if (!sent || sent->cancelled)
		world_fail(world, "the cancellation of a request that was never sent, or cancelled before");
	else if (world->has_streams)
		world_fail(world, "invariant 8: over HTTP the end of a stream cancels");
	else {
		sent->cancelled = true;
		if (sent->job && sent->job->upstream_id == sent->id)
			sent->job->cancelled = true;
	}
}

bool ledger_pass_up(
	struct link *link, const struct message *message, uint64_t request_id, struct span text, bool dropped)
{
	if (link->modern) {
		modern_up(link, message, request_id, dropped);
		return true;
	}
	const struct job *job = find_job(link->world, mark_of(message->params, "sim/t", 't'));
	if (!link->dialog && !link->sent && job && job->dialog) {
		link->dialog = job->dialog;
		link->dialog->link = link;
	}
	if (!link->dialog)
		return false;
	relay_up(link, message, request_id, text, dropped);
	return true;
}

/* From the server. */

static void modern_answers(struct link *link, const struct message *message)
{
	struct sent *sent = sent_of(link, message->id);
	struct json_member member;
	if (!sent || sent->answered)
		return;
	sent->answered = true;
	sent->has_error = message->error.ptr != NULL;
	sent->outcome = arena_copy(&link->world->arena, sent->has_error ? message->error : message->result);
	struct job *job = sent->job;
	struct span requests = get(message->result, "inputRequests"), state = get(message->result, "requestState");
	if (!job || job->upstream_id != sent->id || job->link != link)
		return;
	if (!requests.ptr && !state.ptr) {
		job->answered = true;
		job->result = sent->has_error ? (struct span){0} : sent->outcome;
		job->error = sent->has_error ? sent->outcome : (struct span){0};
		return;
	}
	job->rounds_asked++;
	job->state = state.ptr ? arena_copy(&link->world->arena, state) : (struct span){0};
	struct json_walk walk = json_walk(requests, NULL);
	while (requests.ptr && json_next_member(&walk, &member)) {
		struct span params = get(member.value, "params");
		struct question *question =
			ledger_marked(link->world->ledger, mark_of(params, "sim/q", 'q'), link, QUESTION_NEW);
		if (!question)
			continue;
		question->state = QUESTION_OPEN;
		question->params = arena_copy(&link->world->arena, params);
	}
}

/* A response to nothing must not reach the client: on a pipe a modern request may have its id. */
static bool is_stray(const struct dialog *dialog, const struct message *message)
{
	const struct ask *ask = message->id.ptr ? dialog_find_ask(dialog, message->id) : NULL;
	return message->kind == MESSAGE_RESPONSE && message->id.ptr && !(ask && ask->is_open);
}

void ledger_pass_down(struct link *link, const struct message *message, struct span text)
{
	if (link->modern && message->kind == MESSAGE_RESPONSE)
		modern_answers(link, message);
	else if (link->dialog && !link->modern && link->open && !is_stray(link->dialog, message))
		parcel_add(link->world, &link->dialog->down, arena_copy(&link->world->arena, text));
}

/* On a pipe nothing waits. */
void ledger_passed_down(struct link *link)
{
	struct dialog *dialog = link->dialog;
	if (!dialog || link->modern || dialog->over_http || !dialog_is_open(dialog) || dialog->missed)
		return;
	for (const struct parcel *parcel = dialog->down; parcel; parcel = parcel->next)
		if (!parcel->crossed)
			world_fail(link->world, "invariant 1: d%u did not get %.*s", dialog->number,
				(int)parcel->text.len, parcel->text.ptr);
}

/* To a modern client. */

void ledger_check_through(struct ask *ask, int http_status)
{
	struct world *world = ask->world;
	struct span error = get(ask->response, "error"), result = get(ask->response, "result");
	const struct sent *sent = ask->upstream;
	if (!sent->answered) {
		if (result.ptr)
			world_fail(world, "invariant 1: request %s got a result that no server gave", ask->id);
		return;
	}
	struct span given = error.ptr ? error : result;
	bool listens = strcmp(sent->method, "subscriptions/listen") == 0;
	bool same = sent->has_error == (error.ptr != NULL) &&
		    (span_equal(given, sent->outcome) ||
			    (listens && ledger_same_members(given, sent->outcome, NULL, NULL)));
	if (!same)
		world_fail(world, "invariant 5: request %s got another response than the server's", ask->id);
	if (!error.ptr && http_status != 200)
		world_fail(world, "a result with the HTTP status %d", http_status);
}

/* At the end: what the server said has come to everybody who is still there. */
void ledger_check_dialogs(struct world *world)
{
	for (const struct dialog *dialog = world->ledger->dialogs; dialog; dialog = dialog->next)
		for (const struct parcel *parcel = dialog->up; parcel && dialog_is_open(dialog); parcel = parcel->next)
			if (dialog->link && !dialog->link->modern && !parcel->crossed && !parcel->dropped &&
				!(parcel->ask && !parcel->ask->is_open))
				world_fail(world, "invariant 1: the server did not get %.*s", (int)parcel->text.len,
					parcel->text.ptr);
}
