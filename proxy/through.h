/* A modern client with a modern server: requests and responses pass through. Only what names a request is exchanged on the
 * way, because many clients share the way to the server: its id, its progress token, its subscription id.
 *
 * There is one session for each principal, without a handshake. Rules of the policy that hide a name hold here, too. */
#ifndef MCP_VALET_THROUGH_H
#define MCP_VALET_THROUGH_H

#include "proxy/exchange.h"

/* Sends the request on and answers the exchange in time. */
void through_start(struct exchange *exchange, const struct message *message);
/* The exchange ends, because its client is gone or has cancelled it. */
void through_on_exchange_gone(struct exchange *exchange);

/* For view.c: how many requests are on their way in the session; 0 if it is of another kind. */
unsigned through_running(const struct session *session);

#endif
