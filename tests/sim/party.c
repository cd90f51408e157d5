#include "tests/sim/party.h"

#include "tests/sim/dialog.h"
#include "tests/sim/ledger.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {
	"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

static void on_notify(struct client *client, struct buf *message)
{
	struct party *party = container_of(client, struct party, client);
	struct world *world = party->world;
	struct span text = arena_copy(&world->arena, buf_span(message));
	if (!buf_ok(message))
		world_fail(world, "a notification that is not complete for lack of memory was sent to a client");
	buf_free(message);
	world_trace(world, "c%u < %.*s", party->principal, (int)text.len, text.ptr);
	ledger_notified(party, text);
	world->driver->notified(party, text);
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct party *party = container_of(client, struct party, client);
	struct world *world = party->world;
	struct span text = arena_copy(&world->arena, buf_span(message));
	if (!buf_ok(message))
		world_fail(world, "a response that is not complete for lack of memory was sent to a client");
	buf_free(message);
	world_trace(world, "c%u < %d %.*s", party->principal, http_status, (int)text.len, text.ptr);
	struct ask *ask = ledger_responded(party, http_status, text);
	world->driver->responded(party, ask, http_status, text);
}

struct party *party_new(struct world *world, unsigned principal, bool over_http)
{
	static const struct face_ops ops = {.notify = on_notify, .respond = on_respond};
	struct party *party = arena_alloc(&world->arena, sizeof(*party));
	party->world = world;
	party->principal = principal;
	party->over_http = over_http;
	party->client.authorization = arena_printf(&world->arena, "principal %u", principal);
	party->client.cancels_by_message = !over_http;
	memset(party->client.principal, (int)principal, PRINCIPAL_BYTES);
	client_init(&party->client, &ops);
	party->next = world->ledger->parties;
	world->ledger->parties = party;
	return party;
}

struct ask *ask_new(struct party *party, struct job *job, const char *caps)
{
	struct world *world = party->world;
	struct ask *ask = arena_alloc(&world->arena, sizeof(*ask));
	ask->world = world;
	ask->party = party;
	ask->job = job;
	ask->number = ++world->ledger->ask_count;
	ask->id = arena_printf(&world->arena, chance(world, 50) ? "%u" : "\"r-%u\"", ask->number);
	ask->caps_text = arena_copy(&world->arena, span_of(caps));
	struct error error;
	if (capabilities_read(&ask->caps, ask->caps_text, &error))
		world_fail(world, "the simulation declares capabilities that are none: %s", caps);
	ask->log_level = -1;
	return ask;
}

static void add_meta(const struct ask *ask, struct buf *out)
{
	buf_printf(out, "\"_meta\":{\"sim/t\":\"t%u\",\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",",
		ask->job->number);
	if (ask->progress_token)
		buf_printf(out, "\"progressToken\":%s,", ask->progress_token);
	if (ask->log_level >= 0)
		buf_printf(out, "\"io.modelcontextprotocol/logLevel\":\"%s\",", level_names[ask->log_level]);
	buf_add_text(out, "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"sim\",\"version\":\"1\"},"
			  "\"io.modelcontextprotocol/clientCapabilities\":");
	buf_add_span(out, ask->caps_text);
	buf_add_text(out, "}");
}

/* A legacy client's: there is nothing in `_meta` but our mark. */
static struct span ask_write_plain(const struct ask *ask)
{
	struct buf out = {0};
	buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"%s\",\"params\":{", ask->id, ask->job->method);
	if (ask->job->params.len) {
		buf_add_span(&out, ask->job->params);
		buf_add_text(&out, ",");
	}
	buf_printf(&out, "\"_meta\":{\"sim/t\":\"t%u\"", ask->job->number);
	if (ask->progress_token)
		buf_printf(&out, ",\"progressToken\":%s", ask->progress_token);
	buf_add_text(&out, "}}}");
	struct span text = arena_copy(&ask->world->arena, buf_span(&out));
	buf_free(&out);
	return text;
}

static struct span ask_write(const struct ask *ask)
{
	struct buf out = {0};
	buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"%s\",\"params\":{", ask->id,
		ask->task_method ? ask->task_method : ask->job->method);
	if (ask->task_method) {
		buf_printf(&out, "\"taskId\":\"%.*s\",", (int)ask->task.len, ask->task.ptr);
	} else if (ask->job->params.len) {
		buf_add_span(&out, ask->job->params);
		buf_add_text(&out, ",");
	}
	if (ask->state.ptr) {
		buf_add_text(&out, "\"requestState\":");
		buf_add_json_string(&out, ask->state);
		buf_add_text(&out, ",");
	}
	if (ask->answers.ptr) {
		buf_add_text(&out, "\"inputResponses\":");
		buf_add_span(&out, ask->answers);
		buf_add_text(&out, ",");
	}
	add_meta(ask, &out);
	buf_add_text(&out, "}}");
	struct span text = arena_copy(&ask->world->arena, buf_span(&out));
	buf_free(&out);
	return text;
}

/* Mcp-Name: plain where a header may hold it, in Base64 where not (streamable-http "Value Encoding"). */
static struct span header_value(struct world *world, struct span name)
{
	bool plain = true;
	for (size_t i = 0; i < name.len; i++)
		plain &= name.ptr[i] > ' ' && name.ptr[i] < 0x7F;
	if (plain)
		return name;
	char *encoded = arena_alloc(&world->arena, sodium_base64_encoded_len(name.len, sodium_base64_VARIANT_ORIGINAL));
	sodium_bin2base64(encoded, sodium_base64_encoded_len(name.len, sodium_base64_VARIANT_ORIGINAL),
		(const unsigned char *)name.ptr, name.len, sodium_base64_VARIANT_ORIGINAL);
	return span_of(arena_printf(&world->arena, "=?base64?%s?=", encoded));
}

enum received party_give(struct party *party, struct span text, const struct request_headers *headers)
{
	world_trace(party->world, "%c%u > %.*s", party->dialog ? 'd' : 'c',
		party->dialog ? party->dialog->number : party->principal, (int)text.len, text.ptr);
	char *exact = malloc(text.len ? text.len : 1);
	if (text.len)
		memcpy(exact, text.ptr, text.len);
	enum received received =
		proxy_receive(party->world->proxy, &party->client, (struct span){exact, text.len}, headers);
	free(exact);
	return received;
}

static void enter(struct ask *ask)
{
	ask->is_open = true;
	ask->next = ask->world->ledger->asks;
	ask->world->ledger->asks = ask;
}

static void send_plain(struct ask *ask)
{
	struct span text = ask_write_plain(ask);
	parcel_add_up(ask->party->dialog, ask, text);
	if (dialog_give(ask->party, text) == RECEIVED_NOTIFICATION)
		world_fail(ask->world, "a request was taken for a notification: %.*s", (int)text.len, text.ptr);
}

void ask_send(struct ask *ask)
{
	struct request_headers headers = {
		.protocol_version = SPAN("2026-07-28"),
		.method = span_of(ask->task_method ? ask->task_method : ask->job->method),
	};
	if (ask->task_method)
		headers.name = ask->task;
	else if (ask->job->name.ptr)
		headers.name = header_value(ask->world, ask->job->name);
	enter(ask);
	if (!ask->job->has_caps) {
		ask->job->has_caps = true;
		ask->job->caps = ask->caps;
	}
	if (ask->party->dialog) {
		send_plain(ask);
		return;
	}
	struct span text = ask->sent_text = ask_write(ask);
	enum received received = party_give(ask->party, text, ask->party->over_http ? &headers : NULL);
	/* A policy without tasks may have come, and the last of them gone. */
	bool is_no_more = ask->task_method && ask->http_status == 404;
	if (received != RECEIVED_REQUEST && !is_no_more)
		world_fail(ask->world, "a good request was not taken for one: %.*s", (int)text.len, text.ptr);
}

struct ask *party_send_bad(struct party *party, const char *id, struct span text, const struct request_headers *headers)
{
	struct world *world = party->world;
	struct ask *ask = arena_alloc(&world->arena, sizeof(*ask));
	ask->world = world;
	ask->party = party;
	ask->number = ++world->ledger->ask_count;
	ask->id = id;
	ask->must_fail = true;
	enter(ask);
	if (party_give(party, text, headers) != RECEIVED_INVALID)
		world_fail(world, "a bad request was taken for a good one: %.*s", (int)text.len, text.ptr);
	if (ask->is_open)
		world_fail(world, "invariant 1: a bad request was not answered: %.*s", (int)text.len, text.ptr);
	return ask;
}

void party_notify(struct party *party, struct span text)
{
	if (party_give(party, text, NULL) != RECEIVED_NOTIFICATION)
		world_fail(party->world, "a notification was not taken for one: %.*s", (int)text.len, text.ptr);
}

void ask_cancel(struct ask *ask)
{
	struct party *party = ask->party;
	if (party->over_http && !party->dialog) {
		party_vanish(party);
		return;
	}
	if (ask->is_open) {
		ask->is_open = false;
		ask->is_gone = true;
	}
	struct span text = span_of(arena_printf(&ask->world->arena,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		"cancelled\",\"params\":{\"requestId\":%s,\"_meta\":{}}}",
		ask->id));
	if (party->dialog)
		dialog_say(party->dialog, text);
	else
		party_notify(party, text);
}

void party_vanish(struct party *party)
{
	if (party->gone)
		return;
	world_trace(party->world, "c%u vanishes", party->principal);
	party->gone = true;
	for (struct ask *ask = party->world->ledger->asks; ask; ask = ask->next)
		if (ask->party == party && ask->is_open) {
			ask->detached = party->dialog && party->over_http;
			ask->is_open = ask->detached;
			ask->is_gone = !ask->detached;
		}
	client_gone(party->world->proxy, &party->client);
}

void parties_gone(struct world *world)
{
	for (struct party *party = world->ledger->parties; party; party = party->next)
		party_vanish(party);
}

struct span get_response(const struct ask *ask, const char *key)
{
	return get(ask->response, key);
}
