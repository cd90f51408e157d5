#include "adapters/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_DESCRIPTOR = 3 };

/* Sockets. */

static long number_from(const char *variable)
{
	const char *text = getenv(variable);
	char *end;
	if (!text || !*text)
		return 0;
	long number = strtol(text, &end, 10);
	return *end ? 0 : number;
}

static void forget_sockets(void)
{
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
}

static bool is_listening_stream(int fd)
{
	int type = 0, listens = 0;
	socklen_t len = sizeof(int);
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM &&
	       getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens;
}

int systemd_take_socket(struct error *error)
{
	/* The variables may be left over from another process, whose descriptors are not ours. */
	long count = number_from("LISTEN_PID") == getpid() ? number_from("LISTEN_FDS") : 0;
	int fd = FIRST_DESCRIPTOR;
	forget_sockets();
	if (count != 1)
		error_set(error, ERROR_SYSTEM, "systemd passed %ld sockets to this process, and it needs one", count);
	else if (!is_listening_stream(fd))
		error_set(error, ERROR_SYSTEM, "what systemd passed is not a stream socket that listens (Accept=no)");
	else if (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
		error_set(error, ERROR_SYSTEM, "the socket from systemd: %s", strerror(errno));
	else
		return fd;
	return -1;
}

/* Notifications. */

void systemd_begin(struct systemd *systemd)
{
	const char *name = getenv("NOTIFY_SOCKET");
	*systemd = (struct systemd){0};
	if (name && strlen(name) < sizeof(systemd->notify_socket))
		strcpy(systemd->notify_socket, name);
	unsetenv("NOTIFY_SOCKET");
	forget_sockets();
}

static int notify(const struct systemd *systemd, const char *state, struct error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(systemd->notify_socket);
	if (len == 0)
		return 0;
	memcpy(address.sun_path, systemd->notify_socket, len);
	if (*address.sun_path == '@')
		*address.sun_path = '\0'; /* the abstract namespace, whose names are as long as the address says */
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool sent = fd >= 0 &&
		    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)(const void *)&address,
			    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) >= 0;
	int reason = errno;
	if (fd >= 0)
		close(fd);
	return sent ? 0
		    : error_set(error, ERROR_SYSTEM, "cannot notify %s: %s", systemd->notify_socket, strerror(reason));
}

int systemd_notify_ready(const struct systemd *systemd, struct error *error)
{
	return notify(systemd, "READY=1", error);
}

/* The time tells systemd which of two overlapping reloads is over. */
int systemd_notify_reloading(const struct systemd *systemd, struct error *error)
{
	struct timespec now;
	char state[64];
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
		(int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	return notify(systemd, state, error);
}

int systemd_notify_stopping(const struct systemd *systemd, struct error *error)
{
	return notify(systemd, "STOPPING=1", error);
}
