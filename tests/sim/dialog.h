/* Dialogs: the sessions of legacy clients, which are passed through. A dialog over stdio is one pipe; over HTTP each message
 * is a party of its own, named by Mcp-Session-Id, and so is each GET that reads events.
 *
 * A parcel is one message of a relay that has to reach the other side as it is, once. Over HTTP it is an event with a number,
 * which the client may miss, and then gets again. */
#ifndef MCP_VALET_SIM_DIALOG_H
#define MCP_VALET_SIM_DIALOG_H

#include "tests/sim/party.h"

struct parcel {
	struct parcel *next;
	struct span text;
	struct ask *ask; /* from the client: that it is, or NULL */
	bool crossed;
	bool strayed;		/* over HTTP: it named no session, and does not open one */
	bool dropped;		/* the server did not read */
	uint64_t stream, event; /* to the client, over HTTP: its number once one was seen, or 0 */
	bool seen;		/* the client has it */
};

struct dialog {
	struct dialog *next;
	struct world *world;
	unsigned number, principal;
	bool over_http;
	const char *caps_text;
	struct capabilities caps;
	const char *session_id; /* or NULL: not known */
	struct party *pipe;	/* stdio */
	struct link *link;	/* to the server, once it is known */
	bool over;		/* its client has ended it, or is gone */
	bool missed;		/* it did not read */
	struct parcel *up, *down;
	void *model;
};

struct dialog *dialog_new(struct world *world, unsigned principal, bool over_http, const char *caps);
/* Whether the core has, or may have, a session for it. */
bool dialog_is_open(const struct dialog *dialog);
/* Its newest request with this id, or NULL. */
struct ask *dialog_find_ask(const struct dialog *dialog, struct span id);
/* A request for a job, to be filled in and given to ask_send(). */
struct ask *dialog_ask(struct dialog *dialog, struct job *job);
/* A notification, or a response. */
void dialog_say(struct dialog *dialog, struct span text);
/* GET, from this event on (NULL: what belongs to no request). NULL if the session is over. */
struct party *dialog_listen(struct dialog *dialog, const char *last_event_id);
/* DELETE. */
void dialog_end(struct dialog *dialog);
/* The client's end of the pipe closes, or all its connections break. */
void dialog_vanish(struct dialog *dialog);
/* The client has lost what came on this stream after an event, and will be given it again. */
void dialog_misses(struct dialog *dialog, uint64_t stream, uint64_t after);

/* Gives the core one of its messages. */
enum received dialog_give(struct party *party, struct span text);

struct parcel *parcel_add(struct world *world, struct parcel **list, struct span text);
/* A message of the client, about to be given: a request, or (NULL) none. */
struct parcel *parcel_add_up(struct dialog *dialog, struct ask *ask, struct span text);

#endif
