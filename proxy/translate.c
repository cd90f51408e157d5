#include "proxy/translate.h"

#include "proxy/json_write.h"

#include <string.h>
#include <strings.h>

const char *const legacy_version_names[LEGACY_VERSIONS] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};
const char *const mrtr_members[] = {"inputResponses", "requestState", NULL};

static bool key_in(struct span key, const char *const *list)
{
	for (; *list; list++)
		if (json_key_is(key, *list))
			return true;
	return false;
}

/* Appends `"_meta":{…}` with the members that may pass, and the progress token if `token` is not 0. Nothing if that would
 * be empty. */
static void add_meta(struct buf *out, struct span meta, const char *const *drop, uint64_t token)
{
	struct buf kept = {0};
	struct json_member member;
	struct json_walk walk = json_walk(meta, NULL);
	buf_add_text(&kept, "{");
	while (json_next_member(&walk, &member))
		if (!key_in(member.key, drop))
			json_add_member(&kept, &member);
	if (token) {
		json_add_key(&kept, "progressToken");
		buf_add_number(&kept, token);
	}
	buf_add_text(&kept, "}");
	if (kept.len > 2) {
		json_add_key(out, "_meta");
		buf_add_span(out, buf_span(&kept));
	}
	out->failed |= kept.failed;
	buf_free(&kept);
}

void translate_request(
	const struct method *method, struct span params, const struct json_index *index, uint64_t id, struct buf *out)
{
	static const char *const modern_meta[] = {"io.modelcontextprotocol/protocolVersion",
		"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities",
		"io.modelcontextprotocol/logLevel", "progressToken", NULL};

	buf_reserve(out, params.len + 128);
	buf_add_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
	buf_add_number(out, id);
	buf_add_text(out, ",\"method\":\"");
	buf_add_text(out, method->name);
	buf_add_text(out, "\",\"params\":{");
	struct json_member member;
	struct json_walk walk = json_walk(params, index);
	while (json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "_meta")) {
			struct span token;
			bool wants_progress = json_get(member.value, NULL, "progressToken", &token) > 0;
			add_meta(out, member.value, modern_meta, wants_progress ? id : 0);
			continue;
		}
		/* `task` of 2025-11-25 means nothing here (SEP-2663 "Backward Compatibility"), and to the server it would. */
		bool is_foreign = method->id == METHOD_TOOLS_CALL && json_key_is(member.key, "task");
		if (!is_foreign && !key_in(member.key, mrtr_members))
			json_add_member(out, &member);
	}
	buf_add_text(out, "}}");
}

void translate_for_version(const struct method *method, enum legacy_version version, struct buf *request)
{
	/* The context of a completion came with 2025-06-18 (its changelog). */
	if (method->id != METHOD_COMPLETE || version >= LEGACY_2025_06_18)
		return;
	struct buf out = {0};
	struct json_member member, param;
	struct json_walk walk = json_walk(buf_span(request), NULL);
	buf_add_text(&out, "{");
	while (json_next_member(&walk, &member)) {
		if (!json_key_is(member.key, "params")) {
			json_add_member(&out, &member);
			continue;
		}
		json_add_key(&out, "params");
		buf_add_text(&out, "{");
		struct json_walk params = json_walk(member.value, NULL);
		while (json_next_member(&params, &param))
			if (!json_key_is(param.key, "context"))
				json_add_member(&out, &param);
		buf_add_text(&out, "}");
	}
	buf_add_text(&out, "}");
	out.failed |= request->failed;
	buf_free(request);
	*request = out;
}

bool translate_need(struct span method, struct span params, struct capability_need *need)
{
	struct span member;
	*need = (struct capability_need){0};
	if (json_string_is(method, "roots/list")) {
		need->kind = POLICY_ROOTS;
	} else if (json_string_is(method, "sampling/createMessage")) {
		need->kind = POLICY_SAMPLING;
		need->tools = json_get(params, NULL, "tools", &member) || json_get(params, NULL, "toolChoice", &member);
	} else if (json_string_is(method, "elicitation/create")) {
		need->kind = POLICY_ELICITATION;
		need->url = json_get(params, NULL, "mode", &member) && json_string_is(member, "url");
	} else {
		return false;
	}
	return true;
}

static void add_server_params(const struct capability_need *need, struct span params, struct buf *out)
{
	static const char *const dropped[] = {"task", NULL};
	static const char *const dropped_meta[] = {"progressToken", "io.modelcontextprotocol/related-task", NULL};
	bool has_schema = false;
	struct json_member member;
	struct json_walk walk = json_walk(params, NULL);
	while (json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "_meta")) {
			add_meta(out, member.value, dropped_meta, 0);
			continue;
		}
		if (key_in(member.key, dropped) || (need->url && json_key_is(member.key, "elicitationId")))
			continue;
		has_schema |= json_key_is(member.key, "requestedSchema");
		json_add_member(out, &member);
	}
	if (need->kind == POLICY_ELICITATION && !need->url && !has_schema) {
		json_add_key(out, "requestedSchema");
		buf_add_text(out, "{\"type\":\"object\",\"properties\":{}}");
	}
}

void translate_server_request(const struct capability_need *need, struct span params, struct buf *out)
{
	static const char *const names[POLICY_KINDS] = {
		[POLICY_ELICITATION] = "elicitation/create",
		[POLICY_SAMPLING] = "sampling/createMessage",
		[POLICY_ROOTS] = "roots/list",
	};
	struct buf inner = {0};
	buf_add_text(&inner, "{");
	add_server_params(need, params, &inner);
	buf_add_text(&inner, "}");

	buf_printf(out, "{\"method\":\"%s\"", names[need->kind]);
	/* The params of roots/list are optional; an empty object says nothing. */
	if (need->kind != POLICY_ROOTS || inner.len > 2) {
		buf_add_text(out, ",\"params\":");
		buf_add_span(out, buf_span(&inner));
	}
	buf_add_text(out, "}");
	out->failed |= inner.failed;
	buf_free(&inner);
}

/* The member `key`, which must occur at most once and, if `type` is not JSON_NULL, be of that type. */
static int answer_member(struct span answer, const char *key, bool required, enum json_type type, struct span *value,
	struct error *error)
{
	unsigned count = json_get(answer, NULL, key, value);
	if (count > 1)
		return error_set(error, ERROR_SYNTAX, "%s occurs twice", key);
	if (count == 0 && required)
		return error_set(error, ERROR_SYNTAX, "%s is missing", key);
	if (count == 1 && type != JSON_NULL && json_type(*value) != type)
		return error_set(error, ERROR_SYNTAX, "%s is not %s", key,
			type == JSON_STRING  ? "a string"
			: type == JSON_ARRAY ? "an array"
					     : "an object");
	return 0;
}

static int check_elicitation(struct span answer, struct error *error)
{
	struct span action = {0}, content = {0};
	if (answer_member(answer, "action", true, JSON_STRING, &action, error) ||
		answer_member(answer, "content", false, JSON_OBJECT, &content, error))
		return error->code;
	if (!json_string_is(action, "accept") && !json_string_is(action, "decline") &&
		!json_string_is(action, "cancel"))
		return error_set(error, ERROR_SYNTAX, "action is none of accept, decline, cancel");
	return 0;
}

static int check_sampling(struct span answer, struct error *error)
{
	struct span role = {0}, content = {0}, model = {0};
	if (answer_member(answer, "role", true, JSON_STRING, &role, error) ||
		answer_member(answer, "content", true, JSON_NULL, &content, error) ||
		answer_member(answer, "model", true, JSON_STRING, &model, error))
		return error->code;
	if (json_type(content) != JSON_OBJECT && json_type(content) != JSON_ARRAY)
		return error_set(error, ERROR_SYNTAX, "content is neither an object nor an array");
	return 0;
}

int translate_check_answer(enum policy_kind kind, struct span answer, struct error *error)
{
	struct span roots;
	if (json_type(answer) != JSON_OBJECT)
		return error_set(error, ERROR_SYNTAX, "it is not an object");
	switch (kind) {
	case POLICY_ELICITATION:
		return check_elicitation(answer, error);
	case POLICY_SAMPLING:
		return check_sampling(answer, error);
	default:
		return answer_member(answer, "roots", true, JSON_ARRAY, &roots, error);
	}
}

/* The host of `http[s]://[user@]host[:port]…`, none of any other URL. Browsers read more than is a URL: other schemes run
 * scripts, a backslash is a slash to them, and white space and controls are as if not there. */
static struct span host_of(struct span url)
{
	static const char *const schemes[] = {"https://", "http://"};
	struct span host = {0};
	for (size_t i = 0; i < url.len; i++)
		if ((unsigned char)url.ptr[i] <= ' ' || url.ptr[i] == 0x7F || url.ptr[i] == '\\')
			return host;
	for (size_t i = 0; i < 2 && !host.ptr; i++) {
		size_t len = strlen(schemes[i]);
		if (url.len > len && strncasecmp(url.ptr, schemes[i], len) == 0)
			host = (struct span){url.ptr + len, url.len - len};
	}
	if (!host.ptr)
		return host;
	size_t len = 0;
	while (len < host.len && !strchr("/?#", host.ptr[len]))
		len++;
	host.len = len;
	const char *at = memrchr(host.ptr, '@', host.len);
	if (at)
		host = (struct span){at + 1, host.len - (size_t)(at + 1 - host.ptr)};
	const char *colon = memrchr(host.ptr, ':', host.len);
	if (colon && !memchr(colon, ']', host.len - (size_t)(colon - host.ptr)))
		host.len = (size_t)(colon - host.ptr);
	return host;
}

bool translate_url_allowed(const struct capability_need *need, struct span params, const struct policy_rule *rule)
{
	struct span url;
	struct buf text = {0};
	bool allowed = false;
	/* A mode or a URL that occurs twice is what the client makes of it. */
	if (!rule->url_host_count || (!need->url && json_count(params, NULL, "mode") < 2))
		return true;
	if (json_count(params, NULL, "mode") > 1 || json_count(params, NULL, "url") != 1 ||
		json_get(params, NULL, "url", &url) != 1 || json_type(url) != JSON_STRING)
		return false;
	json_decode_string(url, &text);
	struct span host = buf_ok(&text) ? host_of(buf_span(&text)) : (struct span){0};
	for (size_t i = 0; host.len && i < rule->url_host_count; i++)
		allowed |= host.len == strlen(rule->url_hosts[i]) &&
			   strncasecmp(host.ptr, rule->url_hosts[i], host.len) == 0;
	buf_free(&text);
	return allowed;
}

const char *translate_unanswered(enum policy_kind kind)
{
	switch (kind) {
	case POLICY_ELICITATION:
		return "\"result\":{\"action\":\"cancel\"}";
	case POLICY_SAMPLING:
		return "\"error\":{\"code\":-1,\"message\":\"The client did not answer the sampling request\"}";
	default:
		return "\"error\":{\"code\":-32603,\"message\":\"The client did not list its roots\"}";
	}
}

const char *translate_denied(enum policy_kind kind)
{
	switch (kind) {
	case POLICY_ELICITATION:
		return "\"error\":{\"code\":-32601,\"message\":\"Elicitation not supported\"}";
	case POLICY_SAMPLING:
		return "\"error\":{\"code\":-32601,\"message\":\"Sampling not supported\"}";
	default:
		return "\"error\":{\"code\":-32601,\"message\":\"Roots not supported\"}";
	}
}
