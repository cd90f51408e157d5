/* Log messages of the server (2026-07-28 server/utilities/logging): a level per request, set upstream at the most verbose
 * one that is needed; messages go only to the request that asked for them. */
#ifndef MCP_VALET_LOGGING_H
#define MCP_VALET_LOGGING_H

#include "proxy/json.h"

struct call;
struct session;
struct message;

enum { LOGGING_NONE = -1, LOGGING_DEBUG, LOGGING_LEVELS = 8 };

/* The number of a level's name (a string value with quotes): 0 is debug, 7 emergency. false if it is none. */
bool logging_read_level(struct span name, int *level);

/* Whether the params of notifications/message are of this level or above it. */
bool logging_is_wanted(const struct message *message, int level);

/* Before a call goes to the server, or goes on there: makes the session's level verbose enough. */
void logging_prepare(struct session *session, const struct call *call);

/* notifications/message from the server. What cannot be attributed to a request that asked for it is dropped. */
void logging_on_message(struct session *session, const struct message *message, uint64_t stream);

#endif
