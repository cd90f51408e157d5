/* The arrays of the list results: entries that the policy hides are left out, and of a tool what 2026-07-28 does not
 * define (`execution`) or would ask of clients what the legacy server never checks (`x-mcp-header`). */
#ifndef MCP_VALET_LIST_H
#define MCP_VALET_LIST_H

#include "proxy/json.h"
#include "proxy/method.h"

/* Appends the array `list` of a list method's result. Anything that is not an array passes as it is. */
void list_write(struct buf *out, const struct method *method, struct span list, const struct policy *policy);

/* The same for a legacy client, who is spared nothing but the hidden entries. false if there are none: then the list can
 * pass as it is. */
bool list_write_visible(
	struct buf *out, const struct method *method, struct span list, const struct policy *policy) MUST_CHECK;

#endif
