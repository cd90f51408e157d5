#include "proxy/request_state.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID_A "0a1b2c3d"
#define ID_B "ffffffff"
#define SECRET_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SECRET_B "f0e0d0c0b0a090807060504030201000ffeeddccbbaa99887766554433221100"
#define KEY_A "v1 " ID_A " " SECRET_A "\n"
#define KEY_B "v1 " ID_B " " SECRET_B "\n"

/* version 1, key id 4, nonce 24, contents 117, tag 16: 162 bytes, four characters for each three */
enum { TOKEN_CHARS = 216, TOKEN_BYTES = 162 };

/* Bytes that count upwards over all calls, so that nothing repeats. */
static void count_up(void *ctx, void *out, size_t len)
{
	uint8_t *next = ctx;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)out)[i] = (*next)++;
}

static struct env counting_env(uint8_t *next)
{
	return (struct env){.ctx = next, .random = count_up};
}

static struct keyring *parse(const char *text)
{
	struct error error;
	struct keyring *keys = keyring_parse(span_of(text), "keys", &error);
	if (!keys)
		fail_msg("%s", error.text);
	return keys;
}

static struct request_state sample(void)
{
	struct request_state state = {
		.kind = REQUEST_STATE_PARKED,
		.issued_ms = 0x0102030405060708,
		.expires_ms = 0x1112131415161718,
		.round = 0x21222324,
	};
	memset(state.instance, 0xA1, sizeof(state.instance));
	memset(state.call_id, 0xB2, sizeof(state.call_id));
	memset(state.principal, 0xC3, sizeof(state.principal));
	memset(state.digest, 0xD4, sizeof(state.digest));
	return state;
}

static struct buf seal(const struct keyring *keys, const struct request_state *state)
{
	static const uint8_t first = 7;
	uint8_t next = first;
	struct env env = counting_env(&next);
	struct buf token = {0};
	request_state_seal(keys, &env, state, (struct span){0}, &token);
	assert_true(buf_ok(&token));
	assert_int_equal(token.len, TOKEN_CHARS);
	return token;
}

static void assert_same_state(const struct request_state *a, const struct request_state *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_true(a->issued_ms == b->issued_ms && a->expires_ms == b->expires_ms);
	assert_int_equal(a->round, b->round);
	assert_memory_equal(a->instance, b->instance, INSTANCE_BYTES);
	assert_memory_equal(a->call_id, b->call_id, CALL_ID_BYTES);
	assert_memory_equal(a->principal, b->principal, PRINCIPAL_BYTES);
	assert_memory_equal(a->digest, b->digest, DIGEST_BYTES);
}

/* Refused for the reason, and nothing of it comes out. */
static void assert_refused(const struct keyring *keys, struct span token, const char *reason)
{
	struct request_state untouched;
	struct request_state state;
	struct error error = {0};
	memset(&untouched, 0x5A, sizeof(untouched));
	memcpy(&state, &untouched, sizeof(state));
	assert_int_equal(request_state_open(keys, token, &state, NULL, &error), ERROR_REFUSED);
	assert_int_equal(error.code, ERROR_REFUSED);
	if (reason && !strstr(error.text, reason))
		fail_msg("\"%s\" instead of \"%s\"", error.text, reason);
	assert_memory_equal(&state, &untouched, sizeof(state));
}

static void opens_what_it_sealed(void **unused)
{
	(void)unused;
	uint8_t next = 0;
	struct env env = counting_env(&next);
	struct keyring *keys = keyring_random(&env);
	assert_non_null(keys);
	struct request_state extreme = sample();
	extreme.issued_ms = INT64_MIN;
	extreme.expires_ms = INT64_MAX;
	extreme.round = UINT32_MAX;
	const struct request_state states[] = {sample(), extreme, {.kind = REQUEST_STATE_PARKED}};
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		struct buf token = seal(keys, &states[i]);
		struct request_state opened;
		assert_int_equal(request_state_open(keys, buf_span(&token), &opened, NULL, NULL), 0);
		assert_same_state(&opened, &states[i]);
		buf_free(&token);
	}
	keyring_unref(keys);
}

/* Takes a token apart by the header's words alone. */
static void has_the_documented_format(void **unused)
{
	(void)unused;
	struct keyring *keys = parse(KEY_A KEY_B);
	struct request_state state = sample();
	struct buf token = seal(keys, &state);
	uint8_t raw[TOKEN_BYTES];
	size_t len = 0;
	assert_int_equal(sodium_base642bin(raw, sizeof(raw), token.data, token.len, NULL, &len, NULL,
				 sodium_base64_VARIANT_URLSAFE_NO_PADDING),
		0);
	assert_int_equal(len, TOKEN_BYTES);
	assert_int_equal(raw[0], 1);
	assert_memory_equal(raw + 1, "\x0a\x1b\x2c\x3d", 4);
	for (int i = 0; i < 24; i++)
		assert_int_equal(raw[5 + i], 7 + i);

	uint8_t secret[32];
	uint8_t contents[117];
	for (int i = 0; i < 32; i++)
		secret[i] = (uint8_t)i;
	assert_int_equal(crypto_aead_xchacha20poly1305_ietf_decrypt(
				 contents, NULL, NULL, raw + 29, 117 + 16, raw, 5, raw + 5, secret),
		0);
	uint8_t expected[117] = "\x01"
				"\x01\x02\x03\x04\x05\x06\x07\x08"
				"\x11\x12\x13\x14\x15\x16\x17\x18";
	memset(expected + 17, 0xA1, 16);
	memset(expected + 33, 0xB2, 16);
	memcpy(expected + 49, "\x21\x22\x23\x24", 4);
	memset(expected + 53, 0xC3, 32);
	memset(expected + 85, 0xD4, 32);
	assert_memory_equal(contents, expected, sizeof(expected));
	buf_free(&token);
	keyring_unref(keys);
}

static void seals_with_fresh_nonces(void **unused)
{
	(void)unused;
	uint8_t next = 0;
	struct env env = counting_env(&next);
	struct keyring *keys = parse(KEY_A);
	struct request_state state = sample();
	struct buf tokens = {0};
	request_state_seal(keys, &env, &state, (struct span){0}, &tokens);
	request_state_seal(keys, &env, &state, (struct span){0}, &tokens);
	/* It appends; and the same state never looks the same. */
	assert_int_equal(tokens.len, 2 * TOKEN_CHARS);
	assert_memory_not_equal(tokens.data, tokens.data + TOKEN_CHARS, TOKEN_CHARS);
	buf_free(&tokens);
	keyring_unref(keys);
}

static void refuses_every_changed_byte(void **unused)
{
	(void)unused;
	struct keyring *keys = parse(KEY_A KEY_B);
	struct request_state state = sample();
	struct buf token = seal(keys, &state);
	for (size_t i = 0; i < token.len; i++) {
		char original = token.data[i];
		for (int byte = 0; byte < 256; byte++) {
			if ((char)byte == original)
				continue;
			token.data[i] = (char)byte;
			assert_refused(keys, buf_span(&token), NULL);
		}
		token.data[i] = original;
	}
	assert_int_equal(request_state_open(keys, buf_span(&token), &state, NULL, NULL), 0);
	buf_free(&token);
	keyring_unref(keys);
}

static void refuses_other_lengths(void **unused)
{
	(void)unused;
	struct keyring *keys = parse(KEY_A);
	struct request_state state = sample();
	struct buf token = seal(keys, &state);
	for (size_t len = 0; len < TOKEN_CHARS; len++)
		assert_refused(keys, (struct span){token.data, len}, "");
	assert_refused(keys, (struct span){NULL, 0}, "0 bytes instead of 162");
	static const char *const tails[] = {"=", "A", "==", "AAAA", "\n", " "};
	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
		buf_add_text(&token, tails[i]);
		assert_refused(keys, buf_span(&token), "");
		token.len = TOKEN_CHARS;
	}
	/* The other alphabet, and padding where the length is right. */
	memset(token.data, '+', TOKEN_CHARS);
	assert_refused(keys, buf_span(&token), "not base64url");
	memset(token.data, 'A', TOKEN_CHARS);
	token.data[TOKEN_CHARS - 1] = '=';
	assert_refused(keys, buf_span(&token), "not base64url");
	buf_free(&token);
	keyring_unref(keys);
}

static void carries_a_script_of_any_length(void **unused)
{
	(void)unused;
	struct keyring *keys = parse(KEY_A);
	struct request_state state = sample(), opened;
	uint8_t next = 1;
	struct env env = counting_env(&next);
	char text[301];
	memset(text, 's', sizeof(text));
	state.kind = REQUEST_STATE_RERUN;
	for (size_t len = 0; len < sizeof(text); len++) {
		struct buf token = {0}, script = {0};
		request_state_seal(keys, &env, &state, (struct span){text, len}, &token);
		assert_true(buf_ok(&token));
		assert_int_equal(request_state_open(keys, buf_span(&token), &opened, &script, NULL), 0);
		assert_same_state(&state, &opened);
		assert_true(span_equal(buf_span(&script), (struct span){text, len}));
		token.data[token.len / 2] ^= 1;
		assert_refused(keys, buf_span(&token), "");
		buf_free(&token);
		buf_free(&script);
	}
	keyring_unref(keys);
}

static void says_why_it_refuses(void **unused)
{
	(void)unused;
	struct keyring *keys = parse(KEY_A);
	struct keyring *other = parse(KEY_B);
	/* The other key under the same id: only the seal can tell. */
	struct keyring *impostor = parse("v1 " ID_A " " SECRET_B);
	struct request_state state = sample();
	struct buf token = seal(keys, &state);
	assert_refused(other, buf_span(&token), "unknown key " ID_A);
	assert_refused(impostor, buf_span(&token), "the seal of key " ID_A " is broken");
	/* The version is in the first six bits and the two after them. */
	token.data[0] = 'A';
	token.data[1] = 'g';
	assert_refused(keys, buf_span(&token), "version 2 instead of 1");
	buf_free(&token);

	state.kind = (enum request_state_kind)9;
	token = seal(keys, &state);
	assert_refused(keys, buf_span(&token), "unknown kind 9");
	buf_free(&token);
	keyring_unref(keys);
	keyring_unref(other);
	keyring_unref(impostor);
}

static void opens_with_every_key_and_seals_with_the_first(void **unused)
{
	(void)unused;
	struct keyring *old = parse(KEY_A);
	struct keyring *rotated = parse(KEY_B KEY_A);
	struct request_state state = sample();
	struct request_state opened;
	struct buf by_old = seal(old, &state);
	struct buf by_rotated = seal(rotated, &state);
	assert_int_equal(request_state_open(rotated, buf_span(&by_old), &opened, NULL, NULL), 0);
	assert_same_state(&opened, &state);
	assert_int_equal(request_state_open(rotated, buf_span(&by_rotated), &opened, NULL, NULL), 0);
	assert_refused(old, buf_span(&by_rotated), "unknown key " ID_B);
	buf_free(&by_old);
	buf_free(&by_rotated);
	keyring_unref(old);
	keyring_unref(rotated);
}

static void reads_lenient_key_files(void **unused)
{
	(void)unused;
	static const char *const files[] = {
		KEY_A,
		"v1 " ID_A " " SECRET_A,
		"# comment\n\n   \n" KEY_A,
		"v1 " ID_A " " SECRET_A " \t\r\n#v1\n",
		"v1 0A1B2C3D 000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F\r\n\r\n",
	};
	struct keyring *keys = parse(KEY_A);
	struct request_state state = sample();
	struct buf token = seal(keys, &state);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct keyring *read = parse(files[i]);
		assert_int_equal(request_state_open(read, buf_span(&token), &state, NULL, NULL), 0);
		keyring_unref(read);
	}
	buf_free(&token);
	keyring_unref(keys);
}

#define FORM "a key line is `v1 <key id: 8 hex digits> <key: 64 hex digits>`"

static void refuses_faulty_key_files(void **unused)
{
	(void)unused;
	static const struct {
		struct span text;
		const char *message;
	} files[] = {
		{SPAN(""), "keys:1: no key in this file (mcp-valet keygen makes one)"},
		{{NULL, 0}, "keys:1: no key in this file (mcp-valet keygen makes one)"},
		{SPAN("# one\n\n"), "keys:2: no key in this file (mcp-valet keygen makes one)"},
		{SPAN(KEY_A "v1"), "keys:2: " FORM},
		{SPAN("v2 " ID_A " " SECRET_A), "keys:1: " FORM},
		{SPAN("\n\nv1 " ID_A "\n"), "keys:3: " FORM},
		{SPAN("v1 " ID_A " " SECRET_A "0\n"), "keys:1: " FORM},
		{SPAN("v1 " ID_A "  " SECRET_A "\n"), "keys:1: " FORM},
		{SPAN(" v1 " ID_A " " SECRET_A "\n"), "keys:1: " FORM},
		{SPAN("v1 " ID_A "-" SECRET_A "\n"), "keys:1: " FORM},
		{SPAN("v1 " ID_A " " SECRET_A "\0\n"), "keys:1: " FORM},
		{SPAN("v1 0a1b2c3g " SECRET_A "\n"), "keys:1: " FORM},
		{SPAN("v1 " ID_A " x00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"),
			"keys:1: " FORM},
		{SPAN("#\n" KEY_A KEY_B "v1 " ID_A " " SECRET_B), "keys:4: this key id was used before"},
		{SPAN(KEY_A KEY_A), "keys:2: this key id was used before"},
	};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct error error = {0};
		assert_null(keyring_parse(files[i].text, "keys", &error));
		assert_int_equal(error.code, ERROR_SYNTAX);
		assert_string_equal(error.text, files[i].message);
		assert_null(keyring_parse(files[i].text, "keys", NULL));
	}
}

static void generates_key_lines(void **unused)
{
	(void)unused;
	uint8_t next = 0;
	struct env env = counting_env(&next);
	struct buf lines = {0};
	keyring_generate(&env, &lines);
	/* The id takes the first four random bytes and the key the next 32. */
	static const char expected[] = "v1 00010203 0405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223\n";
	assert_int_equal(lines.len, strlen(expected));
	assert_memory_equal(lines.data, expected, lines.len);
	keyring_generate(&env, &lines);
	struct error error = {0};
	struct keyring *keys = keyring_parse(buf_span(&lines), "keys", &error);
	assert_non_null(keys);
	keyring_unref(keys);
	buf_free(&lines);
}

static void counts_references(void **unused)
{
	(void)unused;
	struct keyring *keys = parse(KEY_A);
	struct keyring *again = keyring_ref(keys);
	assert_ptr_equal(again, keys);
	keyring_unref(keys);
	struct request_state state = sample();
	struct buf token = seal(again, &state);
	assert_int_equal(request_state_open(again, buf_span(&token), &state, NULL, NULL), 0);
	buf_free(&token);
	keyring_unref(again);
	keyring_unref(NULL);
}

static int start_sodium(void **unused)
{
	(void)unused;
	return sodium_init() < 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_what_it_sealed),
		cmocka_unit_test(has_the_documented_format),
		cmocka_unit_test(seals_with_fresh_nonces),
		cmocka_unit_test(refuses_every_changed_byte),
		cmocka_unit_test(refuses_other_lengths),
		cmocka_unit_test(carries_a_script_of_any_length),
		cmocka_unit_test(says_why_it_refuses),
		cmocka_unit_test(opens_with_every_key_and_seals_with_the_first),
		cmocka_unit_test(reads_lenient_key_files),
		cmocka_unit_test(refuses_faulty_key_files),
		cmocka_unit_test(generates_key_lines),
		cmocka_unit_test(counts_references),
	};
	return cmocka_run_group_tests(tests, start_sodium, NULL);
}
