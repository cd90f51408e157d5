/* The ledger for what is passed through: legacy clients to legacy servers (relays), to modern servers (elders), and modern
 * clients to modern servers. A relay changes nothing, so its messages are parcels that are compared as a whole; elsewhere the
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

static const char *decoded(struct world *world, struct span spelled)
{
	return arena_printf(&world->arena, "%.*s", (int)(spelled.len - 2), spelled.ptr + 1);
}

static struct sent *add_sent(struct link *link, const struct message *message, uint64_t id, uint64_t request)
{
	struct sent *sent = arena_alloc(&link->world->arena, sizeof(*sent));
	sent->id = id;
	sent->request = request;
	sent->method = decoded(link->world, message->method);
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

static bool is_closed_dialog(const struct dialog *dialog)
{
	return !dialog_is_open(dialog);
}

/* Up a relay. */

/* Finds the parcel that this is. What came before it has crossed, was not taken, or was answered by the core. */
static struct parcel *cross_up(struct link *link, struct span text)
{
	struct dialog *dialog = link->dialog;
	for (struct parcel *parcel = dialog->up; parcel; parcel = parcel->next) {
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

static struct ask *ask_of_dialog(const struct dialog *dialog, struct span id)
{
	struct ask *ask = dialog->world->ledger->asks;
	while (ask && !(ask->party->dialog == dialog && id.ptr && span_is(id, ask->id)))
		ask = ask->next;
	return ask;
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
		struct ask *ask = ask_of_dialog(link->dialog, get(message->params, "requestId"));
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
	const struct ask *ask = message->id.ptr ? ask_of_dialog(dialog, message->id) : NULL;
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
	if (!dialog || link->modern || dialog->over_http || is_closed_dialog(dialog) || dialog->missed)
		return;
	for (const struct parcel *parcel = dialog->down; parcel; parcel = parcel->next)
		if (!parcel->crossed)
			world_fail(link->world, "invariant 1: d%u did not get %.*s", dialog->number,
				(int)parcel->text.len, parcel->text.ptr);
}

/* To a legacy client. */

/* Looks at the number of an event. false: the client has had it. */
static bool take_event(struct party *party, struct span text, struct parcel **found)
{
	struct dialog *dialog = party->dialog;
	struct world *world = party->world;
	char *end;
	uint64_t stream = strtoull(party->client.event_id, &end, 10);
	uint64_t number = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
	uint64_t before = party->event;
	if (party->last_event_id && !before) {
		uint64_t of = strtoull(party->last_event_id, &end, 10);
		before = of == stream && *end == '-' ? strtoull(end + 1, NULL, 10) : 0;
	}
	if (number <= before)
		world_fail(world, "invariant 1: d%u gets event %s after %llu", dialog->number, party->client.event_id,
			(unsigned long long)before);
	party->event = number;
	party->event_id = arena_printf(&world->arena, "%s", party->client.event_id);
	if (!party->first_event_id)
		party->first_event_id = party->event_id;
	for (struct parcel *parcel = dialog->down; parcel; parcel = parcel->next) {
		if (parcel->event != number)
			continue;
		if (parcel->seen || parcel->stream != stream || !span_equal(parcel->text, text))
			world_fail(world, "invariant 1: d%u gets event %s again, or it has changed", dialog->number,
				party->client.event_id);
		parcel->seen = true;
		return false;
	}
	/* The first time: of a relay it is a parcel of the server's, if it is not the core's own. */
	struct parcel *parcel = *found;
	if (!parcel) {
		parcel = parcel_add(world, &dialog->down, text);
		parcel->crossed = true;
		*found = NULL;
	}
	parcel->stream = stream;
	parcel->event = number;
	parcel->seen = true;
	return true;
}

static struct parcel *find_down(const struct dialog *dialog, struct span text)
{
	struct parcel *parcel = dialog->down;
	while (parcel && (parcel->crossed || !span_equal(parcel->text, text)))
		parcel = parcel->next;
	return parcel;
}

static void check_legacy_result(const struct ask *ask, struct span result)
{
	static const char *const modern[] = {"resultType", "ttlMs", "cacheScope", NULL};
	struct world *world = ask->world;
	const struct job *job = ask->job;
	unsigned mark = mark_of(result, "sim/r", 't');
	if (strcmp(job->method, "initialize") == 0) {
		if (!get(result, "protocolVersion").ptr || !get(result, "capabilities").ptr ||
			!get(result, "serverInfo").ptr)
			world_fail(world, "invariant 8: initialize lacks a member in its result");
		return;
	}
	if (get(result, "resultType").ptr || get(result, "inputRequests").ptr || get(result, "ttlMs").ptr)
		world_fail(world, "invariant 8: t%u of a legacy client got a modern result", job->number);
	if (!mark) {
		if (get(result, "content").ptr || get(result, "tools").ptr)
			world_fail(world, "a result for t%u that no server gave", job->number);
		return;
	}
	if (mark != job->number)
		world_fail(world, "invariant 2: t%u got the result of t%u", job->number, mark);
	else if (!job->answered || !ledger_same_members(job->result, result, modern, NULL))
		world_fail(world, "invariant 5: the result of t%u is not the server's", job->number);
}

static void take_response(
	struct party *party, const struct message *message, int http_status, bool is_parcel, struct ask **ask)
{
	struct world *world = party->world;
	struct ask *found = ask_of_dialog(party->dialog, message->id);
	if (!found || !found->is_open) {
		/* Of a session that is over, even the cancellation may have been refused. */
		bool refused = (!message->id.ptr || (found && found->is_gone)) && message->error.ptr &&
			       (is_closed_dialog(party->dialog) || !party->dialog->link);
		/* Over HTTP a message that the server does not take is refused. */
		refused |= party->dialog->over_http && !message->id.ptr && message->error.ptr && http_status == 503 &&
			   world_has_logged(world, "message-not-taken");
		if (!is_parcel && !refused)
			world_fail(world, "invariant 1: a response to no open request of d%u: %.*s",
				party->dialog->number, (int)message->id.len, message->id.ptr ? message->id.ptr : "");
		return;
	}
	*ask = found;
	found->is_open = false;
	struct span words = get(message->error, "message");
	unsigned mark = 0;
	if (words.ptr && words.len > 5 && memcmp(words.ptr, "\"E:t", 4) == 0)
		mark = (unsigned)strtoul(words.ptr + 4, NULL, 10);
	if (mark && mark != found->job->number)
		world_fail(world, "invariant 2: t%u got the error of t%u", found->job->number, mark);
	if (message->result.ptr && !is_parcel)
		check_legacy_result(found, message->result);
}

/* A modern server's question becomes a request. */
static void take_question(struct party *party, const struct message *message)
{
	static const char *const of_urls[] = {"elicitationId", NULL};
	struct world *world = party->world;
	struct dialog *dialog = party->dialog;
	struct question *question =
		ledger_marked(world->ledger, mark_of(message->params, "sim/q", 'q'), NULL, QUESTION_OPEN);
	if (!question || question->state != QUESTION_OPEN) {
		world_fail(world, "invariant 2: a question that no server asks: %.*s", (int)message->params.len,
			message->params.ptr);
		return;
	}
	const struct capability_need need = {.kind = question->kind, .url = question->url, .tools = question->tools};
	if (!question->job || question->job->dialog != dialog)
		world_fail(world, "invariant 2: q%u is asked of d%u", question->number, dialog->number);
	else if (question->was_asked)
		world_fail(world, "invariant 1: q%u is asked twice", question->number);
	else if (question->job->cancelled)
		world_fail(world, "q%u is asked for a request that was cancelled", question->number);
	if (!capabilities_cover(&dialog->caps, &need))
		world_fail(world, "invariant 8: d%u is asked for what it did not declare", dialog->number);
	if (question->params.ptr && !ledger_same_members(question->params, message->params,
					    question->url ? of_urls : NULL, question->url ? of_urls : NULL))
		world_fail(world, "invariant 5: the params of q%u changed on their way", question->number);
	if (question->url && !get(message->params, "elicitationId").ptr)
		world_fail(world, "invariant 8: a URL elicitation without an elicitationId");
	question->was_asked = true;
	question->down_id = arena_printf(&world->arena, "%.*s", (int)message->id.len, message->id.ptr);
}

static bool is_question_of(const struct dialog *dialog, struct span id)
{
	const struct ledger *ledger = dialog->world->ledger;
	for (unsigned i = 1; i <= ledger->question_count; i++) {
		const struct question *question = ledger->questions[i];
		if (question->down_id && question->job->dialog == dialog && id.ptr && span_is(id, question->down_id))
			return true;
	}
	return false;
}

static void take_legacy_progress(struct party *party, struct span params)
{
	struct world *world = party->world;
	struct span token = get(params, "progressToken"), value = get(params, "progress"),
		    words = get(params, "message");
	for (struct ask *ask = world->ledger->asks; ask && token.ptr; ask = ask->next) {
		if (ask->party->dialog != party->dialog || !ask->is_open || !ask->progress_token ||
			!span_is(token, ask->progress_token))
			continue;
		double progress = value.ptr ? strtod(value.ptr, NULL) : 0;
		if (ask->has_progress && progress <= ask->progress)
			world_fail(world, "invariant 8: progress that does not increase");
		ask->progress = progress;
		ask->has_progress = true;
		if (words.ptr && words.len > 5 && memcmp(words.ptr, "\"P:t", 4) == 0 &&
			strtoul(words.ptr + 4, NULL, 10) != ask->job->number)
			world_fail(world, "invariant 2: progress of another call");
		return;
	}
	world_fail(world, "invariant 8: progress for a request that is not open, or asked for none");
}

static void take_legacy_notification(struct party *party, const struct message *message)
{
	struct world *world = party->world;
	if (json_string_is(message->method, "notifications/progress"))
		take_legacy_progress(party, message->params);
	else if (json_string_is(message->method, "notifications/subscriptions/acknowledged"))
		world_fail(world, "invariant 8: a legacy client is told of a subscription");
	else if (json_string_is(message->method, "notifications/cancelled") && !party->dialog->missed &&
		 !world_has_logged(world, "event-dropped") &&
		 !is_question_of(party->dialog, get(message->params, "requestId")))
		world_fail(world, "invariant 8: the cancellation of a question that d%u was never asked",
			party->dialog->number);
}

bool ledger_to_legacy(struct party *party, int http_status, struct span text, struct ask **ask)
{
	struct world *world = party->world;
	struct dialog *dialog = party->dialog;
	struct message message;
	struct json_index index = {0};
	struct span value;
	struct error error;
	if (party->gone || party->finished)
		world_fail(world, "a message to a client that is gone: %.*s", (int)text.len, text.ptr);
	if (json_check(text, &value, &index, &error) || message_parse(&message, value, &index, &error)) {
		world_fail(world, "invariant 8: not a message: %s", error.text);
		return false;
	}
	bool is_relay = dialog->link && !dialog->link->modern;
	struct parcel *parcel = is_relay ? find_down(dialog, text) : NULL;
	bool is_new = !party->client.event_id || take_event(party, text, &parcel);
	if (!is_new)
		return false;
	if (parcel)
		parcel->crossed = true;
	if (message.kind == MESSAGE_RESPONSE) {
		take_response(party, &message, http_status, parcel != NULL, ask);
		if (*ask) {
			(*ask)->response = value;
			(*ask)->http_status = http_status;
		}
	} else if (is_relay && !parcel) {
		world_fail(world, "invariant 5: d%u got what the server never said, or said once: %.*s", dialog->number,
			(int)text.len, text.ptr);
	} else if (!is_relay && message.kind == MESSAGE_REQUEST) {
		take_question(party, &message);
	} else if (!is_relay) {
		take_legacy_notification(party, &message);
	}
	return !world->failed;
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
		for (const struct parcel *parcel = dialog->up; parcel && !is_closed_dialog(dialog);
			parcel = parcel->next)
			if (dialog->link && !dialog->link->modern && !parcel->crossed && !parcel->dropped &&
				!(parcel->ask && !parcel->ask->is_open))
				world_fail(world, "invariant 1: the server did not get %.*s", (int)parcel->text.len,
					parcel->text.ptr);
}
