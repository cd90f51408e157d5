#include "adapters/loop.h"

#include "proxy/proxy.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_POOLED_RANDOM = 16, SIGNALS = 4, MAX_WAIT_MS = 24 * 60 * 60 * 1000 };

/* Official clients close the input, send SIGTERM two seconds later, and others SIGKILL one second after that. What is not
 * ended by then would be left behind. */
enum { STOPPING_PATIENCE_MS = 1000, SIGNALLED_PATIENCE_MS = 250 };

static const int watched_signals[SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};

struct loop {
	struct log log;
	struct env env;
	struct event_base *base;
	struct event *signals[SIGNALS];
	struct event *due;   /* the core's next timer */
	struct event *limit; /* the orderly end takes too long */
	struct process_list processes;
	struct rlimit child_descriptors;
	struct proxy *proxy;
	const struct loop_parts *parts;
	int64_t due_ms; /* what `due` is armed for */
	bool stopping, signalled, killed;
};

/* The real world. */

static int64_t clock_ms(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t now_ms(void *ctx UNUSED)
{
	return clock_ms(CLOCK_MONOTONIC);
}

static int64_t wall_ms(void *ctx UNUSED)
{
	return clock_ms(CLOCK_REALTIME);
}

/* Every call takes a few bytes for its id, and a system call for each is a seventh of all. Keys and nonces are drawn when they
 * are needed, so that no key waits here. */
static void random_bytes(void *ctx UNUSED, void *out, size_t len)
{
	static uint8_t pool[512];
	static size_t left;
	if (len > MAX_POOLED_RANDOM) {
		randombytes_buf(out, len);
		return;
	}
	if (left < len) {
		randombytes_buf(pool, sizeof(pool));
		left = sizeof(pool);
	}
	left -= len;
	memcpy(out, pool + left, len);
	sodium_memzero(pool + left, len);
}

void env_fill(struct env *env, struct log *log, enum log_level level)
{
	*env = (struct env){
		.ctx = log,
		.now_ms = now_ms,
		.wall_ms = wall_ms,
		.random = random_bytes,
		.log = log_write,
		.log_level = level,
	};
}

/* libevent's own words. It has no place for a context, so they go to standard error as they are. */

static void say(const char *text)
{
	char line[600];
	int len = snprintf(line, sizeof(line), "mcp-valet: libevent: %s\n", text);
	if (len > 0 && write(STDERR_FILENO, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1) < 0)
		return;
}

static void on_libevent_log(int severity, const char *text)
{
	if (severity >= EVENT_LOG_WARN)
		say(text);
}

static void on_libevent_fatal(int status UNUSED)
{
	say("cannot go on");
	_exit(1);
}

/* Signals. */

static void end_at_once(struct loop *loop, const char *why)
{
	log_event(&loop->env, LOG_WARNING, "stop-forced", "%s", why);
	loop->killed = true;
	loop->parts->kill(loop->parts->ctx);
	event_base_loopbreak(loop->base);
}

static void on_limit(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	end_at_once(arg, "the orderly end took too long");
}

void loop_stop(struct loop *loop, const char *why)
{
	if (loop->stopping)
		return;
	log_event(&loop->env, LOG_INFO, "stopping", "%s", why);
	loop->stopping = true;
	int64_t limit_ms = loop->parts->hard_limit_ms(loop->parts->ctx);
	struct timeval limit = {.tv_sec = (time_t)(limit_ms / 1000), .tv_usec = (suseconds_t)(limit_ms % 1000 * 1000)};
	if (event_add(loop->limit, &limit))
		log_event(&loop->env, LOG_WARNING, "stop-unlimited", "no timer for the limit of the orderly end");
	loop->parts->stop_accepting(loop->parts->ctx);
	proxy_shutdown(loop->proxy);
}

static void on_signal(evutil_socket_t signal, short what UNUSED, void *arg)
{
	struct loop *loop = arg;
	char why[64];
	if (signal == SIGCHLD) {
		process_reap(&loop->processes);
		return;
	}
	if (signal == SIGHUP) {
		loop->parts->reload(loop->parts->ctx);
		return;
	}
	snprintf(why, sizeof(why), "%s signal %s", loop->signalled ? "second" : "received",
		signal == SIGTERM ? "TERM" : "INT");
	loop->signalled = true;
	if (loop->stopping)
		end_at_once(loop, why);
	else
		loop_stop(loop, why);
}

int64_t loop_patience_ms(const struct loop *loop)
{
	if (loop->signalled)
		return SIGNALLED_PATIENCE_MS;
	return loop->stopping ? STOPPING_PATIENCE_MS : INT64_MAX;
}

static void on_due(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	((struct loop *)arg)->due_ms = INT64_MAX; /* the turn does the work */
}

/* Making and freeing. */

static bool make_events(struct loop *loop)
{
	loop->base = event_base_new();
	if (!loop->base)
		return false;
	loop->due = evtimer_new(loop->base, on_due, loop);
	loop->limit = evtimer_new(loop->base, on_limit, loop);
	if (!loop->due || !loop->limit)
		return false;
	for (int i = 0; i < SIGNALS; i++) {
		loop->signals[i] = evsignal_new(loop->base, watched_signals[i], on_signal, loop);
		if (!loop->signals[i])
			return false;
	}
	return true;
}

struct loop *loop_new(const struct loop_config *config, struct error *error)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	if (!loop) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	event_set_fatal_callback(on_libevent_fatal);
	event_set_log_callback(on_libevent_log);
	loop->log = (struct log){.format = config->log_format, .fd = config->log_fd};
	loop->due_ms = INT64_MAX;
	env_fill(&loop->env, &loop->log, config->log_level);
	LIST_INIT(&loop->processes);
	process_raise_descriptor_limit(&loop->child_descriptors);
	process_become_subreaper();
	if (!make_events(loop)) {
		error_set(error, ERROR_SYSTEM, "cannot make an event loop");
		loop_free(loop);
		return NULL;
	}
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < SIGNALS; i++) {
		if (event_add(loop->signals[i], NULL) == 0)
			continue;
		error_set(error, ERROR_SYSTEM, "cannot watch signals");
		loop_free(loop);
		return NULL;
	}
	return loop;
}

static void free_event(struct event *event)
{
	if (event)
		event_free(event);
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	for (int i = 0; i < SIGNALS; i++)
		free_event(loop->signals[i]);
	free_event(loop->due);
	free_event(loop->limit);
	if (loop->base)
		event_base_free(loop->base);
	free(loop);
}

struct event_base *loop_base(struct loop *loop)
{
	return loop->base;
}

const struct env *loop_env(const struct loop *loop)
{
	return &loop->env;
}

struct process_list *loop_processes(struct loop *loop)
{
	return &loop->processes;
}

const struct rlimit *loop_child_descriptors(const struct loop *loop)
{
	return &loop->child_descriptors;
}

/* Running. */

static bool arm_due(struct loop *loop)
{
	int64_t due_ms = proxy_next_due(loop->proxy);
	if (due_ms == loop->due_ms)
		return true;
	loop->due_ms = due_ms;
	if (due_ms == INT64_MAX)
		return event_del(loop->due) == 0;
	int64_t wait_ms = due_ms - now_ms(NULL);
	if (wait_ms < 0)
		wait_ms = 0;
	if (wait_ms > MAX_WAIT_MS)
		wait_ms = MAX_WAIT_MS;
	struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
	return event_add(loop->due, &wait) == 0;
}

static bool is_over(struct loop *loop)
{
	return loop->killed || (loop->stopping && proxy_is_idle(loop->proxy) && loop->parts->is_idle(loop->parts->ctx));
}

int loop_run(struct loop *loop, struct proxy *proxy, const struct loop_parts *parts)
{
	loop->proxy = proxy;
	loop->parts = parts;
	for (;;) {
		proxy_turn(proxy);
		if (is_over(loop))
			return loop->killed ? ERROR_REFUSED : 0;
		if (!arm_due(loop) || event_base_loop(loop->base, EVLOOP_ONCE) != 0) {
			log_event(&loop->env, LOG_ERROR, "loop-failed", "the event loop failed: %s", strerror(errno));
			parts->kill(parts->ctx);
			return ERROR_SYSTEM;
		}
	}
}
