#include "proxy/list_cache.h"

#include <stdlib.h>
#include <string.h>

struct kept_list {
	TAILQ_ENTRY(kept_list) link;
	uint8_t digest[DIGEST_BYTES];
	struct policy *policy; /* a reference: what is hidden differs from policy to policy */
	int64_t expires_ms;
	struct buf body;
};

void list_cache_init(struct list_cache *cache)
{
	TAILQ_INIT(&cache->lists);
}

static void drop(struct list_cache *cache, struct kept_list *list)
{
	TAILQ_REMOVE(&cache->lists, list, link);
	cache->bytes -= list->body.len;
	buf_free(&list->body);
	policy_unref(list->policy);
	free(list);
}

void list_cache_clear(struct list_cache *cache)
{
	struct kept_list *list;
	while ((list = TAILQ_FIRST(&cache->lists)))
		drop(cache, list);
}

void list_cache_changed(struct list_cache *cache)
{
	cache->changes++;
	list_cache_clear(cache);
}

static struct kept_list *find(struct list_cache *cache, const uint8_t digest[DIGEST_BYTES])
{
	struct kept_list *list;
	TAILQ_FOREACH (list, &cache->lists, link)
		if (memcmp(list->digest, digest, DIGEST_BYTES) == 0)
			return list;
	return NULL;
}

struct span list_cache_find(
	struct list_cache *cache, const uint8_t digest[DIGEST_BYTES], const struct policy *policy, int64_t now)
{
	struct kept_list *list = find(cache, digest);
	if (!list)
		return (struct span){0};
	if (list->policy == policy && now < list->expires_ms)
		return (struct span){list->body.data, list->body.len};
	drop(cache, list);
	return (struct span){0};
}

void list_cache_keep(struct list_cache *cache, const uint8_t digest[DIGEST_BYTES], struct policy *policy,
	struct span body, uint64_t changes, int64_t expires_ms)
{
	struct kept_list *list = find(cache, digest);
	if (list)
		drop(cache, list);
	if (changes != cache->changes || body.len > policy->limits.cache_bytes)
		return;
	while (cache->bytes > policy->limits.cache_bytes - body.len)
		drop(cache, TAILQ_FIRST(&cache->lists));
	list = calloc(1, sizeof(*list));
	if (!list)
		return;
	buf_add_span(&list->body, body);
	if (!buf_ok(&list->body)) {
		buf_free(&list->body);
		free(list);
		return;
	}
	memcpy(list->digest, digest, DIGEST_BYTES);
	list->policy = policy_ref(policy);
	list->expires_ms = expires_ms;
	cache->bytes += body.len;
	TAILQ_INSERT_TAIL(&cache->lists, list, link);
}
