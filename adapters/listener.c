#include "adapters/listener.h"

#include "adapters/systemd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
	return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* Splits HOST:PORT or [HOST]:PORT. */
static bool split(const char *address, char host[64], char port[8])
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;
	const char *start = address;
	if (!colon || !colon[1] || strlen(colon + 1) > 5 || strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return false;
	if (*address == '[') {
		if (len < 3 || address[len - 1] != ']')
			return false;
		start++;
		len -= 2;
	} else if (memchr(address, ':', len)) {
		return false; /* an IPv6 address needs its brackets */
	}
	if (len == 0 || len >= 64)
		return false;
	memcpy(host, start, len);
	host[len] = '\0';
	strcpy(port, colon + 1);
	return atoi(port) <= 65535;
}

static int bind_and_listen(
	struct listener *listener, const struct sockaddr *address, socklen_t len, struct error *error, const char *name)
{
	int on = 1;
	listener->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener->fd < 0)
		return error_set(error, ERROR_SYSTEM, "%s: %s", name, strerror(errno));
	if (!listener->is_unix)
		setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	mode_t mask = umask(0177); /* a Unix socket is its owner's alone */
	int status = bind(listener->fd, address, len);
	int reason = errno;
	umask(mask);
	if (status == 0 && listen(listener->fd, 1024) == 0)
		return 0;
	if (status == 0)
		reason = errno;
	close(listener->fd);
	listener->fd = -1;
	return error_set(error, ERROR_SYSTEM, "cannot listen on %s: %s", name, strerror(reason));
}

/* Removes a socket that nobody listens on any more. */
static void remove_stale(const struct sockaddr_un *address)
{
	struct stat info;
	if (stat(address->sun_path, &info) || !S_ISSOCK(info.st_mode))
		return;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)(const void *)address, sizeof(*address)) < 0 && errno == ECONNREFUSED)
		unlink(address->sun_path);
	close(fd);
}

static int open_unix(struct listener *listener, const char *path, struct error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!*path || strlen(path) >= sizeof(address.sun_path))
		return error_set(error, ERROR_SYNTAX, "unix:%s: expected a path of 1 to %zu characters", path,
			sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	listener->is_unix = true;
	remove_stale(&address);
	snprintf(listener->name, sizeof(listener->name), "unix:%s", path);
	int status = bind_and_listen(
		listener, (const struct sockaddr *)(const void *)&address, sizeof(address), error, listener->name);
	if (status == 0)
		strcpy(listener->path, path);
	return status;
}

static void name_bound(struct listener *listener)
{
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	char host[64] = "?", port[8] = "?";
	if (getsockname(listener->fd, (struct sockaddr *)&bound, &len) == 0)
		getnameinfo((struct sockaddr *)&bound, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(listener->name, sizeof(listener->name), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static int refuse_remote(const char *address, struct error *error)
{
	return error_set(error, ERROR_REFUSED,
		"%s is not a loopback address: anybody who reaches it could use the server; --allow-remote permits it",
		address);
}

/* The socket that systemd listens on. A Unix socket's path is systemd's to remove. */
static int open_passed(struct listener *listener, bool allow_remote, struct error *error)
{
	struct sockaddr_storage bound = {0};
	socklen_t len = sizeof(bound);
	listener->fd = systemd_take_socket(error);
	if (listener->fd < 0)
		return ERROR_SYSTEM;
	if (getsockname(listener->fd, (struct sockaddr *)&bound, &len)) {
		listener_close(listener);
		return error_set(error, ERROR_SYSTEM, "the socket from systemd: %s", strerror(errno));
	}
	listener->is_unix = bound.ss_family == AF_UNIX;
	listener->is_loopback = is_loopback((const struct sockaddr *)&bound);
	if (listener->is_unix)
		snprintf(listener->name, sizeof(listener->name), "unix:%s",
			((const struct sockaddr_un *)(const void *)&bound)->sun_path);
	else
		name_bound(listener);
	if (listener->is_unix || listener->is_loopback || allow_remote)
		return 0;
	int status = refuse_remote(listener->name, error);
	listener_close(listener);
	return status;
}

int listener_open(struct listener *listener, const char *address, bool allow_remote, struct error *error)
{
	char host[64], port[8];
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	*listener = (struct listener){.fd = -1};
	if (strncmp(address, "unix:", 5) == 0)
		return open_unix(listener, address + 5, error);
	if (strcmp(address, "systemd") == 0)
		return open_passed(listener, allow_remote, error);
	if (!split(address, host, port) ||
		getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &found) != 0)
		return error_set(error, ERROR_SYNTAX,
			"%s: expected an address such as 127.0.0.1:8080, [::1]:8080 or unix:/path, or the word systemd",
			address);
	listener->is_loopback = is_loopback(found->ai_addr);
	int status = 0;
	if (!listener->is_loopback && !allow_remote)
		status = refuse_remote(address, error);
	else
		status = bind_and_listen(listener, found->ai_addr, found->ai_addrlen, error, address);
	freeaddrinfo(found);
	if (status == 0)
		name_bound(listener);
	return status;
}

void listener_close(struct listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	if (listener->path[0])
		unlink(listener->path);
	*listener = (struct listener){.fd = -1};
}

void listener_peer_name(const struct sockaddr_storage *peer, char out[64])
{
	const void *address = NULL;
	if (peer->ss_family == AF_INET)
		address = &((const struct sockaddr_in *)(const void *)peer)->sin_addr;
	else if (peer->ss_family == AF_INET6)
		address = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
	if (!address || !inet_ntop(peer->ss_family, address, out, 64))
		strcpy(out, "unix");
}
