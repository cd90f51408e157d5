/* Which call raised this server request? Evidence, best first: the response stream it came on; the only running call of
 * the session; elimination. What stays ambiguous is for the caller to fail closed: nobody guesses (invariant 2). */
#ifndef MCP_VALET_ATTRIBUTION_H
#define MCP_VALET_ATTRIBUTION_H

#include "proxy/session.h"

enum attribution {
	ATTRIBUTED,	      /* *call is the one */
	ATTRIBUTION_NONE,     /* it belongs to no call */
	ATTRIBUTION_UNSURE,   /* several calls may have raised it: it may become certain when others end */
	ATTRIBUTION_HOPELESS, /* it can only be a call that nobody waits for, or no waiting will tell */
};

/* Judges one request by what is running in its session now. */
enum attribution attribute(const struct server_request *request, struct call **call);

#endif
