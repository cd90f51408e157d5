/* The status page: its charts, from a history that the test makes up. The rest is tested in a browser. */
#include "adapters/admin_page.h"
#include "adapters/page.h"

#include <sodium.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t clock_ms(void *ctx)
{
	(void)ctx;
	return 1000;
}

static void make_random(void *ctx, void *out, size_t len)
{
	(void)ctx;
	memset(out, 5, len);
}

static const struct upstream_ops no_upstream;

/* The page of an idle proxy with this history, to be freed. */
static char *page_of(const struct history *history)
{
	struct env env = {.now_ms = clock_ms, .wall_ms = clock_ms, .random = make_random};
	struct policy *policy = policy_default();
	struct keyring *keys = keyring_random(&env);
	struct proxy *proxy = proxy_new(
		&(struct proxy_config){.env = &env, .policy = policy, .keys = keys, .upstream = &no_upstream});
	struct buf out = {0};
	admin_page_write(&out, proxy, history);
	buf_add(&out, "", 1);
	assert_true(buf_ok(&out));
	proxy_free(proxy);
	policy_unref(policy);
	keyring_unref(keys);
	return out.data;
}

static unsigned count(const char *text, const char *part)
{
	unsigned found = 0;
	while ((text = strstr(text, part))) {
		found++;
		text++;
	}
	return found;
}

static void no_bars_before_the_first_minute(void **state)
{
	(void)state;
	char *page = page_of(&(struct history){.count = 1, .samples = {{.requests = 7}}});
	assert_int_equal(count(page, "<svg"), 4);
	assert_int_equal(count(page, "<rect"), 0);
	assert_non_null(strstr(page, "Requests: at most 0 in a minute"));
	free(page);
}

static void a_bar_is_what_a_minute_added(void **state)
{
	(void)state;
	struct history history = {.count = 4,
		.samples = {{.requests = 5}, {.requests = 15}, {.requests = 15}, {.requests = 20, .parked = 3}}};
	char *page = page_of(&history);
	/* Ten, nothing, five, at the right end; and the parked calls of the last minute. */
	assert_int_equal(count(page, "<rect"), 3);
	assert_non_null(strstr(page, "<rect x=\"285\" y=\"0\" width=\"4\" height=\"48\"/>"));
	assert_non_null(strstr(page, "<rect x=\"295\" y=\"24\" width=\"4\" height=\"24\"/>"));
	assert_non_null(strstr(page, "Requests: at most 10 in a minute"));
	assert_non_null(strstr(page, "Parked calls: at most 3 in a minute"));
	free(page);
}

static void an_hour_is_kept(void **state)
{
	(void)state;
	struct history history = {0};
	for (uint64_t minute = 0; minute < 200; minute++)
		history.samples[history.count++ % (HISTORY_MINUTES + 1)] =
			(struct sample){.requests = minute < 100 ? 0 : minute - 100};
	char *page = page_of(&history);
	assert_int_equal(count(page, "<rect"), HISTORY_MINUTES);
	assert_non_null(strstr(page, "Requests: at most 1 in a minute"));
	free(page);
}

static void the_policy_allows_its_style_only(void **state)
{
	(void)state;
	struct buf out = {0};
	page_write_policy(&out);
	buf_add(&out, "", 1);
	assert_ptr_equal(strstr(out.data, "default-src 'none'; style-src 'sha256-"), out.data);
	assert_null(strstr(out.data, "script-src"));
	assert_null(strstr(out.data, "unsafe"));
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_bars_before_the_first_minute),
		cmocka_unit_test(a_bar_is_what_a_minute_added),
		cmocka_unit_test(an_hour_is_kept),
		cmocka_unit_test(the_policy_allows_its_style_only),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
