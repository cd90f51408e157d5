#include "adapters/http_fetch.h"

#include "adapters/http_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DOCUMENT = 1 << 20 };

struct http_fetch {
	struct http_transfer *transfer;
	void (*on_done)(void *arg, int status, const char *content_type, struct span body);
	void *arg;
	int status;
	char content_type[128];
	struct buf body;
};

static void fetch_free(struct http_fetch *fetch)
{
	buf_free(&fetch->body);
	free(fetch);
}

static void on_head(void *arg, const struct http_response *response)
{
	struct http_fetch *fetch = arg;
	fetch->status = response->status;
	snprintf(fetch->content_type, sizeof(fetch->content_type), "%s", response->content_type);
}

static void on_data(void *arg, struct span bytes)
{
	struct http_fetch *fetch = arg;
	if (fetch->body.len + bytes.len <= MAX_DOCUMENT)
		buf_add_span(&fetch->body, bytes);
	else
		fetch->body.failed = true;
}

static void on_done(void *arg, const char *fault, bool unsent)
{
	struct http_fetch *fetch = arg;
	(void)unsent;
	bool complete = !fault && buf_ok(&fetch->body);
	fetch->on_done(fetch->arg, complete ? fetch->status : 0, fetch->content_type, buf_span(&fetch->body));
	fetch_free(fetch);
}

struct http_fetch *http_fetch_start(struct http_upstream *http, struct span path,
	void (*done)(void *arg, int status, const char *content_type, struct span body), void *arg)
{
	static const struct http_handlers handlers = {on_head, on_data, on_done};
	static const char *const headers[] = {
		"Accept: application/json", "Accept-Encoding: identity", "User-Agent: mcp-valet", NULL};
	struct http_fetch *fetch = calloc(1, sizeof(*fetch));
	struct buf url = {0};
	const char *host = strstr(http->url, "//") + 2;
	buf_add(&url, http->url, (size_t)(host - http->url) + strcspn(host, "/?#"));
	buf_add_span(&url, path);
	buf_add(&url, "", 1);
	if (fetch && buf_ok(&url)) {
		fetch->on_done = done;
		fetch->arg = arg;
		fetch->transfer = http_transfer_start(http->client,
			&(struct http_request){
				.method = "GET", .url = url.data, .headers = headers, .repeatable = true},
			&handlers, fetch);
	}
	buf_free(&url);
	if (fetch && fetch->transfer)
		return fetch;
	free(fetch);
	return NULL;
}

void http_fetch_cancel(struct http_fetch *fetch)
{
	http_transfer_cancel(fetch->transfer);
	fetch_free(fetch);
}
