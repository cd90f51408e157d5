/* URL elicitation required (2025-11-25 client/elicitation "URL Elicitation Required Error"): the server has ended its
 * request with -32042 and names URLs. They become a round; when all are accepted, the call runs again. */
#include "proxy/call.h"
#include "proxy/client_task.h"
#include "proxy/session.h"
#include "proxy/translate.h"

#include <stdlib.h>

enum { MAX_URLS = 64 };

static bool add_url(struct call *call, struct span elicitation)
{
	static const struct capability_need need = {.kind = POLICY_ELICITATION, .url = true};
	struct span id;
	observe_question(&call->row->seen, &need, elicitation);
	if (!translate_url_allowed(&need, elicitation, call->rule)) {
		call_log(call, LOG_WARNING, "url-refused",
			"the policy does not let clients go to this host (url_hosts)");
		return false;
	}
	struct input *input = call_add_input(call, &need, NULL);
	if (!input)
		return false;
	buf_free(&input->entry);
	translate_server_request(&need, elicitation, &input->entry);
	if (json_get(elicitation, NULL, "elicitationId", &id))
		input->elicitation_id = span_dup(id);
	return buf_ok(&input->entry);
}

static bool add_urls(struct call *call, struct span error)
{
	struct span data, list, element;
	unsigned count = 0;
	if (!json_get(error, NULL, "data", &data) || !json_get(data, NULL, "elicitations", &list))
		return false;
	struct json_walk walk = json_walk(list, NULL);
	while (json_next_element(&walk, &element))
		if (json_type(element) != JSON_OBJECT || ++count > MAX_URLS || !add_url(call, element))
			return false;
	return count > 0;
}

void call_require_urls(struct call *call, struct span error)
{
	struct proxy *proxy = call->proxy;
	struct session *session = call->session;
	call_leave(call);
	proxy->upstream->forget(session->upstream, call->upstream_id);
	call_drop_inputs(call, true);
	if (call->rule->asks_never || call->rule->action[POLICY_ELICITATION] != POLICY_FORWARD) {
		call_fail(call, CALL_END_REFUSED, "declined", RPC_INTERNAL_ERROR,
			"The server requires a URL elicitation, which the policy does not pass on", NULL);
	} else if (!call->caps.elicitation_url) {
		call_fail(call, CALL_END_REFUSED, "missing_capability", RPC_MISSING_CAPABILITY,
			"The server needs a capability that the client did not declare",
			"{\"requiredCapabilities\":{\"elicitation\":{\"url\":{}}}}");
	} else if (!add_urls(call, error)) {
		call_fail(call, CALL_END_REFUSED, "bad_server", RPC_INTERNAL_ERROR,
			"The server requires URL elicitations that it does not name, or that the policy does not allow",
			NULL);
	} else {
		call->reissue = true;
		/* A client that is away holds the state of the round before: its retry makes the new round. That of a task
		 * polls. */
		if (!TAILQ_EMPTY(&call->waiters) || client_task_is(call))
			call_park(call);
	}
}

void call_on_elicitation_complete(struct call *call, struct span elicitation_id)
{
	struct input *input;
	bool pending = false;
	TAILQ_FOREACH (input, &call->inputs, link) {
		input->completed |= input->elicitation_id && span_is(elicitation_id, input->elicitation_id);
		pending |= !input->completed;
	}
	if (!pending)
		call->not_before_ms = 0;
}

/* The first answer that is missing, or is no acceptance. */
static bool all_accepted(const struct call *call, bool *missing)
{
	struct input *input;
	struct span action;
	bool accepted = true;
	*missing = false;
	TAILQ_FOREACH (input, &call->inputs, link) {
		*missing |= input->answer.len == 0;
		accepted &= input->answer.len && json_get(buf_span(&input->answer), NULL, "action", &action) &&
			    json_string_is(action, "accept");
	}
	return accepted;
}

static void end_declined(struct call *call)
{
	struct buf body = {0};
	if (call->method->id == METHOD_TOOLS_CALL)
		result_complete(&body, call->method,
			SPAN("{\"content\":[{\"type\":\"text\",\"text\":\"The user did not go to the URL that the "
			     "server "
			     "requires\"}],\"isError\":true}"),
			NULL, &call->session->identity, call->policy, call->rule, true);
	else
		message_add_error(&body, RPC_INTERNAL_ERROR, "The user did not go to the URL that the server requires",
			"{\"reason\":\"declined\"}");
	call_end(call, CALL_END_REFUSED, "declined", &body);
}

void call_reissue(struct call *call, const struct request *request)
{
	struct session *session = call->session;
	struct input *input;
	bool missing;
	if (!all_accepted(call, &missing)) {
		if (missing)
			call_park(call);
		else
			end_declined(call);
		return;
	}
	call->reissue = false;
	call->as_task = false;
	free(call->task_id);
	call->task_id = NULL;
	call->upstream_id = session->next_id++;
	call->last_progress = 0;
	call->has_progress = false;
	buf_free(&call->progress); /* of the run before, which would not increase any more */
	buf_free(&call->request);
	translate_request(call->method, request->params, request->index, call->upstream_id, &call->request);
	bool pending = false;
	TAILQ_FOREACH (input, &call->inputs, link)
		pending |= input->elicitation_id && !input->completed;
	if (pending)
		call->not_before_ms = proxy_now(call->proxy) + call->policy->deadlines.url_wait_ms;
	call_set_state(call, CALL_WAITING);
	if (buf_ok(&call->request))
		session_pump(session);
	else
		call_fail(call, CALL_END_REFUSED, "memory", RPC_INTERNAL_ERROR, "Out of memory", NULL);
}
