/* A policy file of any bytes: either a policy or a fault with its place, and never a leak. */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct policy *policy = policy_parse((struct span){(const char *)data, size}, "p", NULL, &error);
	if (!policy && strncmp(error.text, "p:", 2) != 0)
		abort();
	if (policy)
		policy_rule(policy, POLICY_TOOL, "delete_everything");
	policy_unref(policy);
	return 0;
}
