#include "tests/sim/dialog.h"

#include "tests/sim/ledger.h"

#include <stdlib.h>
#include <string.h>

/* The face that a legacy client sees. */

/* A message is taken from the core, and checked; what the client has had before it does not look at again. */
static void take(struct party *party, int http_status, struct buf *message)
{
	struct world *world = party->world;
	struct span text = arena_copy(&world->arena, buf_span(message));
	if (!buf_ok(message))
		world_fail(world, "a message that is not complete for lack of memory was sent to a client");
	buf_free(message);
	world_trace(world, "d%u < %s%s%.*s", party->dialog->number,
		party->client.event_id ? party->client.event_id : "", party->client.event_id ? " " : "", (int)text.len,
		text.ptr);
	struct ask *ask = NULL;
	if (party->client.session_id)
		party->dialog->session_id = arena_printf(&world->arena, "%s", party->client.session_id);
	if (!ledger_to_legacy(party, http_status, text, &ask))
		return;
	struct span value = {0};
	struct error error;
	if (json_check(text, &value, NULL, &error))
		return;
	if (ask)
		world->driver->responded(party, ask, http_status, value);
	else
		world->driver->notified(party, value);
}

static void on_notify(struct client *client, struct buf *message)
{
	take(container_of(client, struct party, client), 0, message);
}

static bool on_send(struct client *client, struct buf *message)
{
	struct party *party = container_of(client, struct party, client);
	if (chance(party->world, party->world->deaf)) {
		world_trace(party->world, "d%u does not read", party->dialog->number);
		party->dialog->missed = true;
		return false;
	}
	take(party, 0, message);
	if (party->dialog->over_http && !party->finished && chance(party->world, party->world->breaks)) {
		party_vanish(party); /* it turns out to be broken */
		return chance(party->world, 50);
	}
	return true;
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct party *party = container_of(client, struct party, client);
	take(party, http_status, message);
}

static void on_hung_up(struct world *world, void *arg)
{
	struct party *party = arg;
	party_vanish(party);
	if (world->driver->hung_up && !world->failed)
		world->driver->hung_up(party);
}

static void on_finish(struct client *client)
{
	struct party *party = container_of(client, struct party, client);
	if (party->gone || party->finished)
		world_fail(party->world, "the core hung up on a client that is gone");
	world_trace(party->world, "d%u is hung up on", party->dialog->number);
	party->finished = true;
	world_at(party->world, 0, on_hung_up, party);
}

static bool on_header(const struct client *client, const char *name, struct span *value)
{
	const struct party *party = container_of(client, struct party, client);
	const char *text = strcmp(name, "mcp-session-id") == 0	? party->session_id
			   : strcmp(name, "last-event-id") == 0 ? party->last_event_id
								: NULL;
	if (text)
		*value = span_of(text);
	return text != NULL;
}

static void on_headers_of(const struct client *client, const char *prefix, struct buf *lines)
{
	(void)client;
	(void)prefix;
	(void)lines;
}

static const struct face_ops pipe_ops = {
	.notify = on_notify, .respond = on_respond, .send = on_send, .finish = on_finish};
static const struct face_ops http_ops = {.notify = on_notify,
	.respond = on_respond,
	.send = on_send,
	.finish = on_finish,
	.header = on_header,
	.headers_of = on_headers_of};

static struct party *dialog_party(struct dialog *dialog)
{
	if (!dialog->over_http && dialog->pipe)
		return dialog->pipe;
	struct party *party = party_new(dialog->world, dialog->principal, dialog->over_http);
	party->dialog = dialog;
	party->session_id = dialog->session_id;
	client_init(&party->client, dialog->over_http ? &http_ops : &pipe_ops);
	if (!dialog->over_http)
		dialog->pipe = party;
	return party;
}

/* The client's side. */

struct dialog *dialog_new(struct world *world, unsigned principal, bool over_http, const char *caps)
{
	struct dialog *dialog = arena_alloc(&world->arena, sizeof(*dialog));
	struct error error;
	dialog->world = world;
	dialog->number = ++world->ledger->dialog_count;
	dialog->principal = principal;
	dialog->over_http = over_http;
	dialog->caps_text = caps;
	if (capabilities_read(&dialog->caps, span_of(caps), &error))
		world_fail(world, "the simulation declares capabilities that are none: %s", caps);
	dialog->next = world->ledger->dialogs;
	world->ledger->dialogs = dialog;
	return dialog;
}

bool dialog_is_open(const struct dialog *dialog)
{
	bool lost = dialog->link && !dialog->link->open;
	return !dialog->over && !lost && !(dialog->pipe && (dialog->pipe->gone || dialog->pipe->finished));
}

struct ask *dialog_find_ask(const struct dialog *dialog, struct span id)
{
	struct ask *ask = dialog->world->ledger->asks;
	while (ask && !(ask->party->dialog == dialog && id.ptr && span_is(id, ask->id)))
		ask = ask->next;
	return ask;
}

struct parcel *parcel_add(struct world *world, struct parcel **list, struct span text)
{
	struct parcel *parcel = arena_alloc(&world->arena, sizeof(*parcel));
	parcel->text = text;
	while (*list)
		list = &(*list)->next;
	*list = parcel;
	return parcel;
}

struct parcel *parcel_add_up(struct dialog *dialog, struct ask *ask, struct span text)
{
	struct parcel *parcel = parcel_add(dialog->world, &dialog->up, text);
	bool opens = ask && strcmp(ask->job->method, "initialize") == 0;
	parcel->ask = ask;
	parcel->strayed = dialog->over_http && !dialog->session_id && !opens;
	return parcel;
}

enum received dialog_give(struct party *party, struct span text)
{
	static const struct request_headers headers = {.protocol_version = {"2025-06-18", 10}};
	return party_give(party, text, party->over_http ? &headers : NULL);
}

struct ask *dialog_ask(struct dialog *dialog, struct job *job)
{
	struct ask *ask = ask_new(dialog_party(dialog), job, dialog->caps_text);
	ask->id = arena_printf(&dialog->world->arena, "%u", ask->number);
	job->dialog = dialog;
	return ask;
}

void dialog_say(struct dialog *dialog, struct span text)
{
	struct party *party = dialog_party(dialog);
	parcel_add_up(dialog, NULL, text);
	(void)dialog_give(party, text);
	if (dialog->over_http)
		party_vanish(party);
}

struct party *dialog_listen(struct dialog *dialog, const char *last_event_id)
{
	struct party *party = dialog_party(dialog);
	party->last_event_id = last_event_id;
	party->reads = true;
	world_trace(dialog->world, "d%u reads from %s", dialog->number, last_event_id ? last_event_id : "now");
	bool was_open = dialog_is_open(dialog);
	int http_status = proxy_listen(dialog->world->proxy, &party->client);
	if (http_status == 200)
		return party;
	/* Which session a modern server's client has is not known before its first call. */
	dialog->over |= http_status == 404 && !dialog->link;
	/* A stream that is over is forgotten with its last event. */
	bool forgotten = http_status == 400 && last_event_id;
	if (!forgotten && (http_status != 404 || (was_open && dialog->link)))
		world_fail(dialog->world, "reading the events of d%u gives %d", dialog->number, http_status);
	party->finished = true;
	return NULL;
}

void dialog_end(struct dialog *dialog)
{
	bool was_open = dialog_is_open(dialog);
	struct party *party = dialog_party(dialog);
	world_trace(dialog->world, "d%u ends its session", dialog->number);
	dialog->over = true;
	int http_status = proxy_end_session(dialog->world->proxy, &party->client);
	if (was_open && dialog->link && (http_status != 200 || dialog->link->open))
		world_fail(dialog->world, "ending d%u gives %d", dialog->number, http_status);
	party->finished = true;
}

void dialog_vanish(struct dialog *dialog)
{
	for (struct party *party = dialog->world->ledger->parties; party; party = party->next)
		if (party->dialog == dialog)
			party_vanish(party);
	dialog->over |= !dialog->over_http;
}

void dialog_misses(struct dialog *dialog, uint64_t stream, uint64_t after)
{
	for (struct parcel *parcel = dialog->down; parcel; parcel = parcel->next)
		if (parcel->event > after && parcel->stream == stream)
			parcel->seen = false;
}
