/* Upstream: a legacy server that is already running, over Streamable HTTP (2025-03-26 to 2025-11-25) or HTTP+SSE
 * (2024-11-05).
 *
 * The transport is found out by the first session: initialize is POSTed, and where that is answered with 400, 404 or 405,
 * the same URL is asked for the event stream of HTTP+SSE (2025-11-25 basic/transports "Backwards Compatibility"). */
#ifndef MCP_VALET_HTTP_UPSTREAM_H
#define MCP_VALET_HTTP_UPSTREAM_H

#include "policy/policy.h"
#include "proxy/env.h"
#include "proxy/upstream.h"

struct event_base;
struct http_upstream;

extern const struct upstream_ops http_upstream_ops; /* ctx is a struct http_upstream */

/* `url`: http://…, https://…, or unix:/path/of/socket:/endpoint. `ca_file` may be NULL (then the policy's counts). Takes a
 * reference of `policy`. NULL with *error. */
struct http_upstream *http_upstream_new(struct event_base *base, const struct env *env, struct policy *policy,
	const char *url, const char *ca_file, struct error *error) MUST_CHECK;
/* Limits, deadlines, and whether endpoints of another origin are taken; where to connect and TLS stay as they were at the
 * start. If it fails, the policy does, too. */
int http_upstream_set_policy(struct http_upstream *http, struct policy *policy, struct error *error) MUST_CHECK;
/* Whether nothing is under way, farewells included. */
bool http_upstream_is_idle(const struct http_upstream *http);
void http_upstream_free(struct http_upstream *http);

#endif
