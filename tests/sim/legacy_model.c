/* Legacy clients: they open a session, ask for this and that, answer questions, and lose their connections. */
#include "tests/sim/dialog.h"
#include "tests/sim/model.h"

#include <stdlib.h>
#include <string.h>

struct caller {
	struct world *world;
	struct dialog *dialog;
	struct party *listener; /* HTTP: reads what belongs to no request */
	bool is_opened;
	unsigned tries;
	struct span withdrawn; /* the id of the question that was withdrawn last */
};

/* A question to it. */
struct doubt {
	struct caller *caller;
	struct question *question; /* or NULL: one that has no mark */
	struct span id, method;
};

static bool is_benign(const struct world *world)
{
	return ((const struct model *)world->model)->nature.benign;
}

static void ask_for(struct caller *caller, const char *method, const char *params)
{
	struct world *world = caller->world;
	struct job *job = ledger_job(world, caller->dialog->principal, method, NULL);
	job->params = span_of(params);
	struct ask *ask = dialog_ask(caller->dialog, job);
	ask->model = caller;
	if (chance(world, 40))
		ask->progress_token =
			arena_printf(&world->arena, chance(world, 90) ? "%u" : "\"p%u\"", ask->number + 500);
	ask_send(ask);
}

/* Opening. */

static void on_open(struct world *world, void *arg)
{
	static const char *const versions[] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2020-01-01"};
	struct caller *caller = arg;
	if (world->failed || !dialog_is_open(caller->dialog))
		return;
	caller->tries++;
	ask_for(caller, "initialize",
		arena_printf(&world->arena,
			"\"protocolVersion\":\"%s\",\"capabilities\":%s,\"clientInfo\":{\"name\":\"old\",\"version\":"
			"\"1\"}",
			versions[choose(world, 0, 4)], caller->dialog->caps_text));
	if (!is_benign(world) && chance(world, 5))
		ask_for(caller, "tools/list", "");
}

static void listen(struct caller *caller)
{
	struct party *party = dialog_is_open(caller->dialog) ? dialog_listen(caller->dialog, NULL) : NULL;
	if (party && !party->finished)
		caller->listener = party;
}

static void on_work(struct world *world, void *arg)
{
	struct caller *caller = arg;
	const char *uri = chance(world, 50) ? "\"uri\":\"sim://a\"" : "\"uri\":\"sim:\\/\\/b\"";
	int64_t dice = choose(world, 0, 99);
	if (world->failed || !dialog_is_open(caller->dialog))
		return;
	if (dice < 50)
		ask_for(caller, "tools/call",
			arena_printf(&world->arena, "\"name\":\"tool-1\",\"arguments\":{\"v\":%s}", payload(world)));
	else if (dice < 60)
		ask_for(caller, "prompts/get", "\"arguments\":{},\"name\":\"p\"");
	else if (dice < 70)
		ask_for(caller, "resources/read", uri);
	else if (dice < 78)
		ask_for(caller, "tools/list", "");
	else if (dice < 82)
		ask_for(caller, "ping", "");
	else if (dice < 86)
		ask_for(caller, "logging/setLevel", chance(world, 80) ? "\"level\":\"info\"" : "\"level\":7");
	else if (dice < 94)
		ask_for(caller, "resources/subscribe", uri);
	else if (dice < 98)
		ask_for(caller, "resources/unsubscribe", uri);
	else
		ask_for(caller, "tasks/list", "");
}

static void on_cancel(struct world *world, void *arg);
static void on_break(struct world *world, void *arg);
static void on_steal(struct world *world, void *arg);
static void on_leave(struct world *world, void *arg);

/* The session is there. */
static void on_begin(struct world *world, void *arg)
{
	struct caller *caller = arg;
	if (world->failed || !dialog_is_open(caller->dialog))
		return;
	dialog_say(caller->dialog, SPAN("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
	if (caller->dialog->over_http && (is_benign(world) || chance(world, 60)))
		listen(caller);
	int64_t jobs = choose(world, 1, 8), spread_ms = chance(world, 50) ? 200 : 60000;
	for (int64_t i = 0; i < jobs; i++)
		world_at(world, choose(world, 0, spread_ms), on_work, caller);
	for (int64_t i = 0; i < 3 && caller->dialog->over_http; i++)
		world_at(world, choose(world, 0, spread_ms), on_break, caller);
	if (is_benign(world))
		return;
	for (int64_t i = choose(world, 0, 2); i > 0; i--)
		world_at(world, choose(world, 0, spread_ms), on_cancel, caller);
	if (caller->dialog->over_http && chance(world, 20))
		world_at(world, choose(world, 0, spread_ms), on_steal, caller);
	if (chance(world, 20))
		world_at(world, choose(world, 0, 90000), on_leave, caller);
}

/* What goes wrong. */

static struct ask *some_open_ask(const struct caller *caller)
{
	struct ask *found = NULL;
	for (struct ask *ask = caller->world->ledger->asks; ask; ask = ask->next)
		if (ask->party->dialog == caller->dialog && ask->is_open &&
			strcmp(ask->job->method, "initialize") != 0 && (!found || chance(caller->world, 50)))
			found = ask;
	return found;
}

static void on_cancel(struct world *world, void *arg)
{
	struct caller *caller = arg;
	struct ask *ask = some_open_ask(caller);
	if (!world->failed && ask && dialog_is_open(caller->dialog))
		ask_cancel(ask);
}

/* A connection to read again what came on another one after its first event, or after its last. */
struct resumption {
	struct caller *caller;
	struct party *broken;
	const char *from; /* or NULL */
};

static void on_resume(struct world *world, void *arg)
{
	struct resumption *resumption = arg;
	struct dialog *dialog = resumption->caller->dialog;
	struct party *first = resumption->broken->resumes ? resumption->broken->resumes : resumption->broken;
	if (world->failed || !dialog_is_open(dialog))
		return;
	if (!resumption->from) {
		listen(resumption->caller);
		return;
	}
	/* Nobody comes back for what he has cancelled. */
	for (const struct ask *ask = world->ledger->asks; ask; ask = ask->next)
		if (ask->party == first && ask->is_gone)
			return;
	struct party *party = dialog_listen(dialog, resumption->from);
	if (!party)
		return;
	party->resumes = first;
	if (first->reads && !party->finished)
		resumption->caller->listener = party;
}

static void resume_later(struct caller *caller, struct party *broken, const char *from)
{
	struct world *world = caller->world;
	struct resumption *resumption = arena_alloc(&world->arena, sizeof(*resumption));
	*resumption = (struct resumption){caller, broken, from};
	world_at(world, choose(world, 0, 3000), on_resume, resumption);
}

/* The connection of a request breaks, or that of the listener. A client can go on where it has seen an event. */
static void on_break(struct world *world, void *arg)
{
	struct caller *caller = arg;
	struct ask *ask = some_open_ask(caller);
	struct party *party = chance(world, 40) ? caller->listener : ask ? ask->party : NULL;
	if (world->failed || !party || party->gone || party->finished || (is_benign(world) && !party->event_id))
		return;
	party_vanish(party);
	if (caller->listener == party)
		caller->listener = NULL;
	if (party->event_id && (is_benign(world) || chance(world, 80))) {
		/* It may have lost all but the first. */
		if (chance(world, 50)) {
			char *end;
			uint64_t stream = strtoull(party->first_event_id, &end, 10);
			dialog_misses(caller->dialog, stream, strtoull(end + 1, NULL, 10));
			resume_later(caller, party, party->first_event_id);
		} else {
			resume_later(caller, party, party->event_id);
		}
	}
}

/* Somebody else knows the session's id. */
static void on_steal(struct world *world, void *arg)
{
	struct caller *caller = arg;
	struct dialog *victim = caller->dialog;
	if (world->failed || !dialog_is_open(victim) || !victim->session_id)
		return;
	struct dialog *thief = dialog_new(world, victim->principal + 7, true, "{}");
	thief->session_id = victim->session_id;
	thief->over = true;
	dialog_listen(thief, NULL);
	dialog_say(thief, SPAN("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
	dialog_end(thief);
	if (victim->link && !victim->link->open)
		world_fail(world, "invariant 4: the session of d%u was ended by another principal", victim->number);
}

static void on_leave(struct world *world, void *arg)
{
	struct caller *caller = arg;
	if (world->failed || !dialog_is_open(caller->dialog))
		return;
	if (caller->dialog->over_http && caller->dialog->session_id && chance(world, 50))
		dialog_end(caller->dialog);
	else
		dialog_vanish(caller->dialog);
}

/* Questions. */

static void on_answer(struct world *world, void *arg)
{
	struct doubt *doubt = arg;
	const struct caller *caller = doubt->caller;
	const char *outcome = "\"result\":{}";
	if (world->failed || !dialog_is_open(caller->dialog))
		return;
	if (span_equal(caller->withdrawn, doubt->id) && chance(world, 70))
		return;
	int64_t dice = is_benign(world) ? 0 : choose(world, 0, 99);
	if (dice >= 94)
		return; /* never */
	if (dice >= 87) {
		outcome = "\"error\":{\"code\":-1,\"message\":\"no\"}";
	} else if (dice >= 80) {
		outcome = arena_printf(&world->arena, "\"result\":%s", model_bad_answer(world));
	} else if (doubt->question) {
		struct answer *answer = ledger_answer_question(world, doubt->question);
		answer->value = span_of(model_answer(world, doubt->method, answer->number));
		outcome = arena_printf(&world->arena, "\"result\":%s", answer->value.ptr);
	}
	for (int i = 0; i < (chance(world, 95) ? 1 : 2); i++)
		dialog_say(caller->dialog, span_of(arena_printf(&world->arena, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,%s}",
						   (int)doubt->id.len, doubt->id.ptr, outcome)));
}

static int64_t thinking_ms(struct world *world)
{
	int64_t dice = choose(world, 0, 99);
	if (is_benign(world))
		return choose(world, 0, 30000);
	return dice < 50 ? choose(world, 0, 50) : dice < 90 ? choose(world, 0, 90000) : choose(world, 0, 700000);
}

void legacy_notified(struct party *party, struct span message)
{
	struct world *world = party->world;
	struct caller *caller = party->dialog->model;
	struct span method = get(message, "method"), id = get(message, "id"), params = get(message, "params");
	if (!caller || !method.ptr)
		return;
	if (!id.ptr) {
		if (json_string_is(method, "notifications/cancelled"))
			caller->withdrawn = get(params, "requestId");
		return;
	}
	struct doubt *doubt = arena_alloc(&world->arena, sizeof(*doubt));
	unsigned mark = mark_of(params, "sim/q", 'q');
	*doubt = (struct doubt){.caller = caller, .id = id, .method = method};
	if (mark && mark <= world->ledger->question_count)
		doubt->question = world->ledger->questions[mark];
	world_at(world, thinking_ms(world), on_answer, doubt);
}

void legacy_responded(struct party *party, struct ask *ask)
{
	struct caller *caller = party->dialog->model;
	struct world *world = party->world;
	if (!caller || !ask || strcmp(ask->job->method, "initialize") != 0 || caller->is_opened)
		return;
	caller->is_opened = get_response(ask, "result").ptr != NULL;
	if (caller->is_opened)
		world_at(world, 0, on_begin, caller);
	else if (!caller->dialog->over_http && caller->tries < 3)
		world_at(world, choose(world, 0, 5000), on_open, caller);
}

void legacy_hung_up(struct party *party)
{
	struct caller *caller = party->dialog->model;
	struct world *world = party->world;
	if (!caller || !party->dialog->over_http)
		return;
	if (party == caller->listener) {
		caller->listener = NULL;
		if (is_benign(world) || chance(world, 70))
			resume_later(caller, party, party->event_id);
		return;
	}
	struct party *first = party->resumes ? party->resumes : party;
	for (const struct ask *ask = world->ledger->asks; ask; ask = ask->next)
		if (ask->party == first && ask->is_open && party->event_id)
			resume_later(caller, party, party->event_id);
}

/* Beginning and end. */

void legacy_start_client(struct world *world)
{
	struct caller *caller = arena_alloc(&world->arena, sizeof(*caller));
	caller->world = world;
	caller->dialog = dialog_new(world, (unsigned)choose(world, 1, 3), chance(world, 50), model_caps(world));
	caller->dialog->model = caller;
	world_at(world, choose(world, 0, 2000), on_open, caller);
}

void legacy_stop_clients(struct world *world)
{
	for (struct dialog *dialog = world->ledger->dialogs; dialog; dialog = dialog->next)
		dialog_vanish(dialog);
}

/* A benign run: everything has its result, and everything that the server said has come. */
void legacy_check(struct world *world)
{
	if (!is_benign(world))
		return;
	for (const struct ask *ask = world->ledger->asks; ask; ask = ask->next)
		if (ask->party->dialog && !ask->response.ptr && !ask->is_gone)
			world_fail(world, "nothing went wrong, and t%u has no response", ask->job->number);
	for (const struct dialog *dialog = world->ledger->dialogs; dialog; dialog = dialog->next)
		for (const struct parcel *parcel = dialog->down; parcel; parcel = parcel->next)
			if (!parcel->crossed || (parcel->event && !parcel->seen))
				world_fail(world, "nothing went wrong, and d%u did not get %.*s", dialog->number,
					(int)parcel->text.len, parcel->text.ptr);
}
