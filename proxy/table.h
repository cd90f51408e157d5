/* Hash tables (uthash) with keyed SipHash, so that nobody who chooses keys can choose collisions. Every file that adds or
 * finds has a variable `proxy` in scope, whose key is used; running out of memory leaves the element out of the table
 * instead of ending the process. */
#ifndef MCP_VALET_TABLE_H
#define MCP_VALET_TABLE_H

#include <sodium.h>
#include <stdint.h>
#include <string.h>

static inline unsigned table_hash(const void *key, size_t len, const uint8_t secret[crypto_shorthash_KEYBYTES])
{
	unsigned char hash[crypto_shorthash_BYTES];
	unsigned value;
	crypto_shorthash(hash, key, len, secret);
	memcpy(&value, hash, sizeof(value));
	return value;
}

#define HASH_FUNCTION(key, len, value) ((value) = table_hash((key), (len), proxy->table_key))
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif
