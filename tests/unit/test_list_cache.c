#include "proxy/list_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t first[DIGEST_BYTES] = {1}, second[DIGEST_BYTES] = {2}, third[DIGEST_BYTES] = {3};

static void assert_kept(
	struct list_cache *cache, const uint8_t *digest, const struct policy *policy, int64_t now, const char *body)
{
	struct span kept = list_cache_find(cache, digest, policy, now);
	if (!body)
		assert_null(kept.ptr);
	else
		assert_true(kept.ptr && span_equal(kept, span_of(body)));
}

static void test_kept_until_its_time(void **state)
{
	(void)state;
	struct policy *policy = policy_default();
	struct list_cache cache = {0};
	list_cache_init(&cache);
	assert_kept(&cache, first, policy, 0, NULL);
	list_cache_keep(&cache, first, policy, SPAN("one"), 0, 100);
	list_cache_keep(&cache, second, policy, SPAN("two"), 0, 200);
	assert_kept(&cache, first, policy, 99, "one");
	assert_kept(&cache, first, policy, 100, NULL);
	assert_kept(&cache, second, policy, 100, "two");
	list_cache_keep(&cache, second, policy, SPAN("newer"), 0, 300);
	assert_kept(&cache, second, policy, 250, "newer");
	assert_int_equal(cache.bytes, 5);
	list_cache_clear(&cache);
	policy_unref(policy);
}

/* What is hidden may differ after a reload. */
static void test_of_one_policy(void **state)
{
	(void)state;
	struct policy *before = policy_default(), *after = policy_default();
	struct list_cache cache = {0};
	list_cache_init(&cache);
	list_cache_keep(&cache, first, before, SPAN("one"), 0, 100);
	assert_kept(&cache, first, after, 0, NULL);
	assert_int_equal(cache.bytes, 0);
	list_cache_clear(&cache);
	policy_unref(before);
	policy_unref(after);
}

static void test_forgotten_when_a_list_changes(void **state)
{
	(void)state;
	struct policy *policy = policy_default();
	struct list_cache cache = {0};
	list_cache_init(&cache);
	uint64_t asked_before = cache.changes;
	list_cache_keep(&cache, first, policy, SPAN("one"), asked_before, 100);
	list_cache_changed(&cache);
	assert_kept(&cache, first, policy, 0, NULL);
	list_cache_keep(&cache, first, policy, SPAN("old"), asked_before, 100);
	assert_kept(&cache, first, policy, 0, NULL);
	list_cache_keep(&cache, first, policy, SPAN("new"), cache.changes, 100);
	assert_kept(&cache, first, policy, 0, "new");
	list_cache_clear(&cache);
	policy_unref(policy);
}

static void test_bounded(void **state)
{
	(void)state;
	struct policy *policy = policy_default();
	policy->limits.cache_bytes = 10;
	struct list_cache cache = {0};
	list_cache_init(&cache);
	list_cache_keep(&cache, first, policy, SPAN("11111"), 0, 100);
	list_cache_keep(&cache, second, policy, SPAN("22222"), 0, 100);
	assert_kept(&cache, first, policy, 0, "11111");
	list_cache_keep(&cache, third, policy, SPAN("3"), 0, 100); /* the oldest makes room */
	assert_kept(&cache, first, policy, 0, NULL);
	assert_kept(&cache, second, policy, 0, "22222");
	assert_kept(&cache, third, policy, 0, "3");
	list_cache_keep(&cache, third, policy, SPAN("what does not fit"), 0, 100);
	assert_kept(&cache, third, policy, 0, NULL);
	assert_kept(&cache, second, policy, 0, "22222");
	list_cache_clear(&cache);
	assert_int_equal(cache.bytes, 0);
	policy_unref(policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept_until_its_time),
		cmocka_unit_test(test_of_one_policy),
		cmocka_unit_test(test_forgotten_when_a_list_changes),
		cmocka_unit_test(test_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
