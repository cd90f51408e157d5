/* The admin endpoint: a small HTTP server on a listener of its own, for operators and their tools.
 *
 *   /          a page for people (admin_page.h)
 *   /healthz   200 as long as the event loop lives
 *   /readyz    200, or 503 with the reason why new calls are not likely to succeed
 *   /metrics   the counters, as text for Prometheus
 *
 * GET and HEAD only, one request a connection, few connections, each for a few seconds: whatever happens here costs the MCP
 * side nothing. It shows no answers, request states, principals or credentials. */
#ifndef MCP_VALET_ADMIN_H
#define MCP_VALET_ADMIN_H

#include "proxy/error.h"

#include <stdbool.h>

struct admin;
struct event_base;
struct proxy;

/* Listens at `address` (as for listener_open()), and serves when the loop runs, to the end of it. NULL with *error. */
struct admin *admin_new(struct event_base *base, const struct proxy *proxy, const char *address, bool allow_remote,
	struct error *error) MUST_CHECK;
/* The bound address, also where port 0 was asked for. */
const char *admin_address(const struct admin *admin);
void admin_free(struct admin *admin);

#endif
