#include "adapters/demo_server.h"

#include "proxy/compiler.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* JSON-RPC error codes. */
enum { PARSE_ERROR = -32700, INVALID_REQUEST = -32600, METHOD_NOT_FOUND = -32601, INVALID_PARAMS = -32602 };

enum { MAX_QUESTIONS = 2 };

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

struct server;
struct call;

/* One tool: its listing as JSON text, and what it does. `run` is called when the call begins and again whenever all its
 * questions are answered; it asks again or finishes. */
struct tool {
	const char *name;
	const char *listing;
	void (*run)(struct server *server, struct call *call);
};

/* A tools/call that has not been answered. */
struct call {
	TAILQ_ENTRY(call) entry;
	json_t *id;
	json_t *arguments; /* an object */
	const struct tool *tool;
	int step;		 /* how often `run` was called */
	int questions, answered; /* of this step */
	json_int_t question_ids[MAX_QUESTIONS];
	json_t *answers[MAX_QUESTIONS]; /* results of the step before; NULL if the answer was an error */
	json_t *kept;			/* what the tool remembers from one step to the next, or NULL */
};

struct server {
	TAILQ_HEAD(, call) calls;
	json_t *client_capabilities; /* NULL before initialize */
	json_int_t next_question_id;
	bool broken; /* the output failed, or memory was short */
};

/* ---- messages out ---------------------------------------------------------------------------------------------- */

/* Writes one message and takes it. */
static void send_message(struct server *server, json_t *message)
{
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
	if (!text || printf("%s\n", text) < 0 || fflush(stdout) != 0)
		server->broken = true;
	free(text);
	json_decref(message);
}

static void send_result(struct server *server, json_t *id, json_t *result)
{
	send_message(server, json_pack("{s:s, s:O, s:o*}", "jsonrpc", "2.0", "id", id, "result", result));
}

static void send_error(struct server *server, json_t *id, int code, const char *text)
{
	json_t *error = json_pack("{s:i, s:s}", "code", code, "message", text);
	json_t *message = json_pack(
		"{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id ? json_incref(id) : json_null(), "error", error);
	send_message(server, message);
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

static void call_free(struct server *server, struct call *call)
{
	TAILQ_REMOVE(&server->calls, call, entry);
	for (int i = 0; i < MAX_QUESTIONS; i++)
		json_decref(call->answers[i]);
	json_decref(call->id);
	json_decref(call->arguments);
	json_decref(call->kept);
	free(call);
}

/* Answers the call with a text. */
static void finish(struct server *server, struct call *call, bool is_error, const char *format, ...) PRINTF_LIKE(4, 5);

static void finish(struct server *server, struct call *call, bool is_error, const char *format, ...)
{
	char *text;
	va_list arguments;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	json_t *content = json_pack("[{s:s, s:s}]", "type", "text", "text", text);
	send_result(server, call->id, json_pack("{s:o, s:b}", "content", content, "isError", is_error));
	call_free(server, call);
	free(text);
}

/* Sends a request to the client on behalf of the call and takes `params`, which may be NULL. */
static void ask(struct server *server, struct call *call, const char *method, json_t *params)
{
	json_int_t id = server->next_question_id++;
	json_decref(call->answers[call->questions]);
	call->answers[call->questions] = NULL;
	call->question_ids[call->questions++] = id;
	send_message(server,
		json_pack("{s:s, s:I, s:s, s:o*}", "jsonrpc", "2.0", "id", id, "method", method, "params", params));
}

static void ask_form(struct server *server, struct call *call, const char *text, const char *schema_text)
{
	json_t *schema = json_loads(schema_text, 0, NULL);
	ask(server, call, "elicitation/create", json_pack("{s:s, s:o}", "message", text, "requestedSchema", schema));
}

static bool client_can(const struct server *server, const char *capability)
{
	return json_is_object(json_object_get(server->client_capabilities, capability));
}

/* Whether the form was accepted; *content is then what the user filled in. */
static bool is_accepted(const struct call *call, int question, json_t **content)
{
	const char *action = json_string_value(json_object_get(call->answers[question], "action"));
	*content = json_object_get(call->answers[question], "content");
	return action && strcmp(action, "accept") == 0 && json_is_object(*content);
}

/* ---- tools ----------------------------------------------------------------------------------------------------- */

static void run_echo(struct server *server, struct call *call)
{
	const char *text = json_string_value(json_object_get(call->arguments, "text"));
	finish(server, call, text == NULL, "%s", text ? text : "The argument `text` is missing.");
}

static const char *restaurant_of(const struct call *call)
{
	const char *name = json_string_value(json_object_get(call->arguments, "restaurant"));
	return name ? name : "the restaurant";
}

static void book_table_confirm(struct server *server, struct call *call, const char *greeting)
{
	json_int_t people = json_integer_value(json_object_get(call->kept, "people"));
	const char *time = json_string_value(json_object_get(call->kept, "time"));
	finish(server, call, false, "Booked: %s, %lld people at %s. %s", restaurant_of(call), (long long)people, time,
		greeting);
}

static void book_table_take_form(struct server *server, struct call *call)
{
	json_t *form, *people, *time;
	if (!is_accepted(call, 0, &form)) {
		finish(server, call, true, "Nothing was booked.");
		return;
	}
	people = json_object_get(form, "people");
	time = json_object_get(form, "time");
	if (!json_is_integer(people) || !json_is_string(time)) {
		finish(server, call, true, "Nothing was booked: the form lacks `people` or `time`.");
		return;
	}
	call->kept = json_incref(form);
	if (!client_can(server, "sampling")) {
		book_table_confirm(server, call, "See you there!");
		return;
	}
	json_t *content = json_pack("{s:s, s:s}", "type", "text", "text",
		"Write one friendly sentence for the guests of a restaurant who have just booked a table.");
	json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", content);
	ask(server, call, "sampling/createMessage", json_pack("{s:o, s:i}", "messages", messages, "maxTokens", 60));
}

static void run_book_table(struct server *server, struct call *call)
{
	if (call->step == 1 && !client_can(server, "elicitation")) {
		finish(server, call, true, "This client cannot be asked, so no table was booked.");
	} else if (call->step == 1) {
		ask_form(server, call, "How many people, and at what time?",
			"{\"type\":\"object\",\"properties\":{"
			"\"people\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":12},"
			"\"time\":{\"type\":\"string\",\"enum\":[\"18:00\",\"19:30\",\"21:00\"]}},"
			"\"required\":[\"people\",\"time\"]}");
	} else if (call->step == 2) {
		book_table_take_form(server, call);
	} else {
		const char *text =
			json_string_value(json_object_get(json_object_get(call->answers[0], "content"), "text"));
		book_table_confirm(server, call, text ? text : "See you there!");
	}
}

static void run_ask_two(struct server *server, struct call *call)
{
	json_t *first, *second;
	if (call->step == 1 && !client_can(server, "elicitation")) {
		finish(server, call, true, "This client cannot be asked.");
	} else if (call->step == 1) {
		ask_form(server, call, "What is your first name?",
			"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]"
			"}");
		ask_form(server, call, "What is your last name?",
			"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]"
			"}");
	} else if (is_accepted(call, 0, &first) && is_accepted(call, 1, &second)) {
		const char *a = json_string_value(json_object_get(first, "name"));
		const char *b = json_string_value(json_object_get(second, "name"));
		finish(server, call, false, "Hello %s %s", a ? a : "?", b ? b : "?");
	} else {
		finish(server, call, true, "You did not say who you are.");
	}
}

/* It fails closed: only a clear yes deletes, and there is nothing to delete. */
static void run_delete_everything(struct server *server, struct call *call)
{
	json_t *form;
	if (call->step == 1 && !client_can(server, "elicitation"))
		finish(server, call, true, "This client cannot be asked, so nothing was deleted.");
	else if (call->step == 1)
		ask_form(server, call, "Do you really want to delete everything?",
			"{\"type\":\"object\",\"properties\":{\"confirm\":{\"type\":\"boolean\"}},"
			"\"required\":[\"confirm\"]}");
	else if (is_accepted(call, 0, &form) && json_is_true(json_object_get(form, "confirm")))
		finish(server, call, false, "Everything was deleted. (There was nothing: this is a demonstration.)");
	else
		finish(server, call, false, "Nothing was deleted.");
}

static void run_show_roots(struct server *server, struct call *call)
{
	if (call->step == 1 && !client_can(server, "roots")) {
		finish(server, call, true, "This client has no roots.");
		return;
	}
	if (call->step == 1) {
		ask(server, call, "roots/list", NULL);
		return;
	}
	json_t *root;
	size_t index;
	json_t *roots = json_object_get(call->answers[0], "roots");
	json_t *content = json_array();
	json_array_foreach(roots, index, root)
	{
		const char *uri = json_string_value(json_object_get(root, "uri"));
		if (json_array_append_new(content, json_pack("{s:s, s:s}", "type", "text", "text", uri ? uri : "?")) !=
			0)
			server->broken = true;
	}
	send_result(server, call->id, json_pack("{s:o, s:b}", "content", content, "isError", !json_is_array(roots)));
	call_free(server, call);
}

static const struct tool tools[] = {
	{.name = "echo",
		.run = run_echo,
		.listing = "{\"name\":\"echo\",\"description\":\"Gives the text "
			   "back\",\"inputSchema\":{\"type\":\"object\","
			   "\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}}"},
	{.name = "book_table",
		.run = run_book_table,
		.listing = "{\"name\":\"book_table\",\"description\":\"Books a table; asks how many people and when\","
			   "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"restaurant\":{\"type\":\"string\"}},"
			   "\"required\":[\"restaurant\"]}}"},
	{.name = "ask_two",
		.run = run_ask_two,
		.listing = "{\"name\":\"ask_two\",\"description\":\"Asks two questions at once\","
			   "\"inputSchema\":{\"type\":\"object\"}}"},
	{.name = "delete_everything",
		.run = run_delete_everything,
		.listing = "{\"name\":\"delete_everything\",\"description\":\"Deletes everything; asks first\","
			   "\"inputSchema\":{\"type\":\"object\"},\"annotations\":{\"destructiveHint\":true}}"},
	{.name = "show_roots",
		.run = run_show_roots,
		.listing = "{\"name\":\"show_roots\",\"description\":\"Lists the client's roots\","
			   "\"inputSchema\":{\"type\":\"object\"}}"},
};

enum { TOOLS = sizeof(tools) / sizeof(tools[0]) };

static void call_run(struct server *server, struct call *call)
{
	call->step++;
	call->questions = call->answered = 0;
	call->tool->run(server, call);
}

/* ---- methods --------------------------------------------------------------------------------------------------- */

static void on_initialize(struct server *server, json_t *id, json_t *params)
{
	static const char *const known[] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};
	const char *offered = json_string_value(json_object_get(params, "protocolVersion"));
	const char *version = known[3];
	for (size_t i = 0; offered && i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(offered, known[i]) == 0)
			version = known[i];
	json_t *capabilities = json_object_get(params, "capabilities");
	json_decref(server->client_capabilities);
	server->client_capabilities = capabilities ? json_incref(capabilities) : json_object();
	json_t *info = json_pack("{s:s, s:s}", "name", "demo-restaurant", "version", PACKAGE_VERSION);
	send_result(server, id,
		json_pack("{s:s, s:{s:{}, s:{}, s:{}}, s:o, s:s}", "protocolVersion", version, "capabilities", "tools",
			"prompts", "resources", "serverInfo", info, "instructions", "Book a table with book_table."));
}

static void on_ping(struct server *server, json_t *id, json_t *params UNUSED)
{
	send_result(server, id, json_object());
}

static void on_tools_list(struct server *server, json_t *id, json_t *params UNUSED)
{
	json_t *list = json_array();
	for (int i = 0; i < TOOLS; i++)
		if (json_array_append_new(list, json_loads(tools[i].listing, 0, NULL)) != 0)
			server->broken = true;
	send_result(server, id, json_pack("{s:o}", "tools", list));
}

static void on_tools_call(struct server *server, json_t *id, json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	json_t *arguments = json_object_get(params, "arguments");
	for (int i = 0; name && i < TOOLS; i++) {
		if (strcmp(tools[i].name, name) != 0)
			continue;
		struct call *call = calloc(1, sizeof(*call));
		if (!call) {
			server->broken = true;
			return;
		}
		call->id = json_incref(id);
		call->arguments = json_is_object(arguments) ? json_incref(arguments) : json_object();
		call->tool = &tools[i];
		TAILQ_INSERT_TAIL(&server->calls, call, entry);
		call_run(server, call);
		return;
	}
	send_error(server, id, INVALID_PARAMS, "Unknown tool");
}

static void on_prompts_list(struct server *server, json_t *id, json_t *params UNUSED)
{
	send_result(server, id,
		json_pack("{s:[{s:s, s:s}]}", "prompts", "name", "welcome", "description", "Welcomes a guest"));
}

static void on_prompts_get(struct server *server, json_t *id, json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	if (!name || strcmp(name, "welcome") != 0) {
		send_error(server, id, INVALID_PARAMS, "Unknown prompt");
		return;
	}
	json_t *content = json_pack("{s:s, s:s}", "type", "text", "text", "Welcome the guest and show the menu.");
	send_result(server, id, json_pack("{s:[{s:s, s:o}]}", "messages", "role", "user", "content", content));
}

static void on_resources_list(struct server *server, json_t *id, json_t *params UNUSED)
{
	send_result(server, id,
		json_pack("{s:[{s:s, s:s, s:s}]}", "resources", "uri", "demo://menu", "name", "menu", "mimeType",
			"text/plain"));
}

static void on_resources_templates_list(struct server *server, json_t *id, json_t *params UNUSED)
{
	send_result(server, id, json_pack("{s:[]}", "resourceTemplates"));
}

static void on_resources_read(struct server *server, json_t *id, json_t *params)
{
	const char *uri = json_string_value(json_object_get(params, "uri"));
	if (!uri || strcmp(uri, "demo://menu") != 0) {
		send_error(server, id, -32002, "Resource not found"); /* what 2025-11-25 says */
		return;
	}
	send_result(server, id,
		json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", uri, "mimeType", "text/plain", "text",
			"Soup, bread, and a glass of water."));
}

static const struct {
	const char *name;
	void (*handle)(struct server *server, json_t *id, json_t *params);
	bool before_initialize;
} methods[] = {
	{"initialize", on_initialize, true},
	{"ping", on_ping, true},
	{"tools/list", on_tools_list, false},
	{"tools/call", on_tools_call, false},
	{"prompts/list", on_prompts_list, false},
	{"prompts/get", on_prompts_get, false},
	{"resources/list", on_resources_list, false},
	{"resources/templates/list", on_resources_templates_list, false},
	{"resources/read", on_resources_read, false},
};

/* ---- messages in ----------------------------------------------------------------------------------------------- */

static void on_request(struct server *server, json_t *id, const char *method, json_t *params)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(methods[i].name, method) != 0)
			continue;
		if (server->client_capabilities || methods[i].before_initialize)
			methods[i].handle(server, id, params);
		else
			send_error(server, id, INVALID_REQUEST, "Not initialized");
		return;
	}
	send_error(server, id, METHOD_NOT_FOUND, "Method not found");
}

static void on_notification(struct server *server, const char *method, json_t *params)
{
	struct call *call;
	if (strcmp(method, "notifications/cancelled") != 0)
		return;
	TAILQ_FOREACH (call, &server->calls, entry) {
		if (json_equal(call->id, json_object_get(params, "requestId"))) {
			call_free(server, call);
			return;
		}
	}
}

/* The client answers a question. Unknown ids are ignored: their call may have been cancelled. */
static void on_response(struct server *server, json_t *id, json_t *result)
{
	struct call *call;
	TAILQ_FOREACH (call, &server->calls, entry) {
		for (int i = 0; i < call->questions; i++) {
			if (!json_is_integer(id) || call->question_ids[i] != json_integer_value(id))
				continue;
			call->question_ids[i] = -1;
			call->answers[i] = json_incref(result);
			if (++call->answered == call->questions)
				call_run(server, call);
			return;
		}
	}
}

static void on_line(struct server *server, const char *line, size_t len)
{
	json_t *message = json_loadb(line, len, 0, NULL);
	json_t *id = json_object_get(message, "id");
	json_t *params = json_object_get(message, "params");
	const char *method = json_string_value(json_object_get(message, "method"));
	if (!message)
		send_error(server, NULL, PARSE_ERROR, "Parse error");
	else if (method && id)
		on_request(server, id, method, params);
	else if (method)
		on_notification(server, method, params);
	else if (id)
		on_response(server, id, json_object_get(message, "result"));
	else
		send_error(server, NULL, INVALID_REQUEST, "Invalid request");
	json_decref(message);
}

int demo_server_run(void)
{
	struct server server = {.calls = TAILQ_HEAD_INITIALIZER(server.calls)};
	char *line = NULL;
	size_t capacity = 0;
	ssize_t len;
	while (!server.broken && (len = getline(&line, &capacity, stdin)) > 0)
		on_line(&server, line, (size_t)len);
	while (!TAILQ_EMPTY(&server.calls))
		call_free(&server, TAILQ_FIRST(&server.calls));
	json_decref(server.client_capabilities);
	free(line);
	return server.broken ? 1 : 0;
}
