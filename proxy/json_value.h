/* What keys, strings and numbers of JSON say, however they are spelled.
 *
 * Everything here reads spans that a walk (json.h) yielded, and changes nothing; on a text that was not checked the result is
 * undefined but nothing is read outside the span. */
#ifndef MCP_VALET_JSON_VALUE_H
#define MCP_VALET_JSON_VALUE_H

#include "proxy/bytes.h"

/* Whether a key (as spelled, without quotes) or a string value (with quotes) decodes to `text`. Strings that hold \u0000
 * or a lone surrogate equal no C string. */
bool json_key_decodes_to(struct span key, const char *text);
bool json_string_is(struct span string, const char *text);

/* The first: mostly one byte tells, and every key of a message is compared with a dozen texts. */
static inline bool json_key_is(struct span key, const char *text)
{
	return (!key.len || *key.ptr == *text || *key.ptr == '\\') && json_key_decodes_to(key, text);
}

/* Readers exist to whom keys that differ in case only are the same one. Whether a key is `text`, of ASCII, to them; and whether
 * it is to them and not to us. */
bool json_key_folds_to(struct span key, const char *text);
bool json_key_resembles(struct span key, const char *text);

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
