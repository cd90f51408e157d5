#include "proxy/tool_mirrors.h"

#include "proxy/mirror.h"
#include "proxy/session.h"

#include <stdlib.h>
#include <string.h>

enum {
	MAX_TOOLS = 1000, /* of one session that ask for headers */
	MAX_PAGES = 100,  /* of one list: a server may give cursors without end */
};

static void clear(struct tool_mirrors *mirrors)
{
	for (size_t i = 0; i < mirrors->count; i++) {
		free(mirrors->tools[i].name);
		buf_free(&mirrors->tools[i].rules);
	}
	mirrors->count = 0;
}

void tool_mirrors_free(struct tool_mirrors *mirrors)
{
	clear(mirrors);
	free(mirrors->tools);
	*mirrors = (struct tool_mirrors){0};
}

bool tool_mirrors_apply(const struct exchange *exchange, const struct request *request)
{
	return request->method->id == METHOD_TOOLS_CALL &&
	       exchange->proxy->policy->mcp_headers == POLICY_HEADERS_VALIDATE && exchange->client->ops->headers_of;
}

static struct tool_mirror *find(const struct tool_mirrors *mirrors, struct span name)
{
	for (size_t i = 0; i < mirrors->count; i++)
		if (json_string_is(name, mirrors->tools[i].name))
			return &mirrors->tools[i];
	return NULL;
}

/* Checks the headers of the client's open request against its params. */
static bool check(const struct session *session, const struct client *client, struct span params, struct error *error)
{
	struct span name, arguments = {0};
	struct buf lines = {0};
	json_get(params, NULL, "name", &name);
	const struct tool_mirror *tool = find(&session->mirrors, name);
	if (!tool)
		return true;
	if (json_get(params, NULL, "arguments", &arguments) > 1) {
		error_set(error, ERROR_SYNTAX, "Header mismatch: params.arguments occurs twice");
		return false;
	}
	client->ops->headers_of(client, "mcp-param-", &lines);
	bool good = buf_ok(&lines) && mirror_check(buf_span(&tool->rules), arguments, buf_span(&lines), error);
	if (lines.failed)
		error_set(error, ERROR_MEMORY, "Out of memory");
	buf_free(&lines);
	return good;
}

bool tool_mirrors_check_retry(const struct exchange *exchange, const struct request *request, struct error *error)
{
	const struct session *session;
	if (!tool_mirrors_apply(exchange, request))
		return true;
	TAILQ_FOREACH (session, &exchange->proxy->sessions, link)
		if (session->mirrors.known &&
			sodium_memcmp(session->principal, exchange->client->principal, PRINCIPAL_BYTES) == 0)
			return check(session, exchange->client, request->params, error);
	return true;
}

void tool_mirrors_write(const struct session *session, struct span params, struct buf *lines)
{
	struct span name, arguments = {0};
	const struct tool_mirror *tool = json_get(params, NULL, "name", &name) ? find(&session->mirrors, name) : NULL;
	if (tool && json_get(params, NULL, "arguments", &arguments) == 1)
		mirror_write(buf_span(&tool->rules), arguments, lines);
}

/* Learning. */

static void forget(struct tool_mirrors *mirrors, struct span name)
{
	struct tool_mirror *tool = find(mirrors, name);
	if (!tool)
		return;
	free(tool->name);
	buf_free(&tool->rules);
	*tool = mirrors->tools[--mirrors->count];
}

/* Takes what was read. false if there is no room for it. */
static bool add(struct tool_mirrors *mirrors, struct span name, struct buf *rules)
{
	struct tool_mirror *tools = NULL;
	char *copy = json_string_dup(name);
	if (copy && mirrors->count < MAX_TOOLS)
		tools = reallocarray(mirrors->tools, mirrors->count + 1, sizeof(*tools));
	if (!tools) {
		free(copy);
		return false;
	}
	mirrors->tools = tools;
	tools[mirrors->count++] = (struct tool_mirror){.name = copy, .rules = buf_take(rules)};
	return true;
}

static void learn_tool(struct session *session, struct span tool)
{
	struct span name, schema;
	struct buf rules = {0};
	if (!json_get(tool, NULL, "name", &name) || json_type(name) != JSON_STRING)
		return;
	forget(&session->mirrors, name);
	if (!json_get(tool, NULL, "inputSchema", &schema))
		return;
	int len = (int)(name.len < 200 ? name.len : 200);
	bool usable = mirror_read(schema, &rules);
	if (rules.failed || (usable && rules.len > 2 && !add(&session->mirrors, name, &rules)))
		session_warn(session, "headers-unchecked", "there is no room to learn what headers the tool %.*s has",
			len, name.ptr);
	else if (!usable)
		session_warn(session, "headers-unusable",
			"x-mcp-header of the tool %.*s breaks the rules and is not used", len, name.ptr);
	buf_free(&rules);
}

static void learn(struct session *session, struct span result)
{
	struct span list, tool;
	if (!json_get(result, NULL, "tools", &list) || json_type(list) != JSON_ARRAY)
		return;
	struct json_walk walk = json_walk(list, NULL);
	while (json_next_element(&walk, &tool))
		learn_tool(session, tool);
}

void tool_mirrors_learn(struct session *session, struct span result, bool from_start)
{
	struct span cursor;
	bool needed = session->modern || session->proxy->policy->mcp_headers == POLICY_HEADERS_VALIDATE;
	if (!needed || json_type(result) != JSON_OBJECT)
		return;
	bool whole = from_start && !json_get(result, NULL, "nextCursor", &cursor);
	if (whole)
		clear(&session->mirrors);
	learn(session, result);
	session->mirrors.known |= whole;
}

/* Asking. */

/* Asks for a page. `cursor` is as spelled, or has a NULL ptr. */
static void ask(struct session *session, struct span cursor)
{
	struct tool_mirrors *mirrors = &session->mirrors;
	struct proxy *proxy = session->proxy;
	struct buf message = {0};
	uint64_t id = session->next_id++;
	if (mirrors->list_id)
		proxy->upstream->forget(session->upstream, mirrors->list_id);
	mirrors->list_id = 0;
	buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"tools/list\",\"params\":{",
		(unsigned long long)id);
	if (cursor.ptr) {
		buf_add_text(&message, "\"cursor\":");
		buf_add_span(&message, cursor);
	}
	buf_add_text(&message, "}}");
	mirrors->listed_ms = proxy_now(proxy);
	mirrors->list_id = id; /* an answer may come at once */
	if (session_send(session, UPSTREAM_REQUEST, id, &message))
		mirrors->list_id = 0; /* asked again when anything moves; the calls have their deadline */
}

bool tool_mirrors_known(struct session *session)
{
	struct tool_mirrors *mirrors = &session->mirrors;
	int64_t patience_ms = session->proxy->policy->deadlines.request_ms;
	if (!mirrors->known && (!mirrors->list_id || proxy_now(session->proxy) - mirrors->listed_ms > patience_ms)) {
		mirrors->pages = 0;
		ask(session, (struct span){0});
	}
	return mirrors->known;
}

bool tool_mirrors_admit(struct call *call)
{
	struct span params = {0};
	struct error error = {0};
	const struct exchange *exchange = TAILQ_FIRST(&call->waiters);
	json_get(buf_span(&call->request), NULL, "params", &params);
	if (!exchange || check(call->session, exchange->client, params, &error)) {
		call->mirrored = false;
		return true;
	}
	call_fail(call, CALL_END_REFUSED, "header_mismatch", RPC_HEADER_MISMATCH, error.text, NULL);
	return false;
}

void tool_mirrors_on_answer(struct session *session, const struct message *message)
{
	struct tool_mirrors *mirrors = &session->mirrors;
	struct span cursor, code;
	int64_t number;
	mirrors->list_id = 0;
	if (message->error.ptr) {
		/* Tools that nobody can list ask nobody for headers. */
		if (json_get(message->error, NULL, "code", &code) && json_integer(code, &number) &&
			number == RPC_METHOD_NOT_FOUND) {
			mirrors->known = true;
			session_pump(session);
			return;
		}
		tool_mirrors_on_failed(session, "the server answered with an error");
		return;
	}
	if (mirrors->pages++ == 0)
		clear(mirrors);
	learn(session, message->result);
	bool more = json_get(message->result, NULL, "nextCursor", &cursor) && json_type(cursor) == JSON_STRING;
	if (more && mirrors->pages < MAX_PAGES) {
		ask(session, cursor);
		return;
	}
	if (more)
		session_log(session, LOG_WARNING, "headers-unchecked", "the list of tools has more than %d pages",
			MAX_PAGES);
	mirrors->known = true;
	session_pump(session);
}

void tool_mirrors_on_failed(struct session *session, const char *why)
{
	struct call *call = TAILQ_FIRST(&session->waiting);
	bool pumping = session->pumping;
	session->mirrors.list_id = 0;
	session_log(session, LOG_WARNING, "tools-unknown", "the tools could not be listed: %s", why);
	session->pumping = true; /* nothing else moves while the list is walked */
	while (call) {
		struct call *next = TAILQ_NEXT(call, link);
		if (call->mirrored)
			call_fail(call, CALL_END_REFUSED, "unavailable", RPC_INTERNAL_ERROR,
				"The server's tools could not be listed to check the headers; nothing was sent", NULL);
		call = next;
	}
	session->pumping = pumping;
	session_pump(session);
}

void tool_mirrors_on_change(struct session *session)
{
	session->mirrors.known = false;
	if (session->mirrors.list_id)
		session->proxy->upstream->forget(session->upstream, session->mirrors.list_id);
	session->mirrors.list_id = 0; /* what is on its way may be older */
	session_pump(session);
}
