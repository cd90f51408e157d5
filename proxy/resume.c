/* The retry: a request that brings a request state, and perhaps answers, back to its parked call (invariants 2 and 4). */
#include "proxy/answer_schema.h"
#include "proxy/call.h"
#include "proxy/client_task.h"
#include "proxy/rerun.h"
#include "proxy/session.h"
#include "proxy/translate.h"

#include <stdio.h>
#include <stdlib.h>

static const char start_again[] = "send the request again without requestState";

/* Refuses a retry. The client learns the class; the log says exactly why. */
static void refuse(struct exchange *exchange, const char *reason, const char *what, const char *why)
{
	char text[200], data[64];
	snprintf(text, sizeof(text), "%s; %s", what, start_again);
	snprintf(data, sizeof(data), "{\"reason\":\"%s\"}", reason);
	metrics_refused(&exchange->proxy->metrics, reason, proxy_now(exchange->proxy));
	exchange_log(exchange, LOG_WARNING, "state-refused", "%s: %s", reason, why);
	exchange_fail(exchange, 200, RPC_INVALID_PARAMS, text, data);
}

static int open_state(
	struct proxy *proxy, struct span string, struct request_state *state, struct buf *script, struct error *error)
{
	struct buf token = {0};
	json_decode_string(string, &token);
	int status = buf_ok(&token) ? request_state_open(proxy->keys, buf_span(&token), state, script, error)
				    : error_set(error, ERROR_MEMORY, "out of memory");
	buf_free(&token);
	return status;
}

static struct call *find_call(struct proxy *proxy, const uint8_t id[CALL_ID_BYTES])
{
	struct call *call = NULL;
	HASH_FIND(by_ticket, proxy->tickets, id, CALL_ID_BYTES, call);
	return call;
}

/* Whether the state is of this principal and this request, and of this process unless the call may be run again; refuses
 * if not. */
static bool state_matches(struct exchange *exchange, const struct request_state *state,
	const uint8_t digest[DIGEST_BYTES], bool own, bool may_rerun)
{
	if (!own && !may_rerun) {
		refuse(exchange, "other_instance", "The request state was made before a restart, or elsewhere",
			"sealed by another instance");
		return false;
	}
	bool principal = sodium_memcmp(state->principal, exchange->client->principal, PRINCIPAL_BYTES) == 0;
	bool request = sodium_memcmp(state->digest, digest, DIGEST_BYTES) == 0;
	if (!principal || !request) {
		refuse(exchange, "mismatch", "The request state does not belong to this request",
			principal ? "another request" : "another principal");
		return false;
	}
	return true;
}

/* The same retry again gets the same outcome again (the network may have lost it), or waits for it with the first. */
static bool is_repeated(const struct call *call, const struct request_state *state, const uint8_t answers[DIGEST_BYTES])
{
	return call && state->round > 0 && call->used_round == state->round &&
	       sodium_memcmp(call->used_answers, answers, DIGEST_BYTES) == 0;
}

static void repeat(struct exchange *exchange, struct call *call)
{
	if (client_task_is(call)) {
		client_task_repeat(exchange, call);
	} else if (call->outcome.len &&
		   (call->state == CALL_PARKED || call->state == CALL_FINISHED || call->state == CALL_ENDING)) {
		call_log(call, LOG_INFO, "outcome-repeated", "the same retry came again");
		exchange_respond(exchange, result_http_status(call->method, call->policy, buf_span(&call->outcome)),
			buf_span(&call->outcome));
	} else if (call->state == CALL_ENDING) {
		refuse(exchange, "used", "The request state was used and its request cancelled", "cancelled call");
	} else {
		call_await(call, exchange);
	}
}

/* What the client of a task has answered stands; a round's retry may answer again. */
static bool is_open(const struct call *call, const struct input *input)
{
	return input->asked && !(input->answer.len && client_task_is(call));
}

/* Checks the answers to all open questions before any of them is taken. */
static bool check_answers(struct exchange *exchange, struct call *call, struct span responses)
{
	struct input *input;
	struct span answer;
	struct error error = {0};
	TAILQ_FOREACH (input, &call->inputs, link) {
		unsigned count = is_open(call, input) ? json_get(responses, NULL, input->key, &answer) : 0;
		if (count > 1)
			error_set(&error, ERROR_SYNTAX, "it occurs twice");
		else if (count == 1 && translate_check_answer(input->kind, answer, &error) == 0 &&
			 (!call->rule->check_schema ||
				 answer_schema_check_answer(buf_span(&input->entry), answer, &error) == 0))
			continue;
		if (count) {
			char text[400];
			snprintf(text, sizeof(text), "inputResponses[\"%.100s\"]: %.250s", input->key, error.text);
			exchange_fail(exchange, 200, RPC_INVALID_PARAMS, text, NULL);
			return false;
		}
	}
	return true;
}

/* Copies the answers. false without memory: none is taken then. */
static bool take_answers(struct call *call, struct span responses)
{
	struct input *input;
	struct span answer;
	bool ok = true;
	TAILQ_FOREACH (input, &call->inputs, link) {
		if (!is_open(call, input) || !json_get(responses, NULL, input->key, &answer))
			continue;
		buf_free(&input->answer);
		buf_add_span(&input->answer, answer);
		ok &= buf_ok(&input->answer);
	}
	if (!ok)
		TAILQ_FOREACH (input, &call->inputs, link)
			buf_free(&input->answer);
	return ok;
}

bool call_take_answers(struct exchange *exchange, struct call *call, struct span responses)
{
	if (!check_answers(exchange, call, responses))
		return false;
	if (take_answers(call, responses))
		return true;
	exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
	return false;
}

/* A question that the retry's capabilities no longer cover cannot be asked again. */
static const struct input *find_unaskable(const struct call *call)
{
	struct input *input;
	TAILQ_FOREACH (input, &call->inputs, link)
		if (!input->answer.len && !capabilities_cover(&call->caps, &input->need))
			return input;
	return NULL;
}

/* The roots that were asked for ahead of the call go to the requests that belong to no call; then the call takes its turn. */
static void resume_unsent(struct call *call)
{
	struct session *session = call->session;
	struct input *input = TAILQ_FIRST(&call->inputs);
	if (input && !input->answer.len) {
		call_park(call);
		return;
	}
	call_set_state(call, CALL_WAITING);
	if (input) {
		struct buf body = {0};
		buf_add_text(&body, "\"result\":");
		buf_add_span(&body, buf_span(&input->answer));
		rerun_record(call, input, buf_span(&input->answer));
		call_remove_input(call, input);
		server_requests_answer_roots(
			session, buf_ok(&body) ? buf_span(&body) : span_of(translate_unanswered(POLICY_ROOTS)));
		buf_free(&body);
	}
	session_pump(session);
}

void call_proceed(struct call *call, const struct request *request)
{
	struct session *session = call->session;
	if (call->sent) {
		call_log(call, LOG_INFO, "call-resumed", "round %u", call->round);
		call_set_state(call, CALL_RESUMING);
		session_pump(session);
	} else if (call->reissue) {
		call_reissue(call, request);
	} else {
		resume_unsent(call);
	}
}

static void resume_parked(struct exchange *exchange, struct call *call, const struct request *request, uint32_t round,
	const uint8_t answers[DIGEST_BYTES])
{
	struct error error = {0};
	struct capabilities caps;
	if (capabilities_read(&caps, request->capabilities, &error)) {
		exchange_fail(exchange, 400, RPC_INVALID_PARAMS, error.text, NULL);
		return;
	}
	if (!call_take_answers(exchange, call, request->input_responses))
		return;
	session_take_credentials(call->session, exchange->client);
	call->caps = caps;
	call->log_level = request->log_level;
	call_take_trace(call, exchange);
	client_task_prepare(call, request);
	call->used_round = round;
	memcpy(call->used_answers, answers, DIGEST_BYTES);
	call_await(call, exchange);
	const struct input *unaskable = find_unaskable(call);
	if (unaskable) {
		char data[128];
		snprintf(data, sizeof(data), "{\"requiredCapabilities\":%s}", capability_need_json(&unaskable->need));
		call_fail(call, CALL_END_REFUSED, "missing_capability", RPC_MISSING_CAPABILITY,
			"The server needs a capability that the client did not declare", data);
	} else {
		call_proceed(call, request);
	}
}

void call_unresume(struct call *call)
{
	struct exchange *exchange;
	struct input *input;
	if (client_task_is(call)) {
		call_fail(call, CALL_END_REFUSED, "busy", RPC_INTERNAL_ERROR,
			"The server was busy with other calls for too long", NULL);
		return;
	}
	/* Nothing was consumed: the same retry may come again. */
	TAILQ_FOREACH (input, &call->inputs, link)
		buf_free(&input->answer);
	call->used_round = 0;
	call_set_state(call, CALL_PARKED);
	while ((exchange = TAILQ_FIRST(&call->waiters)))
		exchange_fail(exchange, 200, RPC_INTERNAL_ERROR,
			"The server was busy with other calls for too long; send the same retry again",
			"{\"reason\":\"busy\"}");
}

void call_resume(struct call *call)
{
	struct session *session = call->session;
	struct input *input = TAILQ_FIRST(&call->inputs);
	call_set_state(call, CALL_RUNNING);
	while (input) {
		struct input *next = TAILQ_NEXT(input, link);
		if (input->answer.len) {
			struct server_request *request = input->request;
			struct buf body = {0};
			buf_add_text(&body, "\"result\":");
			buf_add_span(&body, buf_span(&input->answer));
			rerun_record(call, input, buf_span(&input->answer));
			call_remove_input(call, input);
			if (request && buf_ok(&body))
				server_request_answer(request, buf_span(&body));
			else if (request)
				server_request_fail_closed(request, "out of memory");
			if (body.data)
				sodium_memzero(body.data, body.cap);
			buf_free(&body);
		}
		input = next;
	}
	if (call->progress.len && !client_task_is(call)) {
		struct exchange *exchange;
		TAILQ_FOREACH (exchange, &call->waiters, of_call)
			exchange_progress(exchange, buf_span(&call->progress));
		buf_free(&call->progress);
	}
	logging_prepare(session, call);
	/* What was not answered, or was asked meanwhile, makes the next round. */
	if (!TAILQ_EMPTY(&call->inputs))
		call_set_state(call, CALL_GATHERING);
	client_task_on_working(call);
}

/* An impatient server has ended the call by itself; its answer is worth more than a refusal. */
static bool has_kept_answer(const struct call *call)
{
	return call && call->state == CALL_FINISHED && call->keep_ms > proxy_now(call->proxy);
}

/* It was lost before anybody was told how it ended. A task tells that itself, and does not run again. */
static bool is_worth_rerun(const struct call *call)
{
	return call->lost && !call->delivered && !client_task_is(call);
}

/* A verified state, of this principal and this request. */
static void go_on(struct exchange *exchange, const struct request *request, const struct request_state *state, bool own,
	const uint8_t answers[DIGEST_BYTES], struct span script)
{
	struct proxy *proxy = exchange->proxy;
	bool may_rerun = script.len && rerun_allowed_for(proxy, request);
	struct call *call = own ? find_call(proxy, state->call_id) : NULL;
	/* A state that is only for reruns never had a ticket, so nothing can tell whether it was used. */
	bool always = may_rerun && !call && (!own || rerun_is_untracked(proxy, request));
	struct error error = {0};
	if (!tool_mirrors_check_retry(exchange, request, &error)) {
		metrics_refused(&proxy->metrics, "header_mismatch", proxy_now(proxy));
		exchange_fail(exchange, 400, RPC_HEADER_MISMATCH, error.text, NULL);
	} else if (is_repeated(call, state, answers) && !(may_rerun && is_worth_rerun(call))) {
		repeat(exchange, call);
	} else if (proxy->env->wall_ms(proxy->env->ctx) >= state->expires_ms && !has_kept_answer(call)) {
		refuse(exchange, "expired", "The request state has expired", "too late");
	} else if (always) {
		(void)rerun_start(exchange, request, script, state->round, NULL);
	} else if (!call) {
		refuse(exchange, "used", "The request state was used before", "its call is over");
	} else if (state->round != call->round || state->round == call->used_round) {
		refuse(exchange, "used", "The request state was used before", "other answers, or an earlier round");
	} else if (call->lost && may_rerun && (call->state == CALL_FINISHED || call->state == CALL_ENDING)) {
		memcpy(call->used_answers, answers, DIGEST_BYTES);
		if (rerun_start(exchange, request, script, state->round, call)) {
			call->used_round = state->round;
			buf_free(&call->outcome);
			if (call->state == CALL_FINISHED)
				call_set_state(call, CALL_DEAD);
		}
	} else if (call->state == CALL_FINISHED || (call->state == CALL_ENDING && call->outcome.len)) {
		call->used_round = state->round;
		memcpy(call->used_answers, answers, DIGEST_BYTES);
		call->delivered = true;
		if (call->state == CALL_FINISHED)
			call_set_state(call, CALL_FINISHED); /* its time for redelivery begins now */
		repeat(exchange, call);
	} else if (call->state == CALL_PARKED) {
		resume_parked(exchange, call, request, state->round, answers);
	} else {
		refuse(exchange, "used", "The request state was used before", "the call is not parked");
	}
}

/* What makes a retry the same retry: its answers, and what its client declares, since a round depends on that. */
static int digest_answers(const struct request *request, uint8_t digest[DIGEST_BYTES])
{
	struct span answers = request->input_responses.ptr ? request->input_responses : SPAN("null");
	uint8_t parts[2][DIGEST_BYTES];
	if (digest_json(parts[0], "answers", answers, NULL) ||
		digest_json(parts[1], "capabilities", request->capabilities, NULL))
		return ERROR_MEMORY;
	crypto_generichash(digest, DIGEST_BYTES, parts[0], sizeof(parts), NULL, 0);
	return 0;
}

void call_retry(struct exchange *exchange, const struct request *request)
{
	struct proxy *proxy = exchange->proxy;
	struct request_state state;
	struct error error = {0};
	struct buf script = {0};
	uint8_t digest[DIGEST_BYTES], answers[DIGEST_BYTES];
	int status = open_state(proxy, request->request_state, &state, &script, &error);
	if (status == ERROR_REFUSED) {
		refuse(exchange, "unverifiable", "The request state cannot be verified", error.text);
	} else if (status || !buf_ok(&script) ||
		   digest_json(digest, request->method->name, request->params,
			   (const char *const[]){"_meta", "inputResponses", "requestState", NULL}) ||
		   digest_answers(request, answers)) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
	} else {
		bool own = sodium_memcmp(state.instance, proxy->instance, INSTANCE_BYTES) == 0;
		bool may_rerun = script.len && rerun_allowed_for(proxy, request);
		if (state_matches(exchange, &state, digest, own, may_rerun))
			go_on(exchange, request, &state, own, answers, buf_span(&script));
	}
	if (script.data)
		sodium_memzero(script.data, script.cap);
	buf_free(&script);
}
