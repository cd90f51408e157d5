/* Reruns: a parked call that was lost is run again, and the questions that were answered before are answered from the
 * script in its request state. Only what the policy names is ever run again.
 *
 * The script is a JSON text: {"answers":[{"question":"<hex>","answer":…},…],"open":{"<key>":{"question":"<hex>",
 * "kind":0}}}. A question is known by the digest of its input request; each answer serves once. */
#ifndef MCP_VALET_RERUN_H
#define MCP_VALET_RERUN_H

#include "proxy/call.h"

/* Whether the policy lets this call be run again. */
bool rerun_allowed(const struct call *call);
/* The same for a request that has no call yet. */
bool rerun_allowed_for(const struct proxy *proxy, const struct request *request);

/* Whether calls of this request are kept nowhere (rerun: always), so that nothing can tell a used state. */
bool rerun_is_untracked(const struct proxy *proxy, const struct request *request);

/* Learns from a tools/list result which tools say that they only read, or may be repeated. */
void rerun_learn(struct proxy *proxy, struct span result);

/* Remembers an answer for the script. */
void rerun_record(struct call *call, const struct input *input, struct span answer);
/* Appends the script of the call as it stands. */
void rerun_write_script(const struct call *call, struct buf *out);
/* The answer to this question in the script that the call was started with, which is used up by that. false: none. */
bool rerun_find_answer(struct call *call, const struct input *input, struct span *answer);

/* Starts the call of a retry again: from the script of its state and the answers that the retry brings. false if the
 * exchange was answered with a fault instead, and nothing is used up. The new call takes the ticket of `lost` (or NULL), so the
 * same retry finds it again. */
bool rerun_start(struct exchange *exchange, const struct request *request, struct span script, uint32_t round,
	struct call *lost);

#endif
