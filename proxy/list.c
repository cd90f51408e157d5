#include "proxy/list.h"

#include "proxy/json_write.h"
#include "proxy/mirror.h"

#include <stdlib.h>
#include <string.h>

static void add_key(struct buf *out, struct span key)
{
	buf_add(out, "\"", 1);
	buf_add_span(out, key);
	buf_add(out, "\":", 2);
}

/* Appends a JSON Schema without its `x-mcp-header` annotations. In a map of `properties` the keys are names of the
 * server's choosing, and one of them may be "x-mcp-header". The recursion is bounded by JSON_MAX_DEPTH. */
static void schema_write(struct buf *out, struct span value, bool is_properties)
{
	struct json_walk walk = json_walk(value, NULL);
	if (json_type(value) == JSON_OBJECT) {
		struct json_member member;
		buf_add_text(out, "{");
		while (json_next_member(&walk, &member)) {
			if (!is_properties && json_key_is(member.key, "x-mcp-header"))
				continue;
			json_add_separator(out);
			add_key(out, member.key);
			schema_write(out, member.value, !is_properties && json_key_is(member.key, "properties"));
		}
		buf_add_text(out, "}");
	} else if (json_type(value) == JSON_ARRAY) {
		struct span element;
		buf_add_text(out, "[");
		while (json_next_element(&walk, &element)) {
			json_add_separator(out);
			schema_write(out, element, false);
		}
		buf_add_text(out, "]");
	} else {
		buf_add_span(out, value);
	}
}

/* A tool whose annotations break the rules would be left out by its client, which can call it without them. */
static bool keeps_header_annotations(struct span schema, const struct policy *policy)
{
	struct buf rules = {0};
	bool keeps = policy->mcp_headers == POLICY_HEADERS_VALIDATE && mirror_read(schema, &rules);
	buf_free(&rules);
	return keeps;
}

static void tool_write(struct buf *out, struct span tool, const struct policy *policy)
{
	struct json_member member;
	struct json_walk walk = json_walk(tool, NULL);
	buf_add_text(out, "{");
	while (json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "execution"))
			continue;
		json_add_separator(out);
		add_key(out, member.key);
		if (json_key_is(member.key, "inputSchema") && mirror_may_be_asked(member.value) &&
			!keeps_header_annotations(member.value, policy))
			schema_write(out, member.value, false);
		else
			buf_add_span(out, member.value);
	}
	buf_add_text(out, "}");
}

static bool is_hidden(const struct method *method, struct span entry, const struct policy *policy, bool *out_of_memory)
{
	struct span name;
	const char *key = method->subject != POLICY_RESOURCE		  ? "name"
			  : method->id == METHOD_RESOURCES_TEMPLATES_LIST ? "uriTemplate"
									  : "uri";
	if (!json_get(entry, NULL, key, &name) || json_type(name) != JSON_STRING)
		return false;
	char *text = json_string_dup(name);
	if (!text) {
		/* What no rule can name cannot be called either. */
		bool has_nul = memmem(name.ptr, name.len, "\\u0000", 6);
		*out_of_memory |= !has_nul;
		return has_nul;
	}
	bool hidden = policy_rule(policy, method->subject, text)->hide;
	free(text);
	return hidden;
}

void list_write(struct buf *out, const struct method *method, struct span list, const struct policy *policy)
{
	if (json_type(list) != JSON_ARRAY) {
		buf_add_span(out, list);
		return;
	}
	struct span entry;
	struct json_walk walk = json_walk(list, NULL);
	buf_add_text(out, "[");
	while (json_next_element(&walk, &entry)) {
		if (is_hidden(method, entry, policy, &out->failed))
			continue;
		json_add_separator(out);
		if (method->subject == POLICY_TOOL && json_type(entry) == JSON_OBJECT)
			tool_write(out, entry, policy);
		else
			buf_add_span(out, entry);
	}
	buf_add_text(out, "]");
}

/* Appends the array without its hidden entries. false if there are none. */
static bool add_visible_entries(
	struct buf *out, const struct method *method, struct span list, const struct policy *policy)
{
	struct span entry;
	struct json_walk walk = json_walk(list, NULL);
	bool any = false;
	buf_add_text(out, "[");
	while (json_next_element(&walk, &entry)) {
		bool hidden = is_hidden(method, entry, policy, &out->failed);
		any |= hidden;
		if (hidden)
			continue;
		json_add_separator(out);
		buf_add_span(out, entry);
	}
	buf_add_text(out, "]");
	return any;
}

void list_add_visible(struct buf *out, const struct method *method, struct span result, const struct json_index *index,
	const struct policy *policy)
{
	struct span list;
	struct buf visible = {0};
	if (method && method->list_member && json_get(result, index, method->list_member, &list) &&
		json_type(list) == JSON_ARRAY && add_visible_entries(&visible, method, list, policy)) {
		const char *after = list.ptr + list.len;
		buf_add(out, result.ptr, (size_t)(list.ptr - result.ptr));
		buf_add_span(out, buf_span(&visible));
		buf_add(out, after, (size_t)(result.ptr + result.len - after));
	} else {
		buf_add_span(out, result);
	}
	out->failed |= visible.failed;
	buf_free(&visible);
}

bool list_hides(const struct policy *policy, const struct message *message)
{
	const struct method *method = method_find(message->method);
	struct span name;
	if (!method || !method->name_member || method->of_tasks)
		return false;
	/* Of two names it is open which one the server takes. */
	unsigned count = json_count(message->params, &message->index, method->name_member);
	if (count != 1 || !json_get(message->params, &message->index, method->name_member, &name))
		return count > 0;
	char *text = json_string_dup(name);
	bool hidden = !text || policy_rule(policy, method->subject, text)->hide;
	free(text);
	return hidden;
}
