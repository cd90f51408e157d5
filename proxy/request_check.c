#include "proxy/request_check.h"

#include "proxy/client_task.h"
#include "proxy/logging.h"
#include "proxy/mirror.h"

#include <stdarg.h>
#include <stdio.h>

static const char supported_versions[] = "{\"supported\":[\"2026-07-28\"]}";

static bool refuse(struct refusal *refusal, int http_status, int code, const char *format, ...) PRINTF_LIKE(4, 5);

static bool refuse(struct refusal *refusal, int http_status, int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(refusal->text, sizeof(refusal->text), format, args);
	va_end(args);
	refusal->http_status = http_status;
	refusal->code = code;
	return false;
}

/* A member that must occur at most once; which of two counts would be a guess. */
struct field {
	const char *key;
	struct span *value;
};

/* Takes all fields in one walk: a message has a dozen, and each is looked for in every request. */
static bool take(struct refusal *refusal, struct span object, const struct json_index *index,
	const struct field *fields, size_t count)
{
	struct json_walk walk = {0};
	struct json_member member;
	for (size_t i = 0; i < count; i++)
		*fields[i].value = (struct span){0};
	if (json_type(object) == JSON_OBJECT)
		walk = json_walk(object, index);
	while (json_next_member(&walk, &member))
		for (size_t i = 0; i < count; i++) {
			if (!json_key_is(member.key, fields[i].key))
				continue;
			if (fields[i].value->ptr)
				return refuse(refusal, 400, RPC_INVALID_PARAMS, "%s occurs twice", fields[i].key);
			*fields[i].value = member.value;
			break;
		}
	return true;
}

static bool check_meta(struct refusal *refusal, struct request *request, struct span *version)
{
	struct span meta, level;
	const struct field outer = {"_meta", &meta};
	const struct field fields[] = {
		{"io.modelcontextprotocol/protocolVersion", version},
		{"io.modelcontextprotocol/clientCapabilities", &request->capabilities},
		{"io.modelcontextprotocol/clientInfo", &request->client_info},
		{"progressToken", &request->progress_token},
		{"traceparent", &request->trace_parent},
		{"io.modelcontextprotocol/logLevel", &level},
	};
	if (!take(refusal, request->params, request->index, &outer, 1))
		return false;
	if (!meta.ptr || json_type(meta) != JSON_OBJECT)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "params._meta is missing");
	if (!take(refusal, meta, NULL, fields, sizeof(fields) / sizeof(fields[0])))
		return false;
	if (!version->ptr || json_type(*version) != JSON_STRING)
		return refuse(refusal, 400, RPC_INVALID_PARAMS,
			"params._meta[\"io.modelcontextprotocol/protocolVersion\"] is missing");
	if (!request->capabilities.ptr)
		return refuse(refusal, 400, RPC_INVALID_PARAMS,
			"params._meta[\"io.modelcontextprotocol/clientCapabilities\"] is missing");
	request->log_level = LOGGING_NONE;
	if (level.ptr && !logging_read_level(level, &request->log_level))
		return refuse(refusal, 400, RPC_INVALID_PARAMS,
			"params._meta[\"io.modelcontextprotocol/logLevel\"] is no log level");
	if (request->client_info.ptr && json_type(request->client_info) != JSON_OBJECT)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "clientInfo is not an object");
	if (request->progress_token.ptr && json_type(request->progress_token) != JSON_STRING &&
		json_type(request->progress_token) != JSON_NUMBER)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "progressToken is neither a string nor a number");
	return true;
}

static bool check_header(struct refusal *refusal, const char *name, struct span header, struct span body)
{
	if (!header.ptr)
		return refuse(refusal, 400, RPC_HEADER_MISMATCH, "Header mismatch: the %s header is missing", name);
	if (!mirror_says(header, body))
		return refuse(refusal, 400, RPC_HEADER_MISMATCH,
			"Header mismatch: the %s header does not match the body", name);
	return true;
}

bool request_check_method(struct refusal *refusal, struct span method, const struct request_headers *headers)
{
	return check_header(refusal, "Mcp-Method", headers->method, method);
}

static bool check_version(struct refusal *refusal, struct span version, const struct request_headers *headers)
{
	if (headers && !check_header(refusal, "MCP-Protocol-Version", headers->protocol_version, version))
		return false;
	if (json_string_is(version, "2026-07-28"))
		return true;
	buf_add_text(&refusal->data, "{\"supported\":[\"2026-07-28\"],\"requested\":");
	buf_add_span(&refusal->data, version);
	buf_add_text(&refusal->data, "}");
	return refuse(refusal, 400, RPC_UNSUPPORTED_VERSION, "Unsupported protocol version");
}

static bool check_name(struct refusal *refusal, struct request *request, const struct request_headers *headers)
{
	const char *member = request->method->name_member;
	if (!member)
		return true;
	const struct field name = {member, &request->name};
	if (!take(refusal, request->params, request->index, &name, 1))
		return false;
	if (!request->name.ptr || json_type(request->name) != JSON_STRING)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "params.%s is not a string", member);
	if (json_count(request->params, request->index, member) > 1)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "params.%s occurs again in another spelling", member);
	return !headers || check_header(refusal, "Mcp-Name", headers->name, request->name);
}

static bool check_retry(struct refusal *refusal, struct request *request)
{
	const struct field fields[] = {
		{"requestState", &request->request_state},
		{"inputResponses", &request->input_responses},
	};
	if (!take(refusal, request->params, request->index, fields, sizeof(fields) / sizeof(fields[0])))
		return false;
	if (request->request_state.ptr && json_type(request->request_state) != JSON_STRING)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "params.requestState is not a string");
	if (request->input_responses.ptr && json_type(request->input_responses) != JSON_OBJECT)
		return refuse(refusal, 400, RPC_INVALID_PARAMS, "params.inputResponses is not an object");
	return true;
}

/* In the order in which a client needs to hear of the faults. */
bool request_check(struct refusal *refusal, struct request *request, const struct proxy *proxy,
	const struct message *message, const struct request_headers *headers)
{
	struct span version = {0};
	/* A client of an earlier revision opens with this; the versions help it to understand. */
	if (json_string_is(message->method, "initialize"))
		buf_add_text(&refusal->data, supported_versions);
	if (headers && !headers->protocol_version.ptr)
		return refuse(refusal, 400, RPC_HEADER_MISMATCH,
			"Header mismatch: the MCP-Protocol-Version header is missing");
	if (!check_meta(refusal, request, &version))
		return false;
	buf_free(&refusal->data);
	if (!check_version(refusal, version, headers) ||
		(headers && !request_check_method(refusal, message->method, headers)))
		return false;
	request->method = method_find(message->method);
	if (!request->method || (request->method->of_tasks && !client_tasks_offered(proxy))) {
		if (json_string_is(message->method, "initialize"))
			buf_add_text(&refusal->data, supported_versions);
		return refuse(refusal, 404, RPC_METHOD_NOT_FOUND, "Method not found");
	}
	if (!check_name(refusal, request, headers))
		return false;
	bool brings_answers = request->method->may_ask || request->method->id == METHOD_TASKS_UPDATE;
	return !brings_answers || check_retry(refusal, request);
}

bool request_check_mirrors(
	struct refusal *refusal, const struct message *message, const struct request_headers *headers)
{
	const struct method *method = method_find(message->method);
	struct span meta = {0}, value = {0};
	if (!headers)
		return true;
	json_get(message->params, &message->index, "_meta", &meta);
	if (json_get(meta, NULL, "io.modelcontextprotocol/protocolVersion", &value) &&
		!check_header(refusal, "MCP-Protocol-Version", headers->protocol_version, value))
		return false;
	if (!request_check_method(refusal, message->method, headers))
		return false;
	/* A modern server may be content with tasks that are not named in the header. */
	if (!method || !method->name_member || (method->of_tasks && !headers->name.ptr))
		return true;
	return !json_get(message->params, &message->index, method->name_member, &value) ||
	       check_header(refusal, "Mcp-Name", headers->name, value);
}
