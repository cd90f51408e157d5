/* Client capabilities: what a modern request declares, and what a legacy session declares in its place.
 *
 * A legacy server is told neither more nor less than the client declared (invariant 8): servers exist that skip a
 * confirmation when the capability is missing. */
#ifndef MCP_VALET_CAPABILITIES_H
#define MCP_VALET_CAPABILITIES_H

#include "policy/policy.h"

struct capabilities {
	bool roots;
	bool sampling, sampling_tools, sampling_context;
	bool elicitation_form, elicitation_url;
	bool tasks; /* the extension io.modelcontextprotocol/tasks: no business of the legacy server */
};

/* Reads `io.modelcontextprotocol/clientCapabilities`. 0, or ERROR_SYNTAX naming the member that is no object. */
int capabilities_read(struct capabilities *caps, struct span value, struct error *error) MUST_CHECK;

/* Whether they are the same for the legacy server. */
bool capabilities_equal(const struct capabilities *a, const struct capabilities *b);

/* Whether anything may be asked of the client at all. */
bool capabilities_can_ask(const struct capabilities *caps);

/* What one server request needs. */
struct capability_need {
	enum policy_kind kind;
	bool url;   /* elicitation in URL mode */
	bool tools; /* sampling with tools or toolChoice */
};

bool capabilities_cover(const struct capabilities *caps, const struct capability_need *need);

/* The need as a ClientCapabilities object in JSON, for `data.requiredCapabilities` of -32021. */
const char *capability_need_json(const struct capability_need *need);

/* Appends the `capabilities` object of the legacy `initialize`. Form-only elicitation is `{}`, the only shape that every
 * revision knows. `plain` leaves out every member that an older server may not know. */
void capabilities_write_legacy(const struct capabilities *caps, bool plain, struct buf *out);

#endif
