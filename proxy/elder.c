#include "proxy/elder.h"

#include "proxy/json_write.h"
#include "proxy/list.h"
#include "proxy/session.h"

#include <stdio.h>
#include <stdlib.h>

#define META "io.modelcontextprotocol/"

struct elder *elder_new(void)
{
	struct elder *elder = calloc(1, sizeof(*elder));
	if (elder)
		TAILQ_INIT(&elder->uris);
	return elder;
}

void elder_free(struct elder *elder)
{
	if (!elder)
		return;
	elder_forget_uris(elder, 0);
	buf_free(&elder->capabilities);
	free(elder->info);
	free(elder->level);
	free(elder);
}

/* Responses to the client; the stream is over then, and perhaps gone. */

static void respond(struct relay_stream *stream, struct buf *body)
{
	struct buf response = message_response(span_of(stream->id), message_body(body));
	buf_free(body);
	relay_respond(stream, &response);
}

void elder_fail(struct relay_stream *stream, int code, const char *text)
{
	struct buf body = {0};
	message_add_error(&body, code, text, NULL);
	respond(stream, &body);
}

void elder_succeed(struct relay_stream *stream)
{
	struct buf body = {0};
	buf_add_text(&body, "\"result\":{}");
	respond(stream, &body);
}

/* Requests to the server. */

/* Appends the members of an object but for those named. */
void elder_add_members_but(
	struct buf *out, struct span object, const struct json_index *index, const char *const *dropped)
{
	struct json_member member;
	struct json_walk walk = json_walk(object, index);
	while (json_next_member(&walk, &member)) {
		const char *const *name = dropped;
		while (*name && !json_key_is(member.key, *name))
			name++;
		if (!*name)
			json_add_member(out, &member);
	}
}

static void add_meta(struct buf *out, const struct elder *elder, struct span meta)
{
	static const char *const ours[] = {META "protocolVersion", META "clientInfo", META "clientCapabilities",
		META "logLevel", META "subscriptionId", NULL};
	json_add_key(out, "_meta");
	buf_add_text(out, "{");
	elder_add_members_but(out, meta, NULL, ours);
	json_add_key(out, META "protocolVersion");
	buf_add_text(out, "\"2026-07-28\"");
	json_add_key(out, META "clientCapabilities");
	buf_add_span(out, buf_span(&elder->capabilities));
	if (elder->info) {
		json_add_key(out, META "clientInfo");
		buf_add_text(out, elder->info);
	}
	if (elder->level) {
		json_add_key(out, META "logLevel");
		buf_add_text(out, elder->level);
	}
	buf_add_text(out, "}");
}

bool elder_send(struct relay *relay, uint64_t id, const char *method, struct span params,
	const struct json_index *index, const struct elder_call *call)
{
	static const char *const ours[] = {"_meta", "inputResponses", "requestState", NULL};
	struct session *session = relay->session;
	struct buf request = {0};
	struct span meta = {0};
	json_get(params, index, "_meta", &meta);
	buf_reserve(&request, params.len + 512);
	buf_printf(&request, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":{", (unsigned long long)id,
		method);
	elder_add_members_but(&request, params, index, ours);
	if (call)
		elder_add_answers(&request, call);
	add_meta(&request, relay->elder, meta);
	buf_add_text(&request, "}}");
	if (strcmp(method, method_name(METHOD_TOOLS_CALL)) == 0)
		tool_mirrors_write(session, params, &session->mirrored);
	request.failed |= session->mirrored.failed;
	bool sent = session_send(session, UPSTREAM_REQUEST, id, &request) == 0;
	buf_wipe(&session->mirrored);
	return sent;
}

bool elder_send_request(
	struct relay_stream *stream, const char *method, struct span params, const struct json_index *index)
{
	if (elder_send(stream->relay, stream->request, method, params, index, stream->call))
		return true;
	elder_fail(stream, RPC_INTERNAL_ERROR, "The server does not read what it is sent");
	return false;
}

/* What the client asks of its session. */

/* The extension for tasks is not defined before 2026-07-28 (SEP-2663): such a client could do nothing with one. */
static void add_extensions(struct buf *out, const struct json_member *extensions)
{
	struct json_member member;
	struct json_walk walk = json_walk(extensions->value, NULL);
	json_add_key(out, "extensions");
	buf_add_text(out, "{");
	while (json_next_member(&walk, &member))
		if (!json_key_is(member.key, "io.modelcontextprotocol/tasks"))
			json_add_member(out, &member);
	buf_add_text(out, "}");
}

/* Writes the client's capabilities as 2026-07-28 knows them. */
static void add_capabilities(struct buf *out, struct span capabilities)
{
	struct json_member member;
	struct json_walk walk = json_walk(capabilities, NULL);
	buf_add_text(out, "{");
	while (json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "tasks"))
			continue;
		if (json_key_is(member.key, "roots"))
			member.value = SPAN("{}");
		if (json_key_is(member.key, "extensions") && json_type(member.value) == JSON_OBJECT)
			add_extensions(out, &member);
		else
			json_add_member(out, &member);
	}
	buf_add_text(out, "}");
}

static enum legacy_version choose_version(struct span wanted)
{
	for (int i = 0; i < LEGACY_VERSIONS; i++)
		if (json_string_is(wanted, legacy_version_names[i]))
			return (enum legacy_version)i;
	return LEGACY_VERSIONS - 1;
}

static void on_initialize(struct relay_stream *stream, const struct message *message)
{
	struct elder *elder = stream->relay->elder;
	struct span params = message->params, version = {0}, capabilities = {0}, info = {0};
	struct error error = {0};
	if (stream->relay->initialize != stream->number) {
		elder_fail(stream, RPC_INVALID_REQUEST, "The session is initialized already");
		return;
	}
	if (!json_get(params, &message->index, "protocolVersion", &version) || json_type(version) != JSON_STRING ||
		!json_get(params, &message->index, "capabilities", &capabilities) ||
		capabilities_read(&elder->caps, capabilities, &error)) {
		elder_fail(stream, RPC_INVALID_PARAMS,
			error.code ? error.text : "protocolVersion or capabilities are missing");
		return;
	}
	elder->version = choose_version(version);
	buf_free(&elder->capabilities);
	add_capabilities(&elder->capabilities, capabilities);
	free(elder->info);
	elder->info = NULL;
	if (json_get(params, &message->index, "clientInfo", &info) && json_type(info) == JSON_OBJECT)
		elder->info = span_dup(info);
	if (!buf_ok(&elder->capabilities) || (info.ptr && !elder->info))
		elder_fail(stream, RPC_INTERNAL_ERROR, "Out of memory");
	else
		elder_send_request(stream, method_name(METHOD_DISCOVER), (struct span){0}, NULL);
}

static void on_discovered(struct relay_stream *stream, const struct message *message)
{
	struct relay *relay = stream->relay;
	struct session *session = relay->session;
	struct span capabilities, meta = {0}, info = SPAN("{\"name\":\"unknown\",\"version\":\"unknown\"}"), value;
	struct buf body = {0};
	if (!json_get(message->result, &message->index, "capabilities", &capabilities) ||
		json_type(capabilities) != JSON_OBJECT) {
		elder_fail(stream, RPC_INTERNAL_ERROR, "The server does not say what it can do");
		return;
	}
	const char *version = legacy_version_names[relay->elder->version];
	/* A command that got so far has not failed to start. */
	if (!session->proxy->upstream->has_streams)
		session->proxy->upstream->establish(session->upstream, "2026-07-28");
	relay_on_opened(relay, version);
	elder_read_lists(relay->elder, capabilities);
	json_get(message->result, &message->index, "_meta", &meta);
	if (json_get(meta, NULL, META "serverInfo", &value) && json_type(value) == JSON_OBJECT)
		info = value;
	buf_printf(&body, "\"result\":{\"protocolVersion\":\"%s\",\"capabilities\":", version);
	buf_add_span(&body, capabilities);
	json_add_key(&body, "serverInfo");
	buf_add_span(&body, info);
	if (json_get(message->result, &message->index, "instructions", &value)) {
		json_add_key(&body, "instructions");
		buf_add_span(&body, value);
	}
	buf_add_text(&body, "}");
	respond(stream, &body);
}

static void set_level(struct relay_stream *stream, const struct message *message)
{
	struct elder *elder = stream->relay->elder;
	struct span level;
	int number;
	if (!json_get(message->params, &message->index, "level", &level) || !logging_read_level(level, &number)) {
		elder_fail(stream, RPC_INVALID_PARAMS, "params.level is no log level");
		return;
	}
	free(elder->level);
	elder->level = span_dup(level);
	if (elder->level)
		elder_succeed(stream);
	else
		elder_fail(stream, RPC_INTERNAL_ERROR, "Out of memory");
}

void elder_on_request(struct relay_stream *stream, const struct message *message)
{
	const struct method *method = stream->method;
	struct error error;
	if (json_string_is(message->method, "initialize")) {
		on_initialize(stream, message);
	} else if (json_string_is(message->method, "ping")) {
		elder_succeed(stream);
	} else if (stream->relay->session->state != SESSION_READY) {
		elder_fail(stream, RPC_INVALID_REQUEST, "The session is not initialized yet");
	} else if (json_string_is(message->method, "logging/setLevel")) {
		set_level(stream, message);
	} else if (json_string_is(message->method, "resources/subscribe")) {
		elder_subscribe(stream, message, true);
	} else if (json_string_is(message->method, "resources/unsubscribe")) {
		elder_subscribe(stream, message, false);
	} else if (!method || method->id == METHOD_DISCOVER || method->id == METHOD_LISTEN || method->of_tasks) {
		elder_fail(stream, RPC_METHOD_NOT_FOUND, "Method not found");
	} else if (method->may_ask && !(stream->call = elder_call_new(stream, message, &error))) {
		elder_fail(stream, RPC_INTERNAL_ERROR, error.text);
	} else {
		elder_send_request(stream, method->name, message->params, &message->index);
	}
}

/* From the server. */

/* The result without what tells a modern client how to take it, and without hidden entries. */
static void add_result(struct buf *out, const struct relay_stream *stream, const struct message *message)
{
	static const char *const modern[] = {"resultType", "ttlMs", "cacheScope", NULL};
	const struct policy *policy = stream->relay->session->proxy->policy;
	struct buf result = {0};
	buf_reserve(&result, message->result.len);
	buf_add_text(&result, "{");
	elder_add_members_but(&result, message->result, &message->index, modern);
	buf_add_text(&result, "}");
	buf_add_text(out, "\"result\":");
	list_add_visible(out, stream->method, buf_span(&result), NULL, policy);
	out->failed |= !buf_ok(&result);
	buf_free(&result);
}

static void on_response(struct relay *relay, const struct message *message)
{
	struct session *session = relay->session;
	int64_t id;
	if (!message->id.ptr || !json_integer(message->id, &id) || id <= 0)
		id = 0;
	if (id && elder_on_listen_over(relay, (uint64_t)id))
		return;
	struct relay_stream *stream = id ? relay_stream_of_request(relay, (uint64_t)id) : NULL;
	struct span type = {0};
	struct buf body = {0};
	if (!stream || stream->answered || stream->cancelled || elder_is_parked(stream)) {
		session_log(session, LOG_DEBUG, "late-answer", "the server answered a request that is over");
		return;
	}
	if (message->error.ptr) {
		buf_add_text(&body, "\"error\":");
		buf_add_span(&body, message->error);
		respond(stream, &body);
		return;
	}
	unsigned types = json_get(message->result, &message->index, "resultType", &type);
	bool is_complete = !type.ptr || json_string_is(type, "complete");
	if (json_type(message->result) != JSON_OBJECT) {
		elder_fail(stream, RPC_INTERNAL_ERROR, "The server's result is not an object");
	} else if (types > 1) {
		elder_fail(stream, RPC_INTERNAL_ERROR, "The server's result is of two types");
	} else if (is_complete && stream->number == relay->initialize) {
		on_discovered(stream, message);
	} else if (is_complete) {
		if (stream->method && stream->method->id == METHOD_TOOLS_LIST && session->proxy->upstream->has_streams)
			tool_mirrors_learn(session, message->result, false);
		add_result(&body, stream, message);
		respond(stream, &body);
	} else if (stream->call && json_string_is(type, "input_required")) {
		elder_on_input_required(stream->call, message);
	} else {
		elder_fail(stream, RPC_INTERNAL_ERROR, "The server's result is of an unknown type");
	}
}

/* A client that has not said what it wants leaves that to the server (2025-11-25 server/utilities/logging). */
static bool is_wanted(const struct elder *elder, const struct message *message)
{
	int level = LOGGING_DEBUG;
	return !elder->level ||
	       (logging_read_level(span_of(elder->level), &level) && logging_is_wanted(message, level));
}

void elder_on_message(struct relay *relay, const struct message *message, struct span whole, uint64_t request)
{
	if (message->kind == MESSAGE_RESPONSE)
		on_response(relay, message);
	else if (message->kind == MESSAGE_REQUEST)
		session_warn(relay->session, "bad-message",
			"a request from a server of a revision that knows none (upstream.era)");
	else if (json_string_is(message->method, "notifications/subscriptions/acknowledged"))
		elder_on_acknowledged(relay, message);
	else if ((json_string_is(message->method, "notifications/message") && is_wanted(relay->elder, message)) ||
		 (json_string_is(message->method, "notifications/progress") && elder_is_progress(relay, message)) ||
		 elder_is_subscribed(relay, message))
		relay_pass(relay, message, whole, request);
	else
		session_log(relay->session, LOG_DEBUG, "notification-dropped", "%.*s", (int)message->method.len,
			message->method.ptr);
}
