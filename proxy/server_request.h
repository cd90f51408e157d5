/* A server request: what the legacy server asks in the middle of its work. Each is answered once, or withdrawn by the
 * server (invariant 3). It is on its session's list until then. */
#ifndef MCP_VALET_SERVER_REQUEST_H
#define MCP_VALET_SERVER_REQUEST_H

#include "proxy/capabilities.h"
#include "proxy/core.h"
#include "proxy/message.h"

struct call;
struct session;

enum server_request_state {
	SERVER_REQUEST_HELD,	 /* whose it is will be seen when other calls end */
	SERVER_REQUEST_ORPHAN,	 /* it belongs to no call: roots, waiting for a client that tells them */
	SERVER_REQUEST_ASSIGNED, /* an input of its call */
};

struct server_request {
	struct grave grave;
	TAILQ_ENTRY(server_request) link;
	struct session *session;
	uint64_t number; /* in the order of the session's requests, from 1 */
	enum server_request_state state;
	struct call *call; /* SERVER_REQUEST_ASSIGNED, or about to be */
	struct capability_need need;
	char *id;			     /* as spelled */
	char *params;			     /* JSON text, or NULL */
	char *progress_token;		     /* as spelled, or NULL */
	enum server_request_outcome outcome; /* so far: what it will be counted as */
	int64_t received_ms;
	uint64_t stream;   /* the request on whose stream it came, 0: no evidence */
	unsigned progress; /* notifications sent to keep its timer alive */
	struct timer hold;
};

/* A request from the server that is none of ping. Answers it, refuses it, or gives it to the call it belongs to. */
void server_request_receive(struct session *session, const struct message *message, uint64_t stream);
/* Sends the answer, a body `"result":…` or `"error":…`, and ends the request. */
void server_request_answer(struct server_request *request, struct span body);
/* Makes it a request that belongs to no call: the next call whose client tells its roots will ask for them. */
void server_request_orphan(struct server_request *request);
/* Ends the request as one that nobody answered (invariant 7). */
void server_request_fail_closed(struct server_request *request, const char *reason);
/* The server took the request with this id back. */
void server_request_withdraw(struct session *session, struct span id);
/* The one place where a request changes its state: what the session counts follows. */
void server_request_set_state(struct server_request *request, enum server_request_state state);
/* A call of the session has ended or stopped running: requests in doubt may now be certain. */
void server_requests_reconsider(struct session *session);
/* Calls of the session may have been sent: roots that no call asked for are not held longer than they can wait. */
void server_requests_hurry_roots(struct session *session);
/* Answers every roots/list that belongs to no call. */
void server_requests_answer_roots(struct session *session, struct span body);
/* Ends all requests of a session: failing closed while the server can be reached, without answers when it is gone. */
void server_requests_drop(struct session *session);

#endif
