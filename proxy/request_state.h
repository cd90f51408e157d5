/* The request state: the sealed claim ticket of a parked call (2026-07-28 basic/patterns/mrtr "Server Requirements" 4, 5).
 *
 *   requestState = base64url( version(1) || key id(4) || nonce(24) || XChaCha20-Poly1305( contents ) )
 *
 * version and key id are associated data. Contents, of fixed length but for the script, numbers big-endian:
 *
 *   kind(1) issued_ms(8) expires_ms(8) instance(16) call id(16) round(4) principal(32) digest(32) script
 *
 * The script, empty for a call that is only parked, is a JSON text: the questions and answers that a rerun of the call
 * starts from (rerun.h).
 *
 * The key id in the token chooses the key; keys are never tried in turn, because the cipher does not commit to its key.
 * Single use is enforced by the parked call (call id, round), not here. */
#ifndef MCP_VALET_REQUEST_STATE_H
#define MCP_VALET_REQUEST_STATE_H

#include "proxy/bytes.h"
#include "proxy/digest.h"
#include "proxy/env.h"
#include "proxy/error.h"
#include "proxy/face.h"

enum { CALL_ID_BYTES = 16, INSTANCE_BYTES = 16, CALL_HASH_CHARS = 17 };

enum request_state_kind {
	REQUEST_STATE_PARKED = 1, /* the call waits in this process */
	REQUEST_STATE_RERUN = 2,  /* the call may be run again from the script */
};

struct request_state {
	enum request_state_kind kind;
	int64_t issued_ms;  /* Unix time */
	int64_t expires_ms; /* Unix time */
	uint8_t instance[INSTANCE_BYTES];
	uint8_t call_id[CALL_ID_BYTES];
	uint32_t round;
	uint8_t principal[PRINCIPAL_BYTES];
	uint8_t digest[DIGEST_BYTES]; /* of the request that may bring it back */
};

/* Keys to seal and open with. Reference-counted; wiped when freed. */
struct keyring;

/* A keyring of one random key. NULL without memory. */
struct keyring *keyring_random(const struct env *env) MUST_CHECK;
/* Reads the text of a key file: a key a line, `v1 <key id: 8 hex digits> <key: 64 hex digits>`; empty lines and lines that
 * begin with # are skipped. The first key seals, all open. NULL with a `name:line: message` in *error. */
struct keyring *keyring_parse(struct span text, const char *name, struct error *error) MUST_CHECK;
struct keyring *keyring_ref(struct keyring *keys);
void keyring_unref(struct keyring *keys);
/* Writes a new key line, with its line end, for `mcp-valet keygen`. */
void keyring_generate(const struct env *env, struct buf *out);

/* Appends the sealed token. `script` may be empty. */
void request_state_seal(const struct keyring *keys, const struct env *env, const struct request_state *state,
	struct span script, struct buf *out);
/* Opens a token and appends its script to *script (which may be NULL). Returns 0, ERROR_MEMORY, or ERROR_REFUSED with the exact reason in *error, which is for the log only. Expiry, instance,
 * principal and digest are for the caller to judge. */
int request_state_open(const struct keyring *keys, struct span token, struct request_state *state, struct buf *script,
	struct error *error) MUST_CHECK;

/* What stands for a call in the log: its id opens nothing, but is nobody's business. */
void call_hash(const uint8_t id[CALL_ID_BYTES], char hash[CALL_HASH_CHARS]);

#endif
