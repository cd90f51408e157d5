/* Where a server on this machine listens. */
#ifndef MCP_VALET_HTTP_ADDRESS_H
#define MCP_VALET_HTTP_ADDRESS_H

#include "adapters/http_client.h"

#include <sys/socket.h>

enum { HTTP_MAX_ADDRESSES = 2 };

struct http_address {
	struct sockaddr_storage name;
	socklen_t len;
};

/* How many addresses the target has, to be tried in turn: a Unix socket, the number in an http:// URL, or what localhost
 * means. 0 if it takes a resolver, a proxy or TLS to reach it. */
unsigned http_find_addresses(const struct http_target *target, struct http_address addresses[HTTP_MAX_ADDRESSES]);

#endif
