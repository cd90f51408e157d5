/* A call: one upstream request and the server requests that it raises, over all its rounds (invariants 2 to 4, 6, 7).
 *
 *   state      list it is on        what moves it on
 *   WAITING    session->waiting     the session is ready and has a place → RUNNING; roots are wanted first → PARKED
 *   RUNNING    session->running     a server request → GATHERING; the answer → FINISHED; client gone, time up → ENDING
 *   GATHERING  session->running     gathered → PARKED; the answer → FINISHED; client gone → ENDING
 *   PARKED     session->parked      a retry → RESUMING or WAITING; the answer → FINISHED; deadline → ENDING
 *   RESUMING   session->resuming    a place → RUNNING; no place in time → PARKED
 *   ENDING     session->ending      the server's late answer or the end of its grace → FINISHED or DEAD
 *   FINISHED   proxy->kept          its time is over → DEAD
 *   DEAD       the graveyard
 *
 * A session that is lost moves its calls to FINISHED (if a request state names them) or DEAD. */
#ifndef MCP_VALET_CALL_H
#define MCP_VALET_CALL_H

#include "proxy/capabilities.h"
#include "proxy/exchange.h"
#include "proxy/server_request.h"
#include "proxy/table.h"

enum call_state {
	CALL_WAITING,
	CALL_RUNNING,
	CALL_GATHERING,
	CALL_PARKED,
	CALL_RESUMING,
	CALL_ENDING,
	CALL_FINISHED,
	CALL_DEAD,
};

/* Why a call ends. */
enum call_end {
	CALL_END_ANSWERED,  /* the server answered */
	CALL_END_REFUSED,   /* policy, limits or time: the client gets an error, the server fails closed */
	CALL_END_CANCELLED, /* the client went away */
	CALL_END_ABANDONED, /* nobody came back in time */
	CALL_END_LOST,	    /* the session is gone */
};

/* One question of the call to its client. */
struct input {
	TAILQ_ENTRY(input) link;
	enum policy_kind kind;
	struct capability_need need;
	char *key;			/* in inputRequests */
	struct buf entry;		/* the input request: JSON text */
	struct server_request *request; /* what it answers; NULL: asked for no request that is open */
	char *elicitation_id;		/* -32042: the server says with it when the URL has served, or NULL */
	bool completed;			/* it has said so */
	bool asked;			/* it has been in a round */
	struct buf answer;		/* the client's, waiting to be delivered upstream; empty: none yet */
};
TAILQ_HEAD(input_list, input);

struct client_task;

struct call {
	struct grave grave;
	TAILQ_ENTRY(call) link;	    /* on the list that its state names */
	UT_hash_handle by_ticket;   /* proxy->tickets */
	UT_hash_handle by_upstream; /* session->requests, while the server owes an answer */
	struct proxy *proxy;
	struct session *session; /* NULL when finished */
	enum call_state state;
	int log_level; /* of the newest request, or LOGGING_NONE */

	/* A parked call is to be small, so the flags stand together. */
	bool sent;	 /* the server owes an answer: it is in session->requests */
	bool mirrored;	 /* HTTP headers mirror it, and were not checked yet (tool_mirrors.h) */
	bool from_start; /* tools/list without a cursor */
	bool reissue;	 /* the server answered -32042: the retry runs the call again */
	bool as_task;	 /* the server runs it as a task */
	bool lost;	 /* the server or its patience is gone: a rerun may help */
	bool ticketed;	 /* a request state names it: it is in proxy->tickets */
	bool delivered;	 /* the outcome reached somebody */
	bool retried;
	bool counted_parked;
	bool was_parked;
	bool has_progress;
	bool cancel_sent;   /* ENDING: notifications/cancelled went out */
	bool recycle;	    /* ENDING: the session is retired if the call does not end */
	bool roots_renewed; /* WAITING: the server was told for it that the roots changed */
	bool resent;	    /* it is in another session than its first */

	const struct method *method;
	struct policy *policy; /* a reference: the rule outlives a reload */
	const struct policy_rule *rule;
	struct metrics_row *row;    /* where it is counted */
	char *subject;		    /* for logs, such as "tools/call report" */
	char *trace;		    /* W3C trace id of the newest request, or NULL */
	char hash[CALL_HASH_CHARS]; /* for logs */
	uint8_t id[CALL_ID_BYTES];
	uint8_t principal[PRINCIPAL_BYTES];
	uint8_t digest[DIGEST_BYTES]; /* of the request */
	struct capabilities caps;     /* of the newest request */
	uint64_t lists_changes;	      /* of the session, when a list was asked for */

	struct buf request;   /* the upstream message, until it is sent */
	uint64_t upstream_id; /* its id; 0: there is no upstream message */
	int64_t budget_ms;    /* what is left of the server's time; stands still while people think */
	int64_t running_since_ms;
	int64_t entered_ms; /* its state */
	int64_t waited_ms;  /* in the proxy, neither for the server nor for people */

	int64_t not_before_ms;		 /* WAITING: when it may run again */
	char *task_id;			 /* as spelled, or NULL */
	struct client_task *client_task; /* what its client may poll, or NULL (client_task.h) */
	uint64_t progress_id;		 /* its progress token upstream: the id of its first request */
	struct buf spare;		 /* a copy of the request, for a second try as a task or in another session */
	struct buf pre_answers; /* inputResponses that a fresh call brought for questions that the policy names */

	struct buf answers;   /* given so far, for the script of a rerun */
	struct buf script;    /* answers that this run was started with: a JSON array */
	uint64_t script_used; /* of them, one bit each */

	uint64_t parked_after; /* the session's newest server request when it parked last */
	uint32_t round;	       /* of the newest request state; 0: none yet */
	int64_t expires_ms;    /* of the newest request state, monotonic clock */
	int64_t keep_ms;       /* until when the answer of an abandoned call is kept, where the server is impatient */
	uint32_t used_round;   /* the newest round that a retry used up */
	uint8_t used_answers[DIGEST_BYTES];
	unsigned asked_before; /* in runs before this one: their names are not used again */
	unsigned replayed;     /* of the questions of this run, answered from the script: no names were used for them */
	unsigned questions;    /* ever asked; names inputs */
	struct input_list inputs;
	struct exchange_list waiters; /* exchanges that get the next outcome */
	struct buf outcome;	      /* body of the newest response, for the same retry again */

	struct buf progress; /* the newest progress params that nobody could be told yet */
	double last_progress;
	struct timer timer; /* the deadline of its state */
};

/* Starts the call for a checked request and answers the exchange in time. */
void call_start(struct exchange *exchange, const struct request *request);
/* A retry: finds the call by its request state, checks everything, and goes on with it. */
void call_retry(struct exchange *exchange, const struct request *request);

/* The one place where a call changes its state: lists, counts and timers follow. */
void call_set_state(struct call *call, enum call_state state);
/* Ends a call for one literal reason. *body is the outcome (may be NULL when nobody is told); its content is taken. */
void call_end(struct call *call, enum call_end how, const char *reason, struct buf *body);
/* call_end() with an error as the outcome. `reason` is also data.reason when `data` is NULL. */
void call_fail(struct call *call, enum call_end how, const char *reason, int code, const char *text, const char *data);

/* The session has a place for a waiting call, or for a resuming one. */
void call_send(struct call *call);
void call_resume(struct call *call);
/* The first round of a waiting call asks for the roots that a request outside any call waits for. */
void call_ask_roots(struct call *call);

/* Events from the session. */
void call_on_answer(struct call *call, struct span result, struct span error, const struct json_index *index);
void call_on_progress(struct call *call, struct span params);
void call_on_server_request(struct call *call, struct server_request *request);
void call_on_withdrawn(struct call *call, struct server_request *request);
void call_on_session_lost(struct call *call, int http_status, const char *why);
/* An exchange that waited for the call is gone. */
void call_on_exchange_gone(struct call *call, struct exchange *exchange);

/* Whether the server may ask something for this call's sake. */
bool call_may_ask(const struct call *call);

/* The server says that a URL elicitation is complete. */
void call_on_elicitation_complete(struct call *call, struct span elicitation_id);

/* reissue.c: an answer of -32042 becomes a round; the retry of such a round runs the call again. */
void call_require_urls(struct call *call, struct span error);
void call_reissue(struct call *call, const struct request *request);

/* resend.c: the server has certainly not begun with the call. Where the session is gone, the call goes to another one; else
 * its client is told that nothing happened. */
void call_on_unseen(struct call *call, const char *why);
/* The same for the calls that a session that is gone has not sent yet. */
void call_resend_waiting(struct session *session);
/* Keeps what is needed for that, before the request is sent. */
void call_keep_request(struct call *call);

/* Within the call's own files. */
void call_take_trace(struct call *call, const struct exchange *exchange);
void call_deliver(struct call *call, int http_status);
void call_await(struct call *call, struct exchange *exchange);
void call_park(struct call *call);
/* Makes the call findable by its id. */
bool call_issue_ticket(struct call *call) MUST_CHECK;
/* Takes the place of the lost call that it runs again: whoever sends the same retry again finds it. */
bool call_take_ticket(struct call *call, struct call *lost) MUST_CHECK;
/* Appends the inputRequests that are still to be answered. */
void call_write_inputs(struct call *call, struct buf *out);
/* Checks the answers to all open questions, and takes them if they are good. false if the exchange was told why not. */
bool call_take_answers(struct exchange *exchange, struct call *call, struct span responses) MUST_CHECK;
/* A parked call has its answers, and goes on. */
void call_proceed(struct call *call, const struct request *request);
void call_unresume(struct call *call);
/* The server owes an answer to the call's request, or does not any more. call->sent is false without memory. */
void call_enter(struct call *call);
void call_leave(struct call *call);
/* Leaves the session for good. */
void call_settle(struct call *call);
/* For the graveyard. */
void call_free(struct grave *grave);
/* Ends the call's questions. When the server has answered the call, its roots/list is still somebody's question. */
void call_drop_inputs(struct call *call, bool answered);
struct input *call_add_input(struct call *call, const struct capability_need *need, struct server_request *request);
void call_remove_input(struct call *call, struct input *input);
void call_log(const struct call *call, enum log_level level, const char *event, const char *format, ...)
	PRINTF_LIKE(4, 5);

#endif
