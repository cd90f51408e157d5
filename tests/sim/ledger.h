/* The ledger: what crossed the core's two borders, and whether it was allowed to (the invariants of the architecture).
 *
 * Everything carries a mark that is unique in the run, in `_meta`, which the core passes: a job (one tools/call or the
 * like, over all its retries) "sim/t", a question of the server "sim/q", an answer of a client "sim/a", a result "sim/r".
 * Payloads are compared as bytes on both sides. The ledger learns of a message at the moment in which it crosses. */
#ifndef MCP_VALET_SIM_LEDGER_H
#define MCP_VALET_SIM_LEDGER_H

#include "proxy/capabilities.h"
#include "proxy/message.h"
#include "tests/sim/link.h"
#include "tests/sim/party.h"

/* One request as its client means it: the same again is another ask of the same job. */
struct job {
	struct job *next;
	unsigned number;
	unsigned principal;
	const char *method;
	struct span name;   /* of the tool, prompt or resource, decoded; or a NULL ptr */
	struct span params; /* members but `_meta`, joined by commas */
	bool has_caps;
	struct capabilities caps; /* of its first ask */
	struct round *rounds;
	struct question *questions;

	struct dialog *dialog; /* of a legacy client, or NULL */
	struct span state;     /* that a modern server gave last, as spelled, or a NULL ptr */
	struct link *link;     /* where the server got it */
	uint64_t upstream_id;
	unsigned sends, urls_required;	/* how often upstream; how often answered -32042 */
	unsigned rounds_asked;		/* by a modern server */
	bool answered, cancelled, lost; /* upstream */
	struct span result, error;	/* the server's */
	double progress;
	bool has_progress;

	struct span task;	 /* its id for the client, without quotes, or a NULL ptr */
	struct span task_status; /* the last that was told */
	struct ask *final;	 /* the first that got the final outcome */
};

/* One InputRequiredResult. */
struct round {
	struct round *next;
	struct job *job;
	struct ask *ask; /* that got it first */
	struct span state, body;
	struct entry *entries;
	int64_t issued_ms;
	bool of_task;	   /* told by tasks/get, without a state */
	bool brought_back; /* by a good retry of the right client */
};

struct entry {
	struct entry *next;
	struct span key; /* as spelled, with quotes */
	enum policy_kind kind;
	struct question *question; /* NULL: roots that no question of the call asks for, or a URL of -32042 */
	bool url;
};

enum question_state { QUESTION_NEW, QUESTION_OPEN, QUESTION_ANSWERED, QUESTION_WITHDRAWN, QUESTION_VOID };

struct question {
	struct question *next, *next_of_job;
	unsigned number;
	unsigned like; /* the question that this one repeats to the byte, in a rerun; its mark is that one's */
	struct link *link;
	struct job *job; /* that the server works at; NULL: none */
	unsigned run;	 /* of the job, counted by its sends: a rerun is another call */
	bool loose;	 /* asked when the core cannot know for whom */
	bool alone;	 /* asked while no call was under way */
	bool held;	 /* asked while several were: known when one is left, if no call ends before its question */
	enum policy_kind kind;
	bool url, tools, no_schema;
	bool of_task;		    /* it names its call's task */
	const char *id;		    /* as spelled */
	const char *progress_token; /* as spelled, or NULL */
	double progress;
	struct span params; /* or a NULL ptr */
	enum question_state state;
	bool was_asked;
	const char *down_id; /* as the legacy client of a modern server sees it, or NULL */
	int64_t open_ms;
	struct span result, error; /* what it was answered */
};

struct answer {
	unsigned number;
	struct ask *ask;	   /* that brings it, or NULL: the response to a question */
	struct question *question; /* that one then */
	struct span key, value;
	struct link *used_by; /* where it went */
	unsigned used;
};

enum { MAX_ANSWERS = 1 << 13, MAX_QUESTIONS = 1 << 13 };

struct ledger {
	struct link *links;
	struct party *parties;
	struct ask *asks;
	struct job *jobs;
	struct dialog *dialogs;
	struct answer *answers[MAX_ANSWERS];
	struct question *questions[MAX_QUESTIONS];
	unsigned job_count, answer_count, question_count, link_count, ask_count, finished_count, dialog_count;
	bool keys_by_policy, fixed_answers; /* the policy names input requests; answers for the client */
	bool reruns;			    /* the policy lets lost calls run again */
	bool shut_down, clock_set, over;
};

void ledger_init(struct world *world);
struct job *ledger_job(struct world *world, unsigned principal, const char *method, const char *name);
/* Whether a result may ask for input (basic/patterns/mrtr). */
bool ledger_has_rounds(const char *method);
struct question *ledger_question(struct link *link, struct job *job, enum policy_kind kind);
struct answer *ledger_answer(struct ask *ask, struct span key);
/* A legacy client's. */
struct answer *ledger_answer_question(struct world *world, struct question *question);
/* The open question of this link with this id, or NULL. */
struct question *ledger_find_question(struct link *link, struct span id);

/* The question with this mark: on `link` (NULL: on any) and in `state` if there is one, else the first; NULL if there is none. */
struct question *ledger_marked(
	struct ledger *ledger, unsigned mark, const struct link *link, enum question_state state);

/* Borders. */
void ledger_to_server(struct link *link, enum upstream_kind kind, uint64_t request_id, struct span text, bool dropped);
void ledger_from_server(struct link *link, struct span text, uint64_t stream);
void ledger_link_over(struct link *link, bool by_core);
void ledger_notified(struct party *party, struct span text);
struct ask *ledger_responded(struct party *party, int http_status, struct span text);

/* What tasks/get has asked under this key, which is spelled with its quotes; NULL if nothing. */
struct entry *ledger_task_entry(const struct job *job, struct span key);

/* ledger_passed.c: what is passed through. */

/* To the server, on a connection of a legacy client, or to a modern one. false: the connection is bridged. */
bool ledger_pass_up(
	struct link *link, const struct message *message, uint64_t request_id, struct span text, bool dropped);
/* From the server: a message is about to come, and has come. */
void ledger_pass_down(struct link *link, const struct message *message, struct span text);
void ledger_passed_down(struct link *link);
/* ledger_legacy.c: to a legacy client. *ask is that of a response. false: it has had the message before. */
bool ledger_to_legacy(struct party *party, int http_status, struct span text, struct ask **ask);
/* The response of a modern server to a modern client. */
void ledger_check_through(struct ask *ask, int http_status);
void ledger_check_dialogs(struct world *world);

/* After every step, and at the end. */
void ledger_check_step(struct world *world);
void ledger_check_end(struct world *world);

/* Whether the core cannot know the call of a question: it asks for none, or for one that is over or with its client, or one
 * that ended without waiting for its question while another ran. */
bool ledger_is_loose(const struct question *question);

/* Small readers. */
struct span get(struct span object, const char *key); /* a NULL ptr if it is not there */
const char *unquoted(struct world *world, struct span spelled);
unsigned mark_of(struct span object, const char *key, char sort); /* N of `_meta[key]` = "<sort>N", 0 if none */
bool span_in(struct span key, const char *const *list);		  /* `_meta`, or one of the list */
/* Whether two objects have the same members in the same order, byte for byte, but for `_meta` and those skipped. */
bool ledger_same_members(struct span a, struct span b, const char *const *skip_a, const char *const *skip_b);

#endif
