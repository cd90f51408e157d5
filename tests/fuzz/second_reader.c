#include "tests/fuzz/second_reader.h"

#include <jansson.h>
#include <string.h>

static json_t *load(struct span text)
{
	return json_loadb(
		text.ptr ? text.ptr : "", text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

bool second_reads(struct span text)
{
	json_t *json = load(text);
	json_decref(json);
	return json;
}

bool second_string(struct span text, const char *const *keys, struct buf *out)
{
	json_t *json = load(text);
	const json_t *value = json;
	for (; *keys; keys++)
		value = json_object_get(value, *keys);
	bool found = json_is_string(value);
	if (found)
		buf_add(out, json_string_value(value), json_string_length(value));
	json_decref(json);
	return found;
}

bool second_equal(struct span a, const char *key, struct span b)
{
	json_t *left = load(a), *right = load(b);
	bool equal = json_equal(key ? json_object_get(left, key) : left, right);
	json_decref(left);
	json_decref(right);
	return equal;
}

bool second_has(struct span text, const char *key)
{
	json_t *json = load(text);
	bool has = json_object_get(json, key);
	json_decref(json);
	return has;
}

bool second_is_sample(struct span answer)
{
	json_t *json = load(answer);
	const json_t *content = json_object_get(json, "content");
	bool is = json_is_string(json_object_get(json, "role")) && json_is_string(json_object_get(json, "model")) &&
		  (json_is_object(content) || json_is_array(content));
	json_decref(json);
	return is;
}

static bool is_listed(const json_t *list, const json_t *value)
{
	size_t i;
	const json_t *entry;
	json_array_foreach(list, i, entry) if (json_equal(entry, value)) return true;
	return false;
}

/* As far as this looks: types, enumerations of strings, the largest number. */
static bool fits_field(const json_t *field, const json_t *value)
{
	const json_t *type = json_object_get(field, "type"), *list = json_object_get(field, "enum");
	const json_t *most = json_object_get(field, "maximum");
	const char *wanted = json_is_string(type) ? json_string_value(type) : "";
	if (strcmp(wanted, "string") == 0)
		return json_is_string(value) &&
		       (!json_is_array(list) || !json_is_string(json_array_get(list, 0)) || is_listed(list, value));
	if (strcmp(wanted, "number") == 0)
		return json_is_number(value) &&
		       (!json_is_number(most) || json_number_value(value) <= json_number_value(most));
	return (strcmp(wanted, "boolean") != 0 || json_is_boolean(value)) &&
	       (strcmp(wanted, "integer") != 0 || json_is_number(value)) &&
	       (strcmp(wanted, "array") != 0 || json_is_array(value));
}

static bool fits(json_t *schema, const json_t *content)
{
	const char *key;
	const json_t *field, *name;
	size_t i;
	json_object_foreach(json_object_get(schema, "properties"), key, field)
	{
		const json_t *value = json_object_get(content, key);
		if (value && !fits_field(field, value))
			return false;
	}
	json_array_foreach(json_object_get(schema, "required"), i,
		name) if (json_is_string(name) && strlen(json_string_value(name)) == json_string_length(name) &&
			  !json_object_get(content, json_string_value(name))) return false;
	return true;
}

bool second_is_elicited(struct span params, struct span answer, bool checked)
{
	json_t *question = load(params), *json = load(answer);
	const json_t *content = json_object_get(json, "content"), *action = json_object_get(json, "action");
	const char *word = json_is_string(action) ? json_string_value(action) : "";
	bool accepted = strcmp(word, "accept") == 0;
	bool is = (accepted || strcmp(word, "decline") == 0 || strcmp(word, "cancel") == 0) &&
		  (!content || json_is_object(content)) &&
		  (!accepted || !checked || fits(json_object_get(question, "requestedSchema"), content));
	json_decref(question);
	json_decref(json);
	return is;
}
