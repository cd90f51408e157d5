#include "adapters/child_session.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	DRAIN_READS = 8,      /* after the exit; more than a pipe holds */
	BROKEN_WAIT_MS = 250, /* between the end of a pipe and the exit that mostly follows */
	FIRST_BACK_OFF_MS = 100,
};

void child_log(const struct upstream *child, enum log_level level, const char *event, const char *format, ...)
{
	const struct env *env = child->owner->env;
	char text[400];
	if (level > env->log_level)
		return;
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	env->log(env->ctx, &(struct log_line){.level = level, .event = event, .session = child->name, .text = text});
}

int64_t child_now(const struct upstream *child)
{
	return child->owner->env->now_ms(child->owner->env->ctx);
}

static void set_timer(struct upstream *child, int64_t wait_ms)
{
	struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
	if (event_add(&child->on_timer, &wait) == 0)
		return;
	/* Without a timer nobody would end it later. */
	process_signal_group(&child->process, SIGKILL);
	child->phase = CHILD_KILLED;
}

/* The end of a session. */

static void close_input(struct upstream *child)
{
	event_del(&child->on_input);
	process_close(&child->process.in);
	outbox_free(&child->outbox);
}

static void begin_end(struct upstream *child)
{
	if (child->phase != CHILD_RUNNING || child->process.exited)
		return;
	child->phase = CHILD_CLOSING;
	if (outbox_bytes(&child->outbox) == 0)
		close_input(child);
	int64_t wait_ms = child->owner->policy->deadlines.exit_ms;
	int64_t patience_ms = loop_patience_ms(child->owner->loop);
	set_timer(child, wait_ms < patience_ms ? wait_ms : patience_ms);
}

static void note_failed_start(struct child_upstream *children, const char *why)
{
	int64_t wait_ms = FIRST_BACK_OFF_MS;
	for (unsigned i = 0; i < children->failures && wait_ms < children->policy->deadlines.restart_ms; i++)
		wait_ms *= 2;
	if (wait_ms > children->policy->deadlines.restart_ms)
		wait_ms = children->policy->deadlines.restart_ms;
	children->failures++;
	children->next_start_ms = children->env->now_ms(children->env->ctx) + wait_ms;
	snprintf(children->last_failure, sizeof(children->last_failure), "%s", why);
}

void child_lose(struct upstream *child, const char *why)
{
	struct session *session = child->session;
	if (!session)
		return;
	child->session = NULL;
	if (!child->established)
		note_failed_start(child->owner, why);
	begin_end(child);
	session_on_lost(session, 0, why);
}

static void on_timer(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	struct upstream *child = arg;
	char why[100];
	switch (child->phase) {
	case CHILD_RUNNING:
		snprintf(why, sizeof(why), "the server closed its %s and did not exit", child->broken);
		child_lose(child, why);
		break;
	case CHILD_CLOSING:
		close_input(child);
		child_log(child, LOG_DEBUG, "child-terminate", "still there after the end of its input: SIGTERM");
		process_signal_group(&child->process, SIGTERM);
		child->phase = CHILD_TERMINATED;
		set_timer(child, child->owner->policy->deadlines.exit_ms);
		break;
	case CHILD_TERMINATED:
		child_log(child, LOG_WARNING, "child-kill", "the server does not end on SIGTERM: SIGKILL");
		process_signal_group(&child->process, SIGKILL);
		child->phase = CHILD_KILLED;
		break;
	case CHILD_KILLED:
		break;
	}
}

void child_note_broken(struct upstream *child, const char *which)
{
	if (child->broken || child->phase != CHILD_RUNNING)
		return;
	child->broken = which;
	set_timer(child, BROKEN_WAIT_MS);
}

/* What the child writes to stderr. Reads once; false when there is nothing more, at present or ever. */
static bool read_stderr(struct upstream *child)
{
	enum child_stderr_result result = child_stderr_read(&child->words, child->process.err);
	if (result == STDERR_CLOSED) {
		event_del(&child->on_stderr);
		process_close(&child->process.err);
	}
	return result == STDERR_MORE;
}

static void on_stderr(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	(void)read_stderr(arg);
}

/* What the core sends. */

static void flush(struct upstream *child)
{
	if (outbox_write(&child->outbox, child->process.in)) {
		close_input(child);
		child_note_broken(child, "standard input");
	} else if (outbox_bytes(&child->outbox) == 0) {
		event_del(&child->on_input);
		if (child->phase != CHILD_RUNNING)
			close_input(child);
	} else if (event_add(&child->on_input, NULL)) {
		close_input(child);
		child_note_broken(child, "standard input");
	}
}

static void on_input(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	flush(arg);
}

static bool is_over_limit(const struct upstream *child, enum upstream_kind kind, size_t len)
{
	size_t limit = child->owner->policy->limits.upstream_queue_bytes;
	size_t queued = outbox_bytes(&child->outbox);
	if (kind == UPSTREAM_RESPONSE)
		limit *= 2;
	return queued && queued + len > limit;
}

static int child_send(struct upstream *child, enum upstream_kind kind, uint64_t request_id UNUSED, struct buf *message)
{
	if (child->process.exited || child->phase != CHILD_RUNNING) {
		buf_free(message);
		return ERROR_LOST;
	}
	if (child->process.in < 0) {
		buf_free(message); /* the loss is on its way */
		return 0;
	}
	if (is_over_limit(child, kind, message->len)) {
		buf_free(message);
		return ERROR_LIMIT;
	}
	bool was_empty = outbox_bytes(&child->outbox) == 0;
	line_from_json(message);
	if (!outbox_add(&child->outbox, message))
		return ERROR_MEMORY;
	if (was_empty)
		flush(child);
	return 0;
}

static void child_establish(struct upstream *child, const char *version UNUSED)
{
	child->established = true;
	child->owner->failures = 0;
	/* Everything comes on the one pipe, which is there. */
	session_on_established(child->session);
}

static void child_forget(struct upstream *child UNUSED, uint64_t request_id UNUSED)
{
}

static void child_close(struct upstream *child)
{
	child->session = NULL;
	begin_end(child);
}

/* The exit. */

static void child_free(struct upstream *child)
{
	close_input(child);
	child_output_close(child);
	event_del(&child->on_stderr);
	event_del(&child->on_timer);
	process_close(&child->process.err);
	line_reader_free(&child->lines);
	child_stderr_free(&child->words);
	LIST_REMOVE(child, link);
	free(child);
}

static void drain(struct upstream *child)
{
	for (int i = 0; i < DRAIN_READS && child->process.err >= 0 && read_stderr(child); i++)
		;
	(void)child_output_hand_out(child, UINT_MAX);
	for (int i = 0; i < DRAIN_READS && child->session && child->process.out >= 0 && child_output_read(child); i++)
		(void)child_output_hand_out(child, UINT_MAX);
}

/* "the server exited with status 1 before the handshake was over; it said: a | b" */
static void describe_loss(const struct upstream *child, const char *status, struct buf *out)
{
	buf_printf(out, "the server %s%s", status, child->established ? "" : " before the handshake was over");
	child_stderr_quote(&child->words, out);
	buf_add(out, "", 1);
}

static void on_exit_status(struct process *process)
{
	struct upstream *child = container_of(process, struct upstream, process);
	struct buf why = {0};
	char status[64];
	drain(child);
	process_describe_status(process->status, status, sizeof(status));
	child_log(child, LOG_INFO, "child-exited", "process %d %s", (int)process->pid, status);
	if (child->session) {
		describe_loss(child, status, &why);
		child_lose(child, buf_ok(&why) ? why.data : "the server exited");
		buf_free(&why);
	}
	child_free(child);
}

/* The start. */

static bool may_start(const struct child_upstream *children, struct error *error)
{
	int64_t wait_ms = children->next_start_ms - children->env->now_ms(children->env->ctx);
	if (children->failures == 0 || wait_ms <= 0)
		return true;
	error_set(error, ERROR_LOST, "The server keeps failing to start; next try in %.1f s: %s",
		(double)wait_ms / 1000, children->last_failure);
	return false;
}

static bool watch(struct upstream *child)
{
	struct event_base *base = loop_base(child->owner->loop);
	event_assign(&child->on_stderr, base, child->process.err, EV_READ | EV_PERSIST, on_stderr, child);
	event_assign(&child->on_input, base, child->process.in, EV_WRITE | EV_PERSIST, on_input, child);
	evtimer_assign(&child->on_timer, base, on_timer, child);
	return child_output_watch(child) && event_add(&child->on_stderr, NULL) == 0;
}

static struct upstream *child_open(void *ctx, struct session *session, struct error *error)
{
	struct child_upstream *children = ctx;
	struct error reason;
	if (!may_start(children, error))
		return NULL;
	struct upstream *child = calloc(1, sizeof(*child));
	if (!child) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		return NULL;
	}
	child->owner = children;
	child->session = session;
	child->lines.limit_bytes = children->policy->limits.message_bytes;
	child->process.on_exit = on_exit_status;
	snprintf(child->name, sizeof(child->name), "%s", session_name(session));
	child->words.env = children->env;
	child->words.session = child->name;
	if (process_spawn(&child->process, loop_processes(children->loop), children->argv,
		    loop_child_descriptors(children->loop), &reason)) {
		error_set(error, reason.code, "The server did not start: %s", reason.text);
		free(child);
		return NULL;
	}
	LIST_INSERT_HEAD(&children->children, child, link);
	if (!watch(child)) {
		error_set(error, ERROR_SYSTEM, "The server was started but cannot be watched");
		child->session = NULL;
		child->phase = CHILD_KILLED;
		process_signal_group(&child->process, SIGKILL);
		return NULL;
	}
	child_log(child, LOG_INFO, "child-started", "%s is process %d", children->argv[0], (int)child->process.pid);
	return child;
}

const struct upstream_ops child_upstream_ops = {
	.open = child_open,
	.send = child_send,
	.establish = child_establish,
	.forget = child_forget,
	.close = child_close,
	.has_streams = false,
};

/* All children. */

struct child_upstream *child_upstream_new(struct loop *loop, struct policy *policy, char *const *argv)
{
	struct child_upstream *children = calloc(1, sizeof(*children));
	if (!children)
		return NULL;
	children->loop = loop;
	children->env = loop_env(loop);
	children->policy = policy_ref(policy);
	children->argv = argv;
	LIST_INIT(&children->children);
	return children;
}

void child_upstream_set_policy(struct child_upstream *children, struct policy *policy)
{
	policy_ref(policy);
	policy_unref(children->policy);
	children->policy = policy;
}

bool child_upstream_is_idle(const struct child_upstream *children)
{
	return LIST_EMPTY(&children->children);
}

void child_upstream_kill_all(struct child_upstream *children)
{
	struct upstream *child;
	LIST_FOREACH (child, &children->children, link)
		process_signal_group(&child->process, SIGKILL);
}

void child_upstream_free(struct child_upstream *children)
{
	struct upstream *child;
	if (!children)
		return;
	child_upstream_kill_all(children);
	while ((child = LIST_FIRST(&children->children))) {
		LIST_REMOVE(&child->process, link);
		child_free(child);
	}
	policy_unref(children->policy);
	free(children);
}
