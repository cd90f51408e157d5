/* Handlers: what a simulated legacy server does with one call, a list of steps drawn when the call arrives. */
#ifndef MCP_VALET_SIM_HANDLER_H
#define MCP_VALET_SIM_HANDLER_H

#include "tests/sim/model.h"

enum step_op {
	STEP_SLEEP, /* for `number` ms */
	STEP_ASK,   /* something */
	STEP_AWAIT, /* all answers; gives up after `number` ms, 0: never */
	STEP_PROGRESS,
	STEP_LOG,
	STEP_WITHDRAW, /* one of what is open */
	STEP_CRASH,
	STEP_RESULT,
	STEP_ERROR,
	STEP_URLS,  /* -32042 */
	STEP_BREAK, /* the call's stream */
	STEP_HANG,
};

struct step {
	enum step_op op;
	int64_t number;
};

enum { MAX_STEPS = 40, MAX_STRAYS = 20 };

/* A question that the server waits for. */
struct pending {
	struct pending *next;
	struct question *question;
	struct handler *handler;
	struct span entry; /* of inputRequests, where the server is modern */
};

struct handler {
	struct handler *next;
	struct server *server;
	struct job *job;
	uint64_t id;
	const char *method;
	bool wants_progress, waiting, over, ignores_cancel;
	bool as_task;
	bool logs;		  /* the client wants log messages */
	struct capabilities caps; /* of a modern server: the request's */
	const char *state;	  /* the same: of the round that waits, as spelled, or NULL */
	int64_t token;		  /* for progress */
	uint64_t result_id;	  /* of the request for the task's result; 0: none yet */
	const char *body;	  /* of the task's result, for when it is asked for */
	unsigned progress;
	struct step steps[MAX_STEPS];
	unsigned count, at;
	unsigned waits; /* tells an old timeout from a new one */
};

struct server {
	struct link *link;
	struct handler *handlers;
	struct pending *pending;
	unsigned next_id;
	unsigned strays;
	bool modern;
};

/* server_model.c: a call begins, or is cancelled. */
void server_start(struct server *server, const struct message *message, uint64_t id);
void server_cancel(struct server *server, struct span params);
/* modern_server.c: a message; the end of a round, with what the call wants to know, or only that the client comes back. */
void modern_ask(struct handler *handler);
void modern_from_proxy(struct server *server, const struct message *message);

struct nature *nature_of(const struct link *link);
void server_say(struct link *link, uint64_t stream, const char *format, ...) PRINTF_LIKE(3, 4);

/* Draws the steps of a handler whose other members are filled in, and takes the first. */
void handler_start(struct handler *handler);
/* All that it waited for is answered. */
void handler_go_on(struct handler *handler, bool give_up);
void handler_cancel(struct handler *handler);
/* Takes from a request what each one of a call brings anew. */
void handler_take_meta(struct handler *handler, struct span meta);
/* Somebody asks for the result of the task. */
void handler_fetch(struct handler *handler, uint64_t id);

/* Asks for something that the client declared, or not; of a NULL handler: outside any call. */
void server_ask(struct server *server, struct handler *handler);
void server_ask_roots(struct world *world, void *server);
/* Takes a question off those that wait; NULL if there is none with this id. */
struct pending *server_take_pending(struct server *server, struct span id);
struct pending *server_first_pending(struct server *server, const struct handler *handler);

#endif
