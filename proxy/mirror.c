#include "proxy/mirror.h"

#include "proxy/json_write.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	MAX_MIRRORS = 64,  /* headers for one tool; a request's head holds hardly more */
	MAX_NUMBER = 64,   /* characters of a number that is compared as one */
	MAX_TOKEN = 128,   /* characters of a header's name */
	MAX_RULES = 32768, /* bytes of what is kept of one tool: the keys on the way are as long as the server likes */
};

static const double max_safe_integer = 9007199254740991.0;

/* What a header says ("Value Encoding"). false if it holds what a header must not hold, or bad Base64. */
static bool decode(struct span header, struct buf *out)
{
	static const char open[] = "=?base64?", close[] = "?=";
	size_t fixed = sizeof(open) - 1 + sizeof(close) - 1;
	for (size_t i = 0; i < header.len; i++)
		if ((header.ptr[i] < ' ' || header.ptr[i] > '~') && header.ptr[i] != '\t')
			return false;
	if (header.len < fixed || memcmp(header.ptr, open, sizeof(open) - 1) != 0 ||
		memcmp(header.ptr + header.len - 2, close, 2) != 0) {
		buf_add_span(out, header);
		return buf_ok(out);
	}
	size_t len = 0;
	struct span inner = {header.ptr + sizeof(open) - 1, header.len - fixed};
	if (!buf_reserve(out, inner.len + 1) ||
		sodium_base642bin((unsigned char *)out->data, out->cap, inner.ptr, inner.len, NULL, &len, NULL,
			sodium_base64_VARIANT_ORIGINAL) != 0)
		return false;
	out->len = len;
	return true;
}

bool mirror_says(struct span header, struct span string)
{
	struct buf decoded = {0}, expected = {0};
	json_decode_string(string, &expected);
	bool equal =
		decode(header, &decoded) && buf_ok(&expected) && span_equal(buf_span(&decoded), buf_span(&expected));
	buf_free(&decoded);
	buf_free(&expected);
	return equal;
}

static bool is_plain(struct span value)
{
	/* A header without a value would not be sent. */
	bool is_edged = !value.len || span_trim(value).len < value.len;
	bool looks_encoded = value.len >= 9 && memcmp(value.ptr, "=?base64?", 9) == 0;
	for (size_t i = 0; i < value.len; i++)
		if ((value.ptr[i] < ' ' && value.ptr[i] != '\t') || value.ptr[i] > '~')
			return false;
	return !is_edged && !looks_encoded;
}

static void encode(struct buf *out, struct span value)
{
	size_t len = sodium_base64_encoded_len(value.len, sodium_base64_VARIANT_ORIGINAL);
	buf_add_text(out, "=?base64?");
	if (buf_reserve(out, len)) {
		sodium_bin2base64(out->data + out->len, len, (const unsigned char *)value.ptr, value.len,
			sodium_base64_VARIANT_ORIGINAL);
		out->len += len - 1;
	}
	buf_add_text(out, "?=");
}

void mirror_add_value(struct buf *out, struct span value)
{
	struct buf text = {0};
	if (json_type(value) == JSON_STRING)
		json_decode_string(value, &text);
	else
		buf_add_span(&text, value);
	out->failed |= text.failed;
	if (is_plain(buf_span(&text)))
		buf_add_span(out, buf_span(&text));
	else
		encode(out, buf_span(&text));
	buf_free(&text);
}

/* Reading a schema. */

/* The way to a schema, from its end to the root. */
struct path {
	const struct path *up;
	struct span key; /* as spelled, without its quotes */
};

struct reader {
	struct buf *rules;
	char names[MAX_MIRRORS][MAX_TOKEN];
	unsigned count;
};

static void add_path(struct buf *out, const struct path *path)
{
	if (!path)
		return;
	add_path(out, path->up);
	buf_add_text(out, ",\"");
	buf_add_span(out, path->key);
	buf_add_text(out, "\"");
}

static bool is_token(const char *text)
{
	static const char others[] = "!#$%&'*+-.^_`|~0123456789";
	for (const char *at = text; *at; at++)
		if (!((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') && !strchr(others, *at))
			return false;
	return *text;
}

/* Takes the name of a header that no other parameter has. */
static bool take_name(struct reader *reader, struct span value)
{
	char *name = json_type(value) == JSON_STRING ? json_string_dup(value) : NULL;
	bool usable = name && is_token(name) && strlen(name) < MAX_TOKEN && reader->count < MAX_MIRRORS;
	for (unsigned i = 0; usable && i < reader->count; i++)
		usable = strcasecmp(reader->names[i], name) != 0;
	if (usable)
		memcpy(reader->names[reader->count++], name, strlen(name) + 1);
	free(name);
	return usable;
}

static bool add_rule(struct reader *reader, struct span schema, struct span value, const struct path *path)
{
	struct span type;
	if (!path || json_get(schema, NULL, "type", &type) != 1 || json_type(type) != JSON_STRING ||
		!(json_string_is(type, "string") || json_string_is(type, "integer") ||
			json_string_is(type, "boolean")) ||
		!take_name(reader, value))
		return false;
	json_add_separator(reader->rules);
	buf_printf(reader->rules, "[\"%s\"", reader->names[reader->count - 1]);
	add_path(reader->rules, path);
	buf_add_text(reader->rules, "]");
	return reader->rules->len <= MAX_RULES;
}

static bool read_schema(struct reader *reader, struct span value, const struct path *path, bool reachable);

/* A map of `properties`: its keys are names of the server's choosing. */
static bool read_properties(struct reader *reader, struct span map, const struct path *path, bool reachable)
{
	struct json_member member;
	struct json_walk walk = json_walk(map, NULL);
	while (json_next_member(&walk, &member)) {
		/* Arguments are looked up by a C string. */
		bool nameable = !memmem(member.key.ptr, member.key.len, "\\u0000", 6);
		const struct path step = {path, member.key};
		if (!read_schema(reader, member.value, &step, reachable && nameable))
			return false;
	}
	return true;
}

/* Only a chain of `properties` leads to what may be annotated. The recursion is bounded by JSON_MAX_DEPTH. */
static bool read_schema(struct reader *reader, struct span value, const struct path *path, bool reachable)
{
	struct json_walk walk = json_walk(value, NULL);
	if (json_type(value) == JSON_OBJECT) {
		struct json_member member;
		while (json_next_member(&walk, &member)) {
			bool good = json_key_is(member.key, "x-mcp-header")
					    ? reachable && add_rule(reader, value, member.value, path)
				    : json_key_is(member.key, "properties") && json_type(member.value) == JSON_OBJECT
					    ? read_properties(reader, member.value, path, reachable)
					    : read_schema(reader, member.value, path, false);
			if (!good)
				return false;
		}
	} else if (json_type(value) == JSON_ARRAY) {
		struct span element;
		while (json_next_element(&walk, &element))
			if (!read_schema(reader, element, path, false))
				return false;
	}
	return true;
}

/* As spelled, or behind escapes. */
bool mirror_may_be_asked(struct span schema)
{
	return memmem(schema.ptr, schema.len, "x-mcp-header", 12) || memmem(schema.ptr, schema.len, "\\u", 2);
}

bool mirror_read(struct span schema, struct buf *rules)
{
	struct reader reader = {.rules = rules};
	buf_add_text(rules, "[");
	bool good = !mirror_may_be_asked(schema) || read_schema(&reader, schema, NULL, true);
	buf_add_text(rules, "]");
	return good && buf_ok(rules);
}

/* Of a rule, the name of the header; what follows in *rule is the way to the argument. */
static void read_name(struct json_walk *rule, char name[MAX_TOKEN + 1])
{
	struct span spelled;
	*name = '\0';
	if (json_next_element(rule, &spelled) && spelled.len > 2 && spelled.len - 2 <= MAX_TOKEN) {
		memcpy(name, spelled.ptr + 1, spelled.len - 2);
		name[spelled.len - 2] = '\0';
	}
}

/* Follows the way to an argument. Returns how many values there are. */
static unsigned find_argument(struct json_walk *way, struct span arguments, struct span *value)
{
	struct span key;
	unsigned count = arguments.ptr ? 1 : 0;
	*value = arguments;
	while (count == 1 && json_next_element(way, &key)) {
		char *name = json_string_dup(key);
		count = name ? json_get(*value, NULL, name, value) : 2; /* without memory nothing is certain */
		free(name);
	}
	return count;
}

/* Clients cannot mirror what is no primitive value; the server will have its say about that. */
static bool is_primitive(struct span value)
{
	enum json_type type = json_type(value);
	return type != JSON_NULL && type != JSON_OBJECT && type != JSON_ARRAY;
}

/* Making headers. */

void mirror_write(struct span rules, struct span arguments, struct buf *lines)
{
	struct span rule, value;
	struct json_walk walk = json_walk(rules, NULL);
	while (json_next_element(&walk, &rule)) {
		struct json_walk parts = json_walk(rule, NULL);
		char name[MAX_TOKEN + 1];
		read_name(&parts, name);
		if (find_argument(&parts, arguments, &value) != 1 || !is_primitive(value))
			continue;
		buf_printf(lines, "Mcp-Param-%s: ", name);
		mirror_add_value(lines, value);
		buf_add_text(lines, "\n");
	}
}

/* Checking a request. */

/* Finds the header Mcp-Param-NAME among the lines. Returns how many there are. */
static unsigned find_header(struct span lines, const char *name, struct span *value)
{
	static const char prefix[] = "Mcp-Param-";
	size_t prefix_len = sizeof(prefix) - 1, name_len = strlen(name);
	unsigned count = 0;
	const char *end;
	for (; lines.len && (end = memchr(lines.ptr, '\n', lines.len));
		lines.len -= (size_t)(end + 1 - lines.ptr), lines.ptr = end + 1) {
		struct span rest = {lines.ptr, (size_t)(end - lines.ptr)};
		if (rest.len <= prefix_len + name_len || rest.ptr[prefix_len + name_len] != ':' ||
			strncasecmp(rest.ptr, prefix, prefix_len) != 0 ||
			strncasecmp(rest.ptr + prefix_len, name, name_len) != 0)
			continue;
		rest.ptr += prefix_len + name_len + 1;
		rest.len -= prefix_len + name_len + 1;
		*value = span_trim(rest);
		count++;
	}
	return count;
}

static bool read_number(struct span text, double *number)
{
	char copy[MAX_NUMBER];
	struct span value;
	struct error error;
	if (text.len >= sizeof(copy) || json_check(text, &value, NULL, &error) || json_type(value) != JSON_NUMBER)
		return false;
	memcpy(copy, value.ptr, value.len);
	copy[value.len] = '\0';
	*number = strtod(copy, NULL);
	return *number >= -max_safe_integer && *number <= max_safe_integer;
}

/* Numbers are compared as such ("Server Validation"), as far as no two of them look the same. */
static bool header_matches(struct span header, struct span value)
{
	struct buf decoded = {0};
	double said, meant;
	if (json_type(value) == JSON_STRING)
		return mirror_says(header, value);
	bool equal = decode(header, &decoded) &&
		     (span_equal(buf_span(&decoded), value) ||
			     (json_type(value) == JSON_NUMBER && read_number(buf_span(&decoded), &said) &&
				     read_number(value, &meant) && said == meant));
	buf_free(&decoded);
	return equal;
}

static bool refuse(struct error *error, const char *name, const char *what)
{
	error_set(error, ERROR_SYNTAX, "Header mismatch: the Mcp-Param-%s header %s", name, what);
	return false;
}

static bool check_one(
	struct json_walk *rule, const char *name, struct span arguments, struct span lines, struct error *error)
{
	struct span header, value;
	unsigned values = find_argument(rule, arguments, &value);
	unsigned headers = find_header(lines, name, &header);
	if (values > 1 || headers > 1)
		return refuse(error, name, "or its argument occurs twice");
	bool is_mirrored = values && is_primitive(value);
	if (is_mirrored && !headers)
		return refuse(error, name, "is missing");
	if (headers && !is_mirrored)
		return refuse(error, name, "has no argument that it mirrors");
	return !headers || header_matches(header, value) || refuse(error, name, "does not match the body");
}

bool mirror_check(struct span rules, struct span arguments, struct span lines, struct error *error)
{
	struct span rule;
	struct json_walk walk = json_walk(rules, NULL);
	while (json_next_element(&walk, &rule)) {
		struct json_walk parts = json_walk(rule, NULL);
		char name[MAX_TOKEN + 1];
		read_name(&parts, name);
		if (!check_one(&parts, name, arguments, lines, error))
			return false;
	}
	return true;
}
