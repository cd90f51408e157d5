#include "proxy/attribution.h"

#include "proxy/task.h"

/* Whether the call may be the one that asks. A call that cannot ask is still a suspect for what its client never
 * declared: a server that asks regardless must end its call. */
static bool is_suspect(const struct call *call, bool declared)
{
	return call->sent && call->method->may_ask && (call_may_ask(call) || !declared);
}

static unsigned count_suspects(const struct call_list *list, bool declared, struct call **last)
{
	unsigned count = 0;
	struct call *call;
	TAILQ_FOREACH (call, list, link) {
		if (!is_suspect(call, declared))
			continue;
		count++;
		*last = call;
	}
	return count;
}

static enum attribution attribute_by_stream(const struct server_request *request, struct call **call)
{
	const struct proxy *proxy = request->session->proxy;
	HASH_FIND(by_upstream, request->session->requests, &request->stream, sizeof(request->stream), *call);
	if (!*call || !(*call)->method->may_ask)
		return ATTRIBUTION_NONE;
	return (*call)->state == CALL_ENDING ? ATTRIBUTION_HOPELESS : ATTRIBUTED;
}

static struct span request_meta(const struct server_request *request)
{
	struct span meta = {0};
	json_get(span_of(request->params), NULL, "_meta", &meta);
	return meta;
}

enum attribution attribute(const struct server_request *request, struct call **call)
{
	struct session *session = request->session;
	bool declared = capabilities_cover(&session->caps, &request->need);
	struct call *ending = NULL;
	*call = task_find_call(session, request_meta(request));
	if (*call)
		return ATTRIBUTED;
	if (request->stream)
		return attribute_by_stream(request, call);

	unsigned running = count_suspects(&session->running, declared, call);
	unsigned over = count_suspects(&session->ending, declared, &ending);
	if (running + over > 1)
		return running ? ATTRIBUTION_UNSURE : ATTRIBUTION_HOPELESS;
	if (running == 1)
		return ATTRIBUTED;
	if (over == 1)
		return ATTRIBUTION_HOPELESS;

	/* Nothing runs: a parked call may ask something more, if there is only one. */
	unsigned parked =
		count_suspects(&session->parked, declared, call) + count_suspects(&session->resuming, declared, call);
	return parked == 0 ? ATTRIBUTION_NONE : parked == 1 ? ATTRIBUTED : ATTRIBUTION_HOPELESS;
}
