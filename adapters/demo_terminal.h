/* What `mcp-valet demo` writes on the terminal: numbered steps, explanations, messages as readable JSON, verdicts.
 * Colour only where a person sees it. */
#ifndef MCP_VALET_DEMO_TERMINAL_H
#define MCP_VALET_DEMO_TERMINAL_H

#include <jansson.h>
#include <stdbool.h>

struct terminal {
	bool colour;
	unsigned step; /* the last one begun */
};

void terminal_init(struct terminal *terminal);
/* Begins the next step. */
void terminal_step(struct terminal *terminal, const char *title);
void terminal_explain(const char *text);
/* Shows one message, each line with a mark: `>` from the client, `<` to it. Long strings are cut; `_meta` is left out
 * unless `whole`. */
void terminal_show(const struct terminal *terminal, const char *mark, json_t *message, bool whole);
/* Says whether the step went as it should, and returns it. */
bool terminal_verdict(const struct terminal *terminal, bool good, const char *text);

#endif
