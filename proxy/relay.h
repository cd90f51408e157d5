/* A relay: the session of a legacy client, passed to the legacy server unchanged (basic/versioning "Backward Compatibility
 * with Initialization-Based Versions"). It has an upstream session of its own, and never shares it. Where the server is
 * modern, elder.h is between the two.
 *
 * Over stdio the client's pipe is the relay. Over HTTP (2025-11-25 basic/transports "Session Management") the client names
 * the relay by its Mcp-Session-Id; each of its requests is a stream, and what belongs to none goes to the standalone stream
 * that the client opens with GET. What was said on an event stream is kept, as far as limits.replay allows, for a client
 * that lost its connection and comes back with Last-Event-ID ("Resumability and Redelivery").
 *
 * Rules of the policy that hide a name hold here, too; of the others `park` and `rounds` do in front of a modern server. */
#ifndef MCP_VALET_RELAY_H
#define MCP_VALET_RELAY_H

#include "proxy/exchange.h"
#include "proxy/table.h"

enum { RELAY_ID_BYTES = 16, RELAY_ID_CHARS = 2 * RELAY_ID_BYTES };

/* One event of a stream, kept for a client that comes back. */
struct relay_event {
	TAILQ_ENTRY(relay_event) link;
	uint64_t stream;
	uint64_t number; /* in the order of the relay's events, from 1 */
	bool sent;	 /* somebody was there to read it */
	bool last;	 /* it is the response: the stream ends with it */
	struct buf message;
};

/* What goes to one place: a request's response and all before it; or, as the standalone stream, the rest. */
struct relay_stream {
	TAILQ_ENTRY(relay_stream) link;
	struct relay *relay;
	uint64_t number;	     /* the request's id upstream; 0: the standalone stream */
	uint64_t request;	     /* the same, or the id of its newest retry (elder.h) */
	struct elder_call *call;     /* elder.h, or NULL */
	char *id, *progress_token;   /* as spelled, or NULL */
	const struct method *method; /* or NULL: none that is known here */
	struct metrics_row *row;     /* where it is counted until it ends, or NULL */
	struct exchange *exchange;   /* whose response it is, while the client is there */
	struct client *reader;	     /* who reads it by GET, or NULL */
	bool answered, cancelled;
	bool has_events; /* something was sent before the response */
	unsigned kept;	 /* of the relay's events */
};

struct relay {
	UT_hash_handle hh; /* proxy->relays, over HTTP */
	char id[RELAY_ID_CHARS + 1];
	struct session *session;
	struct elder *elder; /* the server is modern; NULL: it is legacy, too */
	struct client *pipe; /* stdio: the client; NULL: HTTP */
	char *version;	     /* agreed, or NULL */
	uint64_t initialize; /* number of the stream of initialize */
	bool established;
	struct relay_stream standalone;
	TAILQ_HEAD(relay_streams, relay_stream) streams; /* of requests, oldest first */
	TAILQ_HEAD(relay_events, relay_event) events;	 /* oldest first */
	uint64_t events_ever;
	size_t kept_bytes;
};

/* Looks whether a message is one of a legacy client, and if so, does all that is to be done with it. `whole` is the message
 * as it came. false: it is not. */
bool relay_takes(struct proxy *proxy, struct client *client, const struct message *message, struct span whole,
	const struct request_headers *headers, enum received *received);

/* Whether it belongs to a session of a legacy client that is open, and so to a server whose era is known. */
bool relay_owns(struct proxy *proxy, const struct client *client, const struct message *message,
	const struct request_headers *headers);

/* The exchange ends, because its client is gone; the request goes on, and its stream can be resumed. */
void relay_on_exchange_gone(struct exchange *exchange);
/* The client, a pipe or a reader, is gone. */
void relay_on_client_gone(struct client *client);

/* relay_observe.c: counting for metrics and report. */

void relay_observe_request(struct relay_stream *stream, const struct message *message);
void relay_observe_answer(struct relay_stream *stream, const struct message *message);
void relay_observe_question(struct relay *relay, const struct message *message, uint64_t request);
/* It ends, with an answer or without. */
void relay_observe_end(struct relay_stream *stream);

/* relay_server.c: what comes from the server, as in session_ops. */

void relay_on_message(struct session *session, const struct message *message, struct span whole, uint64_t request);
void relay_on_request_failed(struct session *session, uint64_t request, int http_status, const char *why);

/* For elder.c. */

/* The server has told enough for the session to begin. */
void relay_on_opened(struct relay *relay, const char *version);
/* Ends the stream with the response of its request. The content of *response is taken. */
void relay_respond(struct relay_stream *stream, struct buf *response);
/* Sends a message of ours that belongs to the stream. The content of *message is taken. */
void relay_send(struct relay_stream *stream, struct buf *message);
/* Passes a message of the server that is no response; `request` as in session_ops. */
void relay_pass(struct relay *relay, const struct message *message, struct span whole, uint64_t request);

/* relay.c, for relay_server.c: there is no session. Over HTTP nobody knows its id then; on a pipe the client may try again. */
void relay_on_initialize_failed(struct relay *relay);

/* For view.c: the relay that is the session's, or NULL. */
const struct relay *relay_of_session(const struct session *session);
/* How many requests the server still works on, whether their clients are there or not. */
unsigned relay_running(const struct relay *relay);

/* relay_stream.c: where the server's messages go. */

/* The relay that the Mcp-Session-Id of the client's request names, NULL if there is none, or it is another principal's. */
struct relay *relay_of_client(struct proxy *proxy, const struct client *client);

/* The stream of a request, by its id upstream; of 0 the standalone one. NULL if there is none. */
struct relay_stream *relay_stream_find(struct relay *relay, uint64_t number);
/* The stream whose newest request has this id upstream, or NULL. */
struct relay_stream *relay_stream_of_request(struct relay *relay, uint64_t request);
/* The stream whose client gave it this id and still waits for the response, or NULL. */
struct relay_stream *relay_stream_by_id(struct relay *relay, struct span id);
struct relay_stream *relay_stream_new(struct relay *relay, struct exchange *exchange, const struct message *message);
/* Forgets the stream if nothing more can become of it. */
void relay_stream_settle(struct relay_stream *stream);
void relay_stream_free(struct relay_stream *stream);
/* The stream's request is over, though events of it may be kept. */
void relay_stream_end_call(struct relay_stream *stream);
/* Parts the stream from the exchange that waits for it, which may be NULL. */
struct exchange *relay_stream_take_exchange(struct relay_stream *stream);
/* Sends a message to who reads the stream, and keeps it. The content of *message is taken. */
void relay_stream_put(struct relay_stream *stream, struct buf *message, bool is_last);
/* Ends what the client has open for the stream. */
void relay_stream_hang_up(struct relay_stream *stream);
void relay_forget_events(struct relay *relay);

#endif
