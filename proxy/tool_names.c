#include "proxy/tool_names.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOOLS = 1000 };

void tool_names_free(struct tool_names *tools)
{
	for (size_t i = 0; i < tools->count; i++)
		free(tools->names[i]);
	free(tools->names);
	*tools = (struct tool_names){0};
}

bool tool_names_have(const struct tool_names *tools, const char *name)
{
	for (size_t i = 0; i < tools->count; i++)
		if (strcmp(tools->names[i], name) == 0)
			return true;
	return false;
}

void tool_names_add(struct tool_names *tools, char *name)
{
	char **names = NULL;
	if (name && tools->count < MAX_TOOLS && !tool_names_have(tools, name))
		names = reallocarray(tools->names, tools->count + 1, sizeof(*names));
	if (!names) {
		free(name);
		return;
	}
	tools->names = names;
	tools->names[tools->count++] = name;
}
