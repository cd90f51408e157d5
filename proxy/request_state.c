#include "proxy/request_state.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
	VERSION = 1,
	KEY_ID_BYTES = 4,
	SECRET_BYTES = crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
	NONCE_BYTES = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
	TAG_BYTES = crypto_aead_xchacha20poly1305_ietf_ABYTES,
	CONTENTS_BYTES = 1 + 8 + 8 + INSTANCE_BYTES + CALL_ID_BYTES + 4 + PRINCIPAL_BYTES + DIGEST_BYTES,

	/* version and key id: associated data */
	HEAD_BYTES = 1 + KEY_ID_BYTES,
	NONCE_AT = HEAD_BYTES,
	SEALED_AT = NONCE_AT + NONCE_BYTES,
	TOKEN_BYTES = SEALED_AT + CONTENTS_BYTES + TAG_BYTES,
	/* without its end; whole groups of three bytes, so no bits of the last character are left over */
	TOKEN_CHARS = TOKEN_BYTES / 3 * 4,
};

_Static_assert(TOKEN_BYTES % 3 == 0, "a token has more than one spelling");

static const int base64_variant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;

struct key {
	uint8_t id[KEY_ID_BYTES];
	uint8_t secret[SECRET_BYTES];
};

struct keyring {
	unsigned references;
	size_t count;
	struct key *keys; /* guarded memory, wiped when freed; the first one seals */
};

/* A keyring with room for `capacity` keys and none in it. */
static struct keyring *keyring_new(size_t capacity)
{
	struct keyring *keys = calloc(1, sizeof(*keys));
	if (!keys)
		return NULL;
	keys->references = 1;
	keys->keys = sodium_allocarray(capacity, sizeof(*keys->keys));
	if (!keys->keys) {
		free(keys);
		return NULL;
	}
	return keys;
}

struct keyring *keyring_ref(struct keyring *keys)
{
	keys->references++;
	return keys;
}

void keyring_unref(struct keyring *keys)
{
	if (!keys || --keys->references > 0)
		return;
	sodium_free(keys->keys);
	free(keys);
}

static const struct key *keyring_find(const struct keyring *keys, const uint8_t id[KEY_ID_BYTES])
{
	for (size_t i = 0; i < keys->count; i++)
		if (memcmp(keys->keys[i].id, id, KEY_ID_BYTES) == 0)
			return &keys->keys[i];
	return NULL;
}

struct keyring *keyring_random(const struct env *env)
{
	struct keyring *keys = keyring_new(1);
	if (!keys)
		return NULL;
	env->random(env->ctx, keys->keys[0].id, KEY_ID_BYTES);
	env->random(env->ctx, keys->keys[0].secret, SECRET_BYTES);
	keys->count = 1;
	sodium_mprotect_readonly(keys->keys);
	return keys;
}

void keyring_generate(const struct env *env, struct buf *out)
{
	struct key key;
	char id[2 * KEY_ID_BYTES + 1];
	char secret[2 * SECRET_BYTES + 1];
	env->random(env->ctx, key.id, KEY_ID_BYTES);
	env->random(env->ctx, key.secret, SECRET_BYTES);
	sodium_bin2hex(id, sizeof(id), key.id, KEY_ID_BYTES);
	sodium_bin2hex(secret, sizeof(secret), key.secret, SECRET_BYTES);
	buf_printf(out, "v1 %s %s\n", id, secret);
	sodium_memzero(&key, sizeof(key));
	sodium_memzero(secret, sizeof(secret));
}

/* The next line of *text without its end and the white space before that. */
static struct span take_line(struct span *text)
{
	const char *newline = memchr(text->ptr, '\n', text->len);
	struct span line = {text->ptr, newline ? (size_t)(newline - text->ptr) : text->len};
	size_t taken = line.len + (newline ? 1 : 0);
	*text = (struct span){text->ptr + taken, text->len - taken};
	while (line.len &&
		(line.ptr[line.len - 1] == ' ' || line.ptr[line.len - 1] == '\t' || line.ptr[line.len - 1] == '\r'))
		line.len--;
	return line;
}

static bool read_hex(struct span hex, uint8_t *out, size_t len)
{
	size_t read = 0;
	return sodium_hex2bin(out, len, hex.ptr, hex.len, NULL, &read, NULL) == 0 && read == len;
}

/* Reads `v1 <key id> <key>`. The words of an error never repeat the line: it may be a secret with a slip in it. */
static bool read_key(struct span line, struct key *key)
{
	enum { ID_AT = 3, SECRET_AT = ID_AT + 2 * KEY_ID_BYTES + 1, LINE_CHARS = SECRET_AT + 2 * SECRET_BYTES };
	return line.len == LINE_CHARS && memcmp(line.ptr, "v1 ", ID_AT) == 0 && line.ptr[SECRET_AT - 1] == ' ' &&
	       read_hex((struct span){line.ptr + ID_AT, 2 * KEY_ID_BYTES}, key->id, KEY_ID_BYTES) &&
	       read_hex((struct span){line.ptr + SECRET_AT, 2 * SECRET_BYTES}, key->secret, SECRET_BYTES);
}

static int read_keys(struct keyring *keys, struct span text, const char *name, struct error *error)
{
	unsigned number = 0;
	while (text.len) {
		struct span line = take_line(&text);
		number++;
		if (line.len == 0 || line.ptr[0] == '#')
			continue;
		struct key *key = &keys->keys[keys->count];
		if (!read_key(line, key))
			return error_set(error, ERROR_SYNTAX,
				"%s:%u: a key line is `v1 <key id: 8 hex digits> <key: 64 hex digits>`", name, number);
		if (keyring_find(keys, key->id))
			return error_set(error, ERROR_SYNTAX, "%s:%u: this key id was used before", name, number);
		keys->count++;
	}
	if (keys->count == 0)
		return error_set(error, ERROR_SYNTAX, "%s:%u: no key in this file (mcp-valet keygen makes one)", name,
			number ? number : 1);
	return 0;
}

struct keyring *keyring_parse(struct span text, const char *name, struct error *error)
{
	size_t lines = 1;
	for (size_t i = 0; i < text.len; i++)
		lines += text.ptr[i] == '\n';
	struct keyring *keys = keyring_new(lines);
	if (!keys) {
		error_set(error, ERROR_MEMORY, "%s:1: no memory for its keys", name);
		return NULL;
	}
	if (read_keys(keys, text, name, error) != 0) {
		keyring_unref(keys);
		return NULL;
	}
	sodium_mprotect_readonly(keys->keys);
	return keys;
}

static uint8_t *put_bytes(uint8_t *at, const uint8_t *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

static uint8_t *put_number(uint8_t *at, uint64_t number, size_t len)
{
	for (size_t i = len; i-- > 0; number >>= 8)
		at[i] = (uint8_t)number;
	return at + len;
}

static const uint8_t *get_bytes(const uint8_t *at, uint8_t *bytes, size_t len)
{
	memcpy(bytes, at, len);
	return at + len;
}

static const uint8_t *get_number(const uint8_t *at, uint64_t *number, size_t len)
{
	*number = 0;
	for (size_t i = 0; i < len; i++)
		*number = *number << 8 | at[i];
	return at + len;
}

static void write_contents(uint8_t contents[CONTENTS_BYTES], const struct request_state *state)
{
	uint8_t *at = put_number(contents, (uint64_t)state->kind, 1);
	at = put_number(at, (uint64_t)state->issued_ms, 8);
	at = put_number(at, (uint64_t)state->expires_ms, 8);
	at = put_bytes(at, state->instance, INSTANCE_BYTES);
	at = put_bytes(at, state->call_id, CALL_ID_BYTES);
	at = put_number(at, state->round, 4);
	at = put_bytes(at, state->principal, PRINCIPAL_BYTES);
	put_bytes(at, state->digest, DIGEST_BYTES);
}

static void read_contents(const uint8_t contents[CONTENTS_BYTES], struct request_state *state)
{
	uint64_t number;
	const uint8_t *at = get_number(contents, &number, 1);
	state->kind = (enum request_state_kind)number;
	at = get_number(at, &number, 8);
	state->issued_ms = (int64_t)number;
	at = get_number(at, &number, 8);
	state->expires_ms = (int64_t)number;
	at = get_bytes(at, state->instance, INSTANCE_BYTES);
	at = get_bytes(at, state->call_id, CALL_ID_BYTES);
	at = get_number(at, &number, 4);
	state->round = (uint32_t)number;
	at = get_bytes(at, state->principal, PRINCIPAL_BYTES);
	get_bytes(at, state->digest, DIGEST_BYTES);
}

void request_state_seal(const struct keyring *keys, const struct env *env, const struct request_state *state,
	struct span script, struct buf *out)
{
	const struct key *key = &keys->keys[0];
	struct buf contents = {0}, token = {0};
	uint8_t fixed[CONTENTS_BYTES];
	write_contents(fixed, state);
	buf_add(&contents, fixed, sizeof(fixed));
	buf_add_span(&contents, script);

	size_t token_len = SEALED_AT + contents.len + TAG_BYTES;
	size_t text_len = sodium_base64_encoded_len(token_len, base64_variant);
	if (buf_ok(&contents) && buf_reserve(&token, token_len) && buf_reserve(out, text_len)) {
		uint8_t *bytes = (uint8_t *)token.data;
		bytes[0] = VERSION;
		memcpy(bytes + 1, key->id, KEY_ID_BYTES);
		env->random(env->ctx, bytes + NONCE_AT, NONCE_BYTES);
		crypto_aead_xchacha20poly1305_ietf_encrypt(bytes + SEALED_AT, NULL, (const uint8_t *)contents.data,
			contents.len, bytes, HEAD_BYTES, NULL, bytes + NONCE_AT, key->secret);
		sodium_bin2base64(out->data + out->len, text_len, bytes, token_len, base64_variant);
		out->len += text_len - 1;
	} else {
		out->failed = true;
	}
	sodium_memzero(fixed, sizeof(fixed));
	if (contents.data)
		sodium_memzero(contents.data, contents.len);
	buf_free(&contents);
	buf_free(&token);
}

/* Decodes the one spelling that request_state_seal() gives a token. The library's decoder takes bytes from 0x80 on for
 * underscores, so what was read is written again and compared. */
static int decode_token(struct span text, struct buf *token, struct error *error)
{
	struct buf spelling = {0};
	size_t len = 0;
	if (!buf_reserve(token, text.len + 1) || !buf_reserve(&spelling, text.len + 8)) {
		buf_free(&spelling);
		return error_set(error, ERROR_MEMORY, "out of memory");
	}
	bool ok = sodium_base642bin((uint8_t *)token->data, token->cap, text.ptr, text.len, NULL, &len, NULL,
			  base64_variant) == 0;
	ok = ok && sodium_base64_encoded_len(len, base64_variant) == text.len + 1;
	if (ok) {
		sodium_bin2base64(spelling.data, spelling.cap, (uint8_t *)token->data, len, base64_variant);
		ok = span_equal(text, (struct span){spelling.data, text.len});
	}
	token->len = len;
	buf_free(&spelling);
	return ok ? 0 : error_set(error, ERROR_REFUSED, "the request state is not base64url");
}

static int decrypt_token(const struct keyring *keys, struct span token, struct buf *contents, struct error *error)
{
	const uint8_t *bytes = (const uint8_t *)token.ptr;
	if (token.len < TOKEN_BYTES)
		return error_set(error, ERROR_REFUSED, "%zu bytes instead of %d or more", token.len, (int)TOKEN_BYTES);
	if (bytes[0] != VERSION)
		return error_set(error, ERROR_REFUSED, "version %u instead of %d", bytes[0], (int)VERSION);
	const struct key *key = keyring_find(keys, bytes + 1);
	if (!key)
		return error_set(error, ERROR_REFUSED, "sealed with the unknown key %02x%02x%02x%02x", bytes[1],
			bytes[2], bytes[3], bytes[4]);
	if (!buf_reserve(contents, token.len))
		return error_set(error, ERROR_MEMORY, "out of memory");
	if (crypto_aead_xchacha20poly1305_ietf_decrypt((uint8_t *)contents->data, NULL, NULL, bytes + SEALED_AT,
		    token.len - SEALED_AT, bytes, HEAD_BYTES, bytes + NONCE_AT, key->secret) != 0)
		return error_set(error, ERROR_REFUSED, "altered, or forged: the seal of key %02x%02x%02x%02x is broken",
			bytes[1], bytes[2], bytes[3], bytes[4]);
	contents->len = token.len - SEALED_AT - TAG_BYTES;
	uint8_t kind = (uint8_t)contents->data[0];
	if (kind != REQUEST_STATE_PARKED && kind != REQUEST_STATE_RERUN)
		return error_set(error, ERROR_REFUSED, "unknown kind %u", kind);
	return 0;
}

int request_state_open(const struct keyring *keys, struct span text, struct request_state *state, struct buf *script,
	struct error *error)
{
	struct buf token = {0}, contents = {0};
	int status = decode_token(text, &token, error);
	if (!status)
		status = decrypt_token(keys, buf_span(&token), &contents, error);
	if (!status) {
		read_contents((const uint8_t *)contents.data, state);
		if (script)
			buf_add(script, contents.data + CONTENTS_BYTES, contents.len - CONTENTS_BYTES);
	}
	if (contents.data)
		sodium_memzero(contents.data, contents.cap);
	buf_free(&contents);
	buf_free(&token);
	return status;
}

void call_hash(const uint8_t id[CALL_ID_BYTES], char hash[CALL_HASH_CHARS])
{
	unsigned char digest[crypto_generichash_BYTES_MIN];
	crypto_generichash(digest, sizeof(digest), id, CALL_ID_BYTES, NULL, 0);
	sodium_bin2hex(hash, CALL_HASH_CHARS, digest, (CALL_HASH_CHARS - 1) / 2);
}
