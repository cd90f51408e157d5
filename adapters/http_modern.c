/* The headers that mirror the body of a request to a modern server (2026-07-28 transports/streamable-http "Request
 * Metadata"). */
#include "adapters/http_session.h"

#include "proxy/mirror.h"

static void add_line(struct buf *out, const char *name, struct span string)
{
	buf_printf(out, "%s: ", name);
	mirror_add_value(out, string);
	buf_add_text(out, "\n");
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
