/* An elder: a legacy client in front of a modern server. Its relay keeps the streams and events as ever; here the messages
 * change their era. What belonged to the session is answered here (initialize, from the server's `server/discover`; ping;
 * logging/setLevel, whose level goes with every later request), the other requests go to the server with the `_meta` of
 * 2026-07-28. An InputRequiredResult (basic/patterns/mrtr) becomes server requests to the client, and when all of them are
 * answered, the retry is ours.
 *
 * An elicitation that the client answers with an error, or not in time (`park`), is answered by `cancel` (invariant 7).
 * The modern revision has no such word for sampling and roots: there the client's request fails. */
#ifndef MCP_VALET_ELDER_H
#define MCP_VALET_ELDER_H

#include "proxy/relay.h"
#include "proxy/translate.h"
#include "proxy/view.h"

enum { ELDER_LISTS = 3 }; /* tools, prompts, resources */

/* A resource that the client has subscribed to. */
struct elder_uri {
	TAILQ_ENTRY(elder_uri) link;
	char *spelled;	 /* with its quotes */
	uint64_t listen; /* the first one that asks for it */
};

/* What the client said of itself, and wants to be told. */
struct elder {
	enum legacy_version version; /* agreed */
	struct capabilities caps;
	struct buf capabilities; /* JSON text, as the server is told of them */
	char *info;		 /* JSON text, or NULL */
	char *level;		 /* of logging/setLevel as spelled, or NULL */
	unsigned calls;		 /* that may be answered by questions */
	unsigned open;		 /* questions to the client without an answer */

	bool lists[ELDER_LISTS]; /* the server tells of their changes */
	TAILQ_HEAD(, elder_uri) uris;
	unsigned uri_count;
	size_t uri_bytes; /* as spelled */
	uint64_t listen;  /* the subscription that is acknowledged, or 0 */
	uint64_t asked;	  /* one of ours that is not yet, or 0 */
	unsigned failures;
	bool missed;	    /* changes may not have been told */
	struct timer timer; /* asks again */
};

struct elder *elder_new(void) MUST_CHECK;
void elder_free(struct elder *elder); /* may be NULL */

/* From the client: a request, whose response comes by relay_respond(), perhaps before this returns; a response to a
 * question; the end of its interest in a request. */
void elder_on_request(struct relay_stream *stream, const struct message *message);
void elder_on_answer(struct relay *relay, const struct message *message);
void elder_on_cancelled(struct relay_stream *stream);

/* From the server; `request` is the id of the request on whose stream it came, or 0. */
void elder_on_message(struct relay *relay, const struct message *message, struct span whole, uint64_t request);

/* Sends a request with the `_meta` that each one has; `call` is whose retry it is, or NULL. */
bool elder_send(struct relay *relay, uint64_t id, const char *method, struct span params,
	const struct json_index *index, const struct elder_call *call) MUST_CHECK;
/* The same for the stream's request. false: that failed, and the stream is over. */
bool elder_send_request(
	struct relay_stream *stream, const char *method, struct span params, const struct json_index *index);
/* Ends the stream with an empty result, or an error. */
void elder_succeed(struct relay_stream *stream);
void elder_fail(struct relay_stream *stream, int code, const char *text);
/* Appends the members of an object but for those named. */
void elder_add_members_but(
	struct buf *out, struct span object, const struct json_index *index, const char *const *dropped);

/* elder_call.c: requests that the server may answer by questions. */

/* NULL without memory or beyond a limit; *error says which. */
struct elder_call *elder_call_new(
	struct relay_stream *stream, const struct message *message, struct error *error) MUST_CHECK;
void elder_call_free(struct elder_call *call); /* may be NULL */
/* Appends what makes a request a retry. */
void elder_add_answers(struct buf *out, const struct elder_call *call);
void elder_on_input_required(struct elder_call *call, const struct message *message);
/* Whether the stream's request waits for answers of the client. */
bool elder_is_parked(const struct relay_stream *stream);
/* What view.h shows of such a request. */
struct view_parked elder_look(const struct relay_stream *stream);
/* Whether a progress notification may go to the client: progress must increase, over all rounds. */
bool elder_is_progress(const struct relay *relay, const struct message *message);

/* elder_listen.c: what the server tells unasked. */

/* Which lists the server tells of, by its capabilities. */
void elder_read_lists(struct elder *elder, struct span capabilities);
/* The client listens; the session ends. */
void elder_on_initialized(struct relay *relay);
void elder_on_end(struct relay *relay);
/* The client's resources/subscribe or unsubscribe. */
void elder_subscribe(struct relay_stream *stream, const struct message *message, bool is_subscription);
/* Forgets the resources that this listen was the first to ask for; of 0 all. */
void elder_forget_uris(struct elder *elder, uint64_t listen);
/* notifications/subscriptions/acknowledged. */
void elder_on_acknowledged(struct relay *relay, const struct message *message);
/* Whether a notification is of the subscription that counts. */
bool elder_is_subscribed(const struct relay *relay, const struct message *message);
/* A request is over. false: it was no listen. */
bool elder_on_listen_over(struct relay *relay, uint64_t id);

#endif
