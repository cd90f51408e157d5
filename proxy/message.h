/* JSON-RPC 2.0 envelopes (2026-07-28 basic/index "Messages"): taking a message apart into spans, and putting small ones
 * together. */
#ifndef MCP_VALET_MESSAGE_H
#define MCP_VALET_MESSAGE_H

#include "proxy/json.h"

enum {
	RPC_PARSE_ERROR = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_METHOD_NOT_FOUND = -32601,
	RPC_INVALID_PARAMS = -32602,
	RPC_INTERNAL_ERROR = -32603,
	RPC_SESSION_NOT_FOUND = -32001,	       /* as legacy servers say it under HTTP 404 */
	RPC_RESOURCE_NOT_FOUND = -32002,       /* legacy only */
	RPC_URL_ELICITATION_REQUIRED = -32042, /* 2025-11-25 only */
	RPC_HEADER_MISMATCH = -32020,
	RPC_MISSING_CAPABILITY = -32021,
	RPC_UNSUPPORTED_VERSION = -32022,
	RPC_SAMPLING_REFUSED = -1, /* legacy client/sampling "Error Handling" */
};

enum message_kind { MESSAGE_REQUEST, MESSAGE_NOTIFICATION, MESSAGE_RESPONSE };

/* A message taken apart. Spans point into the received bytes; a member that is absent has a NULL ptr. */
struct message {
	enum message_kind kind;
	struct span id;	    /* as spelled: a string or an integer */
	struct span method; /* with its quotes */
	struct span params; /* an object, if present */
	struct span result; /* any value */
	struct span error;  /* any value */
	struct json_index index;
};

/* Takes apart one checked JSON value (`index` as filled by json_check). Returns 0 or ERROR_SYNTAX with the fault: no
 * object, jsonrpc is not "2.0", a member twice, an id that is neither string nor integer, params that is no object. Even
 * then message->id is set if it could be read, for the error response. */
int message_parse(
	struct message *message, struct span value, const struct json_index *index, struct error *error) MUST_CHECK;

/* An error response. `id` with a NULL ptr leaves the id out. `data` is JSON text or NULL. */
struct buf message_error(struct span id, int code, const char *text, const char *data) MUST_CHECK;

/* A response around a finished body such as `"result":{…}` or `"error":{…}`. */
struct buf message_response(struct span id, struct span body) MUST_CHECK;
/* The same in the body's own memory, which is taken: a large result is not held twice. */
struct buf message_response_around(struct span id, struct buf *body) MUST_CHECK;

/* A finished body, or that of an error if memory ran out while it was written: half a body is never sent. */
struct span message_body(const struct buf *body);

/* Appends `"error":{…}`: the body of an error response. `data` is JSON text or NULL. */
void message_add_error(struct buf *out, int code, const char *text, const char *data);

#endif
