#include "adapters/http_client.h"

#include "adapters/http_engine.h"

#include <stdlib.h>
#include <string.h>

struct http_client {
	struct event_base *base;
	struct http_target target;
	size_t origin_len;	  /* of the target's URL: scheme and authority */
	struct http_plain *plain; /* or NULL */
	struct http_curl *curl;	  /* made when it is needed: it is large */
};

struct http_client *http_client_new(struct event_base *base, const struct http_target *target, struct error *error)
{
	struct http_client *client = calloc(1, sizeof(*client));
	if (client) {
		const char *host = strstr(target->url, "//") + 2;
		client->base = base;
		client->target = *target;
		client->origin_len = (size_t)(host - target->url) + strcspn(host, "/?#");
		if (http_plain_serves(target))
			client->plain = http_plain_new(base, target);
		else
			client->curl = http_curl_new(base, target);
	}
	if (client && (client->plain || client->curl))
		return client;
	free(client);
	error_set(error, ERROR_MEMORY, "out of memory");
	return NULL;
}

void http_client_free(struct http_client *client)
{
	if (!client)
		return;
	http_plain_free(client->plain);
	http_curl_free(client->curl);
	free(client);
}

bool http_client_is_idle(const struct http_client *client)
{
	return (!client->plain || http_plain_is_idle(client->plain)) &&
	       (!client->curl || http_curl_is_idle(client->curl));
}

/* Whether the URL, which a server may have named, is one of the target's that needs no more work before it is sent. */
static bool is_plain(const struct http_client *client, const char *url)
{
	const char *path = url + client->origin_len;
	if (!client->plain || strncmp(url, client->target.url, client->origin_len) != 0 ||
		(*path && !strchr("/?#", *path)) || strstr(path, "/./") || strstr(path, "/../"))
		return false;
	while ((unsigned char)*path > ' ' && *path != 0x7F)
		path++;
	return !*path;
}

struct http_transfer *http_transfer_start(
	struct http_client *client, const struct http_request *request, const struct http_handlers *handlers, void *arg)
{
	const char *url = request->url ? request->url : client->target.url;
	if (is_plain(client, url))
		return http_plain_start(client->plain, request, url + client->origin_len, handlers, arg);
	if (!client->curl)
		client->curl = http_curl_new(client->base, &client->target);
	if (client->curl)
		return http_curl_start(client->curl, request, handlers, arg);
	if (request->body)
		buf_free(request->body);
	return NULL;
}

void http_transfer_cancel(struct http_transfer *transfer)
{
	transfer->cancel(transfer);
}
