/* Fuzzing the JSON scanner: any bytes go through json_check(), and what it accepted through the walkers, whose promises are
 * compared with each other. What it refused is walked too, which must stay inside the text. */
#include "proxy/json.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_inside(struct span inner, struct span outer)
{
	return inner.ptr >= outer.ptr && inner.len <= outer.len &&
	       (size_t)(inner.ptr - outer.ptr) <= outer.len - inner.len;
}

static bool same_place(struct span a, struct span b)
{
	return a.ptr == b.ptr && a.len == b.len;
}

/* Whether the bytes from `from` to `to` are white space around exactly the bytes of `marks`, in their order. */
static bool holds_only(const char *from, const char *to, const char *marks)
{
	for (; from < to; from++) {
		if (strchr(" \t\r\n", *from) && *from)
			continue;
		if (*from == '\0' || *from != *marks)
			return false;
		marks++;
	}
	return *marks == '\0';
}

/* A value that a walk yielded is a whole value, and nothing but it. */
static void require_whole_value(struct span value)
{
	struct span again;
	REQUIRE(json_check(value, &again, NULL, NULL) == 0);
	REQUIRE(same_place(value, again));
}

static void require_scalar(struct span value)
{
	int64_t number;
	struct span string = value;
	struct buf decoded = {0}, written = {0}, decoded_again = {0};
	(void)json_integer(value, &number);
	json_decode_string(value, &decoded);
	REQUIRE(buf_ok(&decoded) && decoded.len <= value.len);
	if (json_type(value) == JSON_STRING) {
		char *text = json_string_dup(value);
		bool has_nul = decoded.len && memchr(decoded.data, '\0', decoded.len);
		REQUIRE((text == NULL) == has_nul);
		if (text && json_string_is(value, text)) {
			/* Text without lone surrogates can be written and read again. */
			REQUIRE(strlen(text) == decoded.len);
			buf_add_json_string(&written, buf_span(&decoded));
			REQUIRE(json_check(buf_span(&written), &string, NULL, NULL) == 0);
			json_decode_string(string, &decoded_again);
			REQUIRE(span_equal(buf_span(&decoded), buf_span(&decoded_again)));
		}
		free(text);
	} else {
		REQUIRE(decoded.len == 0);
	}
	buf_free(&decoded);
	buf_free(&written);
	buf_free(&decoded_again);
}

static void require_value(struct span value, const struct json_index *index);

/* json_get() finds what the walk found: the same count, the last value. */
static void require_get(struct span object, const struct json_index *index, const char *key)
{
	unsigned count = 0;
	struct span last = {0};
	struct json_walk walk = json_walk(object, NULL);
	struct json_member member;
	while (json_next_member(&walk, &member)) {
		if (!json_key_is(member.key, key))
			continue;
		count++;
		last = member.value;
	}
	struct span found = {0};
	REQUIRE(json_get(object, index, key, &found) == count);
	REQUIRE(same_place(found, last));
}

static void require_object(struct span object, const struct json_index *index)
{
	struct json_walk walk = json_walk(object, NULL);
	struct json_walk indexed = json_walk(object, index);
	struct json_member a, b;
	const char *before = object.ptr;
	const char *marks = "{";
	while (json_next_member(&walk, &a)) {
		REQUIRE(json_next_member(&indexed, &b));
		REQUIRE(same_place(a.key, b.key) && same_place(a.value, b.value));
		struct span quoted = {a.key.ptr - 1, a.key.len + 2};
		REQUIRE(is_inside(quoted, object) && is_inside(a.value, object));
		REQUIRE(holds_only(before, quoted.ptr, marks));
		REQUIRE(holds_only(quoted.ptr + quoted.len, a.value.ptr, ":"));
		require_whole_value(quoted);
		require_value(a.value, index);
		char *key = json_string_dup(quoted);
		if (key)
			require_get(object, index, key);
		free(key);
		before = a.value.ptr + a.value.len;
		marks = ",";
	}
	REQUIRE(!json_next_member(&indexed, &b));
	REQUIRE(holds_only(before, object.ptr + object.len, *marks == '{' ? "{}" : "}"));
}

static void require_array(struct span array, const struct json_index *index)
{
	struct json_walk walk = json_walk(array, NULL);
	struct json_walk indexed = json_walk(array, index);
	struct span a, b;
	const char *before = array.ptr;
	const char *marks = "[";
	while (json_next_element(&walk, &a)) {
		REQUIRE(json_next_element(&indexed, &b));
		REQUIRE(same_place(a, b) && is_inside(a, array));
		REQUIRE(holds_only(before, a.ptr, marks));
		require_value(a, index);
		before = a.ptr + a.len;
		marks = ",";
	}
	REQUIRE(!json_next_element(&indexed, &b));
	REQUIRE(holds_only(before, array.ptr + array.len, *marks == '[' ? "[]" : "]"));
}

static void require_value(struct span value, const struct json_index *index)
{
	require_whole_value(value);
	switch (json_type(value)) {
	case JSON_OBJECT:
		require_object(value, index);
		break;
	case JSON_ARRAY:
		require_array(value, index);
		break;
	default:
		require_scalar(value);
		break;
	}
}

/* Text that was refused, or pieces of it: anything may be yielded, but from inside. */
static void walk_unchecked(struct span text, unsigned depth)
{
	struct json_walk walk = json_walk(text, NULL);
	struct json_member member;
	struct span value;
	struct buf decoded = {0};
	while (json_next_member(&walk, &member)) {
		REQUIRE(is_inside(member.key, text) && is_inside(member.value, text));
		(void)json_key_is(member.key, "method");
		if (depth)
			walk_unchecked(member.value, depth - 1);
	}
	walk = json_walk(text, NULL);
	while (json_next_element(&walk, &value)) {
		REQUIRE(is_inside(value, text));
		if (depth)
			walk_unchecked(value, depth - 1);
	}
	if (json_get(text, NULL, "a", &value))
		REQUIRE(is_inside(value, text));
	json_decode_string(text, &decoded);
	(void)json_string_is(text, "a\n");
	buf_free(&decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span text = {(const char *)data, size};
	struct span value = {0};
	struct span plain = {0};
	struct json_index index;
	struct error error = {0};
	int rc = json_check(text, &value, &index, &error);
	REQUIRE(json_check(text, &plain, NULL, NULL) == rc);
	if (rc == 0) {
		REQUIRE(same_place(value, plain) && is_inside(value, text));
		REQUIRE(holds_only(text.ptr, value.ptr, ""));
		REQUIRE(holds_only(value.ptr + value.len, text.ptr + text.len, ""));
		require_value(value, &index);
	} else {
		REQUIRE(index.count == 0 && error.code == (enum error_code)rc && strstr(error.text, " at byte "));
	}
	walk_unchecked(text, 3);
	return 0;
}
