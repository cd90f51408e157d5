#include "adapters/http_check.h"

#include <sodium.h>
#include <string.h>
#include <strings.h>

static bool is_text(struct span span, const char *text)
{
	return span.len == strlen(text) && strncasecmp(span.ptr, text, span.len) == 0;
}

/* The host of host[:port] or [host][:port]. */
static struct span host_of(struct span authority)
{
	const char *end = NULL;
	if (authority.len && *authority.ptr == '[') {
		end = memchr(authority.ptr, ']', authority.len);
		return end ? (struct span){authority.ptr, (size_t)(end - authority.ptr) + 1} : authority;
	}
	end = memchr(authority.ptr, ':', authority.len);
	return end ? (struct span){authority.ptr, (size_t)(end - authority.ptr)} : authority;
}

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {{200, "OK"}, {202, "Accepted"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
		{404, "Not Found"}, {405, "Method Not Allowed"}, {406, "Not Acceptable"}, {408, "Request Timeout"},
		{413, "Content Too Large"}, {415, "Unsupported Media Type"}, {417, "Expectation Failed"},
		{431, "Request Header Fields Too Large"}, {501, "Not Implemented"}, {502, "Bad Gateway"},
		{503, "Service Unavailable"}, {505, "HTTP Version Not Supported"}};
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Error";
}

bool http_names_this_machine(struct span authority)
{
	struct span host = host_of(authority);
	return is_text(host, "localhost") || is_text(host, "127.0.0.1") || is_text(host, "[::1]");
}

static bool origin_allowed(
	struct span origin, const struct http1_head *head, bool is_loopback, const struct policy *policy)
{
	for (size_t i = 0; i < policy->origin_count; i++)
		if (is_text(origin, policy->origins[i]))
			return true;
	/* A page that this address itself served, or a tool that claims so, on this machine. */
	struct span authority = {origin.ptr + 7, origin.len > 7 ? origin.len - 7 : 0};
	return is_loopback && origin.len > 7 && strncasecmp(origin.ptr, "http://", 7) == 0 &&
	       authority.len == head->authority.len &&
	       strncasecmp(authority.ptr, head->authority.ptr, authority.len) == 0;
}

static struct span before(struct span span, char mark)
{
	const char *end = memchr(span.ptr, mark, span.len);
	if (end)
		span.len = (size_t)(end - span.ptr);
	return span_trim(span);
}

/* Whether the parameters of a media range say q=0. */
static bool is_refused(struct span range)
{
	const char *q = memmem(range.ptr, range.len, "q=", 2);
	if (!q)
		return false;
	for (q += 2; q < range.ptr + range.len && *q != ';'; q++)
		if (*q >= '1' && *q <= '9')
			return false;
	return true;
}

/* How specific a media range names the type; -1 if it does not. */
static int rank(struct span media, const char *type, const char *subtype)
{
	size_t len = strlen(type);
	if (span_is(media, "*/*"))
		return 0;
	if (media.len <= len || media.ptr[len] != '/' || strncasecmp(media.ptr, type, len) != 0)
		return -1;
	struct span rest = {media.ptr + len + 1, media.len - len - 1};
	return is_text(rest, subtype) ? 2 : span_is(rest, "*") ? 1 : -1;
}

bool http_accepts(struct span accept, const char *type, const char *subtype)
{
	int best = -1; /* the most specific range decides */
	bool accepted = false;
	while (accept.len) {
		struct span range = {accept.ptr, accept.len};
		const char *comma = memchr(accept.ptr, ',', accept.len);
		if (comma)
			range.len = (size_t)(comma - accept.ptr);
		int found = rank(before(range, ';'), type, subtype);
		if (found > best) {
			best = found;
			accepted = !is_refused(range);
		}
		accept.ptr += range.len + (comma != NULL);
		accept.len -= range.len + (comma != NULL);
	}
	return accepted;
}

/* Headers of which a second one would leave it open which of the two counts. */
static bool has_duplicates(const struct http1_head *head)
{
	static const char *const single[] = {"authorization", "origin", "content-type", "mcp-protocol-version",
		"mcp-method", "mcp-name", "mcp-session-id", "last-event-id"};
	struct span value;
	for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
		if (http1_field(head, single[i], &value) > 1)
			return true;
	return false;
}

int http_check_origin(const struct http1_head *head, bool is_loopback, const struct policy *policy, const char **fault)
{
	struct span value;
	*fault = "The Host header names another machine";
	if (is_loopback && head->authority.ptr && !http_names_this_machine(head->authority))
		return 403;
	*fault = "Requests from this origin are not allowed";
	if (http1_field(head, "origin", &value) && !origin_allowed(value, head, is_loopback, policy))
		return 403;
	return 0;
}

int http_check_head(const struct http1_head *head, const char *path, bool is_loopback, const struct policy *policy,
	const char **fault)
{
	struct span value;
	*fault = "There is nothing at this path";
	if (!span_is(head->path, path))
		return 404;
	/* A legacy client's session has a stream to GET, and an end to DELETE; that there is one, its id says. */
	bool is_get = span_is(head->method, "GET");
	bool is_session = (is_get || span_is(head->method, "DELETE")) && http1_field(head, "mcp-session-id", &value) &&
			  policy->legacy_clients == POLICY_LEGACY_SERVE;
	*fault = "Only POST is served here";
	if (!is_session && !span_is(head->method, "POST"))
		return 405;
	if (http_check_origin(head, is_loopback, policy, fault))
		return 403;
	*fault = "A header occurs twice";
	if (has_duplicates(head) || (policy->principal == POLICY_PRINCIPAL_HEADER &&
					    http1_field(head, policy->principal_header, &value) > 1))
		return 400;
	*fault = NULL;
	if (is_session && !is_get)
		return 0;
	*fault = "Accept must list text/event-stream";
	if (is_get)
		return http1_field(head, "accept", &value) && !http_accepts(value, "text", "event-stream") ? 406 : 0;
	*fault = "Content-Type must be application/json";
	if (!http1_field(head, "content-type", &value) || !is_text(before(value, ';'), "application/json"))
		return 415;
	*fault = "Accept must list application/json and text/event-stream";
	if (http1_field(head, "accept", &value) &&
		!(http_accepts(value, "application", "json") && http_accepts(value, "text", "event-stream")))
		return 406;
	*fault = NULL;
	return 0;
}

void http_principal(const struct http1_head *head, const struct policy *policy, uint8_t out[32])
{
	static const char *const domains[] = {"authorization", "header", "none"};
	struct span value = {0};
	crypto_generichash_state state;
	if (policy->principal == POLICY_PRINCIPAL_AUTHORIZATION)
		http1_field(head, "authorization", &value);
	else if (policy->principal == POLICY_PRINCIPAL_HEADER)
		http1_field(head, policy->principal_header, &value);
	/* The domain is part of the hash, and so is whether there was a value at all. */
	crypto_generichash_init(&state, NULL, 0, 32);
	crypto_generichash_update(
		&state, (const unsigned char *)domains[policy->principal], strlen(domains[policy->principal]) + 1);
	crypto_generichash_update(&state, (const unsigned char *)(value.ptr ? "1" : "0"), 1);
	crypto_generichash_update(&state, (const unsigned char *)(value.ptr ? value.ptr : ""), value.len);
	crypto_generichash_final(&state, out, 32);
}
