#include "adapters/http1.h"

#include <string.h>
#include <strings.h>

/* Letters, digits and !#$%&'*+-.^_`|~ */
static bool is_token_char(unsigned char c)
{
	static const uint32_t token_chars[8] = {0, 0x03FF6CFA, 0xC7FFFFFE, 0x57FFFFFF};
	return token_chars[c >> 5] >> (c & 31) & 1;
}

static bool is_token(struct span span)
{
	for (size_t i = 0; i < span.len; i++)
		if (!is_token_char((unsigned char)span.ptr[i]))
			return false;
	return span.len > 0;
}

static bool equals_ignoring_case(struct span span, const char *text)
{
	return span.len == strlen(text) && strncasecmp(span.ptr, text, span.len) == 0;
}

size_t http1_find_head_end(struct span bytes, size_t *scanned)
{
	size_t at = *scanned;
	const char *lf;
	while (at < bytes.len && (lf = memchr(bytes.ptr + at, '\n', bytes.len - at))) {
		at = (size_t)(lf - bytes.ptr) + 1;
		if (at < 2 || lf[-1] != '\r')
			return HTTP1_BAD_LINE;
		if (at >= 4 && lf[-2] == '\n')
			return at;
	}
	*scanned = bytes.len;
	return 0;
}

/* Takes one line off the front, without its CRLF. false if a line ends in another way. */
static bool take_line(struct span *rest, struct span *line)
{
	const char *end = memchr(rest->ptr, '\n', rest->len);
	if (!end || end == rest->ptr || end[-1] != '\r')
		return false;
	*line = (struct span){rest->ptr, (size_t)(end - rest->ptr) - 1};
	rest->len -= (size_t)(end - rest->ptr) + 1;
	rest->ptr = end + 1;
	return true;
}

/* host[:port] of RFC 3986, as far as bytes go. */
static bool is_authority(struct span span)
{
	for (size_t i = 0; i < span.len; i++) {
		unsigned char c = (unsigned char)span.ptr[i];
		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			    (c && strchr("-._~!$&'()*+,;=%:[]", c))))
			return false;
	}
	return span.len > 0;
}

static int parse_target(struct span target, struct http1_head *out, const char **fault)
{
	static const char schemes[][9] = {"http://", "https://"};
	*fault = "bad request target";
	for (size_t i = 0; i < target.len; i++)
		if ((unsigned char)target.ptr[i] <= 0x20 || (unsigned char)target.ptr[i] >= 0x7F ||
			target.ptr[i] == '#')
			return 400;
	for (size_t i = 0; i < 2; i++) {
		size_t len = strlen(schemes[i]);
		if (target.len <= len || strncasecmp(target.ptr, schemes[i], len) != 0)
			continue;
		target.ptr += len;
		target.len -= len;
		size_t host_len = 0;
		while (host_len < target.len && target.ptr[host_len] != '/' && target.ptr[host_len] != '?')
			host_len++;
		out->authority = (struct span){target.ptr, host_len};
		target.ptr += host_len;
		target.len -= host_len;
		if (!is_authority(out->authority))
			return 400;
		if (target.len == 0)
			target = SPAN("/");
		break;
	}
	if (!target.len || (target.ptr[0] != '/' && !span_is(target, "*") && !out->authority.ptr))
		return 400;
	const char *query = memchr(target.ptr, '?', target.len);
	out->path = (struct span){target.ptr, query ? (size_t)(query - target.ptr) : target.len};
	return 0;
}

static int parse_request_line(struct span line, struct http1_head *out, const char **fault)
{
	const char *first = memchr(line.ptr, ' ', line.len);
	const char *last = memrchr(line.ptr, ' ', line.len);
	*fault = "bad request line";
	if (!first || first == last)
		return 400;
	out->method = (struct span){line.ptr, (size_t)(first - line.ptr)};
	struct span target = {first + 1, (size_t)(last - first) - 1};
	struct span version = {last + 1, line.len - (size_t)(last - line.ptr) - 1};
	if (!is_token(out->method))
		return 400;
	if (version.len != 8 || memcmp(version.ptr, "HTTP/", 5) != 0 || version.ptr[5] < '0' || version.ptr[5] > '9' ||
		version.ptr[6] != '.' || version.ptr[7] < '0' || version.ptr[7] > '9')
		return 400;
	if (version.ptr[5] != '1') {
		*fault = "only HTTP/1.1 and HTTP/1.0 are spoken here";
		return 505;
	}
	out->is_http10 = version.ptr[7] == '0';
	return parse_target(target, out, fault);
}

/* Splits a field line. false if it is none. */
static bool split_field(struct span line, struct span *name, struct span *value)
{
	const char *colon = memchr(line.ptr, ':', line.len);
	if (!colon)
		return false;
	*name = (struct span){line.ptr, (size_t)(colon - line.ptr)};
	*value = span_trim((struct span){colon + 1, line.len - name->len - 1});
	return is_token(*name);
}

bool http1_is_value(struct span value)
{
	for (size_t i = 0; i < value.len; i++) {
		unsigned char c = (unsigned char)value.ptr[i];
		if ((c < 0x20 && c != '\t') || c == 0x7F)
			return false;
	}
	return true;
}

bool http1_is_visible(struct span value)
{
	for (size_t i = 0; i < value.len; i++)
		if (value.ptr[i] <= ' ' || value.ptr[i] > '~')
			return false;
	return true;
}

static int check_fields(struct span fields, const char **fault)
{
	unsigned count = 0;
	struct span line, name, value;
	while (fields.len) {
		*fault = "a line does not end with CRLF";
		if (!take_line(&fields, &line))
			return 400;
		*fault = "bad header field";
		if (!split_field(line, &name, &value)) /* folded lines and space before the colon are none */
			return 400;
		if (!http1_is_value(value))
			return 400;
		*fault = "too many header fields";
		if (++count > HTTP1_MAX_FIELDS)
			return 431;
	}
	return 0;
}

/* The next line of this field; the fields have been checked. Bytes of other lines are only passed over: a head has a dozen
 * lines, and each of a dozen fields is looked for in all of them. */
static bool next_field(struct span *rest, struct span name, struct span *value)
{
	struct span line;
	while (rest->len && take_line(rest, &line))
		if (line.len > name.len && line.ptr[name.len] == ':' &&
			strncasecmp(line.ptr, name.ptr, name.len) == 0) {
			*value = span_trim((struct span){line.ptr + name.len + 1, line.len - name.len - 1});
			return true;
		}
	return false;
}

unsigned http1_field(const struct http1_head *head, const char *name, struct span *value)
{
	struct span rest = head->fields;
	unsigned count = 0;
	while (next_field(&rest, span_of(name), value))
		count++;
	return count;
}

bool http1_list_has(struct span list, const char *token)
{
	while (list.len) {
		const char *comma = memchr(list.ptr, ',', list.len);
		size_t len = comma ? (size_t)(comma - list.ptr) : list.len;
		if (equals_ignoring_case(span_trim((struct span){list.ptr, len}), token))
			return true;
		list.ptr += len + (comma != NULL);
		list.len -= len + (comma != NULL);
	}
	return false;
}

static int parse_length(struct span value, uint64_t *length)
{
	*length = 0;
	for (size_t i = 0; i < value.len; i++) {
		if (value.ptr[i] < '0' || value.ptr[i] > '9' || *length > UINT64_MAX / 10 - 1)
			return 400;
		*length = *length * 10 + (uint64_t)(value.ptr[i] - '0');
	}
	return value.len ? 0 : 400;
}

/* How long the body is (RFC 9112 section 6.3). Whatever two readers could understand differently is refused. */
static int parse_framing(struct http1_head *out, const char **fault)
{
	struct span length, coding;
	unsigned lengths = http1_field(out, "content-length", &length);
	unsigned codings = http1_field(out, "transfer-encoding", &coding);
	*fault = "bad Content-Length";
	if (lengths > 1 || (lengths && parse_length(length, &out->content_length)))
		return 400;
	if (!codings)
		return 0;
	*fault = "both Content-Length and Transfer-Encoding";
	if (lengths)
		return 400;
	*fault = "Transfer-Encoding in HTTP/1.0";
	if (out->is_http10)
		return 400;
	*fault = "only the transfer coding chunked is known here";
	if (codings > 1 || !equals_ignoring_case(coding, "chunked"))
		return 501;
	out->chunked = true;
	return 0;
}

static int parse_host(struct http1_head *out, const char **fault)
{
	struct span host;
	unsigned hosts = http1_field(out, "host", &host);
	*fault = "exactly one Host is needed";
	if (hosts > 1 || (hosts == 0 && !out->is_http10))
		return 400;
	*fault = "bad Host";
	if (hosts && !is_authority(host))
		return 400;
	if (hosts && !out->authority.ptr)
		out->authority = host;
	return 0;
}

static int parse_control(struct http1_head *out, const char **fault)
{
	struct span value;
	bool close = false, keep = false;
	struct span rest = out->fields;
	while (next_field(&rest, SPAN("connection"), &value)) {
		close |= http1_list_has(value, "close");
		keep |= http1_list_has(value, "keep-alive");
	}
	out->keep_alive = !close && (!out->is_http10 || keep);
	*fault = "only the expectation 100-continue is known here";
	if (http1_field(out, "expect", &value)) {
		if (!equals_ignoring_case(value, "100-continue"))
			return 417;
		out->expects_continue = !out->is_http10;
	}
	return 0;
}

int http1_parse_head(struct span head, struct http1_head *out, const char **fault)
{
	struct span line;
	*out = (struct http1_head){0};
	*fault = "a line does not end with CRLF";
	/* One empty line before the request is left over from some clients' last body (RFC 9112 section 2.2). */
	if (head.len > 2 && memcmp(head.ptr, "\r\n", 2) == 0) {
		head.ptr += 2;
		head.len -= 2;
	}
	if (head.len < 4 || !take_line(&head, &line))
		return 400;
	int status = parse_request_line(line, out, fault);
	if (status)
		return status;
	out->fields = (struct span){head.ptr, head.len - 2};
	if ((status = check_fields(out->fields, fault)) || (status = parse_host(out, fault)) ||
		(status = parse_framing(out, fault)) || (status = parse_control(out, fault)))
		return status;
	*fault = NULL;
	return 0;
}

int http1_parse_response(struct span head, struct http1_head *out)
{
	struct span line, length, coding;
	const char *fault;
	*out = (struct http1_head){0};
	/* HTTP/1.1 200 and perhaps a reason */
	if (head.len < 4 || !take_line(&head, &line) || line.len < 12 || memcmp(line.ptr, "HTTP/1.", 7) != 0 ||
		line.ptr[7] < '0' || line.ptr[7] > '9' || line.ptr[8] != ' ' || (line.len > 12 && line.ptr[12] != ' '))
		return 0;
	int status = 0;
	for (size_t i = 9; i < 12; i++) {
		if (line.ptr[i] < '0' || line.ptr[i] > '9')
			return 0;
		status = status * 10 + (line.ptr[i] - '0');
	}
	out->is_http10 = line.ptr[7] == '0';
	out->fields = (struct span){head.ptr, head.len - 2};
	if (status < 100 || check_fields(out->fields, &fault) || parse_control(out, &fault))
		return 0;
	/* RFC 9112 sections 6.1 and 6.3 */
	unsigned lengths = http1_field(out, "content-length", &length);
	unsigned codings = http1_field(out, "transfer-encoding", &coding);
	if (lengths > 1 || codings > 1 || (lengths && parse_length(length, &out->content_length)) ||
		(codings && !equals_ignoring_case(coding, "chunked")))
		return 0;
	bool bodiless = status < 200 || status == 204 || status == 304;
	out->chunked = codings && !bodiless;
	out->keep_alive &= !(codings && (lengths || out->is_http10)); /* another reader may see another end */
	if (bodiless || codings)
		out->content_length = 0;
	else if (!lengths)
		out->content_length = HTTP1_UNTIL_CLOSE;
	return status;
}

/* Bodies. */

enum {
	BODY_DATA,
	CHUNK_SIZE,
	CHUNK_EXTENSION,
	CHUNK_SIZE_LF,
	CHUNK_END_CR,
	CHUNK_END_LF,
	TRAILER,
	TRAILER_LF,
	BODY_DONE
};

void http1_body_init(struct http1_body *body, const struct http1_head *head)
{
	*body = (struct http1_body){.chunked = head->chunked, .left = head->content_length};
	body->state = head->chunked ? CHUNK_SIZE : head->content_length ? BODY_DATA : BODY_DONE;
}

static enum http1_feed chunk_size(struct http1_body *body, char c)
{
	int digit = hex_digit(c);
	if (digit >= 0 && body->line_len == body->digits) {
		if (++body->digits > 15)
			return HTTP1_BAD;
		body->line_len++;
		body->left = body->left << 4 | (uint64_t)digit;
		return HTTP1_MORE;
	}
	if (body->digits == 0)
		return HTTP1_BAD;
	if (c == '\r')
		body->state = CHUNK_SIZE_LF;
	else if (c == ';' || c == ' ' || c == '\t')
		body->state = CHUNK_EXTENSION;
	else
		return HTTP1_BAD;
	return HTTP1_MORE;
}

/* One byte of what frames the chunks. */
static enum http1_feed frame_byte(struct http1_body *body, char c)
{
	switch (body->state) {
	case CHUNK_SIZE:
		return chunk_size(body, c);
	case CHUNK_EXTENSION:
		if (c == '\r')
			body->state = CHUNK_SIZE_LF;
		else if (++body->line_len > HTTP1_MAX_CHUNK_LINE || ((unsigned char)c < 0x20 && c != '\t') || c == 0x7F)
			return HTTP1_BAD;
		return HTTP1_MORE;
	case CHUNK_SIZE_LF:
		if (c != '\n')
			return HTTP1_BAD;
		body->state = body->left ? BODY_DATA : TRAILER;
		body->line_len = body->digits = 0;
		return HTTP1_MORE;
	case CHUNK_END_CR:
		body->state = CHUNK_END_LF;
		return c == '\r' ? HTTP1_MORE : HTTP1_BAD;
	case CHUNK_END_LF:
		body->state = CHUNK_SIZE;
		return c == '\n' ? HTTP1_MORE : HTTP1_BAD;
	case TRAILER:
		if (++body->trailers_len > HTTP1_MAX_TRAILERS || c == '\n' || c == '\0')
			return HTTP1_BAD;
		if (c == '\r')
			body->state = TRAILER_LF;
		else
			body->line_len++;
		return HTTP1_MORE;
	default: /* TRAILER_LF */
		if (c != '\n')
			return HTTP1_BAD;
		body->state = body->line_len ? TRAILER : BODY_DONE;
		body->line_len = 0;
		return body->state == BODY_DONE ? HTTP1_DONE : HTTP1_MORE;
	}
}

enum http1_feed http1_body_feed(struct http1_body *body, struct span bytes, size_t *taken, struct span *data)
{
	*taken = 0;
	*data = (struct span){0};
	while (*taken < bytes.len && body->state != BODY_DATA && body->state != BODY_DONE) {
		enum http1_feed result = frame_byte(body, bytes.ptr[(*taken)++]);
		if (result != HTTP1_MORE)
			return result;
	}
	if (body->state == BODY_DATA && *taken < bytes.len) {
		size_t len = bytes.len - *taken;
		if (len > body->left)
			len = (size_t)body->left;
		*data = (struct span){bytes.ptr + *taken, len};
		*taken += len;
		body->left -= len;
		if (body->left == 0)
			body->state = body->chunked ? CHUNK_END_CR : BODY_DONE;
	}
	return body->state == BODY_DONE ? HTTP1_DONE : HTTP1_MORE;
}
