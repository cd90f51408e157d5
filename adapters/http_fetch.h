/* GET of a document of the upstream's origin, for clients that look for it at ours: RFC 9728 protected resource metadata
 * (2026-07-28 basic/authorization "Authorization Server Discovery"). */
#ifndef MCP_VALET_HTTP_FETCH_H
#define MCP_VALET_HTTP_FETCH_H

#include "proxy/bytes.h"

struct http_fetch;
struct http_upstream;

/* Starts. `path` begins with a slash. on_done comes later and once, with status 0 if nothing came; not after a
 * cancellation. NULL without memory. */
struct http_fetch *http_fetch_start(struct http_upstream *http, struct span path,
	void (*on_done)(void *arg, int status, const char *content_type, struct span body), void *arg)
	__attribute__((warn_unused_result));
void http_fetch_cancel(struct http_fetch *fetch);

#endif
