#include "proxy/digest.h"

#include "proxy/json_space.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Canonical form is a stream of tokens, each a type byte, a length of eight bytes and content:
 *
 *   `"` decoded bytes    `#` a number as spelled    `t` `f` `n` the words
 *   `[` BLAKE2b of the elements' tokens    `{` BLAKE2b of the tokens of key, value, key, value … sorted by decoded key
 *
 * Lengths make it unambiguous. Containers are hashed on their own, so that the text is read once however deep it nests:
 * sorting moves 32 bytes a member and not its content. Recursion is as deep as json_check() lets texts nest. */

struct reader {
	const char *at;
	const char *end;
	struct buf scratch; /* a decoded string */
};

/* A value as read: a scalar's text or a container's digest. */
struct token {
	char type; /* '\0': the text ended, which checked text does not do */
	union {
		struct span text; /* strings have their quotes */
		uint8_t digest[DIGEST_BYTES];
	};
};

struct member {
	struct span key; /* decoded */
	char *owned_key; /* its memory, if it was spelled with escapes */
	size_t position; /* keeps duplicates in order */
	struct token value;
};

struct members {
	struct member *list;
	size_t count;
	size_t cap;
};

static int read_container(struct reader *reader, const char *const *skip, uint8_t out[DIGEST_BYTES]);

static inline bool separates(char byte)
{
	return json_is_space(byte) || byte == ',' || byte == ':';
}

/* The first byte of the next token. In checked text, white space, commas and colons tell nothing more. */
static char peek(struct reader *reader)
{
	while (reader->at < reader->end && separates(*reader->at))
		reader->at++;
	return reader->at < reader->end ? *reader->at : '\0';
}

static struct span read_string(struct reader *reader)
{
	const char *start = reader->at++;
	while (reader->at < reader->end && *reader->at != '"')
		reader->at += *reader->at == '\\' && reader->end - reader->at > 1 ? 2 : 1;
	reader->at += reader->at < reader->end;
	return (struct span){start, (size_t)(reader->at - start)};
}

static struct span read_word(struct reader *reader)
{
	const char *start = reader->at++;
	while (reader->at < reader->end && !separates(*reader->at) && *reader->at != ']' && *reader->at != '}')
		reader->at++;
	return (struct span){start, (size_t)(reader->at - start)};
}

static int read_token(struct reader *reader, struct token *token)
{
	token->type = peek(reader);
	switch (token->type) {
	case '\0':
		return 0;
	case '{':
	case '[':
		return read_container(reader, NULL, token->digest);
	case '"':
		token->text = read_string(reader);
		if (token->text.len < 2)
			token->type = '\0';
		return 0;
	case 't':
	case 'f':
	case 'n':
		token->text = read_word(reader);
		return 0;
	default:
		token->type = '#';
		token->text = read_word(reader);
		return 0;
	}
}

static void put(crypto_generichash_state *hash, char type, struct span content)
{
	uint8_t head[9] = {(uint8_t)type};
	for (int i = 0; i < 8; i++)
		head[1 + i] = (uint8_t)((uint64_t)content.len >> (56 - 8 * i));
	crypto_generichash_update(hash, head, sizeof(head));
	if (content.len)
		crypto_generichash_update(hash, (const uint8_t *)content.ptr, content.len);
}

static int put_token(struct reader *reader, crypto_generichash_state *hash, const struct token *token)
{
	struct span content = token->text;
	if (token->type == '{' || token->type == '[') {
		content = (struct span){(const char *)token->digest, DIGEST_BYTES};
	} else if (token->type == '"' && memchr(content.ptr, '\\', content.len)) {
		reader->scratch.len = 0;
		json_decode_string(content, &reader->scratch);
		if (!buf_ok(&reader->scratch))
			return ERROR_MEMORY;
		content = buf_span(&reader->scratch);
	} else if (token->type == '"') {
		content = (struct span){content.ptr + 1, content.len - 2};
	}
	put(hash, token->type, content);
	return 0;
}

static int read_elements(struct reader *reader, crypto_generichash_state *hash)
{
	char next;
	while ((next = peek(reader)) != '\0' && next != ']') {
		struct token token;
		int rc = read_token(reader, &token);
		if (rc == 0)
			rc = put_token(reader, hash, &token);
		if (rc)
			return rc;
	}
	return 0;
}

static int compare_members(const void *left, const void *right)
{
	const struct member *a = left;
	const struct member *b = right;
	size_t common = a->key.len < b->key.len ? a->key.len : b->key.len;
	int order = common ? memcmp(a->key.ptr, b->key.ptr, common) : 0;
	if (order == 0 && a->key.len != b->key.len)
		order = a->key.len < b->key.len ? -1 : 1;
	if (order == 0)
		order = a->position < b->position ? -1 : 1;
	return order;
}

static bool is_skipped(struct span key, const char *const *skip)
{
	for (; skip && *skip; skip++)
		if (json_key_is(key, *skip))
			return true;
	return false;
}

/* Moves behind the value of the member whose key was read last. */
static void skip_member(struct reader *reader, struct span key)
{
	struct json_walk walk = {.at = key.ptr, .end = reader->end};
	struct json_member member;
	reader->at = json_next_member(&walk, &member) ? member.value.ptr + member.value.len : reader->end;
}

static int add_member(struct members *members, struct span spelled)
{
	if (members->count == members->cap) {
		size_t cap = members->cap ? members->cap * 2 : 8;
		struct member *list = reallocarray(members->list, cap, sizeof(*list));
		if (!list)
			return ERROR_MEMORY;
		members->list = list;
		members->cap = cap;
	}
	struct member *member = &members->list[members->count];
	*member = (struct member){.key = {spelled.ptr + 1, spelled.len - 2}, .position = members->count};
	if (memchr(spelled.ptr, '\\', spelled.len)) {
		struct buf decoded = {0};
		json_decode_string(spelled, &decoded);
		member->key = buf_span(&decoded);
		member->owned_key = decoded.data;
		if (!buf_ok(&decoded)) {
			buf_free(&decoded);
			return ERROR_MEMORY;
		}
	}
	members->count++;
	return 0;
}

static int read_members(
	struct reader *reader, const char *const *skip, crypto_generichash_state *hash, struct members *members)
{
	while (peek(reader) == '"') {
		struct span key = read_string(reader);
		if (key.len < 2)
			break;
		if (is_skipped((struct span){key.ptr + 1, key.len - 2}, skip)) {
			skip_member(reader, key);
			continue;
		}
		int rc = add_member(members, key);
		if (rc == 0)
			rc = read_token(reader, &members->list[members->count - 1].value);
		if (rc)
			return rc;
	}
	if (members->count > 1)
		qsort(members->list, members->count, sizeof(*members->list), compare_members);
	for (size_t i = 0; i < members->count; i++) {
		put(hash, '"', members->list[i].key);
		int rc = put_token(reader, hash, &members->list[i].value);
		if (rc)
			return rc;
	}
	return 0;
}

/* Reads a container, leaving out the members in `skip`, and ends behind its closing bracket. */
static int read_container(struct reader *reader, const char *const *skip, uint8_t out[DIGEST_BYTES])
{
	crypto_generichash_state hash;
	struct members members = {0};
	int rc;
	crypto_generichash_init(&hash, NULL, 0, DIGEST_BYTES);
	if (*reader->at++ == '{')
		rc = read_members(reader, skip, &hash, &members);
	else
		rc = read_elements(reader, &hash);
	reader->at += reader->at < reader->end;
	crypto_generichash_final(&hash, out, DIGEST_BYTES);
	for (size_t i = 0; i < members.count; i++)
		free(members.list[i].owned_key);
	free(members.list);
	return rc;
}

int digest_json(uint8_t out[DIGEST_BYTES], const char *label, struct span value, const char *const *skip)
{
	struct reader reader = {.at = value.ptr, .end = value.len ? value.ptr + value.len : value.ptr};
	struct token token = {0};
	int rc = 0;
	if (json_type(value) == JSON_OBJECT) {
		token.type = '{';
		rc = read_container(&reader, skip, token.digest);
	} else if (value.len) {
		rc = read_token(&reader, &token);
	}
	crypto_generichash_state hash;
	crypto_generichash_init(&hash, NULL, 0, DIGEST_BYTES);
	put(&hash, 'L', span_of(label));
	if (rc == 0)
		rc = put_token(&reader, &hash, &token);
	crypto_generichash_final(&hash, out, DIGEST_BYTES);
	buf_free(&reader.scratch);
	return rc;
}
