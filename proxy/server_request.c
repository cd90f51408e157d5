#include "proxy/server_request.h"

#include "proxy/attribution.h"
#include "proxy/session.h"
#include "proxy/translate.h"

#include <stdio.h>
#include <stdlib.h>

enum { MIN_PATIENCE_MS = 1000 };

static void server_request_free(struct grave *grave)
{
	struct server_request *request = container_of(grave, struct server_request, grave);
	free(request->id);
	free(request->params);
	free(request->progress_token);
	free(request);
}

/* Sends one answer upstream. An answer that cannot be sent is as good as none: the session's loss will tell. */
static void send_answer(struct session *session, struct span id, struct span body)
{
	struct buf message = message_response(id, body);
	if (session_send(session, UPSTREAM_RESPONSE, 0, &message))
		session_log(session, LOG_WARNING, "answer-lost", "an answer could not be sent to the server");
}

static struct server_request *server_request_new(
	struct session *session, const struct message *message, const struct capability_need *need, uint64_t stream)
{
	struct server_request *request = calloc(1, sizeof(*request));
	struct span meta, token = {0};
	if (!request)
		return NULL;
	if (json_get(message->params, &message->index, "_meta", &meta))
		json_get(meta, NULL, "progressToken", &token);
	request->session = session;
	request->number = ++session->server_requests_ever;
	request->received_ms = proxy_now(session->proxy);
	request->need = *need;
	request->stream = stream;
	request->state = SERVER_REQUEST_HELD;
	request->id = span_dup(message->id);
	request->params = message->params.ptr ? span_dup(message->params) : NULL;
	request->progress_token = token.ptr ? span_dup(token) : NULL;
	if (!request->id || (message->params.ptr && !request->params) || (token.ptr && !request->progress_token)) {
		server_request_free(&request->grave);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&session->server_requests, request, link);
	session->server_request_count++;
	session->held_count++;
	session->proxy->counts.server_requests++;
	return request;
}

void server_request_set_state(struct server_request *request, enum server_request_state state)
{
	request->session->held_count -= request->state == SERVER_REQUEST_HELD;
	request->session->held_count += state == SERVER_REQUEST_HELD;
	request->state = state;
}

static void server_request_end(struct server_request *request)
{
	struct session *session = request->session;
	struct proxy *proxy = session->proxy;
	if (request->state == SERVER_REQUEST_ORPHAN)
		session->orphan_roots--;
	session->held_count -= request->state == SERVER_REQUEST_HELD;
	timer_cancel(&proxy->timers, &request->hold);
	TAILQ_REMOVE(&session->server_requests, request, link);
	session->server_request_count--;
	struct metrics_row *row = request->call ? request->call->row : &proxy->metrics.other;
	row->requests[request->need.kind][request->outcome]++;
	proxy->counts.server_requests--;
	proxy_bury(proxy, &request->grave, server_request_free);
}

void server_request_answer(struct server_request *request, struct span body)
{
	struct session *session = request->session;
	struct span id = span_of(request->id);
	server_request_end(request); /* buried, not freed: the id is still there */
	send_answer(session, id, body);
}

void server_request_fail_closed(struct server_request *request, const char *reason)
{
	request->outcome = SERVER_REQUEST_FAILED_CLOSED;
	if (request->call)
		call_log(request->call, LOG_DEBUG, "server-request-failed-closed", "%s", reason);
	else
		session_log(request->session, LOG_DEBUG, "server-request-failed-closed", "%s", reason);
	server_request_answer(request, span_of(translate_unanswered(request->need.kind)));
}

static bool apply_action(struct server_request *request, const struct policy_rule *rule)
{
	static const char decline[] = "\"result\":{\"action\":\"decline\"}";
	enum policy_kind kind = request->need.kind;
	struct buf body = {0};
	switch (rule->action[kind]) {
	case POLICY_FORWARD:
		return false;
	case POLICY_DENY:
		buf_add_text(&body, translate_denied(kind));
		break;
	case POLICY_DECLINE:
		buf_add_text(&body, kind == POLICY_ELICITATION ? decline : translate_denied(kind));
		break;
	case POLICY_ANSWER:
		buf_printf(&body, "\"result\":%s", rule->answer[kind]);
		break;
	default:
		buf_add_text(&body, translate_unanswered(kind));
		break;
	}
	request->outcome = rule->action[kind] == POLICY_ANSWER ? SERVER_REQUEST_BY_POLICY : SERVER_REQUEST_DENIED;
	if (buf_ok(&body))
		server_request_answer(request, buf_span(&body));
	else
		server_request_fail_closed(request, "out of memory");
	buf_free(&body);
	return true;
}

/* Since when the server may keep a call waiting for the roots; -1 if none runs. */
static int64_t waits_since(const struct server_request *request)
{
	const struct call *call;
	int64_t since = -1;
	TAILQ_FOREACH (call, &request->session->running, link)
		if (call->state == CALL_RUNNING && (since < 0 || call->entered_ms < since))
			since = call->entered_ms;
	return since < 0 || since > request->received_ms ? since : request->received_ms;
}

/* Such a call cannot ask its client for the roots, and might wait for them for ever: the server goes without them, and is
 * made to ask again before the next call. Until then it hears so at once: it may ask for every list. */
static void hurry_roots(void *arg)
{
	struct server_request *request = arg;
	struct session *session = request->session;
	struct proxy *proxy = session->proxy;
	int64_t since = waits_since(request), over_ms = since + proxy->policy->deadlines.hold_ms;
	if (since < 0)
		return;
	if (!session->roots_given_up && proxy_now(proxy) < over_ms) {
		timer_set(&proxy->timers, &request->hold, over_ms, hurry_roots, request);
		return;
	}
	session->roots_given_up = true;
	server_request_fail_closed(request, "a call that cannot ask may be waiting for the roots");
}

void server_request_orphan(struct server_request *request)
{
	const struct policy *policy = request->session->proxy->policy;
	request->call = NULL;
	timer_cancel(&request->session->proxy->timers, &request->hold);
	if (apply_action(request, &policy->defaults))
		return;
	if (request->need.kind != POLICY_ROOTS) {
		server_request_fail_closed(request, "it belongs to no call");
		return;
	}
	if (request->state != SERVER_REQUEST_ORPHAN)
		request->session->orphan_roots++;
	server_request_set_state(request, SERVER_REQUEST_ORPHAN);
	session_log(
		request->session, LOG_DEBUG, "roots-wanted", "the next call of a client with roots will ask for them");
	hurry_roots(request);
}

/* Ends the call whose server asks for what may not be asked (mrtr "Server Requirements" 7). */
static void fail_call(struct server_request *request, struct call *call)
{
	char data[128];
	snprintf(data, sizeof(data), "{\"requiredCapabilities\":%s}", capability_need_json(&request->need));
	server_request_fail_closed(request, "the client did not declare the capability");
	call_fail(call, CALL_END_REFUSED, "missing_capability", RPC_MISSING_CAPABILITY,
		"The server needs a capability that the client did not declare", data);
}

/* The request belongs to this call: what the policy and the client's capabilities make of it. */
static void give_to_call(struct server_request *request, struct call *call)
{
	enum policy_kind kind = request->need.kind;
	bool declared = capabilities_cover(&call->caps, &request->need);
	timer_cancel(&request->session->proxy->timers, &request->hold);
	request->call = call;
	observe_question(&call->row->seen, &request->need, span_of(request->params));
	if (call->rule->action[kind] == POLICY_FAIL)
		fail_call(request, call);
	else if (call->rule->asks_never)
		server_request_fail_closed(request, "the policy says that this call never asks");
	else if (!translate_url_allowed(&request->need, span_of(request->params), call->rule)) {
		call_log(call, LOG_WARNING, "url-refused",
			"the policy does not let clients go to this host (url_hosts)");
		server_request_fail_closed(request, "url_hosts");
	} else if (apply_action(request, call->rule))
		call_log(call, LOG_INFO, "server-request-policy", "answered by the policy");
	else if (declared)
		call_on_server_request(call, request);
	else if (call->rule->undeclared == POLICY_UNDECLARED_REFUSE)
		server_request_fail_closed(request, "the client did not declare the capability");
	else
		fail_call(request, call);
}

static void on_hold_over(void *arg)
{
	struct server_request *request = arg;
	request->session->proxy->metrics.ambiguous++;
	session_log(request->session, LOG_WARNING, "ambiguous",
		"several calls may have asked this: refused. The policy settings pool, asks: never and overlap: never "
		"avoid it");
	server_request_fail_closed(request, "ambiguous");
}

static void dispatch(struct server_request *request)
{
	struct session *session = request->session;
	struct proxy *proxy = session->proxy;
	struct call *call;
	switch (attribute(request, &call)) {
	case ATTRIBUTED:
		give_to_call(request, call);
		break;
	case ATTRIBUTION_NONE:
		server_request_orphan(request);
		break;
	case ATTRIBUTION_UNSURE:
		if (!request->hold.armed) {
			proxy->metrics.held++;
			timer_set(&proxy->timers, &request->hold, proxy_now(proxy) + proxy->policy->deadlines.hold_ms,
				on_hold_over, request);
		}
		break;
	case ATTRIBUTION_HOPELESS:
		on_hold_over(request);
		break;
	}
}

static struct server_request *find(struct session *session, struct span id)
{
	struct server_request *request;
	TAILQ_FOREACH (request, &session->server_requests, link)
		if (json_same(id, span_of(request->id)))
			return request;
	return NULL;
}

void server_request_receive(struct session *session, const struct message *message, uint64_t stream)
{
	struct proxy *proxy = session->proxy;
	struct capability_need need;
	if (!translate_need(message->method, message->params, &need)) {
		send_answer(session, message->id, SPAN("\"error\":{\"code\":-32601,\"message\":\"Method not found\"}"));
		return;
	}
	if (find(session, message->id)) {
		session_warn(session, "bad-message", "the server uses the id of an open request again");
		return;
	}
	struct server_request *request = NULL;
	if (session->server_request_count < proxy->policy->limits.server_requests)
		request = server_request_new(session, message, &need, stream);
	if (!request) {
		session_warn(session, "server-request-failed-closed",
			"too many open server requests (limits.server_requests), or out of memory");
		proxy->metrics.other.requests[need.kind][SERVER_REQUEST_FAILED_CLOSED]++;
		send_answer(session, message->id, span_of(translate_unanswered(need.kind)));
		return;
	}
	if (!stream && proxy->upstream->has_streams && !session->no_streams && need.kind != POLICY_ROOTS &&
		!proxy->serial) {
		proxy->serial = true;
		session_log(session, LOG_INFO, "attribution-serial",
			"the server asks outside the streams of its calls: one call runs at a time from now on");
	}
	dispatch(request);
}

/* The server gave up waiting: how long that took bounds how long later calls are parked. */
static void learn_patience(const struct server_request *request)
{
	struct session *session = request->session;
	struct proxy *proxy = session->proxy;
	int64_t age_ms = proxy_now(proxy) - request->received_ms;
	/* What is given up at once is withdrawn for another reason. Roots are often asked beside a call that then ends by
	 * itself. */
	if (request->need.kind == POLICY_ROOTS || age_ms < MIN_PATIENCE_MS ||
		(proxy->patience_ms && proxy->patience_ms <= age_ms))
		return;
	proxy->patience_ms = age_ms;
	session_log(session, LOG_WARNING, "server-impatient",
		"the server waits only %lld.%lld s for an answer: people may need longer. Raise its own limit for "
		"requests to "
		"the client (TypeScript and Kotlin SDK: timeout, 60 s; Java SDK: requestTimeout, 10 s; Spring AI: "
		"spring.ai.mcp.server.request-timeout, 20 s), or let lost calls run again (rerun: if-lost)",
		(long long)(age_ms / 1000), (long long)(age_ms % 1000 / 100));
}

void server_request_withdraw(struct session *session, struct span id)
{
	struct server_request *request = find(session, id);
	if (!request)
		return;
	learn_patience(request);
	struct call *call = request->state == SERVER_REQUEST_ASSIGNED ? request->call : NULL;
	if (request->state == SERVER_REQUEST_ORPHAN)
		session->roots_given_up = true;
	if (call)
		call_on_withdrawn(call, request);
	request->outcome = SERVER_REQUEST_WITHDRAWN;
	server_request_end(request);
}

void server_requests_reconsider(struct session *session)
{
	struct server_request *request = TAILQ_FIRST(&session->server_requests);
	while (request && session->held_count) {
		struct server_request *next = TAILQ_NEXT(request, link);
		struct call *call;
		if (request->state == SERVER_REQUEST_HELD && attribute(request, &call) != ATTRIBUTION_UNSURE) {
			dispatch(request);
			/* The list may have changed under us. */
			next = TAILQ_FIRST(&session->server_requests);
		}
		request = next;
	}
}

void server_requests_hurry_roots(struct session *session)
{
	struct server_request *request = TAILQ_FIRST(&session->server_requests);
	while (request && session->orphan_roots) {
		struct server_request *next = TAILQ_NEXT(request, link);
		if (request->state == SERVER_REQUEST_ORPHAN && !request->hold.armed)
			hurry_roots(request);
		request = next;
	}
}

void server_requests_answer_roots(struct session *session, struct span body)
{
	struct server_request *request = TAILQ_FIRST(&session->server_requests);
	while (request) {
		struct server_request *next = TAILQ_NEXT(request, link);
		if (request->state == SERVER_REQUEST_ORPHAN)
			server_request_answer(request, body);
		request = next;
	}
	session_settle(session);
}

void server_requests_drop(struct session *session)
{
	struct server_request *request;
	while ((request = TAILQ_FIRST(&session->server_requests))) {
		if (request->state == SERVER_REQUEST_ASSIGNED)
			call_on_withdrawn(request->call, request);
		if (session->upstream) {
			server_request_fail_closed(request, "the session ends");
		} else {
			request->outcome = SERVER_REQUEST_LOST;
			server_request_end(request);
		}
	}
}
