#include "proxy/client_task.h"

#include "proxy/json_write.h"
#include "proxy/session.h"

#include <stdlib.h>

enum {
	TASK_ID_CHARS = 2 * CALL_ID_BYTES + 1,
	POLL_LEAST_MS = 200,
	POLL_MOST_MS = 5000,
	POLL_SHARE = 8,		     /* of a task's age: a poll adds so little to it */
	MAX_KEPT_PARAMS = 64 * 1024, /* bytes; limits.parked_per_principal times this is one client's */
};

bool client_tasks_offered(const struct proxy *proxy)
{
	/* Tasks that were made under another policy are still served, and whether there are any is nobody's business. */
	return proxy->policy->tasks || proxy->tasks_before;
}

void client_tasks_refuse(struct exchange *exchange)
{
	struct proxy *proxy = exchange->proxy;
	metrics_refused(&proxy->metrics, "missing_capability", proxy_now(proxy));
	exchange_fail(exchange, proxy->policy->missing_capability_status, RPC_MISSING_CAPABILITY,
		"The client did not declare the tasks extension",
		"{\"requiredCapabilities\":{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}}");
}

bool client_task_is(const struct call *call)
{
	return call->client_task && call->client_task->created;
}

bool client_task_keeps_place(const struct call *call, enum call_state state)
{
	return client_task_is(call) && state != CALL_DEAD && !(state == CALL_FINISHED && call->delivered);
}

/* Becoming one. */

/* A call that is kept nowhere (rerun: always) has nothing to tell of. */
static bool may_become(const struct call *call)
{
	return call->caps.tasks && call->method->id == METHOD_TOOLS_CALL && call->rule->task_after_ms >= 0 &&
	       call->rule->rerun != POLICY_RERUN_ALWAYS;
}

void client_task_prepare(struct call *call, const struct request *request)
{
	if (!may_become(call) || (!call->client_task && !(call->client_task = calloc(1, sizeof(*call->client_task)))))
		return;
	struct buf *params = &call->client_task->params;
	if (call->caps.elicitation_url && !params->len && request->params.len <= MAX_KEPT_PARAMS)
		buf_add_span(params, request->params);
	if (!buf_ok(params) || (call->caps.elicitation_url && !params->len))
		client_task_free(call); /* then the client waits */
}

void client_task_free(struct call *call)
{
	struct client_task *task = call->client_task;
	if (!task)
		return;
	timer_cancel(&call->proxy->timers, &task->timer);
	call->proxy->client_tasks -= task->created;
	buf_free(&task->params);
	free(task->server_info);
	free(task);
	call->client_task = NULL;
}

/* Appends a member with a time as ISO 8601 has it, in UTC. */
static void add_time(struct buf *out, const char *key, int64_t wall_ms)
{
	enum { DAY_MS = 24 * 3600000 };
	static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int64_t days = wall_ms / DAY_MS;
	int year = 1970, month = 0, ms = (int)(wall_ms % DAY_MS);
	for (;;) {
		bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
		int length = lengths[month] + (month == 1 && leap);
		if (days < length)
			break;
		days -= length;
		month = (month + 1) % 12;
		year += month == 0;
	}
	buf_printf(out, ",\"%s\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"", key, year, month + 1, (int)days + 1,
		ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, ms % 1000);
}

/* Whether it has its end. Before that the outcome of a task is empty. */
static bool is_over(const struct call *call)
{
	return (call->state == CALL_ENDING || call->state == CALL_FINISHED) && call->outcome.len > 0;
}

static struct span error_of(const struct call *call)
{
	static const char prefix[] = "\"error\":";
	struct span body = buf_span(&call->outcome);
	bool is_error = body.len > sizeof(prefix) && memcmp(body.ptr, prefix, sizeof(prefix) - 1) == 0;
	return is_error ? (struct span){body.ptr + sizeof(prefix) - 1, body.len - sizeof(prefix) + 1}
			: (struct span){0};
}

static const char *status_of(const struct call *call)
{
	if (is_over(call))
		return call->client_task->cancelled ? "cancelled" : error_of(call).ptr ? "failed" : "completed";
	return call->state == CALL_PARKED ? "input_required" : "working";
}

int64_t client_task_last_expiry(const struct call *call)
{
	const struct policy_rule *rule = call->rule;
	return call->client_task->created_ms + rule->call_ms + rule->park_ms * (int64_t)(rule->rounds + 1);
}

/* When it may be forgotten, or fails because nobody answered; while the server works, the latest that can be. */
static int64_t lives_until(const struct call *call)
{
	switch (call->state) {
	case CALL_PARKED:
		return call->expires_ms;
	case CALL_FINISHED:
		return call->timer.due_ms;
	case CALL_ENDING: /* it is kept from its end on */
		return proxy_now(call->proxy) +
		       (call->delivered ? call->policy->deadlines.redeliver_ms : call->rule->park_ms);
	default:
		return client_task_last_expiry(call);
	}
}

/* What a person may read: why it failed, or how far the server says it is. */
static void add_words(struct buf *out, const struct call *call)
{
	struct span words;
	struct span from = is_over(call) ? error_of(call) : buf_span(&call->progress);
	if (from.len && call->state != CALL_PARKED && json_get(from, NULL, "message", &words) &&
		json_type(words) == JSON_STRING) {
		buf_add_text(out, ",\"statusMessage\":");
		buf_add_span(out, words);
	}
}

/* Appends the members of Task. */
static void add_task(struct buf *out, const struct call *call)
{
	const struct client_task *task = call->client_task;
	char id[TASK_ID_CHARS];
	int64_t age_ms = proxy_now(call->proxy) - task->created_ms;
	int64_t poll_ms = age_ms / POLL_SHARE;
	int64_t updated_ms = call->entered_ms - task->created_ms;
	sodium_bin2hex(id, sizeof(id), call->id, sizeof(call->id));
	buf_printf(out, "\"taskId\":\"%s\",\"status\":\"%s\"", id, status_of(call));
	add_words(out, call);
	add_time(out, "createdAt", task->created_wall_ms);
	add_time(out, "lastUpdatedAt", task->created_wall_ms + (updated_ms > 0 ? updated_ms : 0));
	buf_printf(out, ",\"ttlMs\":%lld,\"pollIntervalMs\":%lld", (long long)(lives_until(call) - task->created_ms),
		(long long)(poll_ms < POLL_LEAST_MS  ? POLL_LEAST_MS
			    : poll_ms > POLL_MOST_MS ? POLL_MOST_MS
						     : poll_ms));
}

static void add_meta(struct buf *out, const struct call *call)
{
	buf_printf(out, ",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":%s}}", call->client_task->server_info);
}

static void write_created(struct buf *body, const struct call *call)
{
	buf_add_text(body, "\"result\":{\"resultType\":\"task\",");
	add_task(body, call);
	add_meta(body, call);
}

void client_task_repeat(struct exchange *exchange, struct call *call)
{
	struct buf body = {0};
	write_created(&body, call);
	exchange_respond(exchange, 200, message_body(&body));
	buf_free(&body);
}

/* The limits of parked calls hold for what nobody waits for, and it has to be found again. A call that is to be found
 * keeps its outcome, so a call without a place must not be. */
static bool make_durable(struct call *call)
{
	struct error error = {0};
	if (!(call->client_task->server_info = span_dup(span_of(call->session->identity.info))))
		return false;
	if (!call->counted_parked && !(call->counted_parked = proxy_account_park(call->proxy, call->principal, &error)))
		return false;
	return call_issue_ticket(call);
}

static void on_patience_over(void *arg)
{
	struct call *call = arg;
	struct client_task *task = call->client_task;
	struct proxy *proxy = call->proxy;
	struct exchange *exchange;
	if (call->state != CALL_RUNNING || TAILQ_EMPTY(&call->waiters) || proxy->shutting_down)
		return; /* what it asks meanwhile makes a round; working again, it comes here again */
	if (!make_durable(call)) {
		call_log(call, LOG_INFO, "task-not-created", "too many calls are parked; the client waits");
		free(task->server_info);
		task->server_info = NULL;
		return;
	}
	buf_free(&call->outcome); /* of a round that went before */
	task->created = true;
	task->created_ms = proxy_now(proxy);
	task->created_wall_ms = proxy->env->wall_ms(proxy->env->ctx);
	proxy->client_tasks++;
	proxy->metrics.tasks++;
	call_log(call, LOG_INFO, "task-handed-out", "the client polls");
	while ((exchange = TAILQ_FIRST(&call->waiters)))
		client_task_repeat(exchange, call);
}

void client_task_on_working(struct call *call)
{
	struct client_task *task = call->client_task;
	struct proxy *proxy = call->proxy;
	if (!task || task->created)
		return;
	timer_cancel(&proxy->timers, &task->timer); /* of an earlier request, which may have declared more */
	if (!may_become(call) || call->state != CALL_RUNNING)
		return;
	if (call->rule->task_after_ms == 0)
		on_patience_over(call);
	else
		timer_set(&proxy->timers, &task->timer, proxy_now(proxy) + call->rule->task_after_ms, on_patience_over,
			call);
}

/* Its life. */

static bool is_answered(const struct call *call)
{
	const struct input *input;
	TAILQ_FOREACH (input, &call->inputs, link)
		if (!input->answer.len)
			return false;
	return true;
}

void client_task_on_withdrawn(struct call *call)
{
	if (!client_task_is(call) || call->state != CALL_PARKED || !is_answered(call))
		return;
	/* Without questions the server works again already, whether it has a place or not. */
	call_set_state(call, TAILQ_EMPTY(&call->inputs) ? CALL_RUNNING : CALL_RESUMING);
}

void client_task_settle(struct call *call)
{
	if (!client_task_is(call))
		return;
	if (!call->outcome.len)
		message_add_error(&call->outcome, RPC_INTERNAL_ERROR, "Nobody answered what the server asked in time",
			"{\"reason\":\"expired\"}");
	if (call->outcome.len > call->proxy->policy->limits.kept_bytes) {
		buf_free(&call->outcome);
		message_add_error(&call->outcome, RPC_INTERNAL_ERROR,
			"The result is larger than what is kept for clients (limits.kept_bytes)",
			"{\"reason\":\"too_large\"}");
	}
	if (!buf_ok(&call->outcome))
		buf_free(&call->outcome);
	buf_free(&call->client_task->params);
	call->expires_ms = proxy_now(call->proxy) + call->rule->park_ms;
}

/* Its client knows the end: it is kept for a little longer, as any outcome is. */
static void mark_told(struct call *call)
{
	if (call->delivered)
		return;
	int64_t ended_ms = call->entered_ms;
	call->delivered = true;
	if (call->state == CALL_FINISHED)
		call_set_state(call, CALL_FINISHED);
	call->entered_ms = ended_ms;
}

/* The methods. */

static void get(struct exchange *exchange, struct call *call)
{
	struct buf body = {0};
	if (is_over(call))
		mark_told(call);
	buf_add_text(&body, "\"result\":{\"resultType\":\"complete\",");
	add_task(&body, call);
	if (is_over(call) && !call->client_task->cancelled) {
		buf_add_text(&body, ",");
		buf_add_span(&body, buf_span(&call->outcome)); /* "result":{…} or "error":{…} */
	} else if (!is_over(call) && call->state == CALL_PARKED) {
		buf_add_text(&body, ",\"inputRequests\":");
		call_write_inputs(call, &body);
	}
	add_meta(&body, call);
	exchange_respond(exchange, 200, message_body(&body));
	buf_free(&body);
}

static void acknowledge(struct exchange *exchange, const struct call *call)
{
	struct buf body = {0};
	buf_add_text(&body, "\"result\":{\"resultType\":\"complete\"");
	add_meta(&body, call);
	exchange_respond(exchange, 200, message_body(&body));
	buf_free(&body);
}

static void update(struct exchange *exchange, struct call *call, const struct request *request)
{
	if (!request->input_responses.ptr) {
		exchange_fail(exchange, 400, RPC_INVALID_PARAMS, "params.inputResponses is missing", NULL);
	} else if (call->state != CALL_PARKED) {
		acknowledge(exchange, call); /* nothing is asked: whatever it is, it is for nothing */
	} else if (call_take_answers(exchange, call, request->input_responses)) {
		session_take_credentials(call->session, exchange->client);
		acknowledge(exchange, call);
		const struct request again = {.method = call->method, .params = buf_span(&call->client_task->params)};
		if (is_answered(call))
			call_proceed(call, &again);
	}
}

static void cancel(struct exchange *exchange, struct call *call)
{
	static const char why[] = "The client cancelled the task";
	struct buf body = {0};
	acknowledge(exchange, call);
	if (call->state == CALL_ENDING || call->state == CALL_FINISHED)
		return;
	call->client_task->cancelled = true;
	message_add_error(&body, RPC_INTERNAL_ERROR, why, NULL);
	call_end(call, CALL_END_CANCELLED, why, &body);
	mark_told(call);
}

/* The task of this id, if it is the client's own. Another's is as unknown as one that never was. */
static struct call *find(struct proxy *proxy, const struct client *client, struct span string)
{
	struct call *call = NULL;
	uint8_t id[CALL_ID_BYTES];
	char canonical[TASK_ID_CHARS];
	char *text = json_string_dup(string);
	size_t len;
	if (text && strlen(text) == TASK_ID_CHARS - 1 &&
		sodium_hex2bin(id, sizeof(id), text, TASK_ID_CHARS - 1, NULL, &len, NULL) == 0 && len == sizeof(id) &&
		strcmp(sodium_bin2hex(canonical, sizeof(canonical), id, sizeof(id)), text) == 0)
		HASH_FIND(by_ticket, proxy->tickets, id, sizeof(id), call);
	free(text);
	bool own =
		call && client_task_is(call) && sodium_memcmp(call->principal, client->principal, PRINCIPAL_BYTES) == 0;
	return own ? call : NULL;
}

void client_task_request(struct exchange *exchange, const struct request *request)
{
	struct proxy *proxy = exchange->proxy;
	struct capabilities caps;
	struct error error = {0};
	struct call *call;
	if (capabilities_read(&caps, request->capabilities, &error)) {
		exchange_fail(exchange, 400, RPC_INVALID_PARAMS, error.text, NULL);
	} else if (!caps.tasks) {
		client_tasks_refuse(exchange);
	} else if (!(call = find(proxy, exchange->client, request->name))) {
		metrics_refused(&proxy->metrics, "unknown_task", proxy_now(proxy));
		exchange_log(exchange, LOG_INFO, "task-refused", "no such task of this principal");
		exchange_fail(exchange, 200, RPC_INVALID_PARAMS, "There is no such task, or no longer",
			"{\"reason\":\"unknown_task\"}");
	} else if (request->method->id == METHOD_TASKS_GET) {
		get(exchange, call);
	} else if (request->method->id == METHOD_TASKS_UPDATE) {
		update(exchange, call, request);
	} else {
		cancel(exchange, call);
	}
}
