/* A session: one legacy session with the server, kept for one principal and one set of capabilities, so that the
 * capabilities declared upstream are the client's own (invariant 8) and nothing crosses between principals. */
#ifndef MCP_VALET_SESSION_H
#define MCP_VALET_SESSION_H

#include "proxy/call.h"
#include "proxy/list_cache.h"
#include "proxy/logging.h"
#include "proxy/result.h"
#include "proxy/tool_mirrors.h"
#include "proxy/translate.h"

enum session_state {
	SESSION_OPENING,      /* initialize sent */
	SESSION_ESTABLISHING, /* initialized sent, the adapter gets ready */
	SESSION_READY,
	SESSION_RETIRING, /* no new calls; closed when its calls are over */
	SESSION_DEAD,	  /* in the graveyard */
};

/* What becomes of the messages of a session that is not bridged but passed through. */
struct session_ops {
	/* `whole` is the message as it came. */
	void (*on_message)(struct session *session, const struct message *message, struct span whole, uint64_t stream);
	void (*on_request_failed)(struct session *session, uint64_t request_id, int http_status, const char *why);
	/* The session is over; `why` is NULL when that is in order. Nothing can be sent any more. */
	void (*on_end)(struct session *session, int http_status, const char *why);
	bool (*in_use)(const struct session *session);
	void (*free)(struct session *session);
};

struct session {
	struct grave grave;
	TAILQ_ENTRY(session) link; /* proxy->sessions */
	struct proxy *proxy;
	const struct session_ops *ops; /* NULL: the session is bridged */
	void *owner;		       /* what it belongs to then */
	bool modern;		       /* the server speaks 2026-07-28: there is no handshake */
	bool gone;		       /* the server does not know it any more */
	enum session_state state;
	char name[24];
	uint8_t principal[PRINCIPAL_BYTES];
	struct capabilities caps;
	char *authorization;  /* or NULL; wiped when freed */
	char *challenge;      /* of the server's last refusal, or NULL */
	struct buf forwarded; /* header lines of the client, each ended by LF, and a NUL */
	struct buf mirrored;  /* header lines of the request that is being sent */
	char *client_info;    /* JSON text, or NULL */
	struct upstream *upstream;

	enum legacy_version version; /* offered, then agreed */
	bool plain;		     /* capabilities are declared in the shape that every revision knows */
	unsigned attempts;	     /* of the handshake */
	struct server_identity identity;
	struct list_cache lists;

	bool no_streams; /* messages do not come on the streams of their requests */
	uint64_t next_id;
	uint64_t initialize_id;
	uint64_t ping_id;      /* of the newest ping that is not answered, or 0 */
	uint64_t settle_id;    /* of the ping that calls wait for, or 0 */
	struct call *requests; /* table by upstream id: the server owes an answer */

	struct call_list waiting, running, parked, resuming, ending;
	struct subscription_list subscriptions;
	struct tool_mirrors mirrors; /* what headers its tools ask for */
	int log_level;		     /* set upstream, or LOGGING_NONE */
	unsigned waiting_count;
	TAILQ_HEAD(, server_request) server_requests;
	unsigned server_request_count;
	unsigned held_count; /* of them, those whose call is not certain yet */
	uint64_t server_requests_ever;
	unsigned orphan_roots; /* of them, roots/list that belongs to no call */
	bool roots_given_up;   /* the server gave up on such a request: it must be made to ask again */
	int64_t settled_ms;    /* calls that may ask wait until then */

	bool pumping, pump_again; /* session_pump() is at work, and was called again meanwhile */

	struct timer timer;	/* handshake deadline, idle time */
	struct timer wake;	/* to look again for places */
	struct timer keepalive; /* while calls are parked */
};

/* The session for a request, opened if need be. NULL with *error; *http_status is then what HTTP answers. */
struct session *session_for(struct proxy *proxy, const struct client *client, const struct capabilities *caps,
	const struct request *request, bool may_ask, struct error *error) MUST_CHECK;

/* The newest credentials count: tokens are refreshed while calls are parked. */
void session_take_credentials(struct session *session, const struct client *client);
/* The client uses the session: of those that nobody uses now, it is the last to be closed. */
void session_touch(struct session *session, const struct client *client);

/* Opens a session that is passed through. NULL with *error if that cannot be tried. It is OPENING until
 * session_set_ready(), which ends the deadline for that. */
struct session *session_open(struct proxy *proxy, const struct client *client, const struct session_ops *ops,
	void *owner, bool modern, struct error *error) MUST_CHECK;
void session_set_ready(struct session *session);

/* Sends one message upstream. 0, ERROR_LIMIT, ERROR_LOST or ERROR_MEMORY. */
int session_send(struct session *session, enum upstream_kind kind, uint64_t request_id, struct buf *message) MUST_CHECK;
/* Sends a ping, whose id *newest is then. false if it could not be sent. */
bool session_ping(struct session *session, uint64_t *newest);
/* The call whose request has this id upstream and is not answered, or NULL. */
struct call *session_find_call(const struct session *session, uint64_t id);
/* Sends notifications/cancelled for a request of ours. */
void session_cancel_request(struct session *session, uint64_t request_id, const char *reason);
/* Takes no new calls any more. */
void session_retire(struct session *session, const char *reason);
/* Closes the connection in order; its calls must be over. */
void session_close(struct session *session, const char *reason);
void session_touch_keepalive(struct session *session);
void session_log(const struct session *session, enum log_level level, const char *event, const char *format, ...)
	PRINTF_LIKE(4, 5);
/* Warns of what a server sends, as often as it likes: ten lines a second are written, and how many were left out. */
void session_warn(const struct session *session, const char *event, const char *format, ...) PRINTF_LIKE(3, 4);

/* session_places.c */

/* Lets calls go ahead for which there is a place now; called whenever that may have changed. */
void session_pump(struct session *session);
/* Lets the server come to rest: calls that may ask wait until it has answered a ping, and `settle` more. A server that is
 * slow to read is slow to answer too. */
void session_settle(struct session *session);
/* The answer to a ping has come. */
void session_on_pong(struct session *session, uint64_t id);
/* Whether a call has to wait for others, because a server request could not be told apart. */
bool session_is_serial(const struct session *session);

/* handshake.c */
int session_start_handshake(struct session *session, struct error *error) MUST_CHECK;
void session_on_initialize_answer(struct session *session, const struct message *message);
/* session.c, for handshake.c: the session cannot be had. */
void session_fail(struct session *session, int http_status, const char *why);
/* session.c, for session_places.c: a session that nobody uses ends when it was idle for long enough. */
void session_rest(struct session *session);

#endif
