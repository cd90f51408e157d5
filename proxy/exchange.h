/* An exchange: one downstream request and its one response (invariant 1).
 *
 * A request becomes one when request_check.h has found nothing wrong with it; the call that an exchange waits for answers it
 * through exchange_respond(). It is on its client's list from the first byte to the response, and on its call's list while it
 * waits for the call. */
#ifndef MCP_VALET_EXCHANGE_H
#define MCP_VALET_EXCHANGE_H

#include "proxy/core.h"
#include "proxy/message.h"
#include "proxy/method.h"

struct passing;
struct relay_stream;

struct exchange {
	struct grave grave;
	TAILQ_ENTRY(exchange) of_client;
	TAILQ_ENTRY(exchange) of_call;
	struct proxy *proxy;
	struct client *client;
	struct call *call;		   /* which it waits for, or NULL */
	struct subscription *subscription; /* which it is, or NULL */
	struct passing *passing;	   /* the request, passed through to a modern server, or NULL */
	struct relay_stream *stream;	   /* of a legacy client's session, or NULL */
	char *id;			   /* as spelled */
	char *progress_token;		   /* as spelled, or NULL */
	char *trace;			   /* W3C trace id, or NULL */
	bool retried;			   /* it carried a requestState */
};

/* Of a request: what it is called by is kept for as long as it runs, also after its client has gone. */
enum { MAX_ID_BYTES = 1024 };

/* Makes the exchange of a request. NULL if that is not possible; then the client has been told. */
struct exchange *exchange_admit(struct proxy *proxy, struct client *client, struct span id) MUST_CHECK;
/* Answers a message that gets no exchange with an error. */
void exchange_reject(struct client *client, struct span id, int http_status, int code, const char *text);
/* Logs an event of a request that has no call. */
void exchange_log(const struct exchange *exchange, enum log_level level, const char *event, const char *format, ...)
	PRINTF_LIKE(4, 5);
/* Ends the exchange with a whole message, whose content is taken. */
void exchange_deliver(struct exchange *exchange, int http_status, struct buf *message);
/* Ends the exchange without a response. */
void exchange_drop(struct exchange *exchange);

/* Ends the exchange with the body of a response, `"result":{…}` or `"error":{…}`. */
void exchange_respond(struct exchange *exchange, int http_status, struct span body);
/* The same with a body that is whole, and is taken. */
void exchange_respond_taking(struct exchange *exchange, int http_status, struct buf *body);
/* The same with an error. `data` is JSON text or NULL. */
void exchange_fail(struct exchange *exchange, int http_status, int code, const char *text, const char *data);
/* The same where a server that messages pass to cannot be reached, or refuses: with its own 401 or 403 and the challenge
 * (or NULL) that came with it, else with 502. */
void exchange_fail_unreachable(
	struct exchange *exchange, int http_status, const char *challenge, const char *why, const char *data);
/* Sends a notification that belongs to the exchange. `params` may have a NULL ptr; its members pass as spelled, but for
 * `_meta`, which says nothing of subscriptions except `meta_key` with the JSON text `meta_value`, if they are not NULL. */
void exchange_notify(struct exchange *exchange, const char *method, struct span params, const char *meta_key,
	const char *meta_value);
/* Sends a progress notification with the exchange's own token; nothing if it has none. */
void exchange_progress(struct exchange *exchange, struct span params);

/* What a request says of itself, read from its params; spans point into the received bytes. */
struct request {
	const struct method *method;
	struct span params;
	const struct json_index *index;
	struct span name;	     /* tool, prompt or URI as spelled with its quotes, or a NULL ptr */
	struct span capabilities;    /* io.modelcontextprotocol/clientCapabilities */
	struct span client_info;     /* io.modelcontextprotocol/clientInfo, or a NULL ptr */
	struct span progress_token;  /* or a NULL ptr */
	int log_level;		     /* LOGGING_NONE, or io.modelcontextprotocol/logLevel */
	struct span trace_parent;    /* or a NULL ptr */
	struct span request_state;   /* or a NULL ptr */
	struct span input_responses; /* or a NULL ptr */
	struct span script;	     /* a rerun: the answers given before, a JSON array; or a NULL ptr */
	uint32_t round;		     /* a rerun: the round that it comes from */
	unsigned asked;		     /* a rerun: questions whose names were used before */
	struct call *lost;	     /* a rerun: the call that it takes the place of, or NULL */
};

#endif
