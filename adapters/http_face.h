/* Downstream: Streamable HTTP of 2026-07-28 (basic/transports/streamable-http) over bare libevent events.
 *
 * One struct connection for each HTTP connection, with one request at a time. Reading stays on while a response is pending,
 * so that a client that closes, resets or half-closes is seen at once: its request is cancelled. A response without a
 * notification before it is one JSON object; otherwise an event stream. Notifications are dropped while more than
 * limits.downstream_queue_bytes wait to be read by the client. */
#ifndef MCP_VALET_HTTP_FACE_H
#define MCP_VALET_HTTP_FACE_H

#include "policy/policy.h"
#include "proxy/env.h"
#include "proxy/face.h"

struct event_base;
struct http_face;
struct http_upstream;

struct http_face_config {
	const char *listen; /* as for listener_open() */
	const char *path;   /* the MCP endpoint */
	bool allow_remote;
};

/* Listens, and serves when the loop runs. Takes a reference of `policy`; the rest is borrowed. NULL with *error. */
struct http_face *http_face_new(struct event_base *base, struct proxy *proxy, struct policy *policy,
	const struct env *env, const struct http_face_config *config, struct error *error) MUST_CHECK;
/* The bound address, also where port 0 was asked for. */
const char *http_face_address(const struct http_face *face);
void http_face_set_policy(struct http_face *face, struct policy *policy);
/* Protected resource metadata (/.well-known/oauth-protected-resource) is asked of this upstream from now on. */
void http_face_set_metadata(struct http_face *face, struct http_upstream *upstream);
/* Accepts nothing more and closes the connections that have no request. */
void http_face_stop_accepting(struct http_face *face);
/* Whether no connection has a request, and everything was written. */
bool http_face_is_idle(const struct http_face *face);
/* Closes everything; the core is told that the clients are gone. */
void http_face_free(struct http_face *face);

#endif
