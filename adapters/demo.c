#include "adapters/demo.h"

#include "adapters/demo_server.h"
#include "adapters/demo_terminal.h"
#include "proxy/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODERN "2026-07-28"

enum { ANSWER_TIMEOUT_MS = 20000, EXIT_TIMEOUT_MS = 10000, USAGE_STATUS = 2 };

struct demo {
	pid_t proxy;
	int to_proxy, from_proxy;
	int log; /* what the proxy writes to stderr */
	off_t log_shown;
	struct buf received;
	json_int_t last_id;
	struct terminal terminal;
	struct question {
		char key[64], state[4096];
	} question; /* the round that waits for an answer */
	char outcome[512];
};

/* ---- the proxy ------------------------------------------------------------------------------------------------- */

static bool spawn_proxy(struct demo *demo, int input, int output)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (len < 0)
		return false;
	self[len] = '\0';
	char *const argv[] = {self, "--log-level", "info", "--", self, "demo", "--server", NULL};
	posix_spawn_file_actions_t actions;
	if (posix_spawn_file_actions_init(&actions) != 0)
		return false;
	int fault = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	if (!fault)
		fault = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	if (!fault)
		fault = posix_spawn_file_actions_adddup2(&actions, demo->log, STDERR_FILENO);
	if (!fault)
		fault = posix_spawn(&demo->proxy, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	errno = fault;
	return fault == 0;
}

static bool start_proxy(struct demo *demo)
{
	int input[2] = {-1, -1}, output[2] = {-1, -1};
	bool started = false;
	demo->log = memfd_create("log", MFD_CLOEXEC);
	if (demo->log >= 0 && pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0)
		started = spawn_proxy(demo, input[0], output[1]);
	if (!started)
		perror("mcp-valet demo: cannot start mcp-valet");
	demo->to_proxy = input[1];
	demo->from_proxy = output[0];
	if (input[0] >= 0)
		close(input[0]);
	if (output[1] >= 0)
		close(output[1]);
	return started;
}

/* Prints the lines that the proxy has logged since the last time, if `visible`. */
static void show_log(struct demo *demo, bool visible)
{
	char bytes[4096];
	ssize_t len;
	while ((len = pread(demo->log, bytes, sizeof(bytes), demo->log_shown)) > 0) {
		demo->log_shown += len;
		if (visible)
			fwrite(bytes, 1, (size_t)len, stdout);
	}
}

/* Ends the proxy in order: its input ends, it exits with 0. */
static bool stop_proxy(struct demo *demo)
{
	int status = -1;
	pid_t proxy = demo->proxy;
	demo->proxy = 0;
	close(demo->to_proxy);
	for (int waited_ms = 0; waited_ms < EXIT_TIMEOUT_MS; waited_ms += 10) {
		if (waitpid(proxy, &status, WNOHANG) == proxy)
			return WIFEXITED(status) && WEXITSTATUS(status) == 0;
		usleep(10 * 1000);
	}
	kill(proxy, SIGKILL);
	waitpid(proxy, &status, 0);
	return false;
}

static bool write_all(int fd, const char *bytes, size_t len)
{
	while (len) {
		ssize_t written = write(fd, bytes, len);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return false;
		bytes += written;
		len -= (size_t)written;
	}
	return true;
}

static bool send_line(struct demo *demo, json_t *message)
{
	char *text = json_dumps(message, JSON_COMPACT);
	bool sent = text && write_all(demo->to_proxy, text, strlen(text)) && write_all(demo->to_proxy, "\n", 1);
	free(text);
	return sent;
}

/* The next message of the proxy; NULL if none comes in time, or if it is no JSON. */
static json_t *receive(struct demo *demo)
{
	struct buf *received = &demo->received;
	char *end;
	while (!received->len || !(end = memchr(received->data, '\n', received->len))) {
		struct pollfd ready = {.fd = demo->from_proxy, .events = POLLIN};
		char bytes[4096];
		ssize_t len;
		if (poll(&ready, 1, ANSWER_TIMEOUT_MS) <= 0 ||
			(len = read(demo->from_proxy, bytes, sizeof(bytes))) <= 0)
			return NULL;
		buf_add(received, bytes, (size_t)len);
		if (!buf_ok(received))
			return NULL;
	}
	size_t line = (size_t)(end - received->data);
	json_t *message = json_loadb(received->data, line, JSON_ALLOW_NUL, NULL);
	buf_consume(received, line + 1);
	return message;
}

/* ---- the modern client ----------------------------------------------------------------------------------------- */

/* Sends a request, taking `params`, and returns its response, which must be released. There is no handshake: every
 * request says what the client is and can do (basic/index "_meta"). Shows both if `visible`. */
static json_t *request(struct demo *demo, const char *method, json_t *params, bool visible)
{
	json_int_t id = ++demo->last_id;
	json_t *message =
		json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method", method, "params", params);
	json_t *meta = json_pack("{s:s, s:{s:s, s:s}, s:{s:{}, s:{}, s:{}}}", "io.modelcontextprotocol/protocolVersion",
		MODERN, "io.modelcontextprotocol/clientInfo", "name", "mcp-valet-demo", "version", "1",
		"io.modelcontextprotocol/clientCapabilities", "elicitation", "sampling", "roots");
	json_t *response = NULL;
	bool sent =
		json_object_set_new(json_object_get(message, "params"), "_meta", meta) == 0 && send_line(demo, message);
	if (visible)
		terminal_show(&demo->terminal, ">", message, id == 1);
	while (sent && (response = receive(demo)) != NULL &&
		json_integer_value(json_object_get(response, "id")) != id) {
		json_decref(response); /* a notification */
		response = NULL;
	}
	if (visible && response)
		terminal_show(&demo->terminal, "<", response, id == 1);
	json_decref(message);
	return response;
}

/* Calls a tool and shows both messages, taking `arguments` and `answer`. With an answer it is the retry that brings it
 * for the question that waits. Returns the response, to be released. */
static json_t *call_tool(struct demo *demo, const char *tool, json_t *arguments, json_t *answer)
{
	json_t *params = json_pack("{s:s, s:o}", "name", tool, "arguments", arguments);
	if (answer) {
		json_object_set_new(params, "inputResponses", json_pack("{s:o}", demo->question.key, answer));
		json_object_set_new(params, "requestState", json_string(demo->question.state));
	}
	return request(demo, "tools/call", params, true);
}

static json_t *restaurant(void)
{
	return json_pack("{s:s}", "restaurant", "Chez Demo");
}

static json_t *result_of(json_t *response)
{
	return json_object_get(response, "result");
}

static bool is_text(json_t *value, const char *text)
{
	return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Whether it is a complete tool result whose text begins with `start`; the text is kept as demo->outcome. */
static bool is_outcome(struct demo *demo, json_t *response, const char *start)
{
	json_t *content = json_object_get(result_of(response), "content");
	const char *text = json_string_value(json_object_get(json_array_get(content, 0), "text"));
	snprintf(demo->outcome, sizeof(demo->outcome), "%s", text ? text : "");
	return is_text(json_object_get(result_of(response), "resultType"), "complete") &&
	       strncmp(demo->outcome, start, strlen(start)) == 0;
}

/* Whether it is an InputRequiredResult with one request of this method (basic/patterns/mrtr); key and state are kept as
 * demo->question. */
static bool is_question(struct demo *demo, json_t *response, const char *method)
{
	json_t *requests = json_object_get(result_of(response), "inputRequests");
	json_t *state = json_object_get(result_of(response), "requestState");
	void *first = json_object_iter(requests);
	if (!is_text(json_object_get(result_of(response), "resultType"), "input_required") ||
		!json_string_length(state) || json_object_size(requests) != 1 ||
		!is_text(json_object_get(json_object_iter_value(first), "method"), method))
		return false;
	snprintf(demo->question.key, sizeof(demo->question.key), "%s", json_object_iter_key(first));
	snprintf(demo->question.state, sizeof(demo->question.state), "%s", json_string_value(state));
	return true;
}

/* ---- the steps ------------------------------------------------------------------------------------------------- */

static bool discover(struct demo *demo)
{
	terminal_step(&demo->terminal, "The client asks who is there: server/discover");
	terminal_explain(
		"The legacy server does not know this method. mcp-valet has shaken hands with it and answers in its "
		"place.");
	terminal_explain(
		"On this side there is no handshake: every request carries the client's version and capabilities in "
		"_meta,");
	terminal_explain("which the later steps do not show.");
	json_t *response = request(demo, "server/discover", json_object(), true);
	json_t *version = json_array_get(json_object_get(result_of(response), "supportedVersions"), 0);
	bool good = terminal_verdict(
		&demo->terminal, is_text(version, MODERN), "the legacy server looks like a server of " MODERN);
	json_decref(response);
	return good;
}

static bool list_tools(struct demo *demo)
{
	json_t *tool;
	size_t index;
	bool found = false;
	terminal_step(&demo->terminal, "The client lists the tools: tools/list");
	json_t *response = request(demo, "tools/list", json_object(), false);
	json_array_foreach(json_object_get(result_of(response), "tools"), index, tool)
	{
		const char *description = json_string_value(json_object_get(tool, "description"));
		printf("   < %-18s %s\n", json_string_value(json_object_get(tool, "name")),
			description ? description : "");
		found = found || is_text(json_object_get(tool, "name"), "book_table");
	}
	bool good = terminal_verdict(&demo->terminal,
		found && is_text(json_object_get(result_of(response), "resultType"), "complete"),
		"the legacy server's tools are there");
	json_decref(response);
	return good;
}

static bool call_a_tool_that_asks(struct demo *demo)
{
	terminal_step(
		&demo->terminal, "The client calls a tool that has a question for the user: tools/call book_table");
	terminal_explain(
		"The legacy server sends elicitation/create in the middle of the call. mcp-valet parks the call and "
		"answers");
	terminal_explain("the client's request with the question. Nothing stays open between client and mcp-valet.");
	json_t *response = call_tool(demo, "book_table", restaurant(), NULL);
	bool good = terminal_verdict(&demo->terminal, is_question(demo, response, "elicitation/create"),
		"an InputRequiredResult: the form, and a sealed requestState");
	json_decref(response);
	return good;
}

static bool fill_in_the_form(struct demo *demo)
{
	terminal_step(
		&demo->terminal, "The user fills in the form; the client retries with inputResponses and requestState");
	terminal_explain(
		"The state is a sealed claim ticket: by it mcp-valet finds the parked call and answers the server's "
		"question.");
	terminal_explain(
		"This server then asks for something else, a sentence that the client's model writes: the next round.");
	json_t *answer = json_pack("{s:s, s:{s:i, s:s}}", "action", "accept", "content", "people", 4, "time", "19:30");
	json_t *response = call_tool(demo, "book_table", restaurant(), answer);
	bool good = terminal_verdict(&demo->terminal, is_question(demo, response, "sampling/createMessage"),
		"the same call asks a second time, under a new state");
	json_decref(response);
	return good;
}

static json_t *sentence(void)
{
	return json_pack("{s:s, s:s, s:{s:s, s:s}}", "role", "assistant", "model", "demo-model", "content", "type",
		"text", "text", "We look forward to your visit!");
}

static bool give_the_sentence(struct demo *demo)
{
	terminal_step(&demo->terminal, "The model writes the sentence; the client retries again");
	json_t *response = call_tool(demo, "book_table", restaurant(), sentence());
	bool good = terminal_verdict(&demo->terminal,
		is_outcome(demo, response, "Booked: Chez Demo, 4 people at 19:30. We look forward to your visit!"),
		"the final result of the legacy call, made of both answers");
	json_decref(response);
	return good;
}

static bool repeat_the_retry(struct demo *demo)
{
	char before[sizeof(demo->outcome)];
	memcpy(before, demo->outcome, sizeof(before));
	terminal_step(&demo->terminal, "The same retry once more, as if the network had lost the response");
	json_t *response = call_tool(demo, "book_table", restaurant(), sentence());
	bool good = terminal_verdict(
		&demo->terminal, is_outcome(demo, response, before), "the same outcome; the table was booked once");
	json_decref(response);
	return good;
}

static bool call_a_dangerous_tool(struct demo *demo)
{
	terminal_step(&demo->terminal, "The client calls a dangerous tool: tools/call delete_everything");
	json_t *response = call_tool(demo, "delete_everything", json_object(), NULL);
	bool good = terminal_verdict(&demo->terminal, is_question(demo, response, "elicitation/create"),
		"the server wants a confirmation first");
	json_decref(response);
	return good;
}

static bool tamper_with_the_state(struct demo *demo)
{
	char *changed = &demo->question.state[strlen(demo->question.state) / 2];
	char original = *changed;
	terminal_step(&demo->terminal, "Somebody says yes with a state in which one character was changed");
	show_log(demo, false);
	*changed = original == 'A' ? 'B' : 'A';
	json_t *answer = json_pack("{s:s, s:{s:b}}", "action", "accept", "content", "confirm", 1);
	json_t *response = call_tool(demo, "delete_everything", json_object(), answer);
	*changed = original;
	json_t *error = json_object_get(response, "error");
	bool good = terminal_verdict(&demo->terminal,
		json_integer_value(json_object_get(error, "code")) == -32602 &&
			is_text(json_object_get(json_object_get(error, "data"), "reason"), "unverifiable"),
		"refused; the client learns the class of the fault, the log the exact one:");
	show_log(demo, true);
	json_decref(response);
	return good;
}

static bool decline_with_the_true_state(struct demo *demo)
{
	terminal_step(&demo->terminal, "The user says no, with the true state");
	json_t *response = call_tool(demo, "delete_everything", json_object(), json_pack("{s:s}", "action", "decline"));
	bool good = terminal_verdict(&demo->terminal, is_outcome(demo, response, "Nothing was deleted."),
		"the parked call was untouched by the forgery, and ends as the user wished");
	json_decref(response);
	return good;
}

static bool end_in_order(struct demo *demo)
{
	terminal_step(&demo->terminal, "The client goes: end of input");
	return terminal_verdict(
		&demo->terminal, stop_proxy(demo), "mcp-valet has stopped the legacy server and exited with status 0");
}

static bool (*const steps[])(struct demo *demo) = {
	discover,
	list_tools,
	call_a_tool_that_asks,
	fill_in_the_form,
	give_the_sentence,
	repeat_the_retry,
	call_a_dangerous_tool,
	tamper_with_the_state,
	decline_with_the_true_state,
	end_in_order,
};

static int demo_run(void)
{
	struct demo demo = {.to_proxy = -1, .from_proxy = -1, .log = -1};
	terminal_init(&demo.terminal);
	bool good = start_proxy(&demo);
	signal(SIGPIPE, SIG_IGN);
	printf("A modern client (" MODERN ") uses a legacy server (2025-11-25) through mcp-valet:\n\n"
	       "   mcp-valet demo  --stdio-->  mcp-valet  --stdio-->  mcp-valet demo --server\n"
	       "   (the client)                                       (the legacy server)\n");
	for (size_t i = 0; good && i < sizeof(steps) / sizeof(steps[0]); i++)
		good = steps[i](&demo);
	if (!good && demo.proxy > 0) {
		stop_proxy(&demo);
		demo.log_shown = 0;
		printf("\nThe log of mcp-valet:\n");
		show_log(&demo, true);
	}
	printf("\n%s\n", good ? "Every step went as it should." : "The demonstration FAILED.");
	if (demo.from_proxy >= 0)
		close(demo.from_proxy);
	if (demo.log >= 0)
		close(demo.log);
	buf_free(&demo.received);
	return good && fflush(stdout) == 0 ? 0 : 1;
}

int demo_main(int argc, char **argv)
{
	static const char usage[] =
		"usage: mcp-valet demo            show how a legacy server's questions reach a modern client\n"
		"       mcp-valet demo --server   be the legacy server of the demonstration, on stdio\n";
	if (argc == 1)
		return demo_run();
	if (argc == 2 && strcmp(argv[1], "--server") == 0)
		return demo_server_run();
	bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
	fputs(usage, help ? stdout : stderr);
	return help ? 0 : USAGE_STATUS;
}
