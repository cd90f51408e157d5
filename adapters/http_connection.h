/* One HTTP connection of the HTTP face. Private to http_face.c, http_connection.c and http_reply.c. */
#ifndef MCP_VALET_HTTP_CONNECTION_H
#define MCP_VALET_HTTP_CONNECTION_H

#include "adapters/http1.h"
#include "adapters/http_face.h"
#include "adapters/http_fetch.h"
#include "adapters/listener.h"
#include "adapters/log.h"
#include "adapters/outbox.h"

#include <event2/event.h>

enum connection_state {
	CONNECTION_HEAD,    /* waits for a head, or is idle between requests */
	CONNECTION_BODY,    /* collects the body */
	CONNECTION_PENDING, /* the core has the request */
	CONNECTION_CLOSING, /* writes what is left, then ends */
	CONNECTION_DEAD,    /* waits to be freed at the end of the loop's turn */
};

TAILQ_HEAD(connection_list, connection);

struct http_face {
	struct event_base *base;
	struct proxy *proxy;
	struct policy *policy;
	const struct env *env;
	char *path;
	struct listener listener;
	struct http_upstream *metadata; /* where protected resource metadata comes from, or NULL */
	struct event *accept_event;
	struct event *pause_timer; /* after running out of descriptors */
	struct log_rate accept_rate;
	struct event *bury_timer; /* frees the dead at the end of the turn */
	struct connection_list connections, dead;
	size_t count;
	struct log_rate refusals; /* of connections */
	bool stopped;
};

struct connection {
	TAILQ_ENTRY(connection) link;
	struct http_face *face;
	struct client client;
	enum connection_state state;
	int fd;
	char peer[64];
	struct event *read_event, *write_event, *timer;
	struct buf in;	/* read and not yet used */
	size_t scanned; /* of it, looked at for the end of a head */
	struct buf head;
	struct http1_head request; /* spans into `head` */
	struct http1_body framing;
	struct buf body;
	char *authorization;
	struct http_fetch *fetch; /* a document of the upstream's that the client waits for */
	int64_t since_ms;	  /* the head's first byte, or the body's start */
	bool keep_alive;
	bool streaming;	     /* the event stream has begun */
	bool processing;     /* connection_process() is at work */
	bool blocked;	     /* nothing is read until the responses were */
	size_t unread_bytes; /* of the outbox, when the idle timer last fired */
	struct outbox outbox;
};

/* Takes over an accepted descriptor. false without memory: the descriptor is closed. */
bool connection_open(struct http_face *face, int fd, const char *peer);
/* Ends it at once; a pending request is cancelled. */
void connection_end(struct connection *connection);
/* Frees the dead. */
void connection_free(struct connection *connection);

/* For http_reply.c. */

int64_t connection_now_ms(const struct connection *connection);
void connection_set_timer(struct connection *connection, int64_t delay_ms);
/* Credentials and arguments do not stay in memory longer than they are used. */
void connection_forget_request(struct connection *connection);

/* http_reply.c: what it says. Each of these may end the connection. */

/* Adds bytes to what is to be written. Their content is taken. */
void reply_put(struct connection *connection, struct buf *bytes);
/* Writes as much as the client takes. */
void reply_flush(struct connection *connection);
/* An error of our own. The connection ends with it when what follows on it cannot be trusted. */
void reply_refuse(struct connection *connection, int status, const char *text, bool close);
/* A whole response without a body. */
void reply_empty(struct connection *connection, int status);
/* The head of an event stream. */
void reply_begin_stream(struct connection *connection);
/* The document that the connection `arg` waited for (http_fetch.h). */
void reply_document(void *arg, int status, const char *content_type, struct span body);

extern const struct face_ops http_face_ops;

#endif
