#include "proxy/json.h"
#include "proxy/json_space.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
	while (at < end && !json_is_space(*at) && *at != ',' && *at != ':' && *at != ']' && *at != '}')
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
	const char *at = json_skip_space(walk->at, walk->end);
	if (at == walk->end)
		return walk_ends(walk);
	const char *value_end = skip_value(at, walk->end, walk->index);
	const char *next = json_skip_space(value_end, walk->end);
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
	const char *key = json_skip_space(walk->at, walk->end);
	if (key == walk->end || *key != '"')
		return walk_ends(walk);
	const char *key_end = skip_string(key, walk->end);
	const char *colon = json_skip_space(key_end, walk->end);
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

unsigned json_count(struct span object, const struct json_index *index, const char *key)
{
	unsigned count = 0;
	struct json_walk walk = json_walk(object, index);
	struct json_member member;
	while (json_next_member(&walk, &member))
		count += json_key_folds_to(member.key, key);
	return count;
}
