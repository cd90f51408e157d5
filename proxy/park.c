/* Parking: what the server asks becomes a round of the client's, and the call waits under a sealed request state. */
#include "proxy/answer_schema.h"
#include "proxy/call.h"
#include "proxy/client_task.h"
#include "proxy/json_write.h"
#include "proxy/rerun.h"
#include "proxy/session.h"
#include "proxy/translate.h"

#include <stdio.h>
#include <stdlib.h>

/* Whether the policy's name for the newest question can be no other's. */
static bool is_named(const struct call *call)
{
	const struct policy_rule *rule = call->rule;
	if (call->questions > rule->input_key_count)
		return false;
	const char *name = rule->input_keys[call->questions - 1];
	for (size_t i = 0; i + 1 < call->questions; i++)
		if (strcmp(rule->input_keys[i], name) == 0)
			return false;
	return strncmp(name, "input-", 6) != 0;
}

/* The policy may name the questions; otherwise they are numbered over all rounds. No name comes twice. */
static char *make_key(const struct call *call)
{
	char key[24];
	if (is_named(call))
		return span_dup(span_of(call->rule->input_keys[call->questions - 1]));
	snprintf(key, sizeof(key), "input-%u", call->asked_before + call->questions - call->replayed);
	return span_dup(span_of(key));
}

struct input *call_add_input(struct call *call, const struct capability_need *need, struct server_request *request)
{
	struct input *input = calloc(1, sizeof(*input));
	if (!input)
		return NULL;
	call->questions++;
	input->kind = need->kind;
	input->need = *need;
	input->request = request;
	input->key = make_key(call);
	translate_server_request(need, span_of(request ? request->params : NULL), &input->entry);
	TAILQ_INSERT_TAIL(&call->inputs, input, link);
	if (!input->key || !buf_ok(&input->entry)) {
		call_remove_input(call, input);
		return NULL;
	}
	buf_trim(&input->entry);
	if (request) { /* what it asks is in the entry now */
		free(request->params);
		request->params = NULL;
	}
	return input;
}

void call_remove_input(struct call *call, struct input *input)
{
	TAILQ_REMOVE(&call->inputs, input, link);
	free(input->key);
	free(input->elicitation_id);
	buf_free(&input->entry);
	if (input->answer.data)
		sodium_memzero(input->answer.data, input->answer.cap);
	buf_free(&input->answer);
	free(input);
}

void call_drop_inputs(struct call *call, bool answered)
{
	struct input *input;
	while ((input = TAILQ_FIRST(&call->inputs))) {
		struct server_request *request = input->request;
		call_remove_input(call, input);
		if (request && answered && request->need.kind == POLICY_ROOTS)
			server_request_orphan(request);
		else if (request)
			server_request_fail_closed(request, "the call ended");
	}
}

void call_write_inputs(struct call *call, struct buf *out)
{
	struct input *input;
	buf_add_text(out, "{");
	TAILQ_FOREACH (input, &call->inputs, link) {
		if (input->answer.len)
			continue; /* kept from a retry that lacked others */
		json_add_separator(out);
		buf_add_json_string(out, span_of(input->key));
		buf_add_text(out, ":");
		buf_add_span(out, buf_span(&input->entry));
	}
	buf_add_text(out, "}");
}

/* Writes the InputRequiredResult (basic/patterns/mrtr). */
static void write_round(struct call *call, struct buf *body)
{
	buf_add_text(body, "\"result\":{\"resultType\":\"input_required\",\"inputRequests\":");
	call_write_inputs(call, body);
	buf_add_text(body, ",\"requestState\":\"");
}

static bool write_state(struct call *call, int64_t park_ms, struct buf *body)
{
	struct buf script = {0};
	const struct env *env = call->proxy->env;
	int64_t wall_ms = env->wall_ms(env->ctx);
	struct request_state state = {
		.kind = rerun_allowed(call) ? REQUEST_STATE_RERUN : REQUEST_STATE_PARKED,
		.issued_ms = wall_ms,
		.expires_ms = wall_ms + park_ms,
		.round = call->round,
	};
	memcpy(state.instance, call->proxy->instance, sizeof(state.instance));
	memcpy(state.call_id, call->id, sizeof(state.call_id));
	memcpy(state.principal, call->principal, sizeof(state.principal));
	memcpy(state.digest, call->digest, sizeof(state.digest));
	if (rerun_allowed(call))
		rerun_write_script(call, &script);
	bool fits = script.len <= call->policy->limits.state_bytes;
	body->failed |= script.failed;
	request_state_seal(call->proxy->keys, env, &state, buf_span(&script), body);
	if (script.data)
		sodium_memzero(script.data, script.cap);
	buf_free(&script);
	buf_printf(body, "\",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":%s}}", call->session->identity.info);
	return fits;
}

bool call_issue_ticket(struct call *call)
{
	struct proxy *proxy = call->proxy;
	if (call->ticketed)
		return true;
	HASH_ADD(by_ticket, proxy->tickets, id, sizeof(call->id), call);
	call->ticketed = call->by_ticket.tbl != NULL;
	return call->ticketed;
}

bool call_take_ticket(struct call *call, struct call *lost)
{
	HASH_DELETE(by_ticket, lost->proxy->tickets, lost);
	lost->ticketed = false;
	memcpy(call->id, lost->id, sizeof(call->id));
	call_hash(call->id, call->hash);
	call->used_round = call->round;
	memcpy(call->used_answers, lost->used_answers, sizeof(call->used_answers));
	return call_issue_ticket(call);
}

static bool reserve_place(struct call *call, struct error *error)
{
	if (!call->counted_parked && proxy_account_park(call->proxy, call->principal, error))
		call->counted_parked = true;
	return call->counted_parked;
}

/* The policy's time, or what the server is known to wait for its own requests, and a little less: then it still gets an
 * answer, and the call ends by itself. */
static int64_t park_time(const struct call *call)
{
	int64_t patience_ms = call->proxy->patience_ms * 9 / 10;
	return patience_ms && patience_ms < call->rule->park_ms ? patience_ms : call->rule->park_ms;
}

static void count_asked(struct call *call)
{
	struct input *input;
	TAILQ_FOREACH (input, &call->inputs, link) {
		call->row->forwarded[input->kind] += !input->asked;
		input->asked = true;
	}
}

static void count_round(struct call *call)
{
	call->row->rounds++;
	if (call->round > call->row->seen.most_rounds)
		call->row->seen.most_rounds = call->round;
	count_asked(call);
}

static void enter_parked(struct call *call, int64_t park_ms)
{
	struct session *session = call->session;
	call->delivered = false;
	call->parked_after = session->server_requests_ever;
	call->proxy->metrics.parked += !call->was_parked;
	call->was_parked = true;
	call_set_state(call, CALL_PARKED);
	call_log(call, LOG_INFO, "call-parked", "round %u, for %lld s", call->round, (long long)(park_ms / 1000));
	session_touch_keepalive(session);
	call_deliver(call, 200);
	server_requests_reconsider(session);
	session_pump(session);
}

void call_park(struct call *call)
{
	struct buf body = {0};
	struct error error = {0};
	if (call->proxy->shutting_down) {
		call_fail(call, CALL_END_REFUSED, "shutdown", RPC_INTERNAL_ERROR, "The proxy is shutting down", NULL);
		return;
	}
	if (call->round >= call->rule->rounds) {
		call_fail(call, CALL_END_REFUSED, "rounds", RPC_INTERNAL_ERROR,
			"The server asks more often than the policy allows (rounds)", NULL);
		return;
	}
	if (call->rule->rerun != POLICY_RERUN_ALWAYS && !reserve_place(call, &error)) {
		call_fail(call, CALL_END_REFUSED, "too_many_parked", RPC_INTERNAL_ERROR, error.text, NULL);
		return;
	}
	call->round++;
	int64_t park_ms = park_time(call);
	call->expires_ms = proxy_now(call->proxy) + park_ms;
	call->keep_ms = park_ms < call->rule->park_ms ? proxy_now(call->proxy) + call->rule->park_ms : 0;
	if (client_task_is(call)) {
		/* Its client polls; what the server makes of it that nobody came is told afterwards. */
		call->keep_ms = call->expires_ms + call->rule->park_ms;
		count_round(call);
		enter_parked(call, park_ms);
		return;
	}
	write_round(call, &body);
	if (!write_state(call, park_ms, &body)) {
		buf_free(&body);
		call_fail(call, CALL_END_REFUSED, "state_too_large", RPC_INTERNAL_ERROR,
			"The answers so far do not fit into a request state (limits.state)", NULL);
		return;
	}
	count_round(call);
	if (call->rule->rerun == POLICY_RERUN_ALWAYS && buf_ok(&body)) {
		/* Nothing is kept: the retry runs the call again, here or in another process with the same keys. */
		call_end(call, CALL_END_REFUSED, "rerun", &body);
		return;
	}
	if (!buf_ok(&body) || !call_issue_ticket(call)) {
		buf_free(&body);
		call_fail(call, CALL_END_REFUSED, "memory", RPC_INTERNAL_ERROR, "Out of memory", NULL);
		return;
	}
	buf_free(&call->outcome);
	call->outcome = body;
	buf_trim(&call->outcome);
	enter_parked(call, park_ms);
}

/* The answer to a question that need not be asked: the run before this one brought it, or the fresh call did for a
 * question that the policy names. Each is used once. */
static bool find_answer(struct call *call, const struct input *input, struct span *answer)
{
	struct error error;
	if (rerun_find_answer(call, input, answer)) {
		call->replayed++;
		return true;
	}
	return call->pre_answers.len && call->questions <= call->rule->input_key_count &&
	       json_get(buf_span(&call->pre_answers), NULL, input->key, answer) == 1 &&
	       translate_check_answer(input->kind, *answer, &error) == 0 &&
	       (!call->rule->check_schema || answer_schema_check_answer(buf_span(&input->entry), *answer, &error) == 0);
}

static bool answer_ahead(struct call *call, struct input *input)
{
	struct span answer;
	struct server_request *request = input->request;
	struct session *session = call->session;
	struct buf body = {0};
	if (!find_answer(call, input, &answer))
		return false;
	buf_add_text(&body, "\"result\":");
	buf_add_span(&body, answer);
	bool ok = buf_ok(&body);
	if (ok) {
		call_log(call, LOG_INFO, "answered-ahead", "question %u of the call", call->questions);
		rerun_record(call, input, answer);
		call_remove_input(call, input);
		if (request)
			server_request_answer(request, buf_span(&body));
		else
			server_requests_answer_roots(session, buf_span(&body));
	}
	buf_free(&body);
	return ok;
}

void call_on_server_request(struct call *call, struct server_request *request)
{
	request->call = call;
	buf_free(&call->spare); /* it has begun */
	server_request_set_state(request, SERVER_REQUEST_ASSIGNED);
	struct input *input = call_add_input(call, &request->need, request);
	if (!input) {
		server_request_fail_closed(request, "out of memory");
		return;
	}
	if (answer_ahead(call, input))
		return;
	call_log(call, LOG_DEBUG, "server-request", "question %u of the call", call->questions);
	if (call->state == CALL_RUNNING) {
		call_set_state(call, CALL_GATHERING);
	} else if (call->state == CALL_PARKED && client_task_is(call)) {
		/* The next tasks/get shows it. */
		call->expires_ms = proxy_now(call->proxy) + park_time(call);
		call_set_state(call, CALL_PARKED);
		count_asked(call);
	}
}

void call_ask_roots(struct call *call)
{
	const struct capability_need need = {.kind = POLICY_ROOTS};
	call_drop_inputs(call, false); /* of a round that went before */
	struct input *input = call_add_input(call, &need, NULL);
	if (input && answer_ahead(call, input))
		return; /* the session settles, and lets the call go ahead then */
	if (input)
		call_park(call);
	else
		call_fail(call, CALL_END_REFUSED, "memory", RPC_INTERNAL_ERROR, "Out of memory", NULL);
}

void call_on_withdrawn(struct call *call, struct server_request *request)
{
	struct input *input;
	TAILQ_FOREACH (input, &call->inputs, link)
		if (input->request == request)
			break;
	if (input)
		call_remove_input(call, input);
	call->lost |= call->state == CALL_PARKED;
	call_log(call, LOG_INFO, "server-request-withdrawn", "the server no longer waits for an answer");
	/* Nothing is left to ask, and the exchange is still open: the call just goes on. */
	if (call->state == CALL_GATHERING && TAILQ_EMPTY(&call->inputs)) {
		call_set_state(call, CALL_RUNNING);
		client_task_on_working(call);
	}
	client_task_on_withdrawn(call);
}
