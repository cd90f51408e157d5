/* What a legacy server answers, made into what a 2026-07-28 server answers. All functions append the body of a response,
 * `"result":{…}` or `"error":{…}`, without the id, so that the same outcome can be delivered again under another id. */
#ifndef MCP_VALET_RESULT_H
#define MCP_VALET_RESULT_H

#include "proxy/message.h"
#include "proxy/method.h"

/* What the legacy server said of itself in its answer to `initialize`; JSON texts, owned. */
struct server_identity {
	char *info;	    /* serverInfo: an object */
	char *capabilities; /* an object */
	char *instructions; /* a string with its quotes, or NULL */
};

/* Takes over from an initialize result. 0, ERROR_SYNTAX or ERROR_MEMORY. */
int server_identity_read(struct server_identity *identity, struct span result, struct error *error) MUST_CHECK;
void server_identity_free(struct server_identity *identity);

/* A complete result: the legacy one plus `resultType`, the server's identity and, for cacheable methods, `ttlMs` and
 * `cacheScope`; minus what a legacy server must not say downstream (its own resultType, inputRequests, requestState), and,
 * for tools/list, minus `execution` and, unless the policy keeps it, `x-mcp-header`. Tools, prompts and resources that the policy hides are left out.
 * `retried`: the request carried answers, so the result may not be cached (server/utilities/caching "Cache Key"). */
void result_complete(struct buf *out, const struct method *method, struct span result, const struct json_index *index,
	const struct server_identity *identity, const struct policy *policy, const struct policy_rule *rule,
	bool retried);

/* The answer to server/discover (server/discover). `tasks`: the tasks extension is offered. */
void result_discover(
	struct buf *out, const struct server_identity *identity, const struct policy_rule *rule, bool tasks);

/* A legacy error: -32002 becomes -32602, a code that only this revision may define becomes -32603 with the original in
 * `data` (basic/index "Error Codes"), the rest passes. */
void result_error(struct buf *out, struct span error);

/* The HTTP status for a response body made here. */
int result_http_status(const struct method *method, const struct policy *policy, struct span body);

#endif
