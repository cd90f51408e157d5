/* Parties: where clients' requests come from and responses go to, the simulated downstream face. A party is one HTTP
 * connection with one request, or one stdio pipe with many. */
#ifndef MCP_VALET_SIM_PARTY_H
#define MCP_VALET_SIM_PARTY_H

#include "proxy/capabilities.h"
#include "tests/sim/world.h"

struct party {
	struct party *next;
	struct client client;
	struct world *world;
	unsigned principal;
	bool over_http;
	bool gone;
	struct dialog *dialog;	   /* of a legacy client, or NULL */
	bool reads;		   /* it is a GET */
	struct party *resumes;	   /* whose stream it reads, or NULL */
	bool finished;		   /* the core has hung up */
	const char *session_id;	   /* a header, or NULL: what its dialog was called when it began */
	const char *last_event_id; /* the same */
	uint64_t event;		   /* the newest that came here, or 0 */
	const char *event_id;	   /* its id */
	const char *first_event_id;
};

/* One request, and its one response. */
struct ask {
	struct ask *next;
	struct world *world;
	struct party *party;
	struct job *job; /* NULL: it is malformed, and must be refused */
	unsigned number;
	const char *id; /* as spelled, or NULL: the response carries none */
	struct span caps_text;
	struct capabilities caps;
	const char *progress_token; /* as spelled, or NULL */
	int log_level;		    /* 0 debug … 7 emergency, -1 none */
	const char *task_method;    /* about the task of its job: tasks/get and the like; or NULL */
	struct span task;	    /* its id, without quotes */
	struct span state;	    /* a NULL ptr: none */
	struct span answers;	    /* the object, or a NULL ptr */
	bool must_fail;		    /* the only right response is an error */
	bool must_work;		    /* the state is good and unused: no word of it being unverifiable, used or wrong */
	bool is_open, is_gone, acknowledged;
	bool detached;	       /* its connection broke; a legacy client may resume it */
	struct sent *upstream; /* its request to a modern server, or NULL */
	double progress;
	bool has_progress;
	struct span sent_text;
	struct span response; /* the whole message */
	int http_status;
	void *model;
};

struct party *party_new(struct world *world, unsigned principal, bool over_http);
/* A request for a job, to be filled in and sent. `caps` is the text of clientCapabilities. */
struct ask *ask_new(struct party *party, struct job *job, const char *caps);
void ask_send(struct ask *ask);
/* Any message. */
enum received party_give(struct party *party, struct span text, const struct request_headers *headers);
/* A message that is no good request; it has one response, an error, under `id` (NULL: without an id). */
struct ask *party_send_bad(
	struct party *party, const char *id, struct span text, const struct request_headers *headers);
/* A notification. */
void party_notify(struct party *party, struct span text);
/* The client cancels: by message over stdio, by closing over HTTP. */
void ask_cancel(struct ask *ask);
void party_vanish(struct party *party);
void parties_gone(struct world *world);

struct span get_response(const struct ask *ask, const char *key); /* of the message: result, error */

#endif
