/* Elicitation answers against their requestedSchema: the flat objects of primitive values that the specification allows
 * (2026-07-28 client/elicitation "Requested Schema"). Never stricter than that: members beyond the schema pass, and so does
 * every keyword that is not looked at here. */
#ifndef MCP_VALET_ANSWER_SCHEMA_H
#define MCP_VALET_ANSWER_SCHEMA_H

#include "proxy/json.h"

/* Checks the content of an accepted answer. 0, or ERROR_SYNTAX naming the field and the fault. */
int answer_schema_check(struct span schema, struct span content, struct error *error) MUST_CHECK;

/* The same for an answer as a whole and the input request that it answers: nothing is checked unless it is an accepted form. */
int answer_schema_check_answer(struct span input_request, struct span answer, struct error *error) MUST_CHECK;

#endif
