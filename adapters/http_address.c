#include "adapters/http_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

static bool set_ip(struct http_address *address, const char *host, uint16_t port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&address->name;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&address->name;
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		address->len = sizeof(*v6);
	} else if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		address->len = sizeof(*v4);
	} else {
		return false;
	}
	return true;
}

unsigned http_find_addresses(const struct http_target *target, struct http_address addresses[HTTP_MAX_ADDRESSES])
{
	char host[64], port_text[8] = "80";
	const char *authority = target->url + 7;
	if (target->unix_socket) {
		struct sockaddr_un *name = (struct sockaddr_un *)(void *)&addresses[0].name;
		if (strlen(target->unix_socket) >= sizeof(name->sun_path))
			return 0;
		name->sun_family = AF_UNIX;
		strcpy(name->sun_path, target->unix_socket);
		addresses[0].len = sizeof(*name);
		return 1;
	}
	if (!target->direct || strncmp(target->url, "http://", 7) != 0)
		return 0;
	/* host, host:port, [host] or [host]:port, up to the path */
	int len = 0;
	size_t end = strcspn(authority, "/?#");
	if (sscanf(authority, *authority == '[' ? "[%63[0-9a-fA-F:.]]%n" : "%63[^]:/?#[]%n", host, &len) != 1 || !len)
		return 0;
	if ((size_t)len != end &&
		(sscanf(authority + len, ":%5[0-9]", port_text) != 1 || len + 1 + strlen(port_text) != end))
		return 0;
	int port = atoi(port_text);
	if (port < 1 || port > 65535)
		return 0;
	if (strcasecmp(host, "localhost") != 0)
		return set_ip(&addresses[0], host, (uint16_t)port) ? 1 : 0;
	return set_ip(&addresses[0], "::1", (uint16_t)port) && set_ip(&addresses[1], "127.0.0.1", (uint16_t)port) ? 2
														  : 0;
}
