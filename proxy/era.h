/* Which era the server is of, where the policy says `upstream.era: auto`: it is asked once by a server/discover on a session
 * that is thrown away (basic/transports/stdio and streamable-http "Backward Compatibility"), because legacy servers exist
 * that end at any request before initialize. Clients' requests wait for the outcome. It is asked again when a session is
 * lost or cannot be had: the server may have been replaced. */
#ifndef MCP_VALET_ERA_H
#define MCP_VALET_ERA_H

#include "proxy/core.h"
#include "proxy/message.h"

/* Keeps a request until the era is known. false if it is, or the message is no request: then it is processed now. */
bool era_defers(struct proxy *proxy, struct client *client, const struct message *message, struct span whole,
	const struct request_headers *headers);
/* The client is gone, and what it asked with it. */
void era_forget(struct proxy *proxy, const struct client *client);
/* A session was lost or could not be had. */
void era_doubt(struct proxy *proxy);

#endif
