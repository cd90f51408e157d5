/* The random models: legacy servers of many natures and modern clients of many habits, all from one seed. */
#ifndef MCP_VALET_SIM_MODEL_H
#define MCP_VALET_SIM_MODEL_H

#include "tests/sim/ledger.h"

/* What the server of a run is like. One target, so all its links are alike. */
struct nature {
	bool benign; /* nothing goes wrong in this run: every job must come to its good end */
	enum {
		HANDSHAKE_GOOD,
		HANDSHAKE_SLOW,
		HANDSHAKE_NO_SHAPE,    /* refuses members within capabilities that it does not know */
		HANDSHAKE_NAMES_OTHER, /* refuses, and names the revisions that it supports */
		HANDSHAKE_REFUSES,
		HANDSHAKE_SILENT,
		HANDSHAKE_CRASH,
		HANDSHAKE_STRANGE, /* agrees to a revision that nobody knows */
	} handshake;
	const char *version;
	bool roots_at_once, roots_later;
	bool knows_no_ping;
	bool modern;	   /* it speaks 2026-07-28 */
	bool tasks;	   /* every tool has to be called as a task */
	bool streams_used; /* says on which stream a request comes */
	unsigned ignores_cancel, answers_cancelled, crashes, undeclared, strays, malformed, full_queue, no_open;
	unsigned lists; /* of a hundred jobs */
};

struct model {
	struct nature nature;
	struct person *persons;
	unsigned person_count;
	unsigned plans, plans_over;
	bool keys_ahead;
	bool passed;  /* sessions are passed through */
	bool actions; /* the policy decides about questions, and is not reloaded */
};

extern const struct driver model_driver;

/* server_model.c */
void model_opened(struct link *link);
int model_queue_status(struct link *link);
void model_from_proxy(struct link *link, struct span message);
void model_establish(struct link *link, const char *version);
void model_closed(struct link *link);

/* client_model.c */
void model_start_clients(struct world *world);
void model_notified(struct party *party, struct span message);
void model_responded(struct party *party, struct ask *ask, int http_status, struct span message);
void model_stop_clients(struct world *world);
struct person;
/* A good answer to a question of this method, marked with its number. */
const char *model_answer(struct world *world, struct span method, unsigned number);
const char *model_bad_answer(struct world *world);
const char *model_caps(struct world *world);

/* legacy_model.c */
void legacy_start_client(struct world *world);
void legacy_notified(struct party *party, struct span message);
void legacy_responded(struct party *party, struct ask *ask);
void legacy_hung_up(struct party *party);
void legacy_stop_clients(struct world *world);
void legacy_check(struct world *world);

/* Answers to a benign run's jobs that did not come. */
void model_check_jobs(struct world *world);

/* payload.c: JSON values that do not survive decoding and encoding again. */
const char *payload(struct world *world);

#endif
