/* Real child processes, with a core that only writes down what it is told. */
#include "adapters/child.h"

#include "adapters/loop.h"
#include "proxy/proxy.h"

#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000, LEAKED_FD = 9, KEPT_MESSAGES = 16 };

/* A stub of the core. */

struct session {
	char name[8];
	unsigned messages, established, lost;
	struct buf kept[KEPT_MESSAGES];
	char why[600];
	struct upstream *upstream;
	unsigned close_after; /* closes the upstream within the message of this number */
};

bool session_on_message(struct session *session, struct span message, uint64_t stream)
{
	assert_int_equal(stream, 0);
	assert_int_equal(session->lost, 0);
	if (session->messages < KEPT_MESSAGES)
		buf_add_span(&session->kept[session->messages], message);
	session->messages++;
	if (session->messages == session->close_after) {
		child_upstream_ops.close(session->upstream);
		session->upstream = NULL;
	}
	return true;
}

void session_on_established(struct session *session)
{
	session->established++;
}

void session_on_lost(struct session *session, int http_status, const char *why)
{
	assert_int_equal(http_status, 0);
	session->lost++;
	session->upstream = NULL;
	snprintf(session->why, sizeof(session->why), "%s", why);
}

void session_on_request_failed(
	struct session *session UNUSED, uint64_t request_id UNUSED, int http_status UNUSED, const char *why UNUSED)
{
	fail();
}

const char *session_authorization(const struct session *session UNUSED)
{
	return NULL;
}

const char *session_name(const struct session *session)
{
	return session->name;
}

int64_t proxy_next_due(const struct proxy *proxy UNUSED)
{
	return INT64_MAX;
}

void proxy_turn(struct proxy *proxy UNUSED)
{
}

void proxy_shutdown(struct proxy *proxy UNUSED)
{
}

bool proxy_is_idle(const struct proxy *proxy UNUSED)
{
	return true;
}

/* The world of one test. */

struct world {
	struct loop *loop;
	struct policy *policy;
	struct child_upstream *children;
	struct session session, other;
	char *argv[4];
	int log_fd;
};

static int set_up(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	struct error error;
	assert_non_null(world);
	world->log_fd = memfd_create("log", MFD_CLOEXEC);
	assert_true(world->log_fd >= 0);
	world->loop = loop_new(
		&(struct loop_config){.log_level = LOG_DEBUG, .log_format = LOG_FORMAT_TEXT, .log_fd = world->log_fd},
		&error);
	assert_non_null(world->loop);
	world->policy = policy_default();
	assert_non_null(world->policy);
	world->policy->deadlines.exit_ms = 150;
	world->policy->deadlines.restart_ms = 250;
	strcpy(world->session.name, "s1");
	strcpy(world->other.name, "s2");
	*state = world;
	return 0;
}

static int tear_down(void **state)
{
	struct world *world = *state;
	child_upstream_free(world->children);
	process_kill_leftovers();
	policy_unref(world->policy);
	loop_free(world->loop);
	for (int i = 0; i < KEPT_MESSAGES; i++) {
		buf_free(&world->session.kept[i]);
		buf_free(&world->other.kept[i]);
	}
	close(world->log_fd);
	free(world);
	return 0;
}

static int64_t now_ms(struct world *world)
{
	return loop_env(world->loop)->now_ms(loop_env(world->loop)->ctx);
}

static void do_nothing(evutil_socket_t fd UNUSED, short what UNUSED, void *arg UNUSED)
{
}

/* Runs turns of the loop until the condition holds, and fails if that takes too long. */
#define RUN_UNTIL(world, condition)                                                                                    \
	do {                                                                                                           \
		int64_t limit_ms = now_ms(world) + PATIENCE_MS;                                                        \
		struct event *tick = evtimer_new(loop_base((world)->loop), do_nothing, NULL);                          \
		while (!(condition)) {                                                                                 \
			assert_true(now_ms(world) < limit_ms);                                                         \
			assert_int_equal(event_add(tick, &(struct timeval){.tv_usec = 20000}), 0);                     \
			assert_int_equal(event_base_loop(loop_base((world)->loop), EVLOOP_ONCE), 0);                   \
		}                                                                                                      \
		event_free(tick);                                                                                      \
	} while (0)

static void run_for(struct world *world, int64_t wait_ms)
{
	int64_t end_ms = now_ms(world) + wait_ms;
	RUN_UNTIL(world, now_ms(world) >= end_ms);
}

static void make_children(struct world *world)
{
	world->children = child_upstream_new(world->loop, world->policy, world->argv);
	assert_non_null(world->children);
}

static struct upstream *open_for(struct world *world, struct session *session)
{
	struct error error = {0};
	session->upstream = child_upstream_ops.open(world->children, session, &error);
	assert_non_null(session->upstream);
	return session->upstream;
}

/* Starts `sh -c script` for the first session. */
static struct upstream *start(struct world *world, const char *script)
{
	world->argv[0] = (char *)"sh";
	world->argv[1] = (char *)"-c";
	world->argv[2] = (char *)script;
	make_children(world);
	return open_for(world, &world->session);
}

static int send_text(struct upstream *upstream, enum upstream_kind kind, const char *text)
{
	struct buf message = {0};
	buf_add_text(&message, text);
	int status = child_upstream_ops.send(upstream, kind, kind == UPSTREAM_REQUEST, &message);
	assert_null(message.data);
	return status;
}

static int send_filled(struct upstream *upstream, enum upstream_kind kind, size_t len)
{
	struct buf message = {0};
	assert_true(buf_reserve(&message, len));
	memset(message.data, 'x', len);
	message.len = len;
	return child_upstream_ops.send(upstream, kind, 1, &message);
}

static bool was_said(const struct session *session, unsigned number, const char *text)
{
	return session->messages > number && span_is(buf_span(&session->kept[number]), text);
}

static bool was_logged(struct world *world, const char *text)
{
	static char content[1 << 20];
	ssize_t len = pread(world->log_fd, content, sizeof(content) - 1, 0);
	assert_true(len >= 0);
	content[len] = '\0';
	return strstr(content, text) != NULL;
}

static bool is_alive(pid_t pid)
{
	return kill(pid, 0) == 0;
}

static bool is_idle(struct world *world)
{
	return child_upstream_is_idle(world->children);
}

/* Messages. */

static void test_both_ways(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	struct upstream *upstream = start(world, "exec cat");
	assert_false(child_upstream_ops.has_streams);
	assert_false(is_idle(world));
	assert_int_equal(send_text(upstream, UPSTREAM_REQUEST, "{\"id\":1,\r\n\"x\":\"\\n\"}"), 0);
	assert_int_equal(send_text(upstream, UPSTREAM_RESPONSE, "[2]"), 0);
	RUN_UNTIL(world, session->messages == 2);
	/* What was a line end between tokens is a space now. */
	assert_true(was_said(session, 0, "{\"id\":1,  \"x\":\"\\n\"}"));
	assert_true(was_said(session, 1, "[2]"));
	child_upstream_ops.establish(upstream, "2025-11-25");
	assert_int_equal(session->established, 1);
	child_upstream_ops.forget(upstream, 1);
	child_upstream_ops.close(upstream);
	RUN_UNTIL(world, is_idle(world));
	assert_int_equal(session->lost, 0);
	assert_true(was_logged(world, "exited with status 0"));
	assert_false(was_logged(world, "SIGTERM"));
}

static void test_large_messages(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	world->policy->limits.message_bytes = 8 << 20;
	struct upstream *upstream = start(world, "exec cat");
	size_t len = 5 << 20;
	struct buf message = {0};
	buf_add_text(&message, "{\"text\":\"");
	while (message.len < len)
		buf_printf(&message, "%zu ", message.len);
	buf_add_text(&message, "\"}");
	struct buf sent = {0};
	buf_add_span(&sent, buf_span(&message));
	for (int i = 0; i < 2; i++) {
		buf_add_span(&message, buf_span(&sent));
		message.len = sent.len;
		memcpy(message.data, sent.data, sent.len);
		assert_int_equal(child_upstream_ops.send(upstream, UPSTREAM_RESPONSE, 0, &message), 0);
		RUN_UNTIL(world, session->messages == (unsigned)i + 1);
		assert_true(span_equal(buf_span(&session->kept[i]), buf_span(&sent)));
	}
	buf_free(&sent);
}

static void test_one_byte_at_a_time(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	start(world, "for c in '{' '\"a\"' : ' ' 1 '}' '\r' '\n'; do printf %s \"$c\"; sleep 0.01; done; exec cat");
	RUN_UNTIL(world, session->messages == 1);
	assert_true(was_said(session, 0, "{\"a\": 1}"));
}

/* CRLF, blank lines and banners do no harm; a truncated last line is no message. */
static void test_noise(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	start(world, "printf 'Welcome!\\n\\r\\n   \\n{\"a\":1}\\r\\n  [2]\\nBye {\\n{\"b\":2}'");
	RUN_UNTIL(world, session->lost);
	assert_int_equal(session->messages, 2);
	assert_true(was_said(session, 0, "{\"a\":1}"));
	assert_true(was_said(session, 1, "[2]"));
	assert_true(was_logged(world, "server-noise session=s1: no message on the server's standard output: Welcome!"));
	assert_true(was_logged(world, "Bye {"));
	assert_true(was_logged(world, "ended in the middle of a line"));
	RUN_UNTIL(world, is_idle(world));
}

static void test_noise_is_limited(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	world->policy->limits.message_bytes = 1000;
	start(world, "i=0; while [ $i -lt 3000 ]; do echo noise $i; echo complaint $i >&2; i=$((i+1)); done;"
		     "head -c 5000 /dev/zero | tr '\\0' x; echo; echo '{\"a\":1}'; exec cat");
	RUN_UNTIL(world, session->messages == 1);
	assert_int_equal(session->lost, 0);
	assert_true(was_logged(world, "noise 0"));
	assert_true(was_logged(world, "complaint 0"));
	assert_true(lseek(world->log_fd, 0, SEEK_CUR) < 200000);
}

static void test_message_over_the_limit(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	world->policy->limits.message_bytes = 1000;
	start(world, "echo '[1]'; printf '{\"a\":\"'; head -c 2000 /dev/zero | tr '\\0' x; echo '\"}'; echo '[2]'; "
		     "exec cat");
	RUN_UNTIL(world, session->lost);
	assert_int_equal(session->messages, 1);
	assert_string_equal(session->why, "the server sent a message longer than the limit of 1000 bytes");
	RUN_UNTIL(world, is_idle(world));
}

/* The core may close the upstream while it is given a message. */
static void test_close_within_a_message(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	session->close_after = 2;
	start(world, "printf '[1]\\n[2]\\n[3]\\n[4]\\n'; exec cat");
	RUN_UNTIL(world, is_idle(world));
	assert_int_equal(session->messages, 2);
	assert_int_equal(session->lost, 0);
}

static void test_close_within_the_last_words(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	session->close_after = 1;
	start(world, "printf '[1]\\n[2]\\n'");
	usleep(200000);
	RUN_UNTIL(world, is_idle(world));
	assert_int_equal(session->messages, 1);
	assert_int_equal(session->lost, 0);
}

/* Ends. */

static void test_exit_before_the_handshake(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	struct error error = {0};
	struct upstream *upstream =
		start(world, "for i in 1 2 3 4; do echo \"reason $i\" >&2; done; printf last >&2; exit 7");
	assert_int_equal(send_text(upstream, UPSTREAM_REQUEST, "{}"), 0);
	RUN_UNTIL(world, session->lost);
	assert_string_equal(session->why,
		"the server exited with status 7 before the handshake was over; it said: reason 3 | reason 4 | last");
	assert_true(is_idle(world));
	assert_true(was_logged(world, "info server-stderr session=s1: reason 1"));

	/* No new start at once. */
	assert_null(child_upstream_ops.open(world->children, &world->other, &error));
	assert_int_equal(error.code, ERROR_LOST);
	assert_non_null(
		strstr(error.text, "The server keeps failing to start; next try in 0.1 s: the server exited with"));
	assert_non_null(strstr(error.text, "reason 4 | last"));
	run_for(world, 110);
	open_for(world, &world->other);
	RUN_UNTIL(world, world->other.lost);

	/* The next pause is twice as long, but never longer than `restart`. */
	run_for(world, 110);
	assert_null(child_upstream_ops.open(world->children, &world->other, &error));
	run_for(world, 100);
	world->other.lost = 0;
	open_for(world, &world->other);
	RUN_UNTIL(world, world->other.lost);
	run_for(world, 255);
	world->other.lost = 0;
	open_for(world, &world->other);
	RUN_UNTIL(world, world->other.lost);
}

/* A server that was in use may be started again at once, and pauses begin anew. */
static void test_exit_after_the_handshake(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	struct upstream *upstream = start(world, "echo '[1]'; read line; echo '[2]'; kill -9 $$");
	RUN_UNTIL(world, session->messages == 1);
	child_upstream_ops.establish(upstream, "2025-11-25");
	assert_int_equal(send_text(upstream, UPSTREAM_NOTIFICATION, "{}"), 0);
	RUN_UNTIL(world, session->lost);
	/* What it had said before counts. */
	assert_int_equal(session->messages, 2);
	assert_string_equal(session->why, "the server was killed by signal 9 (Killed)");
	open_for(world, &world->other);
	RUN_UNTIL(world, world->other.messages == 1);
}

static void test_no_such_command(void **state)
{
	struct world *world = *state;
	struct error error = {0};
	world->argv[0] = (char *)"/nonexistent/server";
	make_children(world);
	assert_null(child_upstream_ops.open(world->children, &world->session, &error));
	assert_int_equal(error.code, ERROR_SYSTEM);
	assert_string_equal(
		error.text, "The server did not start: cannot start /nonexistent/server: No such file or directory");
	assert_true(is_idle(world));
	assert_int_equal(world->session.lost, 0);
}

/* Everything that was sent is written before stdin is closed. */
static void test_close_writes_what_is_queued(void **state)
{
	struct world *world = *state;
	world->policy->deadlines.exit_ms = 5000;
	struct upstream *upstream = start(world, "sleep 0.2; wc -lc >&2");
	for (int i = 0; i < 3; i++)
		assert_int_equal(send_filled(upstream, UPSTREAM_REQUEST, 300000), 0);
	child_upstream_ops.close(upstream);
	RUN_UNTIL(world, is_idle(world));
	assert_true(was_logged(world, "3  900003"));
	assert_false(was_logged(world, "SIGTERM"));
}

static void test_sigterm(void **state)
{
	struct world *world = *state;
	int64_t begin_ms = now_ms(world);
	struct upstream *upstream = start(world, "exec sleep 1000");
	child_upstream_ops.close(upstream);
	RUN_UNTIL(world, is_idle(world));
	assert_in_range(now_ms(world) - begin_ms, 140, 5000);
	assert_true(was_logged(world, "was killed by signal 15 (Terminated)"));
}

static void test_sigkill(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	struct upstream *upstream = start(world, "trap '' TERM; echo \"[$$]\"; while :; do sleep 0.01; done");
	RUN_UNTIL(world, session->messages == 1);
	int64_t begin_ms = now_ms(world);
	child_upstream_ops.close(upstream);
	RUN_UNTIL(world, is_idle(world));
	assert_in_range(now_ms(world) - begin_ms, 280, 5000);
	assert_true(was_logged(world, "was killed by signal 9 (Killed)"));
	assert_int_equal(session->lost, 0);
}

static void test_kill_all(void **state)
{
	struct world *world = *state;
	start(world, "trap '' TERM; while :; do sleep 1; done");
	open_for(world, &world->other);
	child_upstream_kill_all(world->children);
	RUN_UNTIL(world, is_idle(world));
	assert_int_equal(world->session.lost, 1);
	assert_int_equal(world->other.lost, 1);
}

/* A grandchild that holds the pipes neither hides the exit nor survives it. */
static void test_grandchild(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	start(world, "sleep 1000 & echo \"[$!]\"; exit 3");
	RUN_UNTIL(world, session->lost);
	assert_int_equal(session->messages, 1);
	pid_t grandchild = (pid_t)atoi(session->kept[0].data + 1);
	assert_true(grandchild > 1);
	RUN_UNTIL(world, !is_alive(grandchild));
	assert_string_equal(session->why, "the server exited with status 3 before the handshake was over");
}

static void test_closed_output(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	start(world, "exec >&-; exec sleep 1000");
	RUN_UNTIL(world, session->lost);
	assert_string_equal(session->why, "the server closed its standard output and did not exit");
	RUN_UNTIL(world, is_idle(world));
}

static void test_closed_input(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	struct upstream *upstream = start(world, "exec <&-; echo '[1]'; exec sleep 1000");
	RUN_UNTIL(world, session->messages == 1);
	assert_int_equal(send_text(upstream, UPSTREAM_REQUEST, "{}"), 0);
	assert_int_equal(send_text(upstream, UPSTREAM_REQUEST, "{}"), 0);
	RUN_UNTIL(world, session->lost);
	assert_string_equal(session->why, "the server closed its standard input and did not exit");
	RUN_UNTIL(world, is_idle(world));
}

/* Servers that stand in the way. */

static void test_never_reads(void **state)
{
	struct world *world = *state;
	world->policy->limits.upstream_queue_bytes = 1 << 20;
	struct upstream *upstream = start(world, "exec sleep 1000");
	size_t piece = 100000, sent = 0, responses = 0;
	int status;
	while ((status = send_filled(upstream, UPSTREAM_REQUEST, piece)) == 0)
		sent += piece;
	assert_int_equal(status, ERROR_LIMIT);
	assert_in_range(sent, 900000, (1 << 20) + 300000);
	assert_int_equal(send_filled(upstream, UPSTREAM_NOTIFICATION, piece), ERROR_LIMIT);
	while ((status = send_filled(upstream, UPSTREAM_RESPONSE, piece)) == 0)
		responses += piece;
	assert_int_equal(status, ERROR_LIMIT);
	assert_in_range(responses, 900000, 1200000);
	child_upstream_ops.close(upstream);
	RUN_UNTIL(world, is_idle(world));
}

/* One message is taken whatever its length, if nothing waits. */
static void test_one_large_message(void **state)
{
	struct world *world = *state;
	world->policy->limits.upstream_queue_bytes = 1000;
	struct upstream *upstream = start(world, "exec sleep 1000");
	assert_int_equal(send_filled(upstream, UPSTREAM_REQUEST, 1 << 20), 0);
	assert_int_equal(send_filled(upstream, UPSTREAM_REQUEST, 1), ERROR_LIMIT);
}

/* A flood does not keep others waiting, whether its lines are messages or not, and can be ended. */
static void test_flood(void **state)
{
	struct world *world = *state;
	struct session *flood = &world->session, *quiet = &world->other;
	static const char script[] = "if mkdir \"$1\" 2>/dev/null; then exec yes '{\"a\":1}';"
				     "else exec cat; fi";
	char dir[] = "/tmp/test-child-XXXXXX", path[40], command[300];
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/first", dir);
	snprintf(command, sizeof(command), "set -- %s; %s", path, script);
	struct upstream *flooding = start(world, command);
	RUN_UNTIL(world, flood->messages > 1000);
	struct upstream *upstream = open_for(world, quiet);
	for (unsigned i = 1; i <= 20; i++) {
		int64_t begin_ms = now_ms(world);
		assert_int_equal(send_text(upstream, UPSTREAM_REQUEST, "{}"), 0);
		RUN_UNTIL(world, quiet->messages == i);
		assert_true(now_ms(world) - begin_ms < 2000);
	}
	assert_int_equal(flood->lost, 0);
	child_upstream_ops.close(flooding);
	child_upstream_ops.close(upstream);
	RUN_UNTIL(world, is_idle(world));
	rmdir(path);
	rmdir(dir);
}

/* Many lines that arrive at once are all handed out, over several turns. */
static void test_many_lines_at_once(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	start(world, "seq 1 20000 | sed 's/.*/[&]/'; exit 0");
	RUN_UNTIL(world, session->lost);
	assert_int_equal(session->messages, 20000);
}

/* What the child is given. */

static void expect_answer(struct world *world, const char *script, const char *want)
{
	struct session *session = &world->session;
	start(world, script);
	RUN_UNTIL(world, session->lost);
	assert_int_equal(session->messages, 1);
	buf_add(&session->kept[0], "", 1);
	assert_string_equal(session->kept[0].data, want);
}

static void test_descriptors(void **state)
{
	/* The last one is of ls itself. */
	expect_answer(*state, "echo [$(ls /proc/self/fd)]", "[0 1 2 3]");
}

/* The C library keeps signals 32 and 33 for itself. */
static void test_signals(void **state)
{
	struct world *world = *state;
	struct session *session = &world->session;
	start(world, "echo [$(sed -n 's/SigBlk://p; s/SigIgn://p' /proc/self/status)]");
	RUN_UNTIL(world, session->lost);
	assert_int_equal(session->messages, 1);
	buf_add(&session->kept[0], "", 1);
	char *rest = session->kept[0].data + 1;
	unsigned long long blocked = strtoull(rest, &rest, 16);
	unsigned long long ignored = strtoull(rest, &rest, 16);
	assert_string_equal(rest, "]");
	assert_int_equal(blocked, 0);
	assert_int_equal(ignored & 0x7fffffff, 0);
}

static void test_process_group(void **state)
{
	expect_answer(*state, "[ $(cut -d' ' -f5 /proc/$$/stat) = $$ ] && echo [own]", "[own]");
}

static void test_descriptor_limit(void **state)
{
	struct world *world = *state;
	char want[40];
	snprintf(want, sizeof(want), "[%llu]", (unsigned long long)loop_child_descriptors(world->loop)->rlim_cur);
	expect_answer(world, "echo [$(ulimit -Sn)]", want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_both_ways, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_large_messages, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_byte_at_a_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_noise, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_noise_is_limited, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_message_over_the_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_close_within_a_message, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_close_within_the_last_words, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_exit_before_the_handshake, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_exit_after_the_handshake, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_such_command, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_close_writes_what_is_queued, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sigterm, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sigkill, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_kill_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grandchild, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_closed_output, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_closed_input, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_never_reads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_large_message, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_flood, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many_lines_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_signals, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_process_group, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptor_limit, set_up, tear_down),
	};
	sigset_t blocked;
	struct rlimit limit;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	signal(SIGUSR1, SIG_IGN);
	/* A soft limit below the hard one, and a descriptor that is open for everybody. */
	if (sodium_init() < 0 || getrlimit(RLIMIT_NOFILE, &limit) ||
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){500, limit.rlim_max}) || dup2(STDERR_FILENO, LEAKED_FD) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
