/* The two ways of an HTTP request that http_client.c chooses between: libcurl, which knows names, proxies and TLS, and plain
 * sockets for a server on this machine, which need none of that and cost a third. */
#ifndef MCP_VALET_HTTP_ENGINE_H
#define MCP_VALET_HTTP_ENGINE_H

#include "adapters/http_client.h"

/* Longer values of these headers are none. */
enum { HTTP_MAX_SESSION_ID = 512, HTTP_MAX_CHALLENGE = 1024 };

/* What both kinds of transfer begin with. */
struct http_transfer {
	void (*cancel)(struct http_transfer *transfer);
};

struct http_curl;
struct http_plain;

/* Loads libcurl. NULL with *error. */
struct http_curl *http_curl_new(
	struct event_base *base, const struct http_target *target, struct error *error) MUST_CHECK;
void http_curl_free(struct http_curl *curl);
bool http_curl_is_idle(const struct http_curl *curl);
struct http_transfer *http_curl_start(struct http_curl *curl, const struct http_request *request,
	const struct http_handlers *handlers, void *arg) MUST_CHECK;

/* Whether the target is a Unix socket, or http:// on this machine. */
bool http_plain_serves(const struct http_target *target);
/* NULL without memory. */
struct http_plain *http_plain_new(struct event_base *base, const struct http_target *target) MUST_CHECK;
void http_plain_free(struct http_plain *plain);
bool http_plain_is_idle(const struct http_plain *plain);
/* `path` is the target of the request line. */
struct http_transfer *http_plain_start(struct http_plain *plain, const struct http_request *request, const char *path,
	const struct http_handlers *handlers, void *arg) MUST_CHECK;

#endif
