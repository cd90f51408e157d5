/* What each principal holds: places of parked calls, and outcomes that are kept for it. One that keeps too much pushes out
 * its own, never another's. */
#include "proxy/client_task.h"
#include "proxy/session.h"

#include <stdlib.h>

struct account {
	UT_hash_handle hh;
	uint8_t principal[PRINCIPAL_BYTES];
	unsigned parked;
	size_t kept[KEPT_MEASURES];
};

static struct account *find(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES])
{
	struct account *account = NULL;
	HASH_FIND(hh, proxy->accounts, principal, PRINCIPAL_BYTES, account);
	return account;
}

static struct account *find_or_make(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES])
{
	struct account *account = find(proxy, principal);
	if (account || !(account = calloc(1, sizeof(*account))))
		return account;
	memcpy(account->principal, principal, PRINCIPAL_BYTES);
	HASH_ADD(hh, proxy->accounts, principal, PRINCIPAL_BYTES, account);
	if (account->hh.tbl)
		return account;
	free(account);
	return NULL;
}

static void free_unused(struct proxy *proxy, struct account *account)
{
	if (account->parked || account->kept[KEPT_COUNT])
		return;
	HASH_DELETE(hh, proxy->accounts, account);
	free(account);
}

bool proxy_account_park(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES], struct error *error)
{
	const struct policy_limits *limits = &proxy->policy->limits;
	struct account *account = find(proxy, principal);
	if (proxy->places >= limits->parked) {
		error_set(error, ERROR_LIMIT, "Too many calls wait for their clients (limits.parked)");
		return false;
	}
	if (account && account->parked >= limits->parked_per_principal) {
		error_set(error, ERROR_LIMIT,
			"Too many of this client's calls wait for it (limits.parked_per_principal)");
		return false;
	}
	if (!account && !(account = find_or_make(proxy, principal))) {
		error_set(error, ERROR_MEMORY, "Out of memory");
		return false;
	}
	account->parked++;
	proxy->places++;
	return true;
}

void proxy_account_unpark(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES])
{
	struct account *account = find(proxy, principal);
	proxy->places--;
	account->parked--;
	free_unused(proxy, account);
}

/* Kept outcomes. */

static void count_kept(struct call *call, struct account *account, bool add)
{
	const size_t change[KEPT_MEASURES] = {[KEPT_COUNT] = 1, [KEPT_BYTES] = call->kept_bytes};
	for (int i = 0; i < KEPT_MEASURES; i++) {
		account->kept[i] += add ? change[i] : -change[i];
		call->proxy->kept_sums[i] += add ? change[i] : -change[i];
	}
}

bool proxy_account_keep(struct call *call)
{
	struct account *account = find_or_make(call->proxy, call->principal);
	if (!account)
		return false;
	buf_trim(&call->outcome);
	call->kept_bytes = sizeof(*call) + call->outcome.cap;
	if (client_task_is(call)) /* with what the server says of itself */
		call->kept_bytes += sizeof(*call->client_task) + strlen(call->client_task->server_info);
	count_kept(call, account, true);
	return true;
}

void proxy_account_unkeep(struct call *call)
{
	if (!call->kept_bytes)
		return;
	struct account *account = find(call->proxy, call->principal);
	count_kept(call, account, false);
	call->kept_bytes = 0;
	free_unused(call->proxy, account);
}

static void forget_until(struct proxy *proxy, const uint8_t principal[PRINCIPAL_BYTES], enum kept_measure measure,
	size_t limit, bool told)
{
	struct call *call = TAILQ_FIRST(&proxy->kept);
	while (call && proxy->kept_sums[measure] > limit) {
		struct call *next = TAILQ_NEXT(call, link);
		if (call->delivered >= told && memcmp(call->principal, principal, PRINCIPAL_BYTES) == 0)
			call_set_state(call, CALL_DEAD);
		call = next;
	}
}

/* The newest outcome is of a principal that keeps no less than it, so one principal's are enough to make room for it. */
static void trim(struct proxy *proxy, enum kept_measure measure, size_t limit)
{
	struct account *account, *next, *most = NULL;
	uint8_t principal[PRINCIPAL_BYTES];
	if (proxy->kept_sums[measure] <= limit)
		return;
	HASH_ITER (hh, proxy->accounts, account, next)
		if (!most || account->kept[measure] > most->kept[measure])
			most = account;
	memcpy(principal, most->principal, sizeof(principal)); /* it goes with its last outcome */
	forget_until(proxy, principal, measure, limit, true);
	forget_until(proxy, principal, measure, limit, false);
}

void proxy_account_trim(struct proxy *proxy)
{
	trim(proxy, KEPT_COUNT, proxy->policy->limits.kept);
	trim(proxy, KEPT_BYTES, proxy->policy->limits.kept_bytes);
}
