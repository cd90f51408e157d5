/* The JSON span scanner (RFC 8259). What the values say is in json_value.h, which comes with it.
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
#include "proxy/json_value.h"

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

/* The same for those to whom keys that differ in case only are the same one: how many there are. They take the last, so where
 * a decision depends on a member, there should be one. */
unsigned json_count(struct span object, const struct json_index *index, const char *key);

#endif
