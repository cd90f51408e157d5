/* Allocation failure while a policy file is read: it is read as a whole, or not at all, and says so. Each allocation of ours
 * fails once, then it and all that follow. */
#include "policy/policy.h"
#include "tests/unit/failing_heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char text[] =
	"version: 1\n"
	"principal: header:X-User\n"
	"origins: [https://a.example, https://b.example]\n"
	"limits: { message: 1MiB, parked: 5 }\n"
	"deadlines: { gather: 5ms }\n"
	"upstream: { forward_headers: [x-a, x-b], ca_file: /x, overlap: never, cross_origin: true }\n"
	"defaults:\n"
	"  park: 1m\n"
	"  elicitation: { answer: { action: accept, content: { \"a\\tb\": [1, true, null, \"x\"] } } }\n"
	"  input_keys: [a, b]\n"
	"  cache: { ttl: 1s, scope: public }\n"
	"rules:\n"
	"  - match: { tool: [\"get_*\", b], prompt: p }\n"
	"    url_hosts: [x.example]\n"
	"  - match: { tool: secret }\n"
	"    hide: true\n"
	"  - match: { resource: \"db://*\" }\n"
	"    sampling: { answer: { role: user, model: m, content: { type: text, text: t } } }\n"
	"    roots: deny\n";

/* How the policy is told to an operator, for three names. */
static void describe(const struct policy *policy, char *out, size_t size)
{
	FILE *file = fmemopen(out, size, "w");
	policy_explain(policy, POLICY_TOOL, "get_x", file);
	policy_explain(policy, POLICY_RESOURCE, "db://x", file);
	policy_explain(policy, POLICY_PROMPT, "other", file);
	fclose(file);
}

/* Returns how many allocations the run made. `right` is what a policy that is complete tells, or empty: to be filled. */
static size_t run(size_t fail_at, size_t fail_until, char right[8192])
{
	char told[8192] = "";
	struct error error = {0};
	heap.count = 0;
	heap.live = 0;
	heap.fail_at = fail_at;
	heap.fail_until = fail_until;
	struct policy *policy = policy_parse(span_of(text), "p", NULL, &error);
	heap.fail_at = 0;
	if (policy) {
		describe(policy, right[0] ? told : right, sizeof(told));
		if (told[0])
			assert_string_equal(told, right);
		assert_string_equal(policy->principal_header, "x-user");
		assert_int_equal(policy->origin_count, 2);
		assert_int_equal(policy->upstream.forward_header_count, 2);
	} else {
		assert_true(fail_at != 0);
		assert_true(error.text[0] != '\0');
	}
	policy_unref(policy);
	assert_int_equal(heap.live, 0);
	return heap.count;
}

static void all_or_nothing(void **state)
{
	(void)state;
	char right[8192] = "";
	size_t count = run(0, 0, right);
	assert_in_range(count, 50, 10000);
	assert_non_null(strstr(right, "url_hosts: "));
	for (size_t n = 1; n <= count; n++) {
		run(n, n, right);
		run(n, SIZE_MAX, right);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_or_nothing)};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
