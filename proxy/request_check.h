/* What a request must say before it becomes an exchange (basic/index "_meta", transports/streamable-http "Server
 * Validation"): what is missing, occurs twice, is of the wrong kind, or is not what the headers say, is refused. */
#ifndef MCP_VALET_REQUEST_CHECK_H
#define MCP_VALET_REQUEST_CHECK_H

#include "proxy/exchange.h"

/* Why a message is refused. Zeroed, and filled by the check that fails; `data` is to be freed after each. */
struct refusal {
	int http_status;
	int code;
	char text[320];
	struct buf data; /* JSON text, or empty */
};

/* Checks a request of 2026-07-28 and takes it apart into *request, whose params and index are set. `headers` is NULL where the
 * transport has none. */
bool request_check(struct refusal *refusal, struct request *request, const struct proxy *proxy,
	const struct message *message, const struct request_headers *headers) MUST_CHECK;
/* Checks a request that passes to a modern server: the headers that mirror the body are trusted by others on the way, so they
 * must be true there, too. */
bool request_check_mirrors(
	struct refusal *refusal, const struct message *message, const struct request_headers *headers) MUST_CHECK;
/* Whether the header says the method that the body says. */
bool request_check_method(
	struct refusal *refusal, struct span method, const struct request_headers *headers) MUST_CHECK;

#endif
