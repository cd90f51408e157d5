#include "proxy/capabilities.h"

#include <string.h>

static int read_object(struct span parent, const char *key, bool *present, struct span *value, struct error *error)
{
	*present = json_get(parent, NULL, key, value) > 0;
	if (*present && json_type(*value) != JSON_OBJECT)
		return error_set(error, ERROR_SYNTAX, "clientCapabilities: %s is not an object", key);
	return 0;
}

int capabilities_read(struct capabilities *caps, struct span value, struct error *error)
{
	struct span member, part;
	bool present;
	*caps = (struct capabilities){0};
	if (json_type(value) != JSON_OBJECT)
		return error_set(error, ERROR_SYNTAX, "clientCapabilities is not an object");
	if (read_object(value, "roots", &caps->roots, &member, error))
		return error->code;
	if (read_object(value, "sampling", &caps->sampling, &member, error))
		return error->code;
	if (caps->sampling && (read_object(member, "tools", &caps->sampling_tools, &part, error) ||
				      read_object(member, "context", &caps->sampling_context, &part, error)))
		return error->code;
	if (read_object(value, "elicitation", &present, &member, error))
		return error->code;
	if (present) {
		if (read_object(member, "form", &caps->elicitation_form, &part, error) ||
			read_object(member, "url", &caps->elicitation_url, &part, error))
			return error->code;
		/* An empty object means form mode (client/elicitation "Capabilities"). */
		if (!caps->elicitation_url)
			caps->elicitation_form = true;
	}
	if (read_object(value, "extensions", &present, &member, error))
		return error->code;
	return present ? read_object(member, "io.modelcontextprotocol/tasks", &caps->tasks, &part, error) : 0;
}

bool capabilities_equal(const struct capabilities *a, const struct capabilities *b)
{
	return a->roots == b->roots && a->sampling == b->sampling && a->sampling_tools == b->sampling_tools &&
	       a->sampling_context == b->sampling_context && a->elicitation_form == b->elicitation_form &&
	       a->elicitation_url == b->elicitation_url;
}

bool capabilities_can_ask(const struct capabilities *caps)
{
	return caps->roots || caps->sampling || caps->elicitation_form || caps->elicitation_url;
}

bool capabilities_cover(const struct capabilities *caps, const struct capability_need *need)
{
	switch (need->kind) {
	case POLICY_ELICITATION:
		return need->url ? caps->elicitation_url : caps->elicitation_form;
	case POLICY_SAMPLING:
		return caps->sampling && (!need->tools || caps->sampling_tools);
	default:
		return caps->roots;
	}
}

const char *capability_need_json(const struct capability_need *need)
{
	switch (need->kind) {
	case POLICY_ELICITATION:
		return need->url ? "{\"elicitation\":{\"url\":{}}}" : "{\"elicitation\":{\"form\":{}}}";
	case POLICY_SAMPLING:
		return need->tools ? "{\"sampling\":{\"tools\":{}}}" : "{\"sampling\":{}}";
	default:
		return "{\"roots\":{}}";
	}
}

/* Appends `"key":value` with a comma if the object has members already. */
static void add_member(struct buf *out, const char *key, const char *value)
{
	buf_printf(out, "%s\"%s\":%s", out->len && out->data[out->len - 1] == '{' ? "" : ",", key, value);
}

void capabilities_write_legacy(const struct capabilities *caps, bool plain, struct buf *out)
{
	buf_add_text(out, "{");
	/* listChanged is ours to promise: it lets us have the roots asked for again when a server's own question timed out
	 * before any call could carry it. */
	if (caps->roots)
		add_member(out, "roots", plain ? "{}" : "{\"listChanged\":true}");
	if (caps->sampling && (plain || (!caps->sampling_tools && !caps->sampling_context)))
		add_member(out, "sampling", "{}");
	else if (caps->sampling_tools)
		add_member(
			out, "sampling", caps->sampling_context ? "{\"context\":{},\"tools\":{}}" : "{\"tools\":{}}");
	else if (caps->sampling_context)
		add_member(out, "sampling", "{\"context\":{}}");
	/* In the plain shape `{}` means forms, so a client that only takes URLs declares nothing there. */
	if (caps->elicitation_form && (plain || !caps->elicitation_url))
		add_member(out, "elicitation", "{}");
	else if (caps->elicitation_form)
		add_member(out, "elicitation", "{\"form\":{},\"url\":{}}");
	else if (caps->elicitation_url && !plain)
		add_member(out, "elicitation", "{\"url\":{}}");
	buf_add_text(out, "}");
}
