/* Opening request states: any bytes as a token, and sealed tokens with any bytes changed. Only what was sealed here opens,
 * and it says what was sealed. */
#include "proxy/request_state.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define KEYS "v1 0a1b2c3d 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define SCRIPT "{\"answers\":[]}"

static void fixed_bytes(void *ctx, void *out, size_t len)
{
	(void)ctx;
	memset(out, 0x5A, len);
}

static struct request_state sample(void)
{
	struct request_state state = {.kind = REQUEST_STATE_RERUN, .issued_ms = 1, .expires_ms = 2, .round = 3};
	memset(state.call_id, 0xB2, sizeof(state.call_id));
	memset(state.principal, 0xC3, sizeof(state.principal));
	return state;
}

static void open_token(const struct keyring *keys, struct span token, struct span sealed)
{
	struct request_state want = sample(), state = {0};
	struct buf script = {0};
	struct error error = {0};
	int rc = request_state_open(keys, token, &state, &script, &error);
	if ((rc == 0) != span_equal(token, sealed))
		abort();
	if (rc && (rc != ERROR_REFUSED || !error.text[0] || script.len))
		abort();
	if (!rc && (state.kind != want.kind || state.expires_ms != want.expires_ms || state.round != want.round ||
			   memcmp(state.call_id, want.call_id, CALL_ID_BYTES) != 0 ||
			   memcmp(state.principal, want.principal, PRINCIPAL_BYTES) != 0 ||
			   !span_is(buf_span(&script), SCRIPT)))
		abort();
	buf_free(&script);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct env env = {.random = fixed_bytes};
	struct error error;
	struct request_state state = sample();
	struct buf token = {0};
	if (sodium_init() < 0)
		abort();
	struct keyring *keys = keyring_parse(span_of(KEYS), "keys", &error);
	if (!keys)
		abort();
	request_state_seal(keys, &env, &state, span_of(SCRIPT), &token);
	struct span sealed = buf_span(&token);
	char *any = malloc(size + 1), *changed = malloc(sealed.len);
	memcpy(any, data, size);
	memcpy(changed, sealed.ptr, sealed.len);
	open_token(keys, (struct span){any, size}, sealed);
	open_token(keys, sealed, sealed);
	/* Pairs of bytes: where, and what is there now. The last odd byte cuts the end off. */
	for (size_t i = 0; i + 1 < size; i += 2)
		changed[data[i] % sealed.len] = (char)data[i + 1];
	open_token(keys, (struct span){changed, size % 2 ? data[size - 1] % (sealed.len + 1) : sealed.len}, sealed);
	free(any);
	free(changed);
	buf_free(&token);
	keyring_unref(keys);
	return 0;
}
