/* The arrays of the list results: entries that the policy hides are left out, and of a tool what 2026-07-28 does not
 * define (`execution`) and, unless the headers are checked, what would ask for them (`x-mcp-header`). */
#ifndef MCP_VALET_LIST_H
#define MCP_VALET_LIST_H

#include "proxy/message.h"
#include "proxy/method.h"

/* Appends the array `list` of a list method's result. Anything that is not an array passes as it is. */
void list_write(struct buf *out, const struct method *method, struct span list, const struct policy *policy);

/* Where messages pass through: appends a result as it came, but for the hidden entries of the list in it. `method` may be
 * NULL. */
void list_add_visible(struct buf *out, const struct method *method, struct span result, const struct json_index *index,
	const struct policy *policy);
/* Whether a request names what is hidden. */
bool list_hides(const struct policy *policy, const struct message *message);

#endif
