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

struct face_ops {
	/* Delivers a notification that belongs to a request of this client and precedes its response. The face takes the
	 * content of *message. It may drop notifications when the client does not read. */
	void (*notify)(struct client *client, struct buf *message);
	/* Delivers a response. The face takes the content of *message. http_status is what HTTP answers if nothing has been
	 * sent for the request yet. */
	void (*respond)(struct client *client, int http_status, struct buf *message);
	/* A header of the request that is being received, by its lower-case name. NULL where there are no headers. */
	bool (*header)(const struct client *client, const char *name, struct span *value);
};

struct client {
	const struct face_ops *ops;
	uint8_t principal[PRINCIPAL_BYTES]; /* whose requests these are; a hash or a constant, never a secret */
	const char *authorization;	    /* credentials to open upstream sessions with, or NULL; borrowed */
	const char *challenge;		    /* WWW-Authenticate for the response being delivered (401, 403), or NULL */
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

/* The client has gone: all its open requests are cancelled (basic/patterns/cancellation) and nothing more is delivered. */
void client_gone(struct proxy *proxy, struct client *client);

#endif
