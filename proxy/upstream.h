/* Upstream: what a transport to the legacy server and the core know of each other.
 *
 * The core opens one struct upstream for each legacy session and sends complete JSON-RPC messages; the adapter hands back
 * each complete message and says when the connection is lost. The core speaks the protocol (initialize, ids, answers);
 * the adapter moves bytes. */
#ifndef MCP_VALET_UPSTREAM_H
#define MCP_VALET_UPSTREAM_H

#include "proxy/bytes.h"
#include "proxy/error.h"

struct session;
struct upstream; /* the adapter's object for one session */

enum upstream_kind { UPSTREAM_REQUEST, UPSTREAM_NOTIFICATION, UPSTREAM_RESPONSE };

struct upstream_ops {
	/* Starts a connection for `session`. Returns NULL with *error filled if that cannot even be tried. Messages may be
	 * sent at once; the adapter queues them. */
	struct upstream *(*open)(void *ctx, struct session *session, struct error *error)MUST_CHECK;
	/* Sends one message (without a line end) and takes the content of *message. request_id is the id of a request, 0 for
	 * the other kinds. Returns ERROR_LIMIT when the queue is full, and the message is dropped. */
	int (*send)(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id,
		struct buf *message) MUST_CHECK;
	/* The handshake is over and `version` was agreed. The adapter answers with session_on_established() when messages
	 * that belong to no request can reach us (at once on stdio; when the GET stream is up or refused over HTTP). */
	void (*establish)(struct upstream *upstream, const char *version);
	/* Nobody waits for this request any more (it was answered or cancelled): its stream, if any, may be closed. */
	void (*forget)(struct upstream *upstream, uint64_t request_id);
	/* Ends the connection in order and frees the object in time. No callback follows. */
	void (*close)(struct upstream *upstream);
	/* Whether messages come with the request on whose stream they arrived: evidence for attribution. */
	bool has_streams;
};

/* Called by adapters. The core may close the upstream within any of them; `message` is borrowed for the call. */

/* One complete message. `stream` is the id of the request on whose response stream it came, 0 if there is no such evidence.
 * false: it was no message at all. */
bool session_on_message(struct session *session, struct span message, uint64_t stream);
void session_on_established(struct session *session);
/* The connection is gone, or could not be made. `why` is for the client and the log. http_status is the upstream's HTTP
 * status where that was the reason (401, 403, 404 …), else 0. The adapter frees its object after this call. */
void session_on_lost(struct session *session, int http_status, const char *why);
/* One request cannot be answered any more (its stream broke), while the session lives. */
void session_on_request_failed(struct session *session, uint64_t request_id, int http_status, const char *why);
/* The same, and the server has seen nothing of the request, because no connection could be made. */
void session_on_request_unseen(struct session *session, uint64_t request_id, const char *why);
/* The server does not know the session any more. It said so instead of looking at this request (0: not to a request). What it
 * works on elsewhere in the session may be answered yet; the rest is lost or goes to another session. */
void session_on_gone(struct session *session, uint64_t request_id, const char *why);

/* This session's messages do not come on the streams of their requests, whatever has_streams says of the transport. */
void session_has_no_streams(struct session *session);
/* What the server wants to see (WWW-Authenticate), for the client of the request that fails next with 401 or 403. */
void session_set_challenge(struct session *session, const char *challenge);
/* Header lines of the client that the policy forwards, each ended by LF, or NULL. */
const char *session_forwarded(const struct session *session);
/* Header lines that mirror the arguments of the request that is being sent, each ended by LF. */
struct span session_mirrored(const struct session *session);
/* The newest credentials of the client, or NULL. */
const char *session_authorization(const struct session *session);
/* Whether the server speaks 2026-07-28: there is no handshake, and over HTTP each request has the headers of that revision. */
bool session_is_modern(const struct session *session);
/* The session's name for logs, such as "s3". */
const char *session_name(const struct session *session);

#endif
