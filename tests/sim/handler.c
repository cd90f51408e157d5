#include "tests/sim/handler.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nature *nature_of(const struct link *link)
{
	return &((struct model *)link->world->model)->nature;
}

void server_say(struct link *link, uint64_t stream, const char *format, ...)
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
				"\"mode\":\"url\",\"message\":\"go\",\"elicitationId\":\"e%u\",\"url\":\"https://"
				"x.example/%u\"",
				question->number, question->number);
		else if (question->no_schema)
			buf_printf(out, "\"message\":%s", odd ? "\"\\ud800\"" : "\"What?\"");
		else
			buf_printf(out,
				"\"message\":\"What?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{},"
				"\"x\":%s}",
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
	if (question->of_task)
		buf_printf(out, ",\"io.modelcontextprotocol/related-task\":{\"taskId\":\"task-%u\"}",
			question->job->number);
	else if (odd)
		buf_add_text(out, ",\"io.modelcontextprotocol/related-task\":{\"taskId\":\"7\"}");
	buf_add_text(out, "}");
}

static bool is_declared(const struct capabilities *caps, const struct question *question)
{
	const struct capability_need need = {.kind = question->kind, .url = question->url, .tools = question->tools};
	return capabilities_cover(caps, &need);
}

/* A kind that the client declared, or, seldom, one that it did not. false if there is none. */
static bool choose_kind(struct link *link, const struct capabilities *caps, struct question *question)
{
	struct world *world = link->world;
	bool undeclared = chance(world, nature_of(link)->undeclared);
	for (int tries = 0; tries < 8; tries++) {
		question->kind = (enum policy_kind)choose(world, 0, POLICY_KINDS - 1);
		question->url = question->kind == POLICY_ELICITATION && chance(world, 30);
		question->tools = question->kind == POLICY_SAMPLING && chance(world, 30);
		question->no_schema = question->kind == POLICY_ELICITATION && !question->url && chance(world, 20);
		if (is_declared(caps, question) != undeclared)
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
	question->of_task = handler && handler->as_task;
	if (!server->modern && chance(world, 20))
		question->progress_token = arena_printf(&world->arena, "\"k%u\"", question->number);
	write_params(world, question, &params);
	struct pending *pending = arena_alloc(&world->arena, sizeof(*pending));
	*pending = (struct pending){.next = server->pending, .question = question, .handler = handler};
	server->pending = pending;
	if (server->modern) { /* it waits for the end of the round */
		question->id = arena_printf(&world->arena, "\"k%u\"", question->number);
		pending->entry = span_of(arena_printf(&world->arena, "{\"method\":\"%s\",\"params\":{%.*s}}",
			methods[question->kind], (int)params.len, params.data));
		buf_free(&params);
		return;
	}
	bool streams = world->has_streams && nature_of(server->link)->streams_used;
	server_say(server->link, handler && streams ? handler->id : 0,
		"{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"%s\",\"params\":{%.*s}}", question->id,
		methods[question->kind], (int)params.len, params.data);
	buf_free(&params);
}

void server_ask(struct server *server, struct handler *handler)
{
	struct question *question = ledger_question(server->link, handler ? handler->job : NULL, POLICY_ROOTS);
	if (choose_kind(server->link, server->modern ? &handler->caps : &server->link->caps, question))
		send_question(server, handler, question);
	else
		question->state = QUESTION_VOID;
}

void server_ask_roots(struct world *world, void *arg)
{
	struct server *server = arg;
	(void)world;
	if (server->link->open)
		send_question(server, NULL, ledger_question(server->link, NULL, POLICY_ROOTS));
}

/* Takes a pending question off the list; NULL if there is none with this id. */
struct pending *server_take_pending(struct server *server, struct span id)
{
	for (struct pending **at = &server->pending; *at; at = &(*at)->next)
		if (span_is(id, (*at)->question->id)) {
			struct pending *found = *at;
			*at = found->next;
			return found;
		}
	return NULL;
}

struct pending *server_first_pending(struct server *server, const struct handler *handler)
{
	struct pending *pending = server->pending;
	while (pending && pending->handler != handler)
		pending = pending->next;
	return pending;
}

static void withdraw(struct handler *handler, bool silently)
{
	struct server *server = handler->server;
	struct pending *pending = server_first_pending(server, handler);
	if (!pending)
		return;
	server_take_pending(server, span_of(pending->question->id));
	if (!silently && !server->modern)
		server_say(server->link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%s,"
			"\"reason\":\"timeout\"}}",
			pending->question->id);
}

/* Answering. */

static void finish(struct handler *handler, const char *body)
{
	struct link *link = handler->server->link;
	handler->over = true;
	if (handler->as_task && !handler->result_id) {
		handler->body = body;
		return;
	}
	uint64_t id = handler->as_task ? handler->result_id : handler->id;
	server_say(link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}", (unsigned long long)id, body);
	if (chance(link->world, nature_of(link)->strays))
		server_say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}", (unsigned long long)id, body);
}

static void finish_with_result(struct handler *handler, bool is_error)
{
	struct world *world = handler->server->link->world;
	const char *meta = arena_printf(&world->arena, "\"_meta\":{\"sim/r\":\"t%u\"}", handler->job->number);
	const char *forged = handler->server->modern
				     ? chance(world, 90) ? "\"resultType\":\"complete\",\"ttlMs\":5," : ""
			     : chance(world, 10) ? "\"resultType\":\"input_required\",\"inputRequests\":{},"
						   "\"requestState\":\"forged\","
						 : "";
	const char *member = strcmp(handler->method, "resources/read") == 0 ? "contents"
			     : strcmp(handler->method, "prompts/get") == 0  ? "messages"
									    : "content";
	if (strcmp(handler->method, "tools/list") == 0)
		finish(handler, arena_printf(&world->arena,
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
	finish(handler, arena_printf(&world->arena, "\"error\":{\"code\":%d,\"message\":\"E:t%u\",\"data\":%s}", code,
				handler->job->number, payload(world)));
}

static void finish_with_urls(struct handler *handler)
{
	struct world *world = handler->server->link->world;
	unsigned number = handler->job->number;
	if (handler->server->modern) {
		finish_with_error(handler);
		return;
	}
	const char *second = chance(world, 40)
				     ? ",{\"mode\":\"url\",\"message\":\"and\",\"elicitationId\":\"v\",\"url\":"
				       "\"https://y.example\"}"
				     : "";
	finish(handler, arena_printf(&world->arena,
				"\"error\":{\"code\":-32042,\"message\":\"E:t%u\",\"data\":{\"elicitations\":["
				"{\"mode\":\"url\",\"message\":\"go\",\"elicitationId\":\"u%u\",\"url\":\"https://"
				"x.example\"}%s]}}",
				number, number, second));
	if (chance(world, 50))
		server_say(handler->server->link, 0,
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

void handler_take_meta(struct handler *handler, struct span meta)
{
	struct error error;
	struct span token = get(meta, "progressToken"), caps = get(meta, "io.modelcontextprotocol/clientCapabilities");
	handler->wants_progress = token.ptr && json_integer(token, &handler->token);
	handler->logs = !handler->server->modern || get(meta, "io.modelcontextprotocol/logLevel").ptr;
	handler->caps = (struct capabilities){0};
	if (caps.ptr && capabilities_read(&handler->caps, caps, &error))
		handler->caps = (struct capabilities){0};
}

/* true if the handler goes on at once. */
static bool await(struct handler *handler, int64_t timeout_ms)
{
	struct world *world = handler->server->link->world;
	if (handler->server->modern) {
		if (!server_first_pending(handler->server, handler) && chance(world, 80))
			return true;
		modern_ask(handler);
		return false;
	}
	if (!server_first_pending(handler->server, handler))
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
	while (server_first_pending(handler->server, handler))
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
	server_say(link, handler->id,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%llu,"
		"\"progress\":%u,\"message\":\"P:t%u\"}}",
		(unsigned long long)handler->token, handler->progress, handler->job->number);
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
		server_ask(handler->server, handler);
		return true;
	case STEP_AWAIT:
		return await(handler, step->number);
	case STEP_PROGRESS:
		progress(handler);
		return true;
	case STEP_LOG:
		if (handler->logs)
			server_say(link, handler->id,
				"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
				"message\",\"params\":{\"level\":\"warning\","
				"\"data\":\"L:t%u\"}}",
				handler->job->number);
		return true;
	case STEP_WITHDRAW:
		withdraw(handler, false);
		return true;
	case STEP_CRASH:
		link_lose(link, 0, "the simulated server crashed");
		return false;
	case STEP_BREAK:
		link_fail_request(link, handler->id);
		return true;
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
	const struct sent *sent = link_find_sent(handler->server->link, handler->id);
	(void)world;
	if (handler->server->modern && sent && sent->forgotten)
		handler->over = true; /* its stream was closed */
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
	bool asks = ledger_has_rounds(handler->method);
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
			add_step(handler, world->has_streams && chance(world, 50) ? STEP_BREAK : STEP_CRASH, 0);
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

void handler_start(struct handler *handler)
{
	plan_handler(handler);
	run_handler(handler->server->link->world, handler);
}

void handler_go_on(struct handler *handler, bool give_up)
{
	handler->waiting = false;
	if (give_up)
		finish_with_result(handler, true);
	else
		run_handler(handler->server->link->world, handler);
}

void handler_cancel(struct handler *handler)
{
	struct server *server = handler->server;
	struct world *world = server->link->world;
	if (handler->over || handler->ignores_cancel)
		return;
	if (chance(world, nature_of(server->link)->answers_cancelled)) {
		finish(handler, arena_printf(&world->arena, "\"error\":{\"code\":0,\"message\":\"E:t%u cancelled\"}",
					handler->job->number));
		return;
	}
	handler->over = true;
	bool silently = chance(world, 50);
	while (server_first_pending(server, handler))
		withdraw(handler, silently);
}

void handler_fetch(struct handler *handler, uint64_t id)
{
	handler->result_id = id;
	if (handler->body)
		finish(handler, handler->body);
}
