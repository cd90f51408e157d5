/* Keys and strings of JSON, compared and decoded without a copy. */
#include "proxy/json_value.h"
#include "proxy/utf8.h"

#include <stdlib.h>
#include <string.h>

/* One character of a string: what it decodes to and how many bytes spell it. */
struct character {
	size_t spelled;
	size_t len;
	bool foreign; /* U+0000 or a lone surrogate: in no C string of UTF-8 */
	char utf8[4];
};

static uint32_t hex_quad(const char *digits, const char *end)
{
	uint32_t code = 0;
	if (end - digits < 4)
		return UINT32_MAX;
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(digits[i]);
		if (digit < 0)
			return UINT32_MAX;
		code = code << 4 | (uint32_t)digit;
	}
	return code;
}

static void encode_utf8(struct character *out, uint32_t code)
{
	static const unsigned char marks[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
	out->len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = out->len; i-- > 1; code >>= 6)
		out->utf8[i] = (char)(0x80 | (code & 0x3F));
	out->utf8[0] = (char)(marks[out->len] | code);
}

/* Decodes the escape at `at`. An escape that json_check() would refuse stands for its own first byte. */
static struct character decode_escape(const char *at, const char *end)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	struct character out = {.spelled = 1, .len = 1, .utf8 = {*at}};
	if (end - at < 2)
		return out;
	const char *letter = at[1] ? strchr(letters, at[1]) : NULL;
	if (letter) {
		out.spelled = 2;
		out.utf8[0] = meanings[letter - letters];
		return out;
	}
	uint32_t code = at[1] == 'u' ? hex_quad(at + 2, end) : UINT32_MAX;
	if (code == UINT32_MAX)
		return out;
	out.spelled = 6;
	if (code >= 0xD800 && code < 0xDC00 && end - at >= 12 && at[6] == '\\' && at[7] == 'u') {
		uint32_t low = hex_quad(at + 8, end);
		if (low >= 0xDC00 && low < 0xE000) {
			code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
			out.spelled = 12;
		}
	}
	out.foreign = code == 0 || (code >= 0xD800 && code < 0xE000);
	encode_utf8(&out, code);
	return out;
}

bool json_key_decodes_to(struct span key, const char *text)
{
	size_t len = strlen(text);
	/* Every escape is longer than what it stands for. */
	if (key.len < len)
		return false;
	if (key.len == len)
		return span_equal(key, (struct span){text, len}) && !memchr(text, '\\', len);
	if (!memchr(key.ptr, '\\', key.len))
		return false;
	const char *at = key.ptr;
	const char *end = key.ptr + key.len;
	const char *text_end = text + len;
	while (at < end) {
		struct character c = {.spelled = 1, .len = 1, .utf8 = {*at}};
		if (*at == '\\')
			c = decode_escape(at, end);
		if (c.foreign || (size_t)(text_end - text) < c.len || memcmp(text, c.utf8, c.len) != 0)
			return false;
		at += c.spelled;
		text += c.len;
	}
	return text == text_end;
}

static char to_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

/* A letter of ASCII as a small one, and what Unicode folds to such: the long s and the sign of kelvin. */
static char fold(const struct character *c)
{
	return c->len == 1						? to_lower(c->utf8[0])
	       : c->len == 2 && memcmp(c->utf8, "\xC5\xBF", 2) == 0	? 's'
	       : c->len == 3 && memcmp(c->utf8, "\xE2\x84\xAA", 3) == 0 ? 'k'
									: '\0';
}

bool json_key_folds_to(struct span key, const char *text)
{
	const char *end = key.ptr + key.len;
	for (const char *at = key.ptr; at < end; text++) {
		struct character c = {.spelled = 1, .len = 1, .utf8 = {*at}};
		if (*at == '\\') {
			c = decode_escape(at, end);
		} else if ((unsigned char)*at >= 0x80) {
			c.len = c.spelled = utf8_sequence((struct span){at, (size_t)(end - at)});
			if (!c.len)
				return false;
			memcpy(c.utf8, at, c.len);
		}
		if (!*text || fold(&c) != to_lower(*text))
			return false;
		at += c.spelled;
	}
	return !*text;
}

bool json_key_resembles(struct span key, const char *text)
{
	return json_key_folds_to(key, text) && !json_key_is(key, text);
}

/* The bytes between the quotes; false if the value is no string. */
static bool string_content(struct span string, struct span *content)
{
	if (string.len < 2 || string.ptr[0] != '"')
		return false;
	*content = (struct span){string.ptr + 1, string.len - 2};
	return true;
}

bool json_string_is(struct span string, const char *text)
{
	struct span content;
	return string_content(string, &content) && json_key_is(content, text);
}

/* The decoded bytes of a string, one by one. */
struct letters {
	const char *at;
	const char *end;
	struct character character;
	size_t given; /* of the character's bytes */
};

static int next_byte(struct letters *letters)
{
	struct character *c = &letters->character;
	if (letters->given == c->len) {
		if (letters->at == letters->end)
			return -1;
		*c = (struct character){.spelled = 1, .len = 1, .utf8 = {*letters->at}};
		if (*letters->at == '\\')
			*c = decode_escape(letters->at, letters->end);
		letters->at += c->spelled;
		letters->given = 0;
	}
	return (unsigned char)c->utf8[letters->given++];
}

bool json_same_key(struct span one, struct span other)
{
	struct letters left = {.at = one.ptr, .end = one.ptr + one.len};
	struct letters right = {.at = other.ptr, .end = other.ptr + other.len};
	int byte;
	while ((byte = next_byte(&left)) == next_byte(&right))
		if (byte < 0)
			return true;
	return false;
}

bool json_same(struct span one, struct span other)
{
	struct span a, b;
	if (span_equal(one, other))
		return true;
	if (!string_content(one, &a) || !string_content(other, &b))
		return json_same_number(one, other);
	return json_same_key(a, b);
}

void json_decode_string(struct span string, struct buf *out)
{
	struct span content;
	if (!string_content(string, &content))
		return;
	const char *at = content.ptr;
	const char *end = content.ptr + content.len;
	while (at < end) {
		const char *escape = memchr(at, '\\', (size_t)(end - at));
		buf_add(out, at, (size_t)((escape ? escape : end) - at));
		if (!escape)
			return;
		struct character c = decode_escape(escape, end);
		buf_add(out, c.utf8, c.len);
		at = escape + c.spelled;
	}
}

char *json_string_dup(struct span string)
{
	struct span content;
	if (!string_content(string, &content))
		return NULL;
	/* Decoding never lengthens a string. */
	struct buf decoded = {0};
	if (!buf_reserve(&decoded, content.len + 1))
		return NULL;
	json_decode_string(string, &decoded);
	buf_add(&decoded, "", 1);
	if (!buf_ok(&decoded) || strlen(decoded.data) + 1 != decoded.len) {
		buf_free(&decoded);
		return NULL;
	}
	return decoded.data;
}
