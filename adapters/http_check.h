/* What an HTTP request must be before its body is read (2026-07-28 basic/transports/streamable-http "Security & Endpoint",
 * "Sending Messages"). Pure: it looks at a head and decides. */
#ifndef MCP_VALET_HTTP_CHECK_H
#define MCP_VALET_HTTP_CHECK_H

#include "adapters/http1.h"
#include "policy/policy.h"

/* Returns 0 if the request may go on, or the status to answer and words in *fault. `is_loopback`: the listener is bound to
 * a loopback address, so Host and Origin are checked against DNS rebinding. */
int http_check_head(const struct http1_head *head, const char *path, bool is_loopback, const struct policy *policy,
	const char **fault) MUST_CHECK;

/* The part of it that keeps pages of other sites away, by Host and Origin: 0, or 403. */
int http_check_origin(
	const struct http1_head *head, bool is_loopback, const struct policy *policy, const char **fault) MUST_CHECK;

/* Whether an Accept header (RFC 9110 section 12.5.1) takes a media type such as "application/json". */
bool http_accepts(struct span accept, const char *type, const char *subtype);

/* The principal of a request, by the policy's `principal`: a hash, never the secret itself. */
void http_principal(const struct http1_head *head, const struct policy *policy, uint8_t out[32]);

/* Whether host[:port] is this machine's loopback, by name or by number. */
bool http_names_this_machine(struct span authority);

/* The reason phrase of a status that is answered here. */
const char *http_reason(int status);

#endif
