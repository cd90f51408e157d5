/* Modern servers: every request stands alone, questions come in results, and retries answer them. */
#include "tests/sim/handler.h"

#include <stdlib.h>
#include <string.h>

/* A subscription. */
struct listen {
	struct server *server;
	uint64_t id;
	bool over;
};

static void respond(struct server *server, uint64_t id, const char *body)
{
	server_say(server->link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}", (unsigned long long)id, body);
}

static bool is_over(const struct server *server, uint64_t id)
{
	const struct sent *sent = link_find_sent(server->link, id);
	return !server->link->open || !sent || sent->cancelled || sent->forgotten || sent->answered;
}

/* Subscriptions. */

static void tell(struct world *world, void *arg)
{
	struct listen *listen = arg;
	static const char *const news[] = {
		"tools/list_changed\",\"params\":{", "resources/updated\",\"params\":{\"uri\":\"sim://a\","};
	if (listen->over || is_over(listen->server, listen->id))
		return;
	if (!nature_of(listen->server->link)->benign && chance(world, 10)) {
		listen->over = true;
		respond(listen->server, listen->id,
			arena_printf(&world->arena,
				"\"result\":{\"resultType\":\"complete\",\"_meta\":{\"io.modelcontextprotocol/"
				"subscriptionId\":%llu}}",
				(unsigned long long)listen->id));
		return;
	}
	server_say(listen->server->link, listen->id,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/%s\"_meta\":{\"io.modelcontextprotocol/"
		"subscriptionId\":%llu}}}",
		news[choose(world, 0, 1)], (unsigned long long)listen->id);
	world_at(world, choose(world, 100, 600000), tell, listen);
}

static void acknowledge(struct world *world, void *arg)
{
	struct listen *listen = arg;
	if (is_over(listen->server, listen->id))
		return;
	bool knows = nature_of(listen->server->link)->benign || chance(world, 80);
	server_say(listen->server->link, listen->id,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{"
		"\"notifications\":{\"toolsListChanged\":true%s},\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":"
		"%llu}}}",
		knows ? ",\"resourceSubscriptions\":[\"sim://a\"]" : "", (unsigned long long)listen->id);
	world_at(world, choose(world, 100, 60000), tell, listen);
}

static void on_listen(struct server *server, uint64_t id)
{
	struct world *world = server->link->world;
	struct listen *listen = arena_alloc(&world->arena, sizeof(*listen));
	*listen = (struct listen){.server = server, .id = id};
	if (!nature_of(server->link)->benign && chance(world, 10))
		respond(server, id, "\"error\":{\"code\":-32601,\"message\":\"no subscriptions\"}");
	else
		world_at(world, choose(world, 0, 200), acknowledge, listen);
}

/* Calls. */

void modern_ask(struct handler *handler)
{
	struct link *link = handler->server->link;
	struct buf out = {0};
	handler->waiting = true;
	/* The state of an earlier connection must not be that of another call in this one. */
	handler->state = arena_printf(
		&link->world->arena, "\"h%u-%llu-%u\"", link->number, (unsigned long long)handler->id, handler->at);
	for (const struct pending *pending = handler->server->pending; pending; pending = pending->next)
		if (pending->handler == handler)
			buf_printf(&out, "%s%s:%.*s", out.len ? "," : "", pending->question->id,
				(int)pending->entry.len, pending->entry.ptr);
	server_say(link, handler->id,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"resultType\":\"input_required\",%s%.*s%"
		"s\"requestState\":%s}}",
		(unsigned long long)handler->id, out.len ? "\"inputRequests\":{" : "", (int)out.len,
		out.len ? out.data : "", out.len ? "}," : "", handler->state);
	buf_free(&out);
}

static void retry(struct handler *handler, uint64_t id, struct span params)
{
	struct server *server = handler->server;
	struct span answers = get(params, "inputResponses");
	struct pending *next;
	handler->id = id;
	handler->state = NULL;
	handler_take_meta(handler, get(params, "_meta"));
	for (struct pending *pending = server->pending; pending; pending = next) {
		next = pending->next;
		const char *key = pending->question->id;
		const char *plain = arena_printf(&server->link->world->arena, "%.*s", (int)strlen(key) - 2, key + 1);
		if (pending->handler == handler && get(answers, plain).ptr)
			server_take_pending(server, span_of(key));
	}
	if (server_first_pending(server, handler))
		modern_ask(handler);
	else
		handler_go_on(handler, false);
}

/* The retry of a call that waits, found by its state. */
static void on_retry(struct server *server, const struct message *message, uint64_t id, struct span state)
{
	struct handler *handler = server->handlers;
	while (handler && !(handler->waiting && handler->state && span_is(state, handler->state)))
		handler = handler->next;
	if (handler)
		retry(handler, id, message->params);
	else
		respond(server, id, "\"error\":{\"code\":-32602,\"message\":\"this state is not known\"}");
}

static void on_discover(struct server *server, const struct message *message, uint64_t id)
{
	struct arena *arena = &server->link->world->arena;
	unsigned number = mark_of(message->params, "sim/t", 't');
	respond(server, id,
		arena_printf(arena,
			"\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],"
			"\"capabilities\":{"
			"\"tools\":{\"listChanged\":true},\"resources\":{\"subscribe\":true,\"listChanged\":false}},"
			"\"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{%s\"io.modelcontextprotocol/serverInfo\":{"
			"\"name\":\"sim\",\"version\":\"2\"}}}",
			number ? arena_printf(arena, "\"sim/r\":\"t%u\",", number) : ""));
}

static void on_request(struct server *server, const struct message *message, uint64_t id)
{
	struct span state = get(message->params, "requestState");
	const struct nature *nature = nature_of(server->link);
	struct world *world = server->link->world;
	if (!get(get(message->params, "_meta"), "io.modelcontextprotocol/protocolVersion").ptr)
		respond(server, id, "\"error\":{\"code\":-32602,\"message\":\"_meta lacks its members\"}");
	else if (json_string_is(message->method, "server/discover") &&
		 (nature->handshake == HANDSHAKE_GOOD || chance(world, 50)))
		on_discover(server, message, id);
	else if (json_string_is(message->method, "server/discover"))
		respond(server, id, "\"error\":{\"code\":-32603,\"message\":\"not now\"}");
	else if (json_string_is(message->method, "subscriptions/listen"))
		on_listen(server, id);
	else if (state.ptr)
		on_retry(server, message, id, state);
	else if (json_string_is(message->method, "initialize") || !mark_of(message->params, "sim/t", 't'))
		respond(server, id,
			"\"error\":{\"code\":-32022,\"message\":\"no\",\"data\":{\"supported\":[\"2026-07-28\"]}}");
	else
		server_start(server, message, id);
}

void modern_from_proxy(struct server *server, const struct message *message)
{
	int64_t id = 0;
	if (message->kind == MESSAGE_REQUEST && json_integer(message->id, &id))
		on_request(server, message, (uint64_t)id);
	else if (message->kind == MESSAGE_NOTIFICATION && json_string_is(message->method, "notifications/cancelled"))
		server_cancel(server, message->params);
}
