/* `mcp-valet decode-state`: tells an operator who has the keys what a request state holds. It is read-only: whether the
 * state was used before, only the process that parked the call knows. */
#ifndef MCP_VALET_DECODE_STATE_H
#define MCP_VALET_DECODE_STATE_H

#include "proxy/error.h"

#include <stdbool.h>
#include <stdio.h>

/* Opens `state`, or what stands on `in` if it is "-" (there it does not show in the list of processes), with the keys of a
 * file, and writes what it holds. Of the principal and the request only the beginnings of their hashes are written, of the
 * client's answers only how many there are, unless `with_answers`. 0, or a code with *error. */
int decode_state(const char *key_file, const char *state, bool with_answers, FILE *in, FILE *out,
	struct error *error) MUST_CHECK;

#endif
