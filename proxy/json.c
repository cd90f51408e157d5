#include "proxy/json.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The state of one json_check(): which containers are open, and where the shallow ones began. */
struct checker {
	const char *begin;
	const char *end;
	struct json_index *index;
	size_t index_min_bytes; /* shorter values are not worth a place in the index */
	struct error *error;
	enum error_code code;
	unsigned depth;
	char closers[JSON_MAX_DEPTH]; /* the bracket that ends each open container */
	const char *starts[JSON_INDEX_DEPTH + 1];
};

/* The steps of json_check() return where they ended, or NULL after a fault. */

static const char *fault(struct checker *c, const char *at, enum error_code code, const char *what)
{
	c->code = error_set(c->error, code, "%s at byte %zu", what, (size_t)(at - c->begin));
	return NULL;
}

static const char *unexpected(struct checker *c, const char *at)
{
	if (at >= c->end)
		return fault(c, c->end, ERROR_SYNTAX, "unexpected end");
	return fault(c, at, ERROR_SYNTAX, "unexpected character");
}

static inline bool is_space(char byte)
{
	return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static inline bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

static inline const char *skip_space(const char *at, const char *end)
{
	while (at < end && is_space(*at))
		at++;
	return at;
}

static inline const char *skip_digits(const char *at, const char *end)
{
	while (at < end && is_digit(*at))
		at++;
	return at;
}

/* Passes over bytes that mean nothing inside a string: printable ASCII other than the quote and the backslash. */
static inline const char *skip_plain(const char *at, const char *end)
{
#ifdef __SSE2__
	while (end - at >= 16) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
		/* The comparison is signed, so bytes from 0x80 are below the space too. */
		__m128i stop = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
		stop = _mm_or_si128(stop, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')));
		stop = _mm_or_si128(stop, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
		unsigned mask = (unsigned)_mm_movemask_epi8(stop);
		if (mask)
			return at + __builtin_ctz(mask);
		at += 16;
	}
#endif
	while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' && *at != '\\')
		at++;
	return at;
}

/* The length of the UTF-8 sequence at `at`, which begins with a byte from 0x80 on; 0 if it is malformed (RFC 3629). */
static inline size_t utf8_length(const char *at, const char *end)
{
	const unsigned char *p = (const unsigned char *)at;
	size_t left = (size_t)(end - at);
	if (left < 2 || p[0] < 0xC2 || (p[1] & 0xC0) != 0x80)
		return 0;
	if (p[0] < 0xE0)
		return 2;
	if (left < 3 || (p[2] & 0xC0) != 0x80)
		return 0;
	if (p[0] < 0xF0) {
		bool overlong = p[0] == 0xE0 && p[1] < 0xA0;
		bool surrogate = p[0] == 0xED && p[1] >= 0xA0;
		return overlong || surrogate ? 0 : 3;
	}
	if (left < 4 || (p[3] & 0xC0) != 0x80 || p[0] > 0xF4)
		return 0;
	bool overlong = p[0] == 0xF0 && p[1] < 0x90;
	bool too_high = p[0] == 0xF4 && p[1] >= 0x90;
	return overlong || too_high ? 0 : 4;
}

static int hex_digit(char byte)
{
	if (is_digit(byte))
		return byte - '0';
	char lower = (char)(byte | 0x20);
	return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static const char *check_escape(struct checker *c, const char *at)
{
	const char *end = c->end;
	const char *letter = at + 1;
	if (letter == end)
		return unexpected(c, end);
	if (*letter == 'u') {
		for (const char *digit = letter + 1; digit < letter + 5; digit++) {
			if (digit == end)
				return unexpected(c, end);
			if (hex_digit(*digit) < 0)
				return fault(c, at, ERROR_SYNTAX, "bad escape");
		}
		return letter + 5;
	}
	if (*letter == '\0' || !strchr("\"\\/bfnrt", *letter))
		return fault(c, at, ERROR_SYNTAX, "bad escape");
	return letter + 1;
}

/* `at` is the opening quote. */
static const char *check_string(struct checker *c, const char *at)
{
	const char *end = c->end;
	at++;
	for (;;) {
		at = skip_plain(at, end);
		if (at == end)
			return unexpected(c, end);
		unsigned char byte = (unsigned char)*at;
		if (byte == '"')
			return at + 1;
		if (byte == '\\') {
			at = check_escape(c, at);
			if (!at)
				return NULL;
			continue;
		}
		if (byte < 0x20)
			return fault(c, at, ERROR_SYNTAX, "control character in a string");
		/* Text in other scripts comes in runs: stay with the long sequences while they last. */
		do {
			size_t len = utf8_length(at, end);
			if (len == 0)
				return fault(c, at, ERROR_SYNTAX, "malformed UTF-8");
			at += len;
		} while (at < end && (unsigned char)*at >= 0x80);
	}
}

static const char *check_number(struct checker *c, const char *at)
{
	const char *end = c->end;
	if (*at == '-')
		at++;
	const char *digits = at;
	at = skip_digits(at, end);
	if (at == digits)
		return unexpected(c, at);
	if (*digits == '0' && at != digits + 1)
		return fault(c, digits, ERROR_SYNTAX, "leading zero");
	if (at < end && *at == '.') {
		digits = ++at;
		at = skip_digits(at, end);
		if (at == digits)
			return unexpected(c, at);
	}
	if (at < end && (*at == 'e' || *at == 'E')) {
		at++;
		if (at < end && (*at == '+' || *at == '-'))
			at++;
		digits = at;
		at = skip_digits(at, end);
		if (at == digits)
			return unexpected(c, at);
	}
	return at;
}

static const char *check_word(struct checker *c, const char *at, const char *word)
{
	for (; *word; word++, at++)
		if (at == c->end || *at != *word)
			return unexpected(c, at);
	return at;
}

/* A key and its colon. */
static const char *check_key(struct checker *c, const char *at)
{
	at = skip_space(at, c->end);
	if (at == c->end || *at != '"')
		return unexpected(c, at);
	at = check_string(c, at);
	if (!at)
		return NULL;
	at = skip_space(at, c->end);
	if (at == c->end || *at != ':')
		return unexpected(c, at);
	return at + 1;
}

/* Gives a finished value a place in the index. When the places are used up, the smallest value leaves: what is large is
 * what a walk must not read again, and a container is always larger than what it holds. */
static void note_value(struct checker *c, const char *start, const char *end)
{
	struct json_index *index = c->index;
	size_t len = (size_t)(end - start);
	if (!index || c->depth == 0 || c->depth > JSON_INDEX_DEPTH || len < c->index_min_bytes)
		return;
	if (index->count < JSON_INDEX_SIZE) {
		index->values[index->count++] = (struct span){start, len};
		return;
	}
	unsigned smallest = 0;
	for (unsigned i = 1; i < JSON_INDEX_SIZE; i++)
		if (index->values[i].len < index->values[smallest].len)
			smallest = i;
	if (index->values[smallest].len < len)
		index->values[smallest] = (struct span){start, len};
	else
		c->index_min_bytes = len + 1;
}

static const char *open_container(struct checker *c, const char *at)
{
	if (c->depth == JSON_MAX_DEPTH)
		return fault(c, at, ERROR_LIMIT, "nested too deep");
	if (c->depth <= JSON_INDEX_DEPTH)
		c->starts[c->depth] = at;
	c->closers[c->depth++] = *at == '{' ? '}' : ']';
	return at + 1;
}

static const char *close_container(struct checker *c, const char *at)
{
	c->depth--;
	if (c->depth <= JSON_INDEX_DEPTH)
		note_value(c, c->starts[c->depth], at + 1);
	return at + 1;
}

static const char *check_scalar(struct checker *c, const char *at)
{
	switch (*at) {
	case '"': {
		const char *end = check_string(c, at);
		if (end)
			note_value(c, at, end);
		return end;
	}
	case 't':
		return check_word(c, at, "true");
	case 'f':
		return check_word(c, at, "false");
	case 'n':
		return check_word(c, at, "null");
	default:
		if (*at != '-' && !is_digit(*at))
			return unexpected(c, at);
		return check_number(c, at);
	}
}

/* Passes over scalars and opening brackets up to the end of the first value that is complete, or of a container's last
 * opening bracket if the container is empty. */
static const char *check_value(struct checker *c, const char *at)
{
	for (;;) {
		at = skip_space(at, c->end);
		if (at == c->end)
			return unexpected(c, at);
		if (*at != '{' && *at != '[')
			return check_scalar(c, at);
		at = open_container(c, at);
		if (!at)
			return NULL;
		char closer = c->closers[c->depth - 1];
		at = skip_space(at, c->end);
		if (at < c->end && *at == closer)
			return close_container(c, at);
		if (closer == '}')
			at = check_key(c, at);
		if (!at)
			return NULL;
	}
}

/* Checks one value and everything in it without recursion: the containers that are open are on a stack of their own. */
static const char *check_values(struct checker *c, const char *at)
{
	for (;;) {
		at = check_value(c, at);
		if (!at)
			return NULL;
		for (;;) {
			if (c->depth == 0)
				return at;
			at = skip_space(at, c->end);
			if (at == c->end || *at != c->closers[c->depth - 1])
				break;
			at = close_container(c, at);
		}
		if (at == c->end || *at != ',')
			return unexpected(c, at);
		at++;
		if (c->closers[c->depth - 1] == '}')
			at = check_key(c, at);
		if (!at)
			return NULL;
	}
}

int json_check(struct span text, struct span *value, struct json_index *index, struct error *error)
{
	struct checker c;
	c.begin = text.len ? text.ptr : "";
	c.end = c.begin + text.len;
	c.index = index;
	c.index_min_bytes = JSON_INDEX_MIN_BYTES;
	c.error = error;
	c.code = ERROR_NONE;
	c.depth = 0;
	if (index)
		index->count = 0;

	const char *at = NULL;
	const char *start = skip_space(c.begin, c.end);
	if (text.len >= 3 && memcmp(text.ptr, "\xEF\xBB\xBF", 3) == 0)
		fault(&c, c.begin, ERROR_SYNTAX, "byte order mark");
	else
		at = check_values(&c, start);
	if (at && skip_space(at, c.end) != c.end)
		at = unexpected(&c, skip_space(at, c.end));
	if (!at) {
		if (index)
			index->count = 0;
		return c.code;
	}
	*value = (struct span){start, (size_t)(at - start)};
	return 0;
}

enum json_type json_type(struct span value)
{
	switch (value.len ? *value.ptr : '\0') {
	case '{':
		return JSON_OBJECT;
	case '[':
		return JSON_ARRAY;
	case '"':
		return JSON_STRING;
	case 't':
		return JSON_TRUE;
	case 'f':
		return JSON_FALSE;
	case 'n':
	case '\0':
		return JSON_NULL;
	default:
		return JSON_NUMBER;
	}
}

/* The skippers below trust the grammar of checked text, but stop at `end` on any bytes. */

static const char *find_quote_or_backslash(const char *at, const char *end)
{
#ifdef __SSE2__
	for (; end - at >= 16; at += 16) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
		__m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
		__m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
		unsigned mask = (unsigned)_mm_movemask_epi8(_mm_or_si128(quote, backslash));
		if (mask)
			return at + __builtin_ctz(mask);
	}
#endif
	while (at < end && *at != '"' && *at != '\\')
		at++;
	return at;
}

/* From an opening quote to behind the closing one. */
static const char *skip_string(const char *at, const char *end)
{
	at++;
	while (at < end) {
		at = find_quote_or_backslash(at, end);
		if (at == end)
			break;
		if (*at == '"')
			return at + 1;
		at += end - at > 1 ? 2 : 1;
	}
	return end;
}

static const char *skip_container(const char *at, const char *end)
{
	size_t depth = 0;
	while (at < end) {
		switch (*at) {
		case '"':
			at = skip_string(at, end);
			continue;
		case '{':
		case '[':
			depth++;
			break;
		case '}':
		case ']':
			depth--;
			if (depth == 0)
				return at + 1;
			break;
		default:
			break;
		}
		at++;
	}
	return end;
}

static const char *skip_scalar(const char *at, const char *end)
{
	while (at < end && !is_space(*at) && *at != ',' && *at != ':' && *at != ']' && *at != '}')
		at++;
	return at;
}

static const char *skip_value(const char *at, const char *end, const struct json_index *index)
{
	if (*at != '{' && *at != '[' && *at != '"')
		return skip_scalar(at, end);
	for (unsigned i = 0; index && i < index->count; i++)
		if (index->values[i].ptr == at && index->values[i].len <= (size_t)(end - at))
			return at + index->values[i].len;
	return *at == '"' ? skip_string(at, end) : skip_container(at, end);
}

struct json_walk json_walk(struct span container, const struct json_index *index)
{
	enum json_type type = json_type(container);
	if (type != JSON_OBJECT && type != JSON_ARRAY)
		return (struct json_walk){NULL, NULL, index};
	return (struct json_walk){container.ptr + 1, container.ptr + container.len, index};
}

static bool walk_ends(struct json_walk *walk)
{
	walk->at = walk->end;
	return false;
}

/* Takes the value at walk->at and what separates it from the next one. */
static bool walk_value(struct json_walk *walk, char closer, struct span *value)
{
	const char *at = skip_space(walk->at, walk->end);
	if (at == walk->end)
		return walk_ends(walk);
	const char *value_end = skip_value(at, walk->end, walk->index);
	const char *next = skip_space(value_end, walk->end);
	if (value_end == at || next == walk->end || (*next != ',' && *next != closer))
		return walk_ends(walk);
	*value = (struct span){at, (size_t)(value_end - at)};
	walk->at = *next == ',' ? next + 1 : walk->end;
	return true;
}

bool json_next_element(struct json_walk *walk, struct span *value)
{
	return walk_value(walk, ']', value);
}

bool json_next_member(struct json_walk *walk, struct json_member *member)
{
	const char *key = skip_space(walk->at, walk->end);
	if (key == walk->end || *key != '"')
		return walk_ends(walk);
	const char *key_end = skip_string(key, walk->end);
	const char *colon = skip_space(key_end, walk->end);
	if (colon == walk->end || *colon != ':')
		return walk_ends(walk);
	member->key = (struct span){key + 1, (size_t)(key_end - key) - 2};
	walk->at = colon + 1;
	return walk_value(walk, '}', &member->value);
}

unsigned json_get(struct span object, const struct json_index *index, const char *key, struct span *value)
{
	if (json_type(object) != JSON_OBJECT)
		return 0;
	unsigned count = 0;
	struct json_walk walk = json_walk(object, index);
	struct json_member member;
	while (json_next_member(&walk, &member)) {
		if (!json_key_is(member.key, key))
			continue;
		*value = member.value;
		count++;
	}
	return count;
}

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

bool json_key_is(struct span key, const char *text)
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

static bool key_folds_to(struct span key, const char *text)
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
	return key_folds_to(key, text) && !json_key_is(key, text);
}

unsigned json_count(struct span object, const struct json_index *index, const char *key)
{
	unsigned count = 0;
	struct json_walk walk = json_walk(object, index);
	struct json_member member;
	while (json_next_member(&walk, &member))
		count += key_folds_to(member.key, key);
	return count;
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
