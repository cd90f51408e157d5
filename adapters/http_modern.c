/* The headers that mirror the body of a request to a modern server (2026-07-28 transports/streamable-http "Request
 * Metadata", "Value Encoding"). */
#include "adapters/http_session.h"

#include "proxy/json.h"

#include <sodium.h>
#include <string.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_plain(struct span value)
{
	/* A header without a value would not be sent. */
	bool is_edged = !value.len || is_blank(value.ptr[0]) || is_blank(value.ptr[value.len - 1]);
	bool looks_encoded = value.len >= 9 && memcmp(value.ptr, "=?base64?", 9) == 0;
	for (size_t i = 0; i < value.len; i++)
		if ((value.ptr[i] < ' ' && value.ptr[i] != '\t') || value.ptr[i] > '~')
			return false;
	return !is_edged && !looks_encoded;
}

static void add_line(struct buf *out, const char *name, struct span string)
{
	struct buf value = {0};
	json_decode_string(string, &value);
	out->failed |= value.failed;
	buf_printf(out, "%s: ", name);
	if (is_plain(buf_span(&value))) {
		buf_add_span(out, buf_span(&value));
	} else {
		size_t len = sodium_base64_encoded_len(value.len, sodium_base64_VARIANT_ORIGINAL);
		buf_add_text(out, "=?base64?");
		if (buf_reserve(out, len)) {
			sodium_bin2base64(out->data + out->len, len, (const unsigned char *)value.data, value.len,
				sodium_base64_VARIANT_ORIGINAL);
			out->len += len - 1;
		}
		buf_add_text(out, "?=");
	}
	buf_add_text(out, "\n");
	buf_free(&value);
}

void http_modern_headers(struct span message, struct buf *lines)
{
	struct span params = {0}, meta, value;
	json_get(message, NULL, "params", &params);
	if (json_get(params, NULL, "_meta", &meta) &&
		json_get(meta, NULL, "io.modelcontextprotocol/protocolVersion", &value) &&
		json_type(value) == JSON_STRING)
		add_line(lines, "MCP-Protocol-Version", value);
	if (!json_get(message, NULL, "method", &value))
		return;
	add_line(lines, "Mcp-Method", value);
	bool has_name = json_string_is(value, "tools/call") || json_string_is(value, "prompts/get");
	bool has_uri = json_string_is(value, "resources/read");
	if ((has_name && json_get(params, NULL, "name", &value)) || (has_uri && json_get(params, NULL, "uri", &value)))
		if (json_type(value) == JSON_STRING)
			add_line(lines, "Mcp-Name", value);
}
