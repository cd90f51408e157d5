/* The event loop of the whole program, and the real world behind struct env: clocks, random bytes, log, signals,
 * timers, children.
 *
 * The loop runs in turns. Each turn handles what the descriptors, signals and timers brought, then calls proxy_turn(),
 * then arms one timer for proxy_next_due().
 *
 *   SIGTERM, SIGINT   the orderly end: nothing new is accepted, running calls may finish, parked calls are abandoned,
 *                     children are ended. The second one, and a hard limit, end at once and kill the children.
 *   SIGHUP            reload
 *   SIGCHLD           reaps
 *   SIGPIPE           ignored: a write says so itself */
#ifndef MCP_VALET_LOOP_H
#define MCP_VALET_LOOP_H

#include "adapters/log.h"
#include "adapters/process.h"
#include "proxy/env.h"
#include "proxy/error.h"

struct event_base;
struct loop;
struct proxy;

struct loop_config {
	enum log_level log_level;
	enum log_format log_format;
	int log_fd;
};

/* The parts of the program that the loop drives but does not know. */
struct loop_parts {
	void *ctx;
	void (*reload)(void *ctx);	     /* SIGHUP */
	void (*stop_accepting)(void *ctx);   /* the orderly end begins */
	bool (*is_idle)(void *ctx);	     /* nothing is left to write and no child lives */
	void (*kill)(void *ctx);	     /* the end at once: every child is killed */
	int64_t (*hard_limit_ms)(void *ctx); /* how long the orderly end may take */
};

/* Fills `env` with the clocks of this machine, libsodium's random bytes (sodium_init() has been called) and `log`. */
void env_fill(struct env *env, struct log *log, enum log_level level);

/* Makes the loop: takes over the signals, becomes a subreaper, raises the descriptor limit. NULL with *error. */
struct loop *loop_new(const struct loop_config *config, struct error *error) MUST_CHECK;
void loop_free(struct loop *loop);

struct event_base *loop_base(struct loop *loop);
const struct env *loop_env(const struct loop *loop);
/* Where children are registered to be reaped, and the descriptor limit that they are to have. */
struct process_list *loop_processes(struct loop *loop);
const struct rlimit *loop_child_descriptors(const struct loop *loop);

/* Runs until the end. 0: in order; ERROR_REFUSED: ended by force; ERROR_SYSTEM: the event loop failed. */
int loop_run(struct loop *loop, struct proxy *proxy, const struct loop_parts *parts) MUST_CHECK;
/* Begins the orderly end, as the first SIGTERM does. `why` is for the log. */
void loop_stop(struct loop *loop, const char *why);
/* How long whoever asked for the end is known to wait before the next, harder means. INT64_MAX: nobody has asked. */
int64_t loop_patience_ms(const struct loop *loop);

#endif
