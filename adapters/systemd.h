/* What systemd passes to a service and wants to hear from it, by hand: sd_listen_fds(3) and sd_notify(3) are an environment
 * variable and a datagram each. Without systemd none of this does anything.
 *
 * The variables are for this program and not for the servers that it starts: once the listeners are open,
 * systemd_begin() takes them out of the environment. */
#ifndef MCP_VALET_SYSTEMD_H
#define MCP_VALET_SYSTEMD_H

#include "proxy/error.h"

struct systemd {
	char notify_socket[108]; /* a path, or @ and a name; empty: nobody wants to hear anything */
};

/* The one stream socket that systemd listens on for us, set to non-blocking and close-on-exec: the caller owns it, and it is
 * there only once. Returns the descriptor, or -1 with *error. */
int systemd_take_socket(struct error *error) MUST_CHECK;

/* Remembers whom to notify and clears the environment. */
void systemd_begin(struct systemd *systemd);

/* Each sends one datagram and does not wait. Without a service manager, 0. */
int systemd_notify_ready(const struct systemd *systemd, struct error *error) MUST_CHECK;
int systemd_notify_reloading(const struct systemd *systemd, struct error *error) MUST_CHECK; /* ready comes next */
int systemd_notify_stopping(const struct systemd *systemd, struct error *error) MUST_CHECK;

#endif
