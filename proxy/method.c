#include "proxy/method.h"

#include <string.h>

enum { MAX_SUBJECT_NAME = 200 };

static const struct method methods[] = {
	{.id = METHOD_DISCOVER, .name = "server/discover", .cacheable = true},
	{.id = METHOD_TOOLS_LIST,
		.name = "tools/list",
		.cacheable = true,
		.on_demand = true,
		.subject = POLICY_TOOL,
		.list_member = "tools"},
	{.id = METHOD_TOOLS_CALL, .name = "tools/call", .may_ask = true, .subject = POLICY_TOOL, .name_member = "name"},
	{.id = METHOD_PROMPTS_LIST,
		.name = "prompts/list",
		.cacheable = true,
		.on_demand = true,
		.subject = POLICY_PROMPT,
		.list_member = "prompts"},
	{.id = METHOD_PROMPTS_GET,
		.name = "prompts/get",
		.may_ask = true,
		.subject = POLICY_PROMPT,
		.name_member = "name"},
	{.id = METHOD_RESOURCES_LIST,
		.name = "resources/list",
		.cacheable = true,
		.on_demand = true,
		.subject = POLICY_RESOURCE,
		.list_member = "resources"},
	{.id = METHOD_RESOURCES_TEMPLATES_LIST,
		.name = "resources/templates/list",
		.cacheable = true,
		.on_demand = true,
		.subject = POLICY_RESOURCE,
		.list_member = "resourceTemplates"},
	{.id = METHOD_RESOURCES_READ,
		.name = "resources/read",
		.may_ask = true,
		.cacheable = true,
		.subject = POLICY_RESOURCE,
		.name_member = "uri"},
	{.id = METHOD_COMPLETE, .name = "completion/complete", .on_demand = true},
	{.id = METHOD_LISTEN, .name = "subscriptions/listen"},
	{.id = METHOD_TASKS_GET, .name = "tasks/get", .of_tasks = true, .name_member = "taskId"},
	{.id = METHOD_TASKS_UPDATE, .name = "tasks/update", .of_tasks = true, .name_member = "taskId"},
	{.id = METHOD_TASKS_CANCEL, .name = "tasks/cancel", .of_tasks = true, .name_member = "taskId"},
};

const struct method *method_find(struct span name)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (json_string_is(name, methods[i].name))
			return &methods[i];
	return NULL;
}

const char *method_name(enum method_id id)
{
	return methods[id].name;
}

char *method_subject(const struct method *method, const char *name)
{
	struct buf text = {0};
	buf_add_text(&text, method->name);
	if (name) {
		buf_add(&text, " ", 1);
		buf_add(&text, name, strnlen(name, MAX_SUBJECT_NAME));
	}
	buf_add(&text, "", 1);
	if (!buf_ok(&text))
		buf_free(&text);
	return text.data;
}
