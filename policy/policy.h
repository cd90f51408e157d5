/* What the operator decided: settings, limits, deadlines, and a rule for each tool, prompt and resource.
 *
 * A policy is read from one YAML file, checked completely, compiled once and never changed afterwards; it is shared by
 * reference counting, so that a call keeps the rule it was started under across a reload. The core asks it pure questions.
 * Every key, its type, unit, default and range stand in the one table in policy/keys.c. Durations are milliseconds, sizes
 * are bytes. */
#ifndef MCP_VALET_POLICY_H
#define MCP_VALET_POLICY_H

#include "proxy/json.h"

#include <stdio.h>

enum policy_subject { POLICY_TOOL, POLICY_PROMPT, POLICY_RESOURCE };

enum policy_kind { POLICY_ELICITATION, POLICY_SAMPLING, POLICY_ROOTS, POLICY_KINDS };

/* What becomes of a server request. */
enum policy_action {
	POLICY_FORWARD, /* to the client */
	POLICY_DENY,	/* refused upstream as a client without the capability would */
	POLICY_DECLINE, /* elicitation: {"action":"decline"} */
	POLICY_CANCEL,	/* elicitation: {"action":"cancel"} */
	POLICY_FAIL,	/* the call ends with -32021 and the server request fails closed */
	POLICY_ANSWER,	/* answered with a fixed result */
};

/* What happens when a server asks for something that the client did not declare. */
enum policy_undeclared { POLICY_UNDECLARED_FAIL, POLICY_UNDECLARED_REFUSE };

enum policy_rerun { POLICY_RERUN_NEVER, POLICY_RERUN_IF_LOST, POLICY_RERUN_ALWAYS };
enum policy_scope { POLICY_SCOPE_PRIVATE, POLICY_SCOPE_PUBLIC };
enum policy_attribution { POLICY_ATTRIBUTION_AUTO, POLICY_ATTRIBUTION_STREAM, POLICY_ATTRIBUTION_SERIAL };
enum policy_legacy_clients { POLICY_LEGACY_REFUSE, POLICY_LEGACY_SERVE };
enum policy_mcp_headers { POLICY_HEADERS_STRIP, POLICY_HEADERS_VALIDATE };
enum policy_principal { POLICY_PRINCIPAL_AUTHORIZATION, POLICY_PRINCIPAL_HEADER, POLICY_PRINCIPAL_NONE };

/* What is decided for one tool, prompt or resource: a rule of the file on top of `defaults`. */
struct policy_rule {
	enum policy_action action[POLICY_KINDS];
	char *answer[POLICY_KINDS]; /* POLICY_ANSWER: the result as JSON text, else NULL */
	enum policy_undeclared undeclared;
	bool asks_never;       /* it runs beside other calls; asking anyway is refused */
	bool hide;	       /* not listed, not callable */
	int64_t park_ms;       /* how long a call waits for its client */
	int64_t call_ms;       /* how long the server may work, people's time not counted */
	int64_t task_after_ms; /* after so long a client that knows tasks gets one instead of waiting; -1: never */
	unsigned rounds;       /* rounds after which a call is ended */
	char **input_keys;     /* names of input requests in order, or NULL */
	size_t input_key_count;
	enum policy_rerun rerun;
	bool rerun_hints;  /* rerun: if-lost, also for tools that say they only read, or may be repeated */
	bool check_schema; /* elicitation answers are checked against requestedSchema */
	char **url_hosts;  /* hosts that a URL elicitation may lead to, or NULL: any */
	size_t url_host_count;
	int64_t cache_ttl_ms;
	enum policy_scope cache_scope;
};

struct policy_limits {
	size_t message_bytes;	       /* message: one message either way */
	size_t downstream_queue_bytes; /* downstream_queue: written by us and not yet read by one client */
	size_t upstream_queue_bytes;   /* upstream_queue: written by us and not yet read by one session */
	unsigned exchanges;	       /* exchanges: requests without a response, over all clients */
	unsigned waiting;	       /* waiting: calls waiting for a place in one session */
	size_t state_bytes;	       /* state: the script of one request state, for a rerun */
	unsigned parked;	       /* parked: parked calls in all */
	unsigned parked_per_principal; /* parked_per_principal */
	unsigned kept;		       /* kept: outcomes kept for redelivery, in all */
	size_t kept_bytes;	       /* kept_bytes: the memory that they need */
	unsigned server_requests;      /* server_requests: unanswered server requests of one session */
	unsigned sessions;	       /* sessions */
	unsigned sessions_per_principal;
	unsigned legacy_sessions; /* legacy_sessions: of legacy clients, for one principal */
	size_t cache_bytes;	  /* cache: lists of one session */
	size_t replay_bytes;	  /* replay: events of one legacy client's session */
	unsigned pool;		  /* pool: sessions for one principal and capability set */
	unsigned connections;	  /* connections: HTTP connections in all */
	unsigned connections_per_address;
	size_t head_bytes; /* head: request line and headers of an HTTP request */
};

struct policy_deadlines {
	int64_t initialize_ms;	     /* initialize: start and handshake of a legacy session */
	int64_t request_ms;	     /* request: every request that is not a call, such as tools/list */
	int64_t wait_ms;	     /* wait: a call waiting for its place in a session */
	int64_t gather_ms;	     /* gather: more server requests join the round */
	int64_t settle_ms;	     /* settle: after the handshake and after answering roots outside a call */
	int64_t hold_ms;	     /* hold: a server request whose call is not certain */
	int64_t redeliver_ms;	     /* redeliver: an outcome is kept for the same retry */
	int64_t grace_ms;	     /* grace: a cancelled call may still answer before its session is recycled */
	int64_t keepalive_ms;	     /* keepalive: pings and progress to a session with parked calls */
	int64_t idle_session_ms;     /* idle_session */
	int64_t head_ms;	     /* head: the whole head of an HTTP request */
	int64_t idle_connection_ms;  /* idle_connection: between HTTP requests */
	int64_t stream_keepalive_ms; /* stream_keepalive: comments on an open SSE stream */
	int64_t exit_ms;	     /* exit: each step of ending a child: stdin closed, SIGTERM, SIGKILL */
	int64_t shutdown_ms;	     /* shutdown: running calls after SIGTERM */
	int64_t restart_ms;	     /* restart: longest back-off between failed starts */
	int64_t url_wait_ms; /* url_wait: for a server to say that a URL elicitation is complete, before its call runs again */
	int64_t lists_ms;   /* lists: a list is given again without asking the server */
	int64_t probe_ms;   /* probe: upstream.era: auto, the answer to the question */
	int64_t connect_ms; /* connect: reaching an HTTP upstream */
};

enum policy_era { POLICY_ERA_LEGACY, POLICY_ERA_MODERN, POLICY_ERA_AUTO };

struct policy_upstream {
	enum policy_era era;
	enum policy_attribution attribution;
	int64_t overlap_ms;	/* overlap: a call that has not asked for so long lets the next one start; -1: never */
	size_t body_rate_bytes; /* unused by stdio; see limits */
	char **forward_headers;
	size_t forward_header_count;
	char *ca_file, *certificate, *key; /* TLS towards an HTTP upstream; NULL: the system's store, none */
	bool cross_origin;		   /* HTTP+SSE: an endpoint of another origin is accepted */
};

struct policy {
	enum policy_principal principal;
	char *principal_header; /* POLICY_PRINCIPAL_HEADER: lower case */
	char **origins;		/* origins that browsers may call from, besides none */
	size_t origin_count;
	enum policy_legacy_clients legacy_clients;
	enum policy_mcp_headers mcp_headers; /* what becomes of x-mcp-header in listed tools */
	int missing_capability_status; /* http_status_for_missing_capability: 400, or 200 for clients that drop a connection on 4xx */
	size_t min_body_rate; /* min_body_rate: bytes a second that an HTTP body must arrive at */
	char *report_file;    /* where observations outlive a restart, or NULL */
	struct policy_limits limits;
	struct policy_deadlines deadlines;
	struct policy_upstream upstream;
	struct policy_rule defaults; /* for names that no rule matches */
	struct policy_rules *rules;  /* compiled lookup */
	bool tasks;		     /* some tool has task_after */
	unsigned references;
};

/* The safe defaults of a missing file. NULL without memory. */
struct policy *policy_default(void) MUST_CHECK;
/* Reads and checks a whole policy text. Every fault is written to `report` (which may be NULL) as one line
 * `name:line:column: what, and what was expected`. NULL if there was any; *error then holds the first. */
struct policy *policy_parse(struct span text, const char *name, FILE *report, struct error *error) MUST_CHECK;
/* The same for a file. */
struct policy *policy_load(const char *path, FILE *report, struct error *error) MUST_CHECK;
struct policy *policy_ref(struct policy *policy);
void policy_unref(struct policy *policy);

/* The rule for a name; never NULL. It lives as long as the policy. */
const struct policy_rule *policy_rule(const struct policy *policy, enum policy_subject subject, const char *name);

/* Writes the effective settings of one name and the line each came from (`mcp-valet explain`). */
void policy_explain(const struct policy *policy, enum policy_subject subject, const char *name, FILE *out);
/* Writes the list of all keys for the man page, or the JSON Schema of the file, from the key table. */
void policy_write_man(FILE *out);
void policy_write_schema(FILE *out);

#endif
