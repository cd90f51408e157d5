/* Downstream: what a face (stdio, Streamable HTTP) and the core know of each other.
 *
 * A face owns a struct client for each place that responses go to: the one pipe of stdio, or one HTTP connection. It
 * gives the core each message as bytes, and the core calls back with notifications and with exactly one response for
 * each request (invariant 1). The core may call back before proxy_receive() returns. */
#ifndef MCP_VALET_FACE_H
#define MCP_VALET_FACE_H

#include "proxy/bytes.h"

#include <sys/queue.h>

enum { PRINCIPAL_BYTES = 32 };

struct proxy;
struct exchange;
struct client;
struct relay;
struct relay_stream;

struct face_ops {
	/* Delivers a notification that belongs to a request of this client and precedes its response, or one of the session
	 * of a legacy client on a pipe. The face takes the content of *message. It may drop notifications when the client does not read. */
	void (*notify)(struct client *client, struct buf *message);
	/* Delivers a response. The face takes the content of *message. http_status is what HTTP answers if nothing has been
	 * sent for the request yet. */
	void (*respond)(struct client *client, int http_status, struct buf *message);
	/* Delivers any message of a legacy client's session but the response. The face takes the content of *message. false if
	 * it cannot be kept for the client, who reads too slowly. */
	bool (*send)(struct client *client, struct buf *message) MUST_CHECK;
	/* Ends what the client has open without a response: its event stream over HTTP, the connection over stdio. */
	void (*finish)(struct client *client);
	/* A header of the request that has no response yet, by its lower-case name. NULL where there are no headers. */
	bool (*header)(const struct client *client, const char *name, struct span *value);
	/* Appends the headers whose names begin with `prefix` (lower case), each as a line `Name: value` ended by LF. NULL where
	 * there are no headers. */
	void (*headers_of)(const struct client *client, const char *prefix, struct buf *lines);
};

struct client {
	const struct face_ops *ops;
	uint8_t principal[PRINCIPAL_BYTES]; /* whose requests these are; a hash or a constant, never a secret */
	const char *authorization;	    /* credentials to open upstream sessions with, or NULL; borrowed */
	const char *challenge;		    /* WWW-Authenticate for the response being delivered (401, 403), or NULL */
	const char *session_id;		    /* Mcp-Session-Id for the response being delivered, or NULL */
	const char *event_id;		    /* the id of the event being delivered, or NULL */
	struct relay *relay;		    /* the core's: stdio, the session of a legacy client, or NULL */
	struct relay_stream *reads;	    /* the core's: the stream of a legacy session that it reads, or NULL */
	bool cancels_by_message;	    /* stdio: notifications/cancelled cancels; HTTP: only closing does */
	TAILQ_HEAD(exchange_list, exchange) exchanges; /* the core's: requests without a response yet */
};

/* The HTTP headers that mirror the body (2026-07-28 transports/streamable-http "Request Metadata"). A NULL ptr means that
 * the header is absent. */
struct request_headers {
	struct span protocol_version;
	struct span method;
	struct span name;
};

enum received {
	RECEIVED_REQUEST,      /* a response comes, or came, through respond() */
	RECEIVED_NOTIFICATION, /* taken; HTTP answers 202 */
	RECEIVED_INVALID,      /* not a request or notification; an error response came through respond() */
};

/* Prepares a client whose other members the face has filled in. */
void client_init(struct client *client, const struct face_ops *ops);

/* One message from the client. `headers` is NULL on stdio, where no headers exist. */
enum received proxy_receive(
	struct proxy *proxy, struct client *client, struct span message, const struct request_headers *headers);

/* Requests of a legacy client without a message (2025-11-25 basic/transports "Listening for Messages from the Server",
 * "Session Management"); its Mcp-Session-Id names the session. Both give the HTTP status: 404 if there is no such session of
 * this principal, 400 if its Last-Event-ID names no event of a stream that is there, else 200. */

/* GET: the client reads an event stream, from Last-Event-ID on if it has one, until the core calls finish(), perhaps
 * before this returns. */
int proxy_listen(struct proxy *proxy, struct client *client);
/* DELETE: the client ends the session. */
int proxy_end_session(struct proxy *proxy, struct client *client);

/* The client has gone: all its open requests are cancelled (basic/patterns/cancellation) and nothing more is delivered. */
void client_gone(struct proxy *proxy, struct client *client);

#endif
