#include "proxy/result.h"

#include "proxy/json_write.h"
#include "proxy/list.h"

#include <stdlib.h>
#include <string.h>

/* Takes a member as a terminated copy of its JSON text. */
static int take_member(
	struct span object, const char *key, enum json_type type, bool required, char **out, struct error *error)
{
	struct span value;
	if (!json_get(object, NULL, key, &value))
		return required ? error_set(error, ERROR_SYNTAX, "the initialize result has no %s", key) : 0;
	if (json_type(value) != type)
		return required ? error_set(error, ERROR_SYNTAX, "%s in the initialize result has a wrong type", key)
				: 0;
	*out = span_dup(value);
	return *out ? 0 : error_set(error, ERROR_MEMORY, "out of memory");
}

int server_identity_read(struct server_identity *identity, struct span result, struct error *error)
{
	*identity = (struct server_identity){0};
	if (take_member(result, "serverInfo", JSON_OBJECT, true, &identity->info, error) ||
		take_member(result, "capabilities", JSON_OBJECT, true, &identity->capabilities, error) ||
		take_member(result, "instructions", JSON_STRING, false, &identity->instructions, error)) {
		server_identity_free(identity);
		return error->code;
	}
	return 0;
}

void server_identity_free(struct server_identity *identity)
{
	free(identity->info);
	free(identity->capabilities);
	free(identity->instructions);
	*identity = (struct server_identity){0};
}

/* Appends `"_meta":{…}`: the legacy members that are not reserved for the protocol, and the server's identity. */
static void add_result_meta(struct buf *out, struct span meta, const struct server_identity *identity)
{
	struct json_member member;
	struct json_walk walk = json_walk(meta, NULL);
	json_add_key(out, "_meta");
	buf_add_text(out, "{");
	while (json_next_member(&walk, &member))
		if (!json_key_is(member.key, "io.modelcontextprotocol/serverInfo") &&
			!json_key_is(member.key, "io.modelcontextprotocol/subscriptionId") &&
			!json_key_is(member.key, "io.modelcontextprotocol/related-task"))
			json_add_member(out, &member);
	json_add_key(out, "io.modelcontextprotocol/serverInfo");
	buf_add_text(out, identity->info);
	buf_add_text(out, "}");
}

static void add_caching(struct buf *out, const struct policy_rule *rule, bool retried)
{
	buf_printf(out, ",\"ttlMs\":%lld,\"cacheScope\":\"%s\"", retried ? 0LL : (long long)rule->cache_ttl_ms,
		rule->cache_scope == POLICY_SCOPE_PUBLIC && !retried ? "public" : "private");
}

/* Members of a legacy result that would change the meaning of the modern one: a result object is open, so a hostile
 * server could forge a round with them. */
static bool is_forbidden_member(const struct method *method, struct span key)
{
	return json_key_is(key, "resultType") || json_key_is(key, "inputRequests") ||
	       json_key_is(key, "requestState") ||
	       (method->cacheable && (json_key_is(key, "ttlMs") || json_key_is(key, "cacheScope")));
}

void result_complete(struct buf *out, const struct method *method, struct span result, const struct json_index *index,
	const struct server_identity *identity, const struct policy *policy, const struct policy_rule *rule,
	bool retried)
{
	if (json_type(result) != JSON_OBJECT) {
		message_add_error(out, RPC_INTERNAL_ERROR, "The server's result is not an object", NULL);
		return;
	}
	buf_reserve(out, result.len + 512);
	buf_add_text(out, "\"result\":{");
	struct span meta = {0};
	struct json_member member;
	struct json_walk walk = json_walk(result, index);
	while (json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "_meta")) {
			meta = member.value;
		} else if (method->list_member && json_key_is(member.key, method->list_member)) {
			json_add_key(out, method->list_member);
			list_write(out, method, member.value, policy);
		} else if (!is_forbidden_member(method, member.key)) {
			json_add_member(out, &member);
		}
	}
	json_add_key(out, "resultType");
	buf_add_text(out, "\"complete\"");
	if (method->cacheable)
		add_caching(out, rule, retried);
	add_result_meta(out, meta, identity);
	buf_add_text(out, "}");
}

static void add_flag(struct buf *out, struct span feature, const char *flag)
{
	struct span value;
	if (json_get(feature, NULL, flag, &value) && json_type(value) == JSON_TRUE) {
		json_add_key(out, flag);
		buf_add_text(out, "true");
	}
}

/* Appends the server's capabilities as 2026-07-28 knows them; its own `tasks` are not among them. */
static void add_server_capabilities(struct buf *out, struct span capabilities, bool tasks)
{
	static const char *const features[] = {"tools", "prompts", "resources", "completions", "logging"};
	struct span value;
	buf_add_text(out, "{");
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (json_get(capabilities, NULL, features[i], &value)) {
			json_add_key(out, features[i]);
			buf_add_text(out, "{");
			add_flag(out, value, "listChanged");
			add_flag(out, value, "subscribe");
			buf_add_text(out, "}");
		}
	if (json_get(capabilities, NULL, "experimental", &value) && json_type(value) == JSON_OBJECT) {
		json_add_key(out, "experimental");
		buf_add_span(out, value);
	}
	if (tasks) {
		json_add_key(out, "extensions");
		buf_add_text(out, "{\"io.modelcontextprotocol/tasks\":{}}");
	}
	buf_add_text(out, "}");
}

void result_discover(
	struct buf *out, const struct server_identity *identity, const struct policy_rule *rule, bool tasks)
{
	buf_add_text(out, "\"result\":{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":");
	add_server_capabilities(out, span_of(identity->capabilities), tasks);
	if (identity->instructions) {
		json_add_key(out, "instructions");
		buf_add_text(out, identity->instructions);
	}
	json_add_key(out, "resultType");
	buf_add_text(out, "\"complete\"");
	add_caching(out, rule, false);
	add_result_meta(out, (struct span){0}, identity);
	buf_add_text(out, "}");
}

/* The code that goes downstream for a legacy error code. */
static int64_t modern_code(int64_t code)
{
	if (code == RPC_RESOURCE_NOT_FOUND)
		return RPC_INVALID_PARAMS;
	if (code <= -32020 && code >= -32099)
		return RPC_INTERNAL_ERROR;
	return code;
}

void result_error(struct buf *out, struct span error)
{
	struct span code = {0}, message = {0}, data = {0};
	int64_t number;
	json_get(error, NULL, "code", &code);
	bool has_message = json_get(error, NULL, "message", &message) && json_type(message) == JSON_STRING;
	bool has_data = json_get(error, NULL, "data", &data);
	if (!code.ptr || !json_integer(code, &number) || !has_message) {
		message_add_error(out, RPC_INTERNAL_ERROR, "The server answered with a malformed error", NULL);
		return;
	}
	int64_t modern = modern_code(number);
	buf_printf(out, "\"error\":{\"code\":%lld,\"message\":", (long long)modern);
	buf_add_span(out, message);
	if (modern != number && modern == RPC_INTERNAL_ERROR) {
		buf_printf(out, ",\"data\":{\"reason\":\"upstream_error\",\"code\":%lld", (long long)number);
		if (has_data) {
			buf_add_text(out, ",\"data\":");
			buf_add_span(out, data);
		}
		buf_add_text(out, "}");
	} else if (has_data) {
		buf_add_text(out, ",\"data\":");
		buf_add_span(out, data);
	}
	buf_add_text(out, "}");
}

int result_http_status(const struct method *method, const struct policy *policy, struct span body)
{
	static const char prefix[] = "\"error\":{\"code\":";
	if (body.len < sizeof(prefix) || memcmp(body.ptr, prefix, sizeof(prefix) - 1) != 0)
		return 200;
	long code = strtol(body.ptr + sizeof(prefix) - 1, NULL, 10);
	if (code == RPC_MISSING_CAPABILITY)
		return policy->missing_capability_status;
	if (code == RPC_HEADER_MISMATCH)
		return 400;
	return code == RPC_METHOD_NOT_FOUND && method->on_demand ? 404 : 200;
}
