/* HTTP requests, driven by the event loop. Bytes are handed over as they come; callbacks may start and cancel transfers. */
#ifndef MCP_VALET_HTTP_CLIENT_H
#define MCP_VALET_HTTP_CLIENT_H

#include "proxy/bytes.h"
#include "proxy/error.h"

struct event_base;
struct http_client;
struct http_transfer;

/* What all requests of one target have in common. Strings are borrowed for the life of the client. */
struct http_target {
	const char *url;			 /* http:// or https:// */
	const char *unix_socket;		 /* path, or NULL */
	const char *ca_file, *certificate, *key; /* or NULL */
	bool direct;				 /* without the proxies that the environment names */
	int64_t connect_ms;
};

struct http_request {
	const char *method;
	const char *url;	    /* or NULL: the target's; of another origin only after http_client_reach_others() */
	const char *const *headers; /* NULL-terminated `Name: value` lines */
	struct buf *body;	    /* its content is taken; NULL: none */
};

struct http_response {
	int status;
	const char *content_type; /* "" if there is none */
	const char *session_id;	  /* Mcp-Session-Id, or NULL */
	bool bad_session_id;	  /* there is one, but not of visible ASCII, or too long */
	const char *challenge;	  /* WWW-Authenticate, or NULL */
};

struct http_handlers {
	/* The head of the response. */
	void (*on_head)(void *arg, const struct http_response *response);
	/* Some of the body. */
	void (*on_data)(void *arg, struct span bytes);
	/* The end; `fault` is NULL if the response is complete. `unsent`: no connection could be made, so that the server has seen
	 * nothing of the request. The transfer is gone. Not called after a cancellation. */
	void (*on_done)(void *arg, const char *fault, bool unsent);
};

struct http_client *http_client_new(
	struct event_base *base, const struct http_target *target, struct error *error) MUST_CHECK;
/* Makes it ready for URLs of other origins than the target's, which takes libcurl. */
int http_client_reach_others(struct http_client *client, struct error *error) MUST_CHECK;
void http_client_free(struct http_client *client);
/* Whether no transfer is under way. */
bool http_client_is_idle(const struct http_client *client);

/* Starts a request. NULL without memory, or where the URL cannot be reached; the body is freed then. Handlers are never called from within. */
struct http_transfer *http_transfer_start(struct http_client *client, const struct http_request *request,
	const struct http_handlers *handlers, void *arg) MUST_CHECK;
/* Ends it without a further call. */
void http_transfer_cancel(struct http_transfer *transfer);

#endif
