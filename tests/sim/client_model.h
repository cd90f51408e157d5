/* What the files of the client model share: persons, and their plans. */
#ifndef MCP_VALET_SIM_CLIENT_MODEL_H
#define MCP_VALET_SIM_CLIENT_MODEL_H

#include "tests/sim/model.h"

struct person {
	struct person *next;
	struct world *world;
	unsigned principal;
	const char *caps;
	bool over_http, logs;
	struct party *pipe; /* of stdio */
};

/* A job in the hands of a person. */
struct plan {
	struct person *person;
	struct job *job;
	struct ask *waiting_for;  /* the honest ask under way, or NULL */
	struct ask *last;	  /* the last honest one */
	struct span state, round; /* of the last round: inputRequests */
	struct span old_state;	  /* of the round before */
	unsigned rounds, tries, cheats;
	bool over, good_end;
};

/* A pipe or an HTTP client of the person's. */
struct party *party_for(struct person *person);
struct ask *make_ask(struct plan *plan, struct person *person);
void send_honest(struct plan *plan, struct ask *ask);
/* Writes inputResponses for a round: each question answered with `percent`, wrongly if `bad`. */
void write_answers(struct ask *ask, struct span round, unsigned percent, bool bad);
int64_t thinking_ms(struct world *world);
void plan_over(struct plan *plan);
/* Whether the plan's state must still be good; and that it was brought back now. */
bool is_fresh(const struct plan *plan);
void mark_brought_back(struct plan *plan);

/* client_cheat.c: brings the state back in one of the ways that must be refused. */
void plan_cheat(struct plan *plan);

/* task_client.c: the job is a task now, or something came back about it. */
void plan_on_task(struct plan *plan, const struct ask *ask);

#endif
