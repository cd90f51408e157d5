/* The headers that mirror a request's body (2026-07-28 basic/transports/streamable-http "Request Metadata", "Custom Headers
 * from Tool Parameters"): what a header says, which headers the schema of a tool asks for, and whether they are true. */
#ifndef MCP_VALET_MIRROR_H
#define MCP_VALET_MIRROR_H

#include "proxy/json.h"

/* Whether a header, plain or in its Base64 form, says the same as a JSON string. */
bool mirror_says(struct span header, struct span string);

/* Whether a schema may hold `x-mcp-header` annotations; a quick look that spares the long one. */
bool mirror_may_be_asked(struct span schema);

/* Reads the `x-mcp-header` annotations of a tool's inputSchema. Appends a JSON array with one element for each,
 * `["Name","key",…]`: the header's name after `Mcp-Param-`, and the way to the argument. false if one of them breaks the
 * rules of "Schema Extension", so that clients would leave the tool out; what was appended is then worth nothing. */
bool mirror_read(struct span schema, struct buf *rules) MUST_CHECK;

/* Whether the headers say what the arguments do. `rules` is as read, `arguments` may have a NULL ptr, `lines` are headers
 * `Name: value`, each ended by LF. If not, *error says why. */
bool mirror_check(struct span rules, struct span arguments, struct span lines, struct error *error) MUST_CHECK;

/* Appends what a header says of a string, an integer or a boolean ("Value Encoding"). */
void mirror_add_value(struct buf *out, struct span value);

/* Appends the headers that clients make of the arguments ("Client Behavior"), each as a line ended by LF. */
void mirror_write(struct span rules, struct span arguments, struct buf *lines);

#endif
