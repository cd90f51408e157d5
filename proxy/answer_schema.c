#include "proxy/answer_schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One field and the words for it. */
struct field {
	const char *name;
	struct error *error;
};

static int fault(const struct field *field, const char *what)
{
	return error_set(field->error, ERROR_SYNTAX, "content.%.60s %s", field->name, what);
}

/* A number however long: cut short it would be another one. Without memory it is none, and within no bounds. */
static double number_of(struct span value)
{
	char *text = span_dup(value);
	double number = text ? strtod(text, NULL) : NAN;
	free(text);
	return number;
}

static bool limit(struct span schema, const char *key, double *out)
{
	struct span value;
	if (!json_get(schema, NULL, key, &value) || json_type(value) != JSON_NUMBER)
		return false;
	*out = number_of(value);
	return true;
}

/* Two values are the same if they are strings of the same text; nothing else is looked at. */
static bool same_string(struct span a, struct span b)
{
	struct buf left = {0}, right = {0};
	if (json_type(a) != JSON_STRING || json_type(b) != JSON_STRING)
		return false;
	json_decode_string(a, &left);
	json_decode_string(b, &right);
	bool same = buf_ok(&left) && buf_ok(&right) && span_equal(buf_span(&left), buf_span(&right));
	buf_free(&left);
	buf_free(&right);
	return same;
}

/* Whether a schema lists its values (enum, or oneOf/anyOf of const), and the value is none of them. */
static bool is_not_listed(struct span schema, struct span value)
{
	static const char *const lists[] = {"enum", "oneOf", "anyOf"};
	struct span list, entry, constant;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (!json_get(schema, NULL, lists[i], &list) || json_type(list) != JSON_ARRAY)
			continue;
		struct json_walk walk = json_walk(list, NULL);
		while (json_next_element(&walk, &entry)) {
			constant = entry;
			if (json_type(entry) == JSON_OBJECT && !json_get(entry, NULL, "const", &constant))
				return false; /* a list of another kind */
			if (same_string(constant, value))
				return false;
		}
		return true;
	}
	return false;
}

/* Code points: bytes that do not continue one. */
static size_t length_of(struct span string)
{
	struct buf text = {0};
	size_t count = 0;
	json_decode_string(string, &text);
	for (size_t i = 0; i < text.len; i++)
		count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
	buf_free(&text);
	return count;
}

static int check_string(const struct field *field, struct span schema, struct span value)
{
	double bound;
	if (json_type(value) != JSON_STRING)
		return fault(field, "is not a string");
	if (is_not_listed(schema, value))
		return fault(field, "is none of the values that were offered");
	if (limit(schema, "minLength", &bound) && (double)length_of(value) < bound)
		return fault(field, "is too short");
	if (limit(schema, "maxLength", &bound) && (double)length_of(value) > bound)
		return fault(field, "is too long");
	return 0;
}

static int check_number(const struct field *field, struct span schema, struct span value, bool integer)
{
	double bound, number;
	if (json_type(value) != JSON_NUMBER)
		return fault(field, integer ? "is not an integer" : "is not a number");
	number = number_of(value);
	if (integer && number >= -9e15 && number <= 9e15 && number != (double)(int64_t)number)
		return fault(field, "is not an integer");
	if (limit(schema, "minimum", &bound) && !(number >= bound))
		return fault(field, "is too small");
	if (limit(schema, "maximum", &bound) && !(number <= bound))
		return fault(field, "is too large");
	return 0;
}

static int check_array(const struct field *field, struct span schema, struct span value)
{
	double bound;
	size_t count = 0;
	struct span items = {0}, element;
	if (json_type(value) != JSON_ARRAY)
		return fault(field, "is not an array");
	json_get(schema, NULL, "items", &items);
	struct json_walk walk = json_walk(value, NULL);
	for (; json_next_element(&walk, &element); count++)
		if (is_not_listed(items, element))
			return fault(field, "holds what was not offered");
	if (limit(schema, "minItems", &bound) && (double)count < bound)
		return fault(field, "holds too few values");
	if (limit(schema, "maxItems", &bound) && (double)count > bound)
		return fault(field, "holds too many values");
	return 0;
}

static int check_value(const struct field *field, struct span schema, struct span value)
{
	struct span type;
	if (!json_get(schema, NULL, "type", &type) || json_type(type) != JSON_STRING)
		return 0;
	if (json_string_is(type, "string"))
		return check_string(field, schema, value);
	if (json_string_is(type, "number") || json_string_is(type, "integer"))
		return check_number(field, schema, value, json_string_is(type, "integer"));
	if (json_string_is(type, "array"))
		return check_array(field, schema, value);
	if (json_string_is(type, "boolean") && json_type(value) != JSON_TRUE && json_type(value) != JSON_FALSE)
		return fault(field, "is not a boolean");
	return 0;
}

static int check_field(
	struct span properties, struct span content, const char *name, bool required, struct error *error)
{
	const struct field field = {name, error};
	struct span value, schema;
	unsigned count = json_get(content, NULL, name, &value);
	if (count == 0)
		return required ? fault(&field, "is missing") : 0;
	if (count > 1)
		return fault(&field, "occurs twice");
	return json_get(properties, NULL, name, &schema) ? check_value(&field, schema, value) : 0;
}

int answer_schema_check(struct span schema, struct span content, struct error *error)
{
	struct span properties = {0}, required, element;
	struct json_member member;
	json_get(schema, NULL, "properties", &properties);
	struct json_walk walk = json_walk(properties, NULL);
	while (json_next_member(&walk, &member)) {
		/* The key with its quotes is a string value. */
		char *name = json_string_dup((struct span){member.key.ptr - 1, member.key.len + 2});
		int status = name ? check_field(properties, content, name, false, error) : 0;
		free(name);
		if (status)
			return status;
	}
	if (!json_get(schema, NULL, "required", &required))
		return 0;
	walk = json_walk(required, NULL);
	while (json_next_element(&walk, &element)) {
		char *name = json_type(element) == JSON_STRING ? json_string_dup(element) : NULL;
		int status = name ? check_field(properties, content, name, true, error) : 0;
		free(name);
		if (status)
			return status;
	}
	return 0;
}

int answer_schema_check_answer(struct span input_request, struct span answer, struct error *error)
{
	struct span params, schema, action, content = SPAN("{}");
	if (!json_get(answer, NULL, "action", &action) || !json_string_is(action, "accept") ||
		!json_get(input_request, NULL, "params", &params) ||
		!json_get(params, NULL, "requestedSchema", &schema))
		return 0;
	json_get(answer, NULL, "content", &content);
	return answer_schema_check(schema, content, error);
}
