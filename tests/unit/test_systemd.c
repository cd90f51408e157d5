#include "adapters/systemd.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* The service manager's end: a datagram socket at `name`, which begins with @ if it is abstract. */
static int manager(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	memcpy(address.sun_path, name, len);
	if (*name == '@')
		address.sun_path[0] = '\0';
	assert_true(fd >= 0);
	assert_int_equal(
		bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)), 0);
	return fd;
}

static void assert_heard(int fd, const char *expected)
{
	char heard[128] = "";
	assert_int_equal(recv(fd, heard, sizeof(heard) - 1, 0), strlen(expected));
	assert_string_equal(heard, expected);
}

static void hears_every_state(const char *name)
{
	struct systemd systemd;
	char heard[128] = "";
	long long usec = 0;
	int fd = manager(name);
	setenv("NOTIFY_SOCKET", name, 1);
	systemd_begin(&systemd);
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_int_equal(systemd_notify_ready(&systemd, NULL), 0);
	assert_heard(fd, "READY=1");
	assert_int_equal(systemd_notify_reloading(&systemd, NULL), 0);
	assert_true(recv(fd, heard, sizeof(heard) - 1, 0) > 0);
	assert_int_equal(sscanf(heard, "RELOADING=1\nMONOTONIC_USEC=%lld", &usec), 1);
	assert_true(usec > 0);
	assert_int_equal(systemd_notify_stopping(&systemd, NULL), 0);
	assert_heard(fd, "STOPPING=1");
	close(fd);
}

static void test_notifies_a_path(void **state)
{
	(void)state;
	char name[64];
	snprintf(name, sizeof(name), "/tmp/test_systemd.%d", (int)getpid());
	hears_every_state(name);
	unlink(name);
}

static void test_notifies_an_abstract_socket(void **state)
{
	(void)state;
	char name[64];
	snprintf(name, sizeof(name), "@test_systemd.%d", (int)getpid());
	hears_every_state(name);
}

static void test_a_deaf_manager_is_an_error(void **state)
{
	(void)state;
	struct systemd systemd;
	struct error error = {0};
	setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
	systemd_begin(&systemd);
	assert_int_equal(systemd_notify_ready(&systemd, &error), ERROR_SYSTEM);
	assert_non_null(strstr(error.text, "/nonexistent/socket"));
}

/* Without a name, and with one that is no address. */
static void test_nobody_listens(void **state)
{
	(void)state;
	struct systemd systemd;
	char long_name[200];
	unsetenv("NOTIFY_SOCKET");
	systemd_begin(&systemd);
	assert_int_equal(systemd_notify_ready(&systemd, NULL), 0);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	setenv("NOTIFY_SOCKET", long_name, 1);
	systemd_begin(&systemd);
	assert_int_equal(systemd_notify_ready(&systemd, NULL), 0);
	assert_null(getenv("NOTIFY_SOCKET"));
}

/* Sockets: descriptor 3 is what systemd would pass, and is put back after each test. */

static int spare = -1;

static int keep_descriptor(void **state)
{
	(void)state;
	spare = fcntl(3, F_DUPFD_CLOEXEC, 10);
	return 0;
}

static int give_back_descriptor(void **state)
{
	(void)state;
	close(3);
	if (spare >= 0) {
		dup2(spare, 3);
		close(spare);
	}
	return 0;
}

static void pass(int type, bool listens)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, type, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (listens)
		assert_int_equal(listen(fd, 1), 0);
	if (fd != 3) {
		assert_int_equal(dup2(fd, 3), 3);
		close(fd);
	}
}

static void say(long pid, const char *count)
{
	char text[32];
	snprintf(text, sizeof(text), "%ld", pid);
	setenv("LISTEN_PID", text, 1);
	setenv("LISTEN_FDS", count, 1);
	setenv("LISTEN_FDNAMES", "mcp", 1);
}

static void assert_refused(const char *reason)
{
	struct error error = {0};
	assert_int_equal(systemd_take_socket(&error), -1);
	if (!strstr(error.text, reason))
		fail_msg("\"%s\" instead of \"%s\"", error.text, reason);
	assert_null(getenv("LISTEN_PID"));
	assert_null(getenv("LISTEN_FDS"));
	assert_null(getenv("LISTEN_FDNAMES"));
}

static void test_takes_the_socket_once(void **state)
{
	(void)state;
	pass(SOCK_STREAM, true);
	say(getpid(), "1");
	assert_int_equal(systemd_take_socket(NULL), 3);
	assert_true(fcntl(3, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(3, F_GETFL) & O_NONBLOCK);
	assert_refused("0 sockets");
}

static void test_refuses_what_is_not_for_it(void **state)
{
	(void)state;
	pass(SOCK_STREAM, true);
	say(getpid() + 1, "1");
	assert_refused("0 sockets");
	say(getpid(), "2");
	assert_refused("2 sockets");
	say(getpid(), "1x");
	assert_refused("0 sockets");
	say(getpid(), "");
	assert_refused("0 sockets");
}

static void test_refuses_what_does_not_listen(void **state)
{
	(void)state;
	pass(SOCK_STREAM, false);
	say(getpid(), "1");
	assert_refused("not a stream socket that listens");
	pass(SOCK_DGRAM, false);
	say(getpid(), "1");
	assert_refused("not a stream socket that listens");
	close(3);
	say(getpid(), "1");
	assert_refused("not a stream socket that listens");
}

static void test_forgets_sockets_that_nobody_took(void **state)
{
	(void)state;
	struct systemd systemd;
	say(getpid(), "1");
	systemd_begin(&systemd);
	assert_refused("0 sockets");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notifies_a_path),
		cmocka_unit_test(test_notifies_an_abstract_socket),
		cmocka_unit_test(test_a_deaf_manager_is_an_error),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test_setup_teardown(test_takes_the_socket_once, keep_descriptor, give_back_descriptor),
		cmocka_unit_test_setup_teardown(test_refuses_what_is_not_for_it, keep_descriptor, give_back_descriptor),
		cmocka_unit_test_setup_teardown(
			test_refuses_what_does_not_listen, keep_descriptor, give_back_descriptor),
		cmocka_unit_test(test_forgets_sockets_that_nobody_took),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
