/* Legacy servers: the handshake, messages of the core, and bad manners. */
#include "tests/sim/handler.h"

#include <stdlib.h>
#include <string.h>

static struct job *job_of(struct world *world, struct span params)
{
	unsigned number = mark_of(params, "sim/t", 't');
	struct job *job = world->ledger->jobs;
	while (job && job->number != number)
		job = job->next;
	return job;
}

void server_start(struct server *server, const struct message *message, uint64_t id)
{
	struct world *world = server->link->world;
	struct handler *handler = arena_alloc(&world->arena, sizeof(*handler));
	handler->server = server;
	handler->job = job_of(world, message->params);
	handler->id = id;
	handler->method = arena_printf(&world->arena, "%.*s", (int)(message->method.len - 2), message->method.ptr + 1);
	handler_take_meta(handler, get(message->params, "_meta"));
	handler->ignores_cancel = chance(world, nature_of(server->link)->ignores_cancel);
	handler->next = server->handlers;
	server->handlers = handler;
	if (!handler->job)
		return;
	bool tool = strcmp(handler->method, "tools/call") == 0;
	handler->as_task = tool && get(message->params, "task").ptr;
	if (nature_of(server->link)->tasks && tool && !handler->as_task) {
		handler->over = true;
		server_say(server->link, id,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32601,\"message\":\"E:t%u as a task\"}}",
			(unsigned long long)id, handler->job->number);
		return;
	}
	if (handler->as_task)
		server_say(server->link, id,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"task\":{\"taskId\":\"task-%u\",\"status\":"
			"\"working\"}}}",
			(unsigned long long)id, handler->job->number);
	handler_start(handler);
}

/* The handshake. */

static void agree(struct server *server, uint64_t id, struct span params)
{
	struct link *link = server->link;
	const struct nature *nature = nature_of(link);
	struct span offered = get(params, "protocolVersion");
	const char *version = nature->version;
	struct span elicitation = get(get(params, "capabilities"), "elicitation");
	switch (nature->handshake) {
	case HANDSHAKE_SILENT:
		return;
	case HANDSHAKE_CRASH:
		link_lose(link, 0, "the simulated server died at once");
		return;
	case HANDSHAKE_REFUSES:
		server_say(link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32603,\"message\":\"no\"}}",
			(unsigned long long)id);
		return;
	case HANDSHAKE_NO_SHAPE:
		if (elicitation.len > 2) {
			server_say(link, id,
				"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32603,\"message\":"
				"\"Unrecognized field\"}}",
				(unsigned long long)id);
			return;
		}
		break;
	case HANDSHAKE_NAMES_OTHER:
		if (!json_string_is(offered, version)) {
			server_say(link, id,
				"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32602,\"message\":\"version\","
				"\"data\":{\"supported\":[\"1999-01-01\",\"%s\"]}}}",
				(unsigned long long)id, version);
			return;
		}
		break;
	case HANDSHAKE_STRANGE:
		version = "2030-01-01";
		break;
	default:
		break;
	}
	server_say(link, id,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":"
		"{\"listChanged\":true},\"logging\":{},\"resources\":{\"subscribe\":true}%s},\"serverInfo\":{\"name\":"
		"\"sim-server\",\"version\":\"1\"}}}",
		(unsigned long long)id, version,
		nature->tasks ? ",\"tasks\":{\"requests\":{\"tools\":{\"call\":{}}}}" : "");
}

struct late {
	struct server *server;
	uint64_t id;
	struct span params;
};

static void on_late_handshake(struct world *world, void *arg)
{
	struct late *late = arg;
	(void)world;
	if (late->server->link->open)
		agree(late->server, late->id, late->params);
}

static void on_initialize(struct server *server, uint64_t id, struct span params)
{
	struct world *world = server->link->world;
	struct late *late = arena_alloc(&world->arena, sizeof(*late));
	*late = (struct late){server, id, params};
	bool slow = nature_of(server->link)->handshake == HANDSHAKE_SLOW;
	world_at(world, slow ? choose(world, 1000, 40000) : choose(world, 0, 50), on_late_handshake, late);
}

/* Messages of the core. */

/* tasks/result and tasks/cancel; a task is called task-<job>. */
static void on_task_request(struct server *server, const struct message *message, uint64_t id)
{
	struct span task = get(message->params, "taskId");
	unsigned number = task.len > 6 ? (unsigned)strtoul(task.ptr + 6, NULL, 10) : 0;
	struct handler *handler = server->handlers;
	while (handler && !(handler->as_task && handler->job->number == number))
		handler = handler->next;
	if (json_string_is(message->method, "tasks/cancel")) {
		server_say(server->link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{}}", (unsigned long long)id);
		if (handler)
			handler_cancel(handler);
	} else if (handler) {
		handler_fetch(handler, id);
	}
}

/* A question of a later revision, before any handshake. */
static void on_probe(struct server *server, uint64_t id)
{
	static const char *const answers[] = {"\"error\":{\"code\":-32601,\"message\":\"Method not found\"}",
		"\"error\":{\"code\":-32022,\"message\":\"?\",\"data\":{\"supported\":[\"2025-11-25\"]}}",
		"\"result\":{\"supportedVersions\":[\"2025-06-18\"]}", "\"result\":{}"};
	struct link *link = server->link;
	int64_t dice = choose(link->world, 0, 6);
	if (dice < 4)
		server_say(link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}", (unsigned long long)id, answers[dice]);
	else if (dice == 4)
		link_lose(link, 0, "the simulated server ended at a question that it does not know");
	else if (dice == 5 && link->world->has_streams)
		link_fail_request(link, id);
}

static void on_request(struct server *server, const struct message *message)
{
	struct link *link = server->link;
	int64_t id = 0;
	if (!json_integer(message->id, &id))
		return;
	if (json_string_is(message->method, "initialize")) {
		on_initialize(server, (uint64_t)id, message->params);
	} else if (json_string_is(message->method, "ping")) {
		if (!nature_of(link)->knows_no_ping)
			server_say(
				link, (uint64_t)id, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{}}", (long long)id);
	} else if (get(message->params, "taskId").ptr) {
		on_task_request(server, message, (uint64_t)id);
	} else if (mark_of(message->params, "sim/t", 't')) {
		server_start(server, message, (uint64_t)id);
	} else if (json_string_is(message->method, "server/discover")) {
		on_probe(server, (uint64_t)id);
	} else {
		server_say(link, (uint64_t)id, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{}}", (long long)id);
	}
}

void server_cancel(struct server *server, struct span params)
{
	int64_t id = 0;
	if (!json_integer(get(params, "requestId"), &id))
		return;
	struct handler *handler = server->handlers;
	while (handler && handler->id != (uint64_t)id)
		handler = handler->next;
	if (handler)
		handler_cancel(handler);
}

static void on_initialized(struct server *server)
{
	struct world *world = server->link->world;
	const struct nature *nature = nature_of(server->link);
	if (server->link->caps.roots && nature->roots_at_once)
		server_ask_roots(world, server);
	if (server->link->caps.roots && nature->roots_later)
		world_at(world, 350, server_ask_roots, server);
}

static void on_notification(struct server *server, const struct message *message)
{
	if (json_string_is(message->method, "notifications/initialized"))
		on_initialized(server);
	else if (json_string_is(message->method, "notifications/cancelled"))
		server_cancel(server, message->params);
	else if (json_string_is(message->method, "notifications/roots/list_changed"))
		server_ask_roots(server->link->world, server);
}

static void on_answer(struct server *server, const struct message *message)
{
	struct world *world = server->link->world;
	struct pending *pending = server_take_pending(server, message->id);
	if (!pending || !pending->handler)
		return;
	struct handler *handler = pending->handler;
	if (handler->over || !handler->waiting || server_first_pending(server, handler))
		return;
	handler_go_on(handler, message->error.ptr && chance(world, 30));
}

static void misbehave(struct server *server)
{
	static const char *const messages[] = {
		"hello, this is a banner",
		"{\"jsonrpc\":\"2.0\"}",
		"{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":77777,\"result\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":-1,\"result\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"?\"}}",
		"{\"jsonrpc\":\"2.0\",\"id\":\"x-1\",\"method\":\"ping\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":\"x-2\",\"method\":\"tasks/get\",\"params\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":\"x-3\",\"method\":\"ping\",\"params\":[]}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":99,"
		"\"progress\":5}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"emergency\","
		"\"data\":1}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":\"sim://a\"}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/elicitation/complete\",\"params\":{}}",
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/unknown\"}",
		"[]",
		"[{\"jsonrpc\":\"2.0\",\"id\":\"x-4\",\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":\"x-5\","
		"\"method\":\"ping\"}]",
		"[{\"jsonrpc\":\"2.0\",\"id\":88888,\"result\":{}},7]",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":{}}",
		"",
	};
	struct world *world = server->link->world;
	link_receive(server->link, span_of(messages[choose(world, 0, sizeof(messages) / sizeof(messages[0]) - 1)]), 0);
}

void model_from_proxy(struct link *link, struct span text)
{
	struct server *server = link->model;
	struct span value;
	struct json_index index = {0};
	struct message message;
	struct error error;
	if (json_check(text, &value, &index, &error) || message_parse(&message, value, &index, &error))
		return;
	if (chance(link->world, nature_of(link)->malformed))
		misbehave(server);
	if (server->modern) {
		modern_from_proxy(server, &message);
		return;
	}
	if (message.kind == MESSAGE_REQUEST)
		on_request(server, &message);
	else if (message.kind == MESSAGE_NOTIFICATION)
		on_notification(server, &message);
	else
		on_answer(server, &message);
	/* Out of the blue: a question that belongs to no call. */
	if (link->established && server->strays < MAX_STRAYS && chance(link->world, nature_of(link)->strays)) {
		server->strays++;
		server_ask(server, NULL);
	}
}

void model_opened(struct link *link)
{
	struct server *server = arena_alloc(&link->world->arena, sizeof(*server));
	server->link = link;
	server->modern = nature_of(link)->modern;
	link->model = server;
}

int model_queue_status(struct link *link)
{
	return link->established && chance(link->world, nature_of(link)->full_queue) ? ERROR_LIMIT : 0;
}

void model_establish(struct link *link, const char *version)
{
	(void)version;
	if (chance(link->world, 50))
		link_established_now(link);
	else
		link_establish(link, choose(link->world, 0, 300));
}

void model_closed(struct link *link)
{
	(void)link;
}
