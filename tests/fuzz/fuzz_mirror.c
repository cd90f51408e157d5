/* Fuzzing the headers that mirror arguments: a schema, arguments and header lines, each ended by a NUL. */
#include "proxy/mirror.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			abort();                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct span take(struct span *rest)
{
	const char *end = rest->len ? memchr(rest->ptr, '\0', rest->len) : NULL;
	struct span part = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
	size_t used = part.len + (end != NULL);
	*rest = (struct span){rest->ptr + used, rest->len - used};
	return part;
}

/* The rules are JSON, and each has a name and a way. */
static void require_rules(struct span rules)
{
	struct span value, rule, part;
	REQUIRE(json_check(rules, &value, NULL, NULL) == 0);
	struct json_walk walk = json_walk(value, NULL);
	while (json_next_element(&walk, &rule)) {
		unsigned parts = 0;
		struct json_walk inner = json_walk(rule, NULL);
		for (; json_next_element(&inner, &part); parts++)
			REQUIRE(json_type(part) == JSON_STRING);
		REQUIRE(parts >= 2);
	}
}

static bool is_true(struct span rules, struct span arguments, struct span lines)
{
	struct error error = {0};
	bool good = mirror_check(rules, arguments, lines, &error);
	REQUIRE(good == (error.code == ERROR_NONE));
	return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span rest = {(const char *)data, size}, none = {0}, schema, arguments;
	struct span schema_text = take(&rest), arguments_text = take(&rest), lines = take(&rest);
	struct buf rules = {0};
	if (json_check(schema_text, &schema, NULL, NULL) || json_check(arguments_text, &arguments, NULL, NULL))
		return 0;
	if (json_type(arguments) == JSON_STRING)
		(void)mirror_says(lines, arguments);
	if (mirror_read(schema, &rules)) {
		require_rules(buf_span(&rules));
		REQUIRE(is_true(buf_span(&rules), none, none));
		(void)is_true(buf_span(&rules), arguments, lines);
		/* Where no header is known and no argument is mirrored, nothing can differ. */
		if (is_true(buf_span(&rules), none, lines) && is_true(buf_span(&rules), arguments, none))
			REQUIRE(is_true(buf_span(&rules), arguments, lines));
	}
	buf_free(&rules);
	return 0;
}
