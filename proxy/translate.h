/* Requests and answers, from one era into the other. Payload bytes are copied, never re-encoded (invariant 5); what the
 * other side's revision forbids is left out (invariant 8). */
#ifndef MCP_VALET_TRANSLATE_H
#define MCP_VALET_TRANSLATE_H

#include "proxy/capabilities.h"
#include "proxy/message.h"
#include "proxy/method.h"

/* The legacy revisions, oldest first. */
enum legacy_version { LEGACY_2024_11_05, LEGACY_2025_03_26, LEGACY_2025_06_18, LEGACY_2025_11_25, LEGACY_VERSIONS };

extern const char *const legacy_version_names[LEGACY_VERSIONS];
extern const char *const mrtr_members[]; /* NULL-terminated: params members that belong to the retry, not the request */

/* Writes the legacy request for a modern one: the params without `inputResponses`, `requestState` and the modern `_meta`
 * keys; a progress token is replaced by the request's own id, an integer that is unique in the session. */
void translate_request(
	const struct method *method, struct span params, const struct json_index *index, uint64_t id, struct buf *out);

/* Takes out of a legacy request, as written above, what the agreed revision does not know yet. */
void translate_for_version(const struct method *method, enum legacy_version version, struct buf *request);

/* Reads what a server request needs of the client. `method` is the spelled method name with its quotes. false if it is
 * none of the three kinds. */
bool translate_need(struct span method, struct span params, struct capability_need *need);

/* Writes the entry of `inputRequests` for a server request: method and params without what 2026-07-28 does not know
 * (`task`, `elicitationId`, progressToken and related-task in `_meta`), with an empty requestedSchema where a form has
 * none. `params` may have a NULL ptr. */
void translate_server_request(const struct capability_need *need, struct span params, struct buf *out);

/* Checks an input response against the shape of its kind. 0, or ERROR_SYNTAX saying what is wrong with it. */
int translate_check_answer(enum policy_kind kind, struct span answer, struct error *error) MUST_CHECK;

/* Whether the policy lets a client be sent to the URL of an elicitation; true for what is none. `params` is the server's. */
bool translate_url_allowed(const struct capability_need *need, struct span params, const struct policy_rule *rule);

/* What a server is answered when nobody answers: a body `"result":{"action":"cancel"}` or `"error":{…}` (invariant 7). */
const char *translate_unanswered(enum policy_kind kind);
/* What a client without the capability would answer. */
const char *translate_denied(enum policy_kind kind);

#endif
