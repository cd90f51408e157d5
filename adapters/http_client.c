#include "adapters/http_client.h"

#include "adapters/http_engine.h"

#include <stdlib.h>
#include <string.h>

struct http_client {
	struct event_base *base;
	struct http_target target;
	size_t origin_len;	  /* of the target's URL: scheme and authority */
	struct http_plain *plain; /* or NULL */
	struct http_curl *curl;	  /* or NULL: it is large */
};

/* Whether the URL is one of the target's that needs no more work before it is sent. */
static bool is_plain(const struct http_client *client, const char *url)
{
	const char *path = url + client->origin_len;
	size_t len = strcspn(path, "?#");
	if (strncmp(url, client->target.url, client->origin_len) != 0 || (len && *path != '/') ||
		memmem(path, len, "/./", 3) || memmem(path, len, "/../", 4))
		return false;
	while ((unsigned char)*path > ' ' && *path != 0x7F)
		path++;
	return !*path;
}

struct http_client *http_client_new(struct event_base *base, const struct http_target *target, struct error *error)
{
	struct http_client *client = calloc(1, sizeof(*client));
	if (!client) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	const char *host = strstr(target->url, "//") + 2;
	client->base = base;
	client->target = *target;
	client->origin_len = (size_t)(host - target->url) + strcspn(host, "/?#");
	bool plain = http_plain_serves(target) && is_plain(client, target->url);
	if (plain && !(client->plain = http_plain_new(base, target)))
		error_set(error, ERROR_MEMORY, "out of memory");
	if (client->plain || (!plain && http_client_reach_others(client, error) == 0))
		return client;
	free(client);
	return NULL;
}

int http_client_reach_others(struct http_client *client, struct error *error)
{
	if (!client->curl)
		client->curl = http_curl_new(client->base, &client->target, error);
	return client->curl ? 0 : error->code;
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

struct http_transfer *http_transfer_start(
	struct http_client *client, const struct http_request *request, const struct http_handlers *handlers, void *arg)
{
	const char *url = request->url ? request->url : client->target.url;
	if (client->plain && is_plain(client, url))
		return http_plain_start(client->plain, request, url + client->origin_len, handlers, arg);
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
