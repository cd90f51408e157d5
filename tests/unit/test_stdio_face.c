/* The face on real descriptors, with a core that answers every message with its own bytes. */
#include "adapters/stdio_face.h"

#include "adapters/loop.h"
#include "proxy/proxy.h"

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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 10000 };

/* A stub of the core. */

struct proxy {
	struct client *client;
	unsigned received, gone, shutdowns, busy;
	bool mute;	  /* does not answer */
	unsigned notices; /* notifications to send before each answer */
	size_t notice_bytes;
	bool sends; /* the notices are of a legacy client's session */
	unsigned refused;
};

void client_init(struct client *client, const struct face_ops *ops)
{
	client->ops = ops;
	TAILQ_INIT(&client->exchanges);
}

enum received proxy_receive(
	struct proxy *proxy, struct client *client, struct span message, const struct request_headers *headers)
{
	assert_null(headers);
	assert_true(client->cancels_by_message);
	assert_int_equal(proxy->shutdowns, 0);
	proxy->client = client;
	proxy->received++;
	for (unsigned i = 0; i < proxy->notices; i++) {
		struct buf notice = {0};
		assert_true(buf_reserve(&notice, proxy->notice_bytes));
		memset(notice.data, 'n', proxy->notice_bytes);
		notice.len = proxy->notice_bytes;
		if (proxy->sends)
			proxy->refused += !client->ops->send(client, &notice);
		else
			client->ops->notify(client, &notice);
	}
	if (!proxy->mute) {
		struct buf answer = {0};
		buf_add_span(&answer, message);
		client->ops->respond(client, 200, &answer);
	}
	return RECEIVED_REQUEST;
}

void client_gone(struct proxy *proxy, struct client *client UNUSED)
{
	proxy->gone++;
	proxy->busy = 0;
}

int64_t proxy_next_due(const struct proxy *proxy UNUSED)
{
	return INT64_MAX;
}

void proxy_turn(struct proxy *proxy UNUSED)
{
}

void proxy_shutdown(struct proxy *proxy)
{
	proxy->shutdowns++;
}

bool proxy_is_idle(const struct proxy *proxy)
{
	return proxy->busy == 0;
}

/* The world of one test. */

struct world {
	struct loop *loop;
	struct policy *policy;
	struct proxy proxy;
	struct stdio_face *face;
	unsigned reloads, kills;
	int64_t limit_ms;
};

static void reload(void *ctx)
{
	((struct world *)ctx)->reloads++;
}

static void stop_accepting(void *ctx)
{
	stdio_face_stop_accepting(((struct world *)ctx)->face);
}

static bool is_idle(void *ctx)
{
	return stdio_face_is_idle(((struct world *)ctx)->face);
}

static void kill_all(void *ctx)
{
	((struct world *)ctx)->kills++;
}

static int64_t hard_limit_ms(void *ctx)
{
	return ((struct world *)ctx)->limit_ms;
}

static int set_up(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	struct error error;
	assert_non_null(world);
	world->loop = loop_new(&(struct loop_config){.log_level = LOG_ERROR, .log_fd = STDERR_FILENO}, &error);
	assert_non_null(world->loop);
	world->policy = policy_default();
	assert_non_null(world->policy);
	world->limit_ms = LIMIT_MS;
	*state = world;
	return 0;
}

static int tear_down(void **state)
{
	struct world *world = *state;
	stdio_face_free(world->face);
	policy_unref(world->policy);
	loop_free(world->loop);
	free(world);
	return 0;
}

/* Runs the face until its orderly end. */
static int run(struct world *world, int in_fd, int out_fd)
{
	struct error error;
	const struct loop_parts parts = {
		.ctx = world,
		.reload = reload,
		.stop_accepting = stop_accepting,
		.is_idle = is_idle,
		.kill = kill_all,
		.hard_limit_ms = hard_limit_ms,
	};
	world->face = stdio_face_new(world->loop, &world->proxy, world->policy, in_fd, out_fd, &error);
	assert_non_null(world->face);
	return loop_run(world->loop, &world->proxy, &parts);
}

static int file_of(const char *content)
{
	int fd = memfd_create("input", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void expect_output(struct world *world, int in_fd, const char *want)
{
	char got[4096];
	int out_fd = memfd_create("output", MFD_CLOEXEC);
	assert_true(out_fd >= 0);
	assert_int_equal(run(world, in_fd, out_fd), 0);
	ssize_t len = pread(out_fd, got, sizeof(got) - 1, 0);
	assert_true(len >= 0);
	got[len] = '\0';
	assert_string_equal(got, want);
	assert_int_equal(world->proxy.shutdowns, 1);
	close(out_fd);
	close(in_fd);
}

/* A child that writes `content` (repeated) into a pipe; the reading end is returned. */
static int pipe_from(const char *content, unsigned times, unsigned pause_us, pid_t *pid)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	*pid = fork();
	assert_true(*pid >= 0);
	if (*pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		close(ends[0]);
		for (unsigned i = 0; i < times; i++) {
			if (pause_us)
				usleep(pause_us);
			if (write(ends[1], content, strlen(content)) < 0)
				_exit(1);
		}
		_exit(0);
	}
	close(ends[1]);
	return ends[0];
}

/* Input of every kind. */

static void test_pipe(void **state)
{
	pid_t pid;
	int in_fd = pipe_from("{\"id\":1}\n\n  \r\n{\"id\":2}\r\n", 1, 0, &pid);
	expect_output(*state, in_fd, "{\"id\":1}\n{\"id\":2}\n");
}

static void test_regular_file(void **state)
{
	struct world *world = *state;
	expect_output(world, file_of("{\"id\":1}\n{\"id\":2}\n"), "{\"id\":1}\n{\"id\":2}\n");
}

static void test_dev_null(void **state)
{
	struct world *world = *state;
	int in_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	expect_output(world, in_fd, "");
	assert_int_equal(world->proxy.received, 0);
}

static void test_endless_line(void **state)
{
	struct world *world = *state;
	pid_t pid;
	int in_fd = pipe_from("1", 20, 1000, &pid);
	expect_output(world, in_fd, "");
	assert_int_equal(world->proxy.received, 0); /* the line never ended */
}

static void test_many_lines(void **state)
{
	struct world *world = *state;
	pid_t pid;
	int in_fd = pipe_from("[1]\n[2]\n[3]\n[4]\n[5]\n", 20000, 0, &pid);
	world->proxy.mute = true;
	expect_output(world, in_fd, "");
	assert_int_equal(world->proxy.received, 100000);
}

static void test_truncated_last_line(void **state)
{
	expect_output(*state, file_of("{\"id\":1}\n{\"id\":2}"), "{\"id\":1}\n");
}

static void test_long_line(void **state)
{
	struct world *world = *state;
	world->policy->limits.message_bytes = 10;
	expect_output(world, file_of("[123456789]\n[12345678]\n"),
		"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"Invalid request: the message is longer "
		"than "
		"the limit of 10 bytes\"}}\n[12345678]\n");
}

static void test_descriptor_flags(void **state)
{
	struct world *world = *state;
	int ends[2];
	struct error error;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	int before = fcntl(ends[0], F_GETFL);
	world->face = stdio_face_new(world->loop, &world->proxy, world->policy, ends[0], ends[0], &error);
	assert_non_null(world->face);
	assert_true(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	stdio_face_free(world->face);
	world->face = NULL;
	assert_int_equal(fcntl(ends[0], F_GETFL), before);
	close(ends[0]);
	close(ends[1]);
}

/* Output. */

/* A client that reads slowly gets every response, and is not read from meanwhile. */
static void test_backpressure(void **state)
{
	struct world *world = *state;
	int ends[2];
	enum { LINE = 1000, LINES = 2000 };
	char line[LINE + 1];
	pid_t writer;
	memset(line, 'x', LINE);
	line[LINE - 1] = '\n';
	line[LINE] = '\0';
	world->policy->limits.downstream_queue_bytes = 80000;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t reader = fork();
	assert_true(reader >= 0);
	if (reader == 0) {
		char got[5000];
		size_t total = 0;
		ssize_t len;
		close(ends[1]);
		usleep(100000);
		while ((len = read(ends[0], got, sizeof(got))) > 0) {
			total += (size_t)len;
			usleep(100);
		}
		_exit(total == (size_t)LINE * LINES ? 0 : 1);
	}
	close(ends[0]);
	int in_fd = pipe_from(line, LINES, 0, &writer);
	assert_int_equal(run(world, in_fd, ends[1]), 0);
	assert_int_equal(world->proxy.received, LINES);
	close(ends[1]);
	int status;
	/* The loop reaps what it sees; a child that ends later is ours. */
	if (waitpid(reader, &status, 0) == reader)
		assert_int_equal(status, 0);
	close(in_fd);
}

/* Where nobody reads, notifications are dropped, reading stops, and the end comes at its limit. */
static void test_client_that_never_reads(void **state)
{
	struct world *world = *state;
	int out[2];
	pid_t writer;
	world->policy->limits.downstream_queue_bytes = 400000;
	world->proxy.notices = 3;
	world->proxy.notice_bytes = 200000;
	world->limit_ms = 200;
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	int in_fd = pipe_from("[1]\n", 50000, 0, &writer);
	pid_t killer = fork();
	assert_true(killer >= 0);
	if (killer == 0) {
		usleep(300000);
		kill(getppid(), SIGTERM);
		_exit(0);
	}
	assert_int_equal(run(world, in_fd, out[1]), ERROR_REFUSED);
	assert_int_equal(world->kills, 1);
	/* What one message brings fills the pipe (256 KiB at most) and more than an eighth of the limit. */
	assert_int_equal(world->proxy.received, 1);
	close(in_fd);
	close(out[0]);
	close(out[1]);
	(void)waitpid(writer, NULL, 0);
}

/* What belongs to a legacy client's session cannot be left out: who does not read it is cut off. */
static void test_legacy_client_that_never_reads(void **state)
{
	struct world *world = *state;
	int in[2], out[2];
	world->policy->limits.downstream_queue_bytes = 400000;
	world->proxy.notices = 5;
	world->proxy.notice_bytes = 200000;
	world->proxy.sends = true;
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(write(in[1], "[1]\n", 4), 4);
	close(in[1]);
	(void)run(world, in[0], out[1]);
	assert_in_range(world->proxy.refused, 1, 3);
	assert_int_equal(world->proxy.gone, 1);
	close(in[0]);
	close(out[0]);
	close(out[1]);
}

static void test_client_that_is_gone(void **state)
{
	struct world *world = *state;
	int in[2], out[2];
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	close(out[0]);
	assert_int_equal(write(in[1], "[1]\n[2]\n", 8), 8);
	world->proxy.busy = 1;
	assert_int_equal(run(world, in[0], out[1]), 0);
	assert_int_equal(world->proxy.received, 1);
	assert_int_equal(world->proxy.gone, 1);
	close(in[0]);
	close(in[1]);
	close(out[1]);
}

/* Signals. */

static void signal_after(unsigned wait_us, int number, int times)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return;
	for (int i = 0; i < times; i++) {
		usleep(wait_us);
		kill(getppid(), number);
	}
	_exit(0);
}

static void run_idle(struct world *world, int want)
{
	int in[2], out[2];
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(run(world, in[0], out[1]), want);
	assert_int_equal(world->proxy.shutdowns, 1);
	close(in[0]);
	close(in[1]);
	close(out[0]);
	close(out[1]);
}

static void test_sigterm(void **state)
{
	signal_after(20000, SIGTERM, 1);
	run_idle(*state, 0);
}

static void test_second_sigint(void **state)
{
	struct world *world = *state;
	world->proxy.busy = 1;
	signal_after(50000, SIGINT, 2);
	run_idle(world, ERROR_REFUSED);
	assert_int_equal(world->kills, 1);
}

static void test_sighup(void **state)
{
	struct world *world = *state;
	signal_after(20000, SIGHUP, 2);
	signal_after(200000, SIGTERM, 1);
	run_idle(world, 0);
	assert_int_equal(world->reloads, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pipe, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_regular_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_dev_null, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_endless_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many_lines, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_truncated_last_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_long_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptor_flags, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_backpressure, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_client_that_never_reads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_legacy_client_that_never_reads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_client_that_is_gone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sigterm, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_second_sigint, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_sighup, set_up, tear_down),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
