/* Where to listen: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` or `unix:/path`; or `systemd`, the socket that systemd
 * passes (systemd.h). */
#ifndef MCP_VALET_LISTENER_H
#define MCP_VALET_LISTENER_H

#include "proxy/bytes.h"
#include "proxy/error.h"

#include <sys/socket.h>

struct listener {
	int fd;
	bool is_unix;
	bool is_loopback; /* an IP address of this machine only */
	char name[160];	  /* the bound address, as it can be given again */
	char path[108];	  /* of a Unix socket, to be removed at the end */
};

/* Binds and listens, non-blocking. An address other than loopback is refused unless `allow_remote`. A stale Unix socket is
 * replaced, one that somebody listens on is not. 0, ERROR_SYNTAX, ERROR_REFUSED or ERROR_SYSTEM. */
int listener_open(struct listener *listener, const char *address, bool allow_remote, struct error *error) MUST_CHECK;
void listener_close(struct listener *listener);

/* The peer's address without its port, for counting; "unix" for a Unix socket. */
void listener_peer_name(const struct sockaddr_storage *peer, char out[64]);

#endif
