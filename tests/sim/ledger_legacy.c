/* The ledger at the border to the legacy clients. */
#include "tests/sim/dialog.h"
#include "tests/sim/ledger.h"

#include <stdlib.h>
#include <string.h>

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

static bool has_strayed(const struct ask *ask)
{
	for (const struct parcel *parcel = ask->party->dialog->up; parcel; parcel = parcel->next)
		if (parcel->ask == ask)
			return parcel->strayed;
	return false;
}

static void take_response(
	struct party *party, const struct message *message, int http_status, bool is_parcel, struct ask **ask)
{
	struct world *world = party->world;
	struct ask *found = dialog_find_ask(party->dialog, message->id);
	if (!found || !found->is_open) {
		/* Of a session that is over, even the cancellation may have been refused. */
		bool refused = (!message->id.ptr || (found && found->is_gone)) && message->error.ptr &&
			       (!dialog_is_open(party->dialog) || !party->dialog->link);
		/* Over HTTP a message that the server does not take is refused. */
		refused |= party->dialog->over_http && !message->id.ptr && message->error.ptr && http_status == 503 &&
			   world_has_logged(world, "message-not-taken");
		/* What named no session is not cancelled by what one says. */
		refused |= found && message->error.ptr && has_strayed(found);
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
	/* A client that comes back late reads questions whose time is over, and then that they are. */
	bool is_late = party->reads && question && question->state == QUESTION_ANSWERED;
	if (!question || (question->state != QUESTION_OPEN && !is_late)) {
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
