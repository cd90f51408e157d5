/* Digests of JSON in canonical form (BLAKE2b-256): the same for two spellings of the same value that differ in white
 * space, key order or string escapes; different for different number spellings and for duplicate keys in another order.
 * Canonical form comes from the scanner's tokens, never from a decoded value, so no number is ever rounded. */
#ifndef MCP_VALET_DIGEST_H
#define MCP_VALET_DIGEST_H

#include "proxy/json.h"

enum { DIGEST_BYTES = 32 };

/* The digest of `label` (a domain word such as the method) and one checked JSON value, leaving out the members of the
 * outermost object whose decoded key is in `skip` (NULL-terminated list, or NULL). 0 or ERROR_MEMORY. */
int digest_json(uint8_t out[DIGEST_BYTES], const char *label, struct span value, const char *const *skip) MUST_CHECK;

#endif
