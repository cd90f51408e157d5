/* The methods of 2026-07-28 that are served, one table entry each. */
#ifndef MCP_VALET_METHOD_H
#define MCP_VALET_METHOD_H

#include "policy/policy.h"

enum method_id {
	METHOD_DISCOVER,
	METHOD_TOOLS_LIST,
	METHOD_TOOLS_CALL,
	METHOD_PROMPTS_LIST,
	METHOD_PROMPTS_GET,
	METHOD_RESOURCES_LIST,
	METHOD_RESOURCES_TEMPLATES_LIST,
	METHOD_RESOURCES_READ,
	METHOD_COMPLETE,
	METHOD_LISTEN,
	METHOD_TASKS_GET,
	METHOD_TASKS_UPDATE,
	METHOD_TASKS_CANCEL,
};

struct method {
	enum method_id id;
	const char *name;
	bool may_ask;	/* may be answered by an InputRequiredResult (basic/patterns/mrtr "Supported Requests") */
	bool cacheable; /* its result carries ttlMs and cacheScope (server/utilities/caching) */
	bool of_tasks;	/* of the tasks extension; its name is that of a task */
	bool on_demand; /* a server that lacks it answers -32601, which is HTTP 404 */
	enum policy_subject subject; /* of name_member */
	const char *name_member;     /* the parameter that Mcp-Name mirrors, or NULL */
	const char *list_member;     /* the array in a list's result, or NULL */
};

/* The entry for a method's name as spelled in the message (with quotes), NULL if it is not served. */
const struct method *method_find(struct span name);
/* The name of a method as it is written on the wire. */
const char *method_name(enum method_id id);
/* A method and what it names, for people: "tools/call report". To be freed; NULL without memory. */
char *method_subject(const struct method *method, const char *name) MUST_CHECK;

#endif
