/* Faults of a policy file: `name:line:column: what, and what was expected`, all of them up to a bound. */
#ifndef MCP_VALET_POLICY_REPORT_H
#define MCP_VALET_POLICY_REPORT_H

#include "proxy/json.h"

#include <stdio.h>

struct report {
	const char *name;
	FILE *out;	     /* or NULL */
	struct error *error; /* gets the first fault; or NULL */
	unsigned faults;
};

void report_fault(struct report *report, unsigned line, unsigned column, const char *format, ...) PRINTF_LIKE(4, 5);

#endif
