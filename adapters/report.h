/* `mcp-valet report` and `mcp-valet suggest-policy`: what /report.json of a running mcp-valet says, for people, as a page, and
 * as a policy file to begin with. They run in a process of their own and block. */
#ifndef MCP_VALET_REPORT_H
#define MCP_VALET_REPORT_H

#include "proxy/bytes.h"
#include "proxy/error.h"

#include <stdio.h>

enum report_form { REPORT_TEXT, REPORT_JSON, REPORT_HTML, REPORT_POLICY };

/* Fetches the report from an admin endpoint (written as for --admin), or reads it from a file where `address` is NULL, and
 * writes it. 0, or a code with *error; nothing is written then. */
int report_write(
	const char *address, const char *file, enum report_form form, FILE *out, struct error *error) MUST_CHECK;

#endif
