#include "proxy/call.h"

#include "proxy/client_task.h"
#include "proxy/rerun.h"
#include "proxy/result.h"
#include "proxy/session.h"
#include "proxy/task.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

enum { MAX_KEPT_PROGRESS = 4096 }; /* bytes; a parked call is to be small */

void call_log(const struct call *call, enum log_level level, const char *event, const char *format, ...)
{
	const struct log_line line = {.level = level,
		.event = event,
		.session = call->session ? call->session->name : NULL,
		.call = call->hash,
		.subject = call->subject,
		.trace = call->trace};
	va_list args;
	va_start(args, format);
	env_log(call->proxy->env, line, ENV_LOG_BYTES, format, args);
	va_end(args);
}

bool call_may_ask(const struct call *call)
{
	return call->method->may_ask && !call->rule->asks_never && capabilities_can_ask(&call->caps);
}

/* Making and freeing. */

void call_free(struct grave *grave)
{
	struct call *call = container_of(grave, struct call, grave);
	struct input *input;
	while ((input = TAILQ_FIRST(&call->inputs)))
		call_remove_input(call, input);
	buf_free(&call->request);
	buf_free(&call->pre_answers);
	buf_free(&call->spare);
	free(call->task_id);
	client_task_free(call);
	buf_free(&call->answers);
	buf_free(&call->script);
	buf_free(&call->outcome);
	buf_free(&call->progress);
	metrics_row_release(call->row);
	policy_unref(call->policy);
	free(call->subject);
	free(call->trace);
	free(call);
}

void call_take_trace(struct call *call, const struct exchange *exchange)
{
	char *trace = exchange->trace ? strdup(exchange->trace) : NULL;
	if (exchange->trace && !trace)
		return;
	free(call->trace);
	call->trace = trace;
}

static struct call *call_new(struct exchange *exchange, const struct request *request, const char *name)
{
	struct proxy *proxy = exchange->proxy;
	struct call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	TAILQ_INIT(&call->inputs);
	TAILQ_INIT(&call->waiters);
	call->proxy = proxy;
	call->state = CALL_DEAD; /* on no list yet */
	call->method = request->method;
	call->policy = policy_ref(proxy->policy);
	call->rule = policy_rule(call->policy, call->method->subject, name ? name : "");
	call->row = metrics_row_take(&proxy->metrics, call->method->subject, name);
	call->budget_ms = call->method->may_ask ? call->rule->call_ms : call->policy->deadlines.request_ms;
	proxy->env->random(proxy->env->ctx, call->id, sizeof(call->id));
	call_hash(call->id, call->hash);
	call->log_level = request->log_level;
	call->round = request->round;
	call->asked_before = request->asked;
	buf_add_span(&call->script, request->script);
	memcpy(call->principal, exchange->client->principal, sizeof(call->principal));
	call_take_trace(call, exchange);
	call->subject = method_subject(request->method, name);
	if (!call->subject || !buf_ok(&call->script)) {
		call_free(&call->grave);
		return NULL;
	}
	return call;
}

/* Gives the call its session and its upstream message. */
static void call_place(struct call *call, struct session *session, const struct request *request)
{
	call->session = session;
	if (call->method->id != METHOD_DISCOVER) {
		call->upstream_id = session->next_id++;
		translate_request(call->method, request->params, request->index, call->upstream_id, &call->request);
	}
	call->proxy->counts.calls++;
	call_set_state(call, CALL_WAITING);
	if (!buf_ok(&call->request))
		call_fail(call, CALL_END_REFUSED, "memory", RPC_INTERNAL_ERROR, "Out of memory", NULL);
	else if (session->waiting_count > call->policy->limits.waiting)
		call_fail(call, CALL_END_REFUSED, "busy", RPC_INTERNAL_ERROR,
			"Too many calls wait for the server (limits.waiting)", NULL);
	else
		session_pump(session);
}

/* Whether its result may be given again to others. */
static bool is_kept(const struct call *call)
{
	return call->method->list_member && call->policy->deadlines.lists_ms > 0;
}

static void start_named(struct exchange *exchange, const struct request *request, const char *name)
{
	struct span cursor;
	struct error error = {0};
	struct call *call = call_new(exchange, request, name);
	if (!call) {
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
		return;
	}
	if (capabilities_read(&call->caps, request->capabilities, &error)) {
		call_free(&call->grave);
		exchange_fail(exchange, 400, RPC_INVALID_PARAMS, error.text, NULL);
		return;
	}
	/* Only what may come back under a request state, or from the cache, has to be known again. */
	if (((call->method->may_ask && capabilities_can_ask(&call->caps)) || is_kept(call)) &&
		digest_json(call->digest, request->method->name, request->params,
			(const char *const[]){"_meta", "inputResponses", "requestState", NULL})) {
		call_free(&call->grave);
		exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
		return;
	}
	if (name && call->rule->hide) {
		call_free(&call->grave);
		exchange_fail(exchange, 200, RPC_INVALID_PARAMS, "Not found", NULL);
		return;
	}
	struct session *session =
		session_for(exchange->proxy, exchange->client, &call->caps, request, call->method->may_ask, &error);
	if (!session) {
		bool discover = call->method->id == METHOD_DISCOVER;
		call_free(&call->grave);
		metrics_refused(&exchange->proxy->metrics, "unavailable", proxy_now(exchange->proxy));
		exchange_fail(
			exchange, discover ? 503 : 200, RPC_INTERNAL_ERROR, error.text, "{\"reason\":\"unavailable\"}");
		return;
	}
	/* A rerun's answers are for the questions of its round, whatever these are called. */
	if (request->input_responses.ptr && !request->script.ptr && call->rule->input_key_count)
		buf_add_span(&call->pre_answers, request->input_responses);
	if (!buf_ok(&call->pre_answers))
		buf_free(&call->pre_answers); /* then the questions are asked */
	call->mirrored = tool_mirrors_apply(exchange, request);
	call->from_start =
		call->method->id == METHOD_TOOLS_LIST && !json_get(request->params, request->index, "cursor", &cursor);
	/* Without memory for it, the same retry is told that its state was used. */
	if (request->lost && !call_take_ticket(call, request->lost))
		call_log(call, LOG_ERROR, "no-memory", "the same retry will not find the call");
	client_task_prepare(call, request);
	call_await(call, exchange);
	call_place(call, session, request);
}

void call_start(struct exchange *exchange, const struct request *request)
{
	char *name = NULL;
	if (request->name.ptr && !(name = json_string_dup(request->name))) {
		exchange_fail(exchange, 400, RPC_INVALID_PARAMS, "The name cannot be used: it holds U+0000", NULL);
		return;
	}
	start_named(exchange, request, name);
	free(name);
}

void call_await(struct call *call, struct exchange *exchange)
{
	exchange->call = call;
	TAILQ_INSERT_TAIL(&call->waiters, exchange, of_call);
	call->retried |= exchange->retried;
}

/* Events. */

void call_send(struct call *call)
{
	struct session *session = call->session;
	struct proxy *proxy = call->proxy;
	if (call->method->id == METHOD_DISCOVER) {
		struct buf body = {0};
		result_discover(&body, &session->identity, call->rule, proxy->policy->tasks);
		call_end(call, CALL_END_ANSWERED, "discover", &body);
		return;
	}
	if (is_kept(call)) {
		struct span kept = list_cache_find(&session->lists, call->digest, call->policy, proxy_now(proxy));
		if (kept.ptr) {
			struct buf body = {0};
			buf_add_span(&body, kept);
			call_end(call, CALL_END_ANSWERED, "kept list", &body);
			return;
		}
		call->lists_changes = session->lists.changes;
	}
	call_drop_inputs(call, false); /* of a round that went before */
	call->not_before_ms = 0;
	call_keep_request(call);
	translate_for_version(call->method, session->version, &call->request);
	task_prepare(call);
	call->progress_id = call->upstream_id;
	logging_prepare(session, call);
	call_enter(call);
	call_set_state(call, CALL_RUNNING);
	call_log(call, LOG_DEBUG, "call-sent", "upstream id %llu", (unsigned long long)call->upstream_id);
	int status =
		call->sent ? session_send(session, UPSTREAM_REQUEST, call->upstream_id, &call->request) : ERROR_MEMORY;
	buf_free(&call->request);
	if (status && call->state == CALL_RUNNING)
		call_leave(call);
	if (status && call->state == CALL_RUNNING)
		call_fail(call, CALL_END_REFUSED, "busy", RPC_INTERNAL_ERROR,
			status == ERROR_LIMIT ? "The server does not read fast enough; nothing was sent"
					      : "The request could not be sent",
			NULL);
	client_task_on_working(call);
}

static void write_body(const struct call *call, struct span result, struct span error, const struct json_index *index,
	struct buf *body)
{
	if (error.ptr)
		result_error(body, error);
	else
		result_complete(body, call->method, result, index, &call->session->identity, call->policy, call->rule,
			call->retried || call->round > 0);
}

void call_on_answer(struct call *call, struct span result, struct span error, const struct json_index *index)
{
	observe_answer(&call->row->seen, result, error, index);
	if (call->state == CALL_ENDING) {
		call_log(call, LOG_DEBUG, "late-answer", "the server answered a call that nobody waits for");
		if (call->recycle && call->keep_ms > proxy_now(call->proxy) && !call->outcome.len) {
			call->expires_ms = call->keep_ms;
			write_body(call, result, error, index, &call->outcome);
			if (!buf_ok(&call->outcome))
				buf_free(&call->outcome);
		}
		call_settle(call);
		return;
	}
	if (task_on_answer(call, result, error))
		return;
	if (call->method->id == METHOD_TOOLS_LIST) {
		task_learn(call->session, result);
		rerun_learn(call->proxy, result);
		tool_mirrors_learn(call->session, result, call->from_start);
	}
	int64_t code;
	struct span value;
	if (error.ptr && call->method->may_ask && json_get(error, NULL, "code", &value) && json_integer(value, &code) &&
		code == RPC_URL_ELICITATION_REQUIRED) {
		call_require_urls(call, error);
		return;
	}
	struct buf body = {0};
	write_body(call, result, error, index, &body);
	if (is_kept(call) && !error.ptr && buf_ok(&body))
		list_cache_keep(&call->session->lists, call->digest, call->policy, message_body(&body),
			call->lists_changes, proxy_now(call->proxy) + call->policy->deadlines.lists_ms);
	call_end(call, CALL_END_ANSWERED, error.ptr ? "error" : "result", &body);
}

void call_on_progress(struct call *call, struct span params)
{
	struct span value;
	double progress = json_get(params, NULL, "progress", &value) ? json_number(value) : NAN;
	/* It must increase, over all rounds (basic/patterns/progress). */
	if (isnan(progress) || (call->has_progress && progress <= call->last_progress))
		return;
	call->has_progress = true;
	call->last_progress = progress;
	struct exchange *exchange;
	TAILQ_FOREACH (exchange, &call->waiters, of_call)
		exchange_progress(exchange, params);
	buf_free(&call->progress); /* what was kept is older */
	if ((call->state == CALL_PARKED || client_task_is(call)) && params.len <= MAX_KEPT_PROGRESS) {
		buf_add_span(&call->progress, params);
		if (!buf_ok(&call->progress))
			buf_free(&call->progress);
	}
}

void call_on_exchange_gone(struct call *call, struct exchange *exchange)
{
	(void)exchange;
	if (TAILQ_EMPTY(&call->waiters))
		call_end(call, CALL_END_CANCELLED, "The client cancelled the request", NULL);
}

/* Tells the waiters with a status of its own: 401 and 403 with what the server wants to see, 503 for server/discover, where
 * clients take a JSON-RPC error for a sign of an older server and fall back to its handshake. */
static void deliver_with_status(struct call *call, int http_status, struct span body)
{
	struct exchange *exchange;
	while ((exchange = TAILQ_FIRST(&call->waiters))) {
		struct client *client = exchange->client;
		client->challenge = call->session->challenge;
		exchange_respond(exchange, http_status, body);
		client->challenge = NULL;
	}
}

void call_on_session_lost(struct call *call, int http_status, const char *why)
{
	struct buf text = {0}, body = {0};
	bool refused = http_status == 401 || http_status == 403;
	bool unsent = !call->sent && call->state != CALL_ENDING;
	buf_printf(&text, "%s: %s",
		refused	 ? "The server refused the request"
		: unsent ? "The server cannot be reached"
			 : "The call was lost and may have had effects",
		why);
	buf_add(&text, "", 1);
	message_add_error(&body, RPC_INTERNAL_ERROR, text.failed ? "The call was lost" : text.data,
		refused	 ? "{\"reason\":\"unauthorized\"}"
		: unsent ? "{\"reason\":\"unavailable\"}"
			 : "{\"reason\":\"lost\"}");
	buf_free(&text);
	if (refused)
		deliver_with_status(call, http_status, message_body(&body));
	else if (call->method->id == METHOD_DISCOVER)
		deliver_with_status(call, 503, message_body(&body));
	if (call->state == CALL_ENDING) {
		buf_free(&body);
		call_settle(call);
	} else {
		call->lost = true;
		call_end(call, CALL_END_LOST, why, &body);
	}
}
