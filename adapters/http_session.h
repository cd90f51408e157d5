/* One legacy session over HTTP. Private to http_upstream.c, http_post.c and http_stream.c. */
#ifndef MCP_VALET_HTTP_SESSION_H
#define MCP_VALET_HTTP_SESSION_H

#include "adapters/http1.h"
#include "adapters/http_client.h"
#include "adapters/http_upstream.h"
#include "adapters/sse.h"

#include <event2/event.h>
#include <sys/queue.h>

enum http_mode {
	HTTP_MODE_UNKNOWN, /* initialize is on its way */
	HTTP_MODE_STREAMABLE,
	HTTP_MODE_SSE, /* HTTP+SSE */
};

enum { HTTP_RETRY_MS = 1000, HTTP_MAX_RETRIES = 5, HTTP_MAX_FAULT = 4096 };

struct http_upstream {
	struct event_base *base;
	const struct env *env;
	struct policy *policy;
	struct policy *first_policy; /* whose certificate and key the client borrows */
	char *url, *unix_socket, *ca_file;
	struct http_client *client;
	TAILQ_HEAD(, upstream) sessions, dead;
	struct event *bury_timer;
	bool without_get; /* this server stops answering while its GET stream is open */
};

/* One message on its way to the server, and the stream of its answer. */
struct post {
	TAILQ_ENTRY(post) link;
	struct upstream *upstream;
	enum upstream_kind kind;
	uint64_t request_id;
	char *id;			/* of a request, as the message spells it */
	struct http_transfer *transfer; /* NULL while it waits to resume */
	int status;
	bool is_stream;	     /* an event stream, else one body */
	bool feeding;	     /* the core is being told of it */
	bool resumed;	     /* it is read by GET with Last-Event-ID */
	bool unseen;	     /* the server has seen nothing of it */
	bool answered;	     /* the response has come, or nobody waits for it */
	bool is_initialized; /* it carries notifications/initialized */
	bool is_handshake;   /* it carries initialize */
	struct sse sse;
	struct buf body;
	char *last_event_id;
	int64_t retry_ms;
	unsigned retries;    /* in a row without progress */
	unsigned polls;	     /* in a row without a message */
	size_t bytes;	     /* of the message, while it counts as unsent */
	struct event *timer; /* to resume */
};

/* The stream that belongs to no request: GET of Streamable HTTP, or the one of HTTP+SSE. */
struct stream {
	struct http_transfer *transfer;
	struct sse sse;
	bool is_open; /* its head has come */
	bool was_open;
	int status;
	unsigned retries; /* in a row without an event */
	unsigned polls;	  /* in a row without a message */
	int64_t retry_ms;
	char *last_event_id;
	struct event *timer; /* bounded wait for its head; to open it again; to watch a server that stops answering */
};

struct upstream {
	TAILQ_ENTRY(upstream) link;
	struct http_upstream *http;
	struct session *session; /* NULL: over */
	enum http_mode mode;
	char *session_id;     /* or NULL */
	const char *version;  /* agreed, or NULL */
	char *endpoint;	      /* HTTP+SSE: where messages go */
	struct buf handshake; /* a copy of initialize, until the transport is known */
	uint64_t handshake_id;
	bool modern;	   /* no session: every request stands alone */
	bool establishing; /* the core waits for session_on_established() */
	bool initialized_sent;
	size_t unsent_bytes;
	TAILQ_HEAD(post_list, post) posts; /* the newest last */
	struct stream stream;
};

/* http_upstream.c */
/* The connection is lost: tells the core, and ends. */
void upstream_lose(struct upstream *upstream, int http_status, const char *why);
/* What every request of the session carries, besides `more` (NULL-terminated). The lines live until the next call. */
struct header_lines {
	const char *lines[16 + 64 + HTTP1_MAX_FIELDS + 1]; /* ours, the policy's, the client's Mcp-Param-*, the end */
	char session_id[600], version[64], last_event_id[SSE_MAX_FIELD + 32];
	struct buf authorization, forwarded, mirrors;
};
void header_lines_free(struct header_lines *headers);
bool upstream_write_headers(const struct upstream *upstream, struct header_lines *headers, const char *accept,
	struct span body, const char *last_event_id) MUST_CHECK;
void upstream_log(const struct upstream *upstream, enum log_level level, const char *event, const char *text);
void upstream_established(struct upstream *upstream);
/* Whether what follows is an event stream. */
bool upstream_is_stream(const struct http_response *response);
/* How long to wait before a stream is opened again, the `polls`-th time in a row in which it brought no message. */
int64_t upstream_pause(int64_t retry_ms, unsigned polls);
/* Whether a message, which need not be one, is a response, and of which id; NULL ptr: it has none. */
bool upstream_is_response(struct span message, struct span *id);
/* Hands one message to the core. The session may be over then. false: it was no message at all. */
bool upstream_deliver(struct upstream *upstream, struct span message, uint64_t stream);

/* http_modern.c: appends the headers that mirror a request's body, each as a line ended by LF. */
void http_modern_headers(struct span message, struct buf *lines);

/* http_post.c */
/* Sends one message; its content is taken. 0, ERROR_MEMORY. */
int post_start(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id, struct buf *message) MUST_CHECK;
void post_forget(struct upstream *upstream, uint64_t request_id);
void post_free(struct post *post);

/* http_stream.c */
/* Opens the standalone GET stream, or the stream of HTTP+SSE. */
void stream_open(struct upstream *upstream);
/* Looks whether a server that has a GET without an answer still answers a POST. */
void stream_watch(struct upstream *upstream);
void stream_close(struct upstream *upstream);

#endif
