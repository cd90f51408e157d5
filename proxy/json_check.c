#include "proxy/json.h"
#include "proxy/json_space.h"
#include "proxy/utf8.h"

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

static inline bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
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
			size_t len = utf8_sequence((struct span){at, (size_t)(end - at)});
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
	at = json_skip_space(at, c->end);
	if (at == c->end || *at != '"')
		return unexpected(c, at);
	at = check_string(c, at);
	if (!at)
		return NULL;
	at = json_skip_space(at, c->end);
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
		at = json_skip_space(at, c->end);
		if (at == c->end)
			return unexpected(c, at);
		if (*at != '{' && *at != '[')
			return check_scalar(c, at);
		at = open_container(c, at);
		if (!at)
			return NULL;
		char closer = c->closers[c->depth - 1];
		at = json_skip_space(at, c->end);
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
			at = json_skip_space(at, c->end);
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
	const char *start = json_skip_space(c.begin, c.end);
	if (text.len >= 3 && memcmp(text.ptr, "\xEF\xBB\xBF", 3) == 0)
		fault(&c, c.begin, ERROR_SYNTAX, "byte order mark");
	else
		at = check_values(&c, start);
	if (at && json_skip_space(at, c.end) != c.end)
		at = unexpected(&c, json_skip_space(at, c.end));
	if (!at) {
		if (index)
			index->count = 0;
		return c.code;
	}
	*value = (struct span){start, (size_t)(at - start)};
	return 0;
}
