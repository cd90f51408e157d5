/* The JSON span scanner (RFC 8259).
 *
 * json_check() reads a text once, strictly: grammar, UTF-8, one value, a depth limit. It accepts every number spelling,
 * lone surrogate escapes, \u0000 and duplicate keys, because payloads pass through unchanged (invariant 5). Everything
 * else here walks a text that json_check() has accepted, yields spans into it, and allocates nothing; on a text that was
 * not checked the behaviour is undefined but never reads outside the span.
 *
 * While checking, the extents of the larger shallow values are noted in a small index, so that walking the members of a
 * message does not read a megabyte of content a second time. */
#ifndef MCP_VALET_JSON_H
#define MCP_VALET_JSON_H

#include "proxy/bytes.h"
#include "proxy/error.h"

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum { JSON_INDEX_SIZE = 16, JSON_INDEX_DEPTH = 3, JSON_INDEX_MIN_BYTES = 64, JSON_MAX_DEPTH = 512 };

/* Where the larger values at depth <= JSON_INDEX_DEPTH begin and end. Zeroed: empty, which is always right, only slower. */
struct json_index {
	unsigned count;
	struct span values[JSON_INDEX_SIZE];
};

/* One member of an object: the key as spelled, without its quotes; the value without surrounding white space. */
struct json_member {
	struct span key;
	struct span value;
};

/* A walk over the members of an object or the elements of an array. */
struct json_walk {
	const char *at;
	const char *end;
	const struct json_index *index;
};

/* Checks `text` against RFC 8259: one value with optional white space around it, nested at most JSON_MAX_DEPTH deep.
 * Returns 0 and sets *value to the value without that white space; fills *index if it is not NULL. Otherwise
 * ERROR_SYNTAX or ERROR_LIMIT, with the fault and its byte offset in *error. */
int json_check(struct span text, struct span *value, struct json_index *index, struct error *error) MUST_CHECK;

enum json_type json_type(struct span value);

/* Starts a walk over a container (its span begins with `{` or `[`). `index` may be NULL. Anything else yields nothing. */
struct json_walk json_walk(struct span container, const struct json_index *index);
bool json_next_member(struct json_walk *walk, struct json_member *member);
bool json_next_element(struct json_walk *walk, struct span *value);

/* Finds the members of `object` whose decoded key is `key`. Returns how many there are (0 if it is no object) and sets
 * *value to the last one. */
unsigned json_get(struct span object, const struct json_index *index, const char *key, struct span *value);

/* Whether a key (as spelled, without quotes) or a string value (with quotes) decodes to `text`. Strings that hold \u0000
 * or a lone surrogate equal no C string. */
bool json_key_is(struct span key, const char *text);
bool json_string_is(struct span string, const char *text);

/* Readers exist to whom keys that differ in case only are the same one, and they take the last. Where a decision depends on a
 * member: whether a key is `text` to them and not to us, and how many members of an object are `key` to them. */
bool json_key_resembles(struct span key, const char *text);
unsigned json_count(struct span object, const struct json_index *index, const char *key);

/* Whether two strings or two numbers are the same, however each is spelled: who reads a value and writes it again may spell it
 * differently. Numbers are compared as doubles, but two integers without fraction and exponent exactly. Other values are the
 * same when they are spelled the same. */
bool json_same(struct span one, struct span other);

/* The same for keys, without their quotes. */
bool json_same_key(struct span one, struct span other);

/* Appends the decoded UTF-8 of a string value (with quotes). A lone surrogate becomes its three-byte form, so that
 * different strings stay different. */
void json_decode_string(struct span string, struct buf *out);
/* The same as a terminated copy to be freed; NULL if it is no string, holds U+0000, or memory is short. */
char *json_string_dup(struct span string) MUST_CHECK;

/* Reads a whole number that fits, with fraction or exponent (`1.0`, `1e2`) only as far as a double tells them all apart. */
bool json_integer(struct span value, int64_t *out);
/* The double that is next to a number, perhaps infinite; not-a-number of anything else, or of absurdly many digits. */
double json_number(struct span value);
/* Whether it is a whole number, however large. */
bool json_is_whole(struct span value);
/* json_same() for numbers. */
bool json_same_number(struct span one, struct span other);

#endif
