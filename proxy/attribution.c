#include "proxy/attribution.h"

#include "proxy/task.h"

/* Whether the call may be the one that asks. The server knows what the session declared, not what the client's newest retry
 * declares. A call that never asks is still a suspect for what was not declared: a server that asks regardless must end
 * its call. */
static bool is_suspect(const struct call *call, bool declared)
{
	return call->sent && call->method->may_ask && (!call->rule->asks_never || !declared);
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

/* Calls that wait for their client and may have asked all the same: those that ran when the request came, and those whose
 * server took all its questions back and works at them again. */
static unsigned count_waiting_suspects(
	const struct server_request *request, const struct call_list *list, bool declared, struct call **last)
{
	unsigned count = 0;
	struct call *call;
	TAILQ_FOREACH (call, list, link) {
		bool ran = request->number <= call->parked_after;
		if (!is_suspect(call, declared) || !(ran || TAILQ_EMPTY(&call->inputs)))
			continue;
		count++;
		*last = call;
	}
	return count;
}

static enum attribution attribute_by_stream(const struct server_request *request, struct call **call)
{
	*call = session_find_call(request->session, request->stream);
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
	const struct call *other;
	*call = task_find_call(session, request_meta(request));
	if (*call)
		return (*call)->state == CALL_ENDING ? ATTRIBUTION_HOPELESS : ATTRIBUTED;
	if (request->stream)
		return attribute_by_stream(request, call);

	/* What a cancelled call may have asked stays in doubt: it may end without a word. An abandoned one is expected to
	 * answer, and then it is out of question. */
	unsigned ending = 0;
	TAILQ_FOREACH (other, &session->ending, link) {
		if (is_suspect(other, declared) && other->cancel_sent)
			return ATTRIBUTION_HOPELESS;
		ending += is_suspect(other, declared);
	}
	unsigned running = count_suspects(&session->running, declared, call);
	running += count_waiting_suspects(request, &session->parked, declared, call);
	running += count_waiting_suspects(request, &session->resuming, declared, call);
	if (running + ending > 1)
		return running ? ATTRIBUTION_UNSURE : ATTRIBUTION_HOPELESS;
	if (running == 1)
		return ATTRIBUTED;
	if (ending == 1)
		return ATTRIBUTION_HOPELESS;

	/* Nothing runs: a parked call may ask something more, if there is only one. */
	unsigned parked =
		count_suspects(&session->parked, declared, call) + count_suspects(&session->resuming, declared, call);
	return parked == 0 ? ATTRIBUTION_NONE : parked == 1 ? ATTRIBUTED : ATTRIBUTION_HOPELESS;
}
