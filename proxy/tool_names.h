/* Names of tools of the target, learned from the tool lists that pass. Bounded: what does not fit is not learned. */
#ifndef MCP_VALET_TOOL_NAMES_H
#define MCP_VALET_TOOL_NAMES_H

#include "proxy/core.h"

void tool_names_free(struct tool_names *tools);
bool tool_names_have(const struct tool_names *tools, const char *name);
/* Takes the name, which was allocated; NULL is nothing. */
void tool_names_add(struct tool_names *tools, char *name);

#endif
