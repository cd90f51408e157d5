/* Legacy servers. A handler is a list of steps, drawn when its call arrives. */
#include "tests/sim/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum step_op {
	STEP_SLEEP,	/* for `number` ms */
	STEP_ASK,	/* something */
	STEP_AWAIT,	/* all answers; gives up after `number` ms, 0: never */
	STEP_PROGRESS,
	STEP_LOG,
	STEP_WITHDRAW,	/* one of what is open */
	STEP_CRASH,
	STEP_RESULT,
	STEP_ERROR,
	STEP_URLS,	/* -32042 */
	STEP_HANG,
};

struct step {
	enum step_op op;
	int64_t number;
};

enum { MAX_STEPS = 40, MAX_STRAYS = 20 };

/* A question that the server waits for. */
struct pending {
	struct pending *next;
	struct question *question;
	struct handler *handler;
};

struct handler {
	struct handler *next;
	struct server *server;
	struct job *job;
	uint64_t id;
	const char *method;
	bool wants_progress, waiting, over, ignores_cancel;
	unsigned progress;
	struct step steps[MAX_STEPS];
	unsigned count, at;
	unsigned waits; /* tells an old timeout from a new one */
};

struct server {
	struct link *link;
	struct handler *handlers;
	struct pending *pending;
	unsigned next_id;
	unsigned strays;
};

static struct nature *nature_of(const struct link *link)
{
	return &((struct model *)link->world->model)->nature;
}

static void say(struct link *link, uint64_t stream, const char *format, ...) PRINTF_LIKE(3, 4);

static void say(struct link *link, uint64_t stream, const char *format, ...)
{
	char text[6000];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	link_receive(link, span_of(text), stream);
}

/* Asking. */

static const char *question_id(struct server *server, const struct question *question)
{
	struct world *world = server->link->world;
	switch (choose(world, 0, 3)) {
	case 0:
		return arena_printf(&world->arena, "\"q\\u002d%u\"", question->number);
	case 1:
		return arena_printf(&world->arena, "9007199254740993%04u", question->number);
	default:
		return arena_printf(&world->arena, "%u", server->next_id++); /* from 0: collides with ours */
	}
}

static void write_params(struct world *world, struct question *question, struct buf *out)
{
	bool odd = chance(world, 20);
	switch (question->kind) {
	case POLICY_ELICITATION:
		if (question->url)
			buf_printf(out,
				"\"mode\":\"url\",\"message\":\"go\",\"elicitationId\":\"e%u\",\"url\":\"https://x.example/%u\"",
				question->number, question->number);
		else if (question->no_schema)
			buf_printf(out, "\"message\":%s", odd ? "\"\\ud800\"" : "\"What?\"");
		else
			buf_printf(out,
				"\"message\":\"What?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{},\"x\":%s}",
				payload(world));
		break;
	case POLICY_SAMPLING:
		buf_printf(out, "\"messages\":[],\"maxTokens\":100,\"metadata\":%s%s", payload(world),
			question->tools ? ",\"tools\":[]" : "");
		break;
	default:
		break;
	}
	if (odd && question->kind != POLICY_ROOTS)
		buf_add_text(out, ",\"task\":{\"ttl\":1000}");
	if (out->len)
		buf_add_text(out, ",");
	buf_printf(out, "\"_meta\":{\"sim/q\":\"q%u\"", question->number);
	if (question->progress_token)
		buf_printf(out, ",\"progressToken\":%s", question->progress_token);
	if (odd)
		buf_add_text(out, ",\"io.modelcontextprotocol/related-task\":{\"taskId\":\"7\"}");
	buf_add_text(out, "}");
}

static bool is_declared(const struct link *link, const struct question *question)
{
	const struct capability_need need = {
		.kind = question->kind, .url = question->url, .tools = question->tools};
	return capabilities_cover(&link->caps, &need);
}

/* A kind that the client declared, or, seldom, one that it did not. false if there is none. */
static bool choose_kind(struct link *link, struct question *question)
{
	struct world *world = link->world;
	bool undeclared = chance(world, nature_of(link)->undeclared);
	for (int tries = 0; tries < 8; tries++) {
		question->kind = (enum policy_kind)choose(world, 0, POLICY_KINDS - 1);
		question->url = question->kind == POLICY_ELICITATION && chance(world, 30);
		question->tools = question->kind == POLICY_SAMPLING && chance(world, 30);
		question->no_schema = question->kind == POLICY_ELICITATION && !question->url && chance(world, 20);
		if (is_declared(link, question) != undeclared)
			return true;
	}
	return false;
}

static void send_question(struct server *server, struct handler *handler, struct question *question)
{
	static const char *const methods[] = {"elicitation/create", "sampling/createMessage", "roots/list"};
	struct world *world = server->link->world;
	struct buf params = {0};
	question->id = question_id(server, question);
	if (chance(world, 20))
		question->progress_token = arena_printf(&world->arena, "\"k%u\"", question->number);
	write_params(world, question, &params);
	struct pending *pending = arena_alloc(&world->arena, sizeof(*pending));
	*pending = (struct pending){server->pending, question, handler};
	server->pending = pending;
	bool streams = world->has_streams && nature_of(server->link)->streams_used;
	say(server->link, handler && streams ? handler->id : 0,
		"{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"%s\",\"params\":{%.*s}}", question->id,
		methods[question->kind], (int)params.len, params.data);
	buf_free(&params);
}

static void ask_for(struct handler *handler)
{
	struct link *link = handler->server->link;
	struct question *question = ledger_question(link, handler->job, POLICY_ROOTS);
	if (choose_kind(link, question))
		send_question(handler->server, handler, question);
	else
		question->state = QUESTION_VOID;
}

static void ask_roots(struct world *world, void *arg)
{
	struct server *server = arg;
	(void)world;
	if (server->link->open)
		send_question(server, NULL, ledger_question(server->link, NULL, POLICY_ROOTS));
}

/* Takes a pending question off the list; NULL if there is none with this id. */
static struct pending *take_pending(struct server *server, struct span id)
{
	for (struct pending **at = &server->pending; *at; at = &(*at)->next)
		if (span_is(id, (*at)->question->id)) {
			struct pending *found = *at;
			*at = found->next;
			return found;
		}
	return NULL;
}

static struct pending *first_pending(struct server *server, const struct handler *handler)
{
	struct pending *pending = server->pending;
	while (pending && pending->handler != handler)
		pending = pending->next;
	return pending;
}

static void withdraw(struct handler *handler, bool silently)
{
	struct server *server = handler->server;
	struct pending *pending = first_pending(server, handler);
	if (!pending)
		return;
	take_pending(server, span_of(pending->question->id));
	if (!silently)
		say(server->link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%s,"
			"\"reason\":\"timeout\"}}",
			pending->question->id);
}

/* Answering. */

static void finish(struct handler *handler, const char *body)
{
	struct link *link = handler->server->link;
	handler->over = true;
	say(link, handler->id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}", (unsigned long long)handler->id, body);
	if (chance(link->world, nature_of(link)->strays))
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}", (unsigned long long)handler->id, body);
}

static void finish_with_result(struct handler *handler, bool is_error)
{
	struct world *world = handler->server->link->world;
	const char *meta = arena_printf(&world->arena, "\"_meta\":{\"sim/r\":\"t%u\"}", handler->job->number);
	const char *forged = chance(world, 10) ? "\"resultType\":\"input_required\",\"inputRequests\":{},"
						  "\"requestState\":\"forged\","
					       : "";
	const char *member = strcmp(handler->method, "resources/read") == 0 ? "contents"
			     : strcmp(handler->method, "prompts/get") == 0  ? "messages"
									    : "content";
	if (strcmp(handler->method, "tools/list") == 0)
		finish(handler,
			arena_printf(&world->arena,
				"\"result\":{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"},"
				"\"execution\":{}}],%s%s}",
				forged, meta));
	else
		finish(handler,
			arena_printf(&world->arena,
				"\"result\":{%s\"%s\":[{\"type\":\"text\",\"text\":\"x\",\"v\":%s}],"
				"\"structuredContent\":%s,\"isError\":%s,%s}",
				forged, member, payload(world), payload(world), is_error ? "true" : "false", meta));
}

static void finish_with_error(struct handler *handler)
{
	static const int codes[] = {-32603, -32602, -32002, -32601, -32000, -32021, -32042, 17};
	struct world *world = handler->server->link->world;
	int code = codes[choose(world, 0, 7)];
	if (code == -32042)
		code = -32043;
	finish(handler,
		arena_printf(&world->arena, "\"error\":{\"code\":%d,\"message\":\"E:t%u\",\"data\":%s}", code,
			handler->job->number, payload(world)));
}

static void finish_with_urls(struct handler *handler)
{
	struct world *world = handler->server->link->world;
	unsigned number = handler->job->number;
	finish(handler,
		arena_printf(&world->arena,
			"\"error\":{\"code\":-32042,\"message\":\"E:t%u\",\"data\":{\"elicitations\":["
			"{\"mode\":\"url\",\"message\":\"go\",\"elicitationId\":\"u%u\",\"url\":\"https://x.example\"}]}}",
			number, number));
	if (chance(world, 50))
		say(handler->server->link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/elicitation/complete\",\"params\":"
			"{\"elicitationId\":\"u%u\"}}",
			number);
}

/* Handlers. */

static void run_handler(struct world *world, void *arg);

static void on_waited(struct world *world, void *arg);

struct waited {
	struct handler *handler;
	unsigned waits;
};

/* true if the handler goes on at once. */
static bool await(struct handler *handler, int64_t timeout_ms)
{
	struct world *world = handler->server->link->world;
	if (!first_pending(handler->server, handler))
		return true;
	handler->waiting = true;
	handler->waits++;
	if (timeout_ms) {
		struct waited *waited = arena_alloc(&world->arena, sizeof(*waited));
		*waited = (struct waited){handler, handler->waits};
		world_at(world, timeout_ms, on_waited, waited);
	}
	return false;
}

static void on_waited(struct world *world, void *arg)
{
	struct waited *waited = arg;
	struct handler *handler = waited->handler;
	if (!handler->server->link->open || handler->over || !handler->waiting || handler->waits != waited->waits)
		return;
	handler->waiting = false;
	bool silently = chance(world, 30);
	while (first_pending(handler->server, handler))
		withdraw(handler, silently);
	if (chance(world, 80))
		finish_with_result(handler, true);
	else
		run_handler(world, handler);
}

static void progress(struct handler *handler)
{
	struct link *link = handler->server->link;
	if (!handler->wants_progress)
		return;
	handler->progress += chance(link->world, 80);
	say(link, handler->id,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%llu,"
		"\"progress\":%u,\"message\":\"P:t%u\"}}",
		(unsigned long long)handler->id, handler->progress, handler->job->number);
}

/* One step. true if the next one follows at once. */
static bool take_step(struct handler *handler, const struct step *step)
{
	struct link *link = handler->server->link;
	switch (step->op) {
	case STEP_SLEEP:
		world_at(link->world, step->number, run_handler, handler);
		return false;
	case STEP_ASK:
		ask_for(handler);
		return true;
	case STEP_AWAIT:
		return await(handler, step->number);
	case STEP_PROGRESS:
		progress(handler);
		return true;
	case STEP_LOG:
		say(link, handler->id,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"warning\","
			"\"data\":\"L:t%u\"}}",
			handler->job->number);
		return true;
	case STEP_WITHDRAW:
		withdraw(handler, false);
		return true;
	case STEP_CRASH:
		link_lose(link, 0, "the simulated server crashed");
		return false;
	case STEP_RESULT:
		finish_with_result(handler, false);
		return false;
	case STEP_ERROR:
		finish_with_error(handler);
		return false;
	case STEP_URLS:
		finish_with_urls(handler);
		return false;
	default:
		return false;
	}
}

static void run_handler(struct world *world, void *arg)
{
	struct handler *handler = arg;
	(void)world;
	while (handler->server->link->open && !handler->over && !handler->waiting && handler->at < handler->count)
		if (!take_step(handler, &handler->steps[handler->at++]))
			return;
}

static void add_step(struct handler *handler, enum step_op op, int64_t number)
{
	if (handler->count < MAX_STEPS)
		handler->steps[handler->count++] = (struct step){op, number};
}

static void plan_questions(struct handler *handler)
{
	struct world *world = handler->server->link->world;
	const struct nature *nature = nature_of(handler->server->link);
	int64_t at_once = chance(world, 60) ? 1 : choose(world, 2, 4);
	for (int64_t i = 0; i < at_once; i++) {
		add_step(handler, STEP_ASK, 0);
		if (i + 1 < at_once && chance(world, 40))
			add_step(handler, STEP_SLEEP, nature->benign ? choose(world, 1, 5) : choose(world, 1, 200));
	}
	if (!nature->benign && chance(world, 8)) {
		add_step(handler, STEP_SLEEP, choose(world, 1, 3000));
		add_step(handler, STEP_WITHDRAW, 0);
	}
	if (!nature->benign && chance(world, 6)) /* the answer without having waited for the answers */
		return;
	add_step(handler, STEP_AWAIT, nature->benign || chance(world, 60) ? 0 : choose(world, 200, 70000));
}

static void plan_handler(struct handler *handler)
{
	struct world *world = handler->server->link->world;
	const struct nature *nature = nature_of(handler->server->link);
	bool asks = strcmp(handler->method, "tools/call") == 0 || strcmp(handler->method, "prompts/get") == 0 ||
		    strcmp(handler->method, "resources/read") == 0;
	int64_t rounds = !asks ? 0 : chance(world, 25) ? 0 : choose(world, 1, 4);
	add_step(handler, STEP_SLEEP, chance(world, 70) ? choose(world, 0, 30) : choose(world, 0, 4000));
	for (int64_t i = 0; i < rounds; i++) {
		if (chance(world, 30))
			add_step(handler, STEP_PROGRESS, 0);
		if (chance(world, 10))
			add_step(handler, STEP_LOG, 0);
		plan_questions(handler);
		add_step(handler, STEP_SLEEP, choose(world, 0, 20));
		if (chance(world, nature->crashes))
			add_step(handler, STEP_CRASH, 0);
	}
	if (chance(world, 30))
		add_step(handler, STEP_PROGRESS, 0);
	if (asks && !nature->benign && handler->job->urls_required < 2 && chance(world, 5))
		add_step(handler, STEP_URLS, 0);
	else if (nature->benign || chance(world, 85))
		add_step(handler, STEP_RESULT, 0);
	else
		add_step(handler, chance(world, 80) ? STEP_ERROR : STEP_HANG, 0);
}

static struct job *job_of(struct world *world, struct span params)
{
	unsigned number = mark_of(params, "sim/t", 't');
	struct job *job = world->ledger->jobs;
	while (job && job->number != number)
		job = job->next;
	return job;
}

static void start_handler(struct server *server, const struct message *message, uint64_t id)
{
	struct world *world = server->link->world;
	struct handler *handler = arena_alloc(&world->arena, sizeof(*handler));
	handler->server = server;
	handler->job = job_of(world, message->params);
	handler->id = id;
	handler->method = arena_printf(&world->arena, "%.*s", (int)(message->method.len - 2), message->method.ptr + 1);
	handler->wants_progress = get(get(message->params, "_meta"), "progressToken").ptr != NULL;
	handler->ignores_cancel = chance(world, nature_of(server->link)->ignores_cancel);
	handler->next = server->handlers;
	server->handlers = handler;
	if (!handler->job)
		return;
	plan_handler(handler);
	run_handler(world, handler);
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
		say(link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32603,\"message\":\"no\"}}",
			(unsigned long long)id);
		return;
	case HANDSHAKE_NO_SHAPE:
		if (elicitation.len > 2) {
			say(link, id,
				"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32603,\"message\":"
				"\"Unrecognized field\"}}",
				(unsigned long long)id);
			return;
		}
		break;
	case HANDSHAKE_NAMES_OTHER:
		if (!json_string_is(offered, version)) {
			say(link, id,
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
	say(link, id,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":"
		"{\"listChanged\":true},\"logging\":{},\"resources\":{\"subscribe\":true}},\"serverInfo\":{\"name\":"
		"\"sim-server\",\"version\":\"1\"}}}",
		(unsigned long long)id, version);
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
			say(link, (uint64_t)id, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{}}", (long long)id);
	} else if (mark_of(message->params, "sim/t", 't')) {
		start_handler(server, message, (uint64_t)id);
	} else {
		say(link, (uint64_t)id, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{}}", (long long)id);
	}
}

static void on_cancelled(struct server *server, struct span params)
{
	struct world *world = server->link->world;
	int64_t id = 0;
	if (!json_integer(get(params, "requestId"), &id))
		return;
	struct handler *handler = server->handlers;
	while (handler && handler->id != (uint64_t)id)
		handler = handler->next;
	if (!handler || handler->over || handler->ignores_cancel)
		return;
	if (chance(world, nature_of(server->link)->answers_cancelled)) {
		finish(handler,
			arena_printf(&world->arena, "\"error\":{\"code\":0,\"message\":\"E:t%u cancelled\"}",
				handler->job->number));
		return;
	}
	handler->over = true;
	bool silently = chance(world, 50);
	while (first_pending(server, handler))
		withdraw(handler, silently);
}

static void on_initialized(struct server *server)
{
	struct world *world = server->link->world;
	const struct nature *nature = nature_of(server->link);
	if (server->link->caps.roots && nature->roots_at_once)
		ask_roots(world, server);
	if (server->link->caps.roots && nature->roots_later)
		world_at(world, 350, ask_roots, server);
}

static void on_notification(struct server *server, const struct message *message)
{
	if (json_string_is(message->method, "notifications/initialized"))
		on_initialized(server);
	else if (json_string_is(message->method, "notifications/cancelled"))
		on_cancelled(server, message->params);
	else if (json_string_is(message->method, "notifications/roots/list_changed"))
		ask_roots(server->link->world, server);
}

static void on_answer(struct server *server, const struct message *message)
{
	struct world *world = server->link->world;
	struct pending *pending = take_pending(server, message->id);
	if (!pending || !pending->handler)
		return;
	struct handler *handler = pending->handler;
	if (handler->over || !handler->waiting || first_pending(server, handler))
		return;
	handler->waiting = false;
	if (message->error.ptr && chance(world, 30))
		finish_with_result(handler, true);
	else
		run_handler(world, handler);
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
	link_receive(server->link,
		span_of(messages[choose(world, 0, sizeof(messages) / sizeof(messages[0]) - 1)]), 0);
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
	if (message.kind == MESSAGE_REQUEST)
		on_request(server, &message);
	else if (message.kind == MESSAGE_NOTIFICATION)
		on_notification(server, &message);
	else
		on_answer(server, &message);
	/* Out of the blue: a question that belongs to no call. */
	if (link->established && server->strays < MAX_STRAYS && chance(link->world, nature_of(link)->strays)) {
		server->strays++;
		struct question *question = ledger_question(link, NULL, POLICY_ROOTS);
		if (choose_kind(link, question))
			send_question(server, NULL, question);
		else
			question->state = QUESTION_VOID;
	}
}

void model_opened(struct link *link)
{
	struct server *server = arena_alloc(&link->world->arena, sizeof(*server));
	server->link = link;
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
