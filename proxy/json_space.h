/* The white space of JSON (RFC 8259, section 2), for those who read a text byte by byte. */
#ifndef MCP_VALET_JSON_SPACE_H
#define MCP_VALET_JSON_SPACE_H

#include <stdbool.h>

static inline bool json_is_space(char byte)
{
	return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static inline const char *json_skip_space(const char *at, const char *end)
{
	while (at < end && json_is_space(*at))
		at++;
	return at;
}

#endif
