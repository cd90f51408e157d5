/* Lists that a server gave, kept for `deadlines.lists`, so that many clients that look at them do not all make the server list
 * them again. Each session has its own: what it holds is of one principal and one set of capabilities. */
#ifndef MCP_VALET_LIST_CACHE_H
#define MCP_VALET_LIST_CACHE_H

#include "policy/policy.h"
#include "proxy/bytes.h"
#include "proxy/digest.h"

#include <sys/queue.h>

struct kept_list;
TAILQ_HEAD(kept_lists, kept_list);

struct list_cache {
	struct kept_lists lists; /* the oldest first */
	size_t bytes;
	uint64_t changes; /* how often a list was said to have changed */
};

void list_cache_init(struct list_cache *cache);
/* Forgets everything. Serves as the end of the cache too. */
void list_cache_clear(struct list_cache *cache);
/* The server says that a list has changed (server/tools "List Changed Notification"): forgets everything, and lets no
 * answer in that was asked for before. */
void list_cache_changed(struct list_cache *cache);

/* The response body kept for the request with this digest, made under the same policy; empty if there is none. It is the
 * cache's, and good until the next call. */
struct span list_cache_find(
	struct list_cache *cache, const uint8_t digest[DIGEST_BYTES], const struct policy *policy, int64_t now);
/* Keeps a copy of `body` until `expires_ms`. `changes` is what cache->changes was when the server was asked. What does not
 * fit in limits.cache, or in memory, is not kept. */
void list_cache_keep(struct list_cache *cache, const uint8_t digest[DIGEST_BYTES], struct policy *policy,
	struct span body, uint64_t changes, int64_t expires_ms);

#endif
