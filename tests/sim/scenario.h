/* Scenarios: small files that play one course of events on the simulated clock, and say what must come of it.
 *
 * One statement a line; words are separated by blanks, JSON texts hold none. `#` begins a comment.
 *
 *   set deadlines.park 10m | set limits.parked 1 | set rule.rounds 2 | set rule.elicitation cancel    before any client
 *   streams                         the transport says on which call's stream a server request comes
 *   handshake VERSION               what the server agrees to; `handshake plain` refuses capability shapes that it does not
 *                                   know, `handshake names VERSION` refuses all but that, `handshake silent` never answers,
 *                                   `handshake tasks` declares tasks
 *                                   `handshake mute` does not answer server/discover,
 *                                   `handshake modern`: there is none, the server speaks 2026-07-28
 *   era modern|auto                 upstream.era
 *   client A [legacy] [principal N] [stdio] [declares roots,sampling,sampling.tools,elicitation,elicitation.url,tasks]
 *   A calls j tools/call NAME [arguments JSON] [progress TOKEN] [logs [LEVEL]] [answers KEY=ANSWER ...]
 *   A sends j tools/list            a request without a name
 *   A retries j [KEY=ANSWER ...] [round N] [tampered] [as k] [declares ...]
 *   A repeats j [N]                 the N-th request of the job once more, the last one without N
 *   A cancels j | A vanishes
 *   A polls j | A updates j [KEY=ANSWER ...] | A ends j        the task of j; with `unknown` after j: one that never was
 *   of a legacy client, which is initialized at once: A answers q ANSWER|error | A says JSON | A loses j | A resumes j | A listens | A leaves |
 *   A sleeps | A wakes | A ends     connections break, and are opened again; the GET stream; not reading; DELETE
 *   server asks q elicitation|url|form|sampling|tools|roots in j [stream] [token T] [schema JSON]
 *   server asks q2 … like q1        to the byte the same, in a rerun
 *   server asks q roots at A        in no call, on the newest connection of A
 *   server withdraws q | server answers j [JSON] | server fails j CODE | server requires j | server completes j
 *   server creates j                a task
 *   server breaks j                 the stream of its call
 *   server acknowledges A N [URI] | server finishes A N    the N-th subscription of a modern server's client
 *   server progresses j N | server logs j [LEVEL] | server says A JSON | server crashes A
 *   advance 10s | shutdown | restart
 *   expect A j complete | expect A j asked KEY=KIND ... | expect A j error CODE [REASON] | expect A j nothing
 *   expect A j task [new] working|input_required [KEY=KIND ...]|completed|failed [REASON]|cancelled
 *   expect A j acknowledged         an update, or the end of a task
 *   expect A listens N              so many subscriptions that a modern server knows of
 *   expect A logs N                 so many log messages
 *   expect A progress N | expect server j called|waiting|cancelled | expect server q cancel|ANSWER|error CODE|nothing
 *   expect log EVENT | expect silence EVENT | expect parked|sessions|calls|exchanges N
 *
 * ANSWER is accept, decline, cancel, roots, text (a sampling answer) or JSON. Every response must be expected. At the end all
 * deadlines pass, and nothing may be left. The ledger checks every message besides. */
#ifndef MCP_VALET_SIM_SCENARIO_H
#define MCP_VALET_SIM_SCENARIO_H

#include "tests/sim/ledger.h"

enum { MAX_WORDS = 24, MAX_NAMED = 32 };

/* A client of the scenario. */
struct actor {
	const char *name;
	unsigned principal;
	bool over_http;
	const char *caps;
	struct party *party;   /* the newest */
	struct dialog *dialog; /* it is a legacy client, or NULL */
	struct party *reader;  /* its GET stream, or NULL */
	double progress;
	unsigned logs; /* messages */
};

/* A job by its label, and the responses that no line has expected yet. */
struct labelled_job {
	const char *label;
	struct job *job;
	struct ask *asks[64];
	bool expected[64];
	unsigned count;
	struct span states[16];
	unsigned rounds;
};

struct labelled_question {
	const char *label;
	struct question *question;
};

struct scenario {
	struct world *world;
	const char *path;
	unsigned line;
	bool started;
	const char *version;
	bool plain_only, names_version, silent, tasks, modern, mute;
	struct actor actors[MAX_NAMED];
	struct labelled_job jobs[MAX_NAMED];
	struct labelled_question questions[MAX_NAMED];
	unsigned actor_count, job_count, question_count;
};

extern const struct driver scenario_driver;

void scenario_fail(struct scenario *scenario, const char *format, ...) PRINTF_LIKE(2, 3);
struct actor *find_actor(struct scenario *scenario, const char *name);
struct labelled_job *find_labelled_job(struct scenario *scenario, const char *label);
struct labelled_question *find_labelled_question(struct scenario *scenario, const char *label);
bool word_is(char **words, const char *text);
int64_t read_duration(const char *word);
const char *caps_text(struct scenario *scenario, const char *list);

/* The statements, after their first word or words; `words` ends with NULL. */
void play_setting(struct scenario *scenario, char **words);
/* A result for an answer's word, marked with the answer's number. */
const char *scenario_answer(struct scenario *scenario, const char *word, unsigned number);
/* The N-th subscription on a connection to a modern server, or NULL. */
struct sent *scenario_listen(const struct link *link, unsigned number);
struct link *scenario_link(struct scenario *scenario, const char *name);
/* A legacy client sends initialize; the response has come; another statement about it, or false. */
void scenario_open(struct scenario *scenario, struct actor *actor);
void scenario_opened(struct ask *ask);
bool play_legacy(struct scenario *scenario, struct actor *actor, char **words);
void play_actor(struct scenario *scenario, struct actor *actor, char **words);
void play_server(struct scenario *scenario, char **words);
void play_expectation(struct scenario *scenario, char **words);

#endif
