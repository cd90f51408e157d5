/* The states of a call, and its end: what entering and leaving brings with it, what becomes of it in time, and the one way
 * out. */
#include "proxy/client_task.h"
#include "proxy/result.h"
#include "proxy/session.h"
#include "proxy/task.h"

#include <stdio.h>

static void call_on_timer(void *arg);

static struct call_list *list_of(struct call *call)
{
	switch (call->state) {
	case CALL_WAITING:
		return &call->session->waiting;
	case CALL_RUNNING:
	case CALL_GATHERING:
		return &call->session->running;
	case CALL_PARKED:
		return &call->session->parked;
	case CALL_RESUMING:
		return &call->session->resuming;
	case CALL_ENDING:
		return &call->session->ending;
	case CALL_FINISHED:
		return &call->proxy->kept;
	default:
		return NULL;
	}
}

static bool runs(enum call_state state)
{
	return state == CALL_RUNNING || state == CALL_GATHERING;
}

static int64_t deadline_of(const struct call *call, int64_t now)
{
	const struct policy_deadlines *deadlines = &call->policy->deadlines;
	switch (call->state) {
	case CALL_WAITING:
		/* The handshake has a deadline of its own. */
		return now + deadlines->wait_ms +
		       (call->session->state == SESSION_READY ? 0 : deadlines->initialize_ms * 2);
	case CALL_RUNNING:
		return now + (call->budget_ms > 0 ? call->budget_ms : 0);
	case CALL_GATHERING:
		return now + deadlines->gather_ms;
	case CALL_PARKED:
		return call->expires_ms;
	case CALL_RESUMING:
		/* What a task was answered is not asked for again. */
		return client_task_is(call) && call->expires_ms > now + deadlines->wait_ms ? call->expires_ms
											   : now + deadlines->wait_ms;
	case CALL_ENDING:
		return now + deadlines->grace_ms;
	default:
		return call->delivered ? now + deadlines->redeliver_ms : call->expires_ms;
	}
}

/* What a state brings in counts, besides its list: +1 on entering, -1 on leaving. */
static void count_state(struct call *call, int change)
{
	if (call->state == CALL_WAITING)
		call->session->waiting_count += (unsigned)change;
	else if (call->state == CALL_PARKED)
		call->proxy->counts.parked += (size_t)change;
	else if (call->state == CALL_FINISHED)
		call->proxy->kept_count += (unsigned)change;
}

/* Whose time the state that is left was: the proxy's, or people's. */
static void count_time(struct call *call, enum call_state next, int64_t now)
{
	int64_t spent_ms = now - call->entered_ms;
	if (call->state == CALL_WAITING || call->state == CALL_GATHERING || call->state == CALL_RESUMING)
		call->waited_ms += spent_ms;
	if (call->state == CALL_PARKED && (next == CALL_RESUMING || next == CALL_WAITING)) {
		call->row->people_ms += (uint64_t)spent_ms;
		call->row->people_count++;
		if ((uint64_t)spent_ms > call->row->seen.longest_ms)
			call->row->seen.longest_ms = (uint64_t)spent_ms;
	}
	call->entered_ms = now;
}

static void enter_dead(struct call *call)
{
	struct proxy *proxy = call->proxy;
	if (call->ticketed)
		HASH_DELETE(by_ticket, proxy->tickets, call);
	call->ticketed = false;
	client_task_free(call);
	proxy->counts.calls--;
	proxy_bury(proxy, &call->grave, call_free);
}

void call_set_state(struct call *call, enum call_state state)
{
	int64_t now = proxy_now(call->proxy);
	struct call_list *list = list_of(call);
	if (list)
		TAILQ_REMOVE(list, call, link);
	count_state(call, -1);
	count_time(call, state, now);
	if (runs(call->state) && !runs(state))
		call->budget_ms -= now - call->running_since_ms;
	if (state == CALL_RUNNING && !runs(call->state))
		call->running_since_ms = now;
	timer_cancel(&call->proxy->timers, &call->timer);

	call->state = state;
	if (call->counted_parked && state != CALL_PARKED && state != CALL_RESUMING &&
		!client_task_keeps_place(call, state)) {
		proxy_account_unpark(call->proxy, call->principal);
		call->counted_parked = false;
	}
	if (state == CALL_FINISHED || state == CALL_DEAD)
		call->session = NULL;
	if (state == CALL_DEAD) {
		enter_dead(call);
		return;
	}
	count_state(call, +1);
	TAILQ_INSERT_TAIL(list_of(call), call, link);
	timer_set(&call->proxy->timers, &call->timer, deadline_of(call, now), call_on_timer, call);
}

void call_enter(struct call *call)
{
	struct proxy *proxy = call->proxy;
	HASH_ADD(by_upstream, call->session->requests, upstream_id, sizeof(call->upstream_id), call);
	call->sent = call->by_upstream.tbl != NULL;
}

void call_leave(struct call *call)
{
	if (call->sent)
		HASH_DELETE(by_upstream, call->session->requests, call);
	call->sent = false;
}

void call_settle(struct call *call)
{
	struct session *session = call->session;
	struct proxy *proxy = call->proxy;
	call_leave(call);
	if (session->upstream && call->upstream_id)
		proxy->upstream->forget(session->upstream, call->upstream_id);
	client_task_settle(call);
	call_set_state(call, call->ticketed && call->outcome.len ? CALL_FINISHED : CALL_DEAD);
	if (proxy->kept_count > proxy->policy->limits.kept)
		call_set_state(TAILQ_FIRST(&proxy->kept), CALL_DEAD);
	server_requests_reconsider(session);
	session_pump(session);
}

/* Ends. */

void call_deliver(struct call *call, int http_status)
{
	struct exchange *exchange;
	while ((exchange = TAILQ_FIRST(&call->waiters))) {
		call->delivered = true;
		/* Only what a ticket leads to is asked for again. */
		if (!call->ticketed && !TAILQ_NEXT(exchange, of_call) && buf_ok(&call->outcome))
			exchange_respond_taking(exchange, http_status, &call->outcome);
		else
			exchange_respond(exchange, http_status, message_body(&call->outcome));
	}
}

static void cancel_upstream(struct call *call, const char *reason)
{
	if (!task_cancel(call))
		session_cancel_request(call->session, call->upstream_id, reason);
}

/* Nobody waits for the server's answer any more, but the server may still be at work. */
static void call_let_end(struct call *call, enum call_end how, const char *reason)
{
	if (!call->sent) {
		call_settle(call);
		return;
	}
	/* Answers that fail closed let a handler end by itself; cancelling comes after that. */
	bool wait_first = how == CALL_END_ABANDONED;
	call->recycle = how == CALL_END_ABANDONED;
	if (!wait_first)
		cancel_upstream(call, reason);
	call->cancel_sent = !wait_first;
	struct session *session = call->session;
	call_set_state(call, CALL_ENDING);
	server_requests_reconsider(session);
	session_pump(session);
}

void call_end(struct call *call, enum call_end how, const char *reason, struct buf *body)
{
	static const char *const events[] = {
		"call-finished", "call-refused", "call-cancelled", "call-abandoned", "call-lost"};
	call_log(call, how == CALL_END_ANSWERED || how == CALL_END_CANCELLED ? LOG_DEBUG : LOG_INFO, events[how], "%s",
		reason);
	call->row->ends[how]++;
	if (how == CALL_END_REFUSED)
		metrics_refused(&call->proxy->metrics, reason, proxy_now(call->proxy));
	buf_free(&call->outcome);
	call->delivered = false;
	if (body)
		call->outcome = buf_take(body);
	if (how == CALL_END_ABANDONED)
		call->expires_ms = proxy_now(call->proxy);
	call_drop_inputs(call, how == CALL_END_ANSWERED);
	if (body)
		call_deliver(call, result_http_status(call->method, call->policy, message_body(&call->outcome)));
	if (call->outcome.failed)
		buf_free(&call->outcome);
	metrics_waited(&call->proxy->metrics, call->waited_ms);
	/* A call whose stream broke while its session lives is as good as cancelled: the server may still be at work. */
	bool over = how == CALL_END_ANSWERED ||
		    (how == CALL_END_LOST && (call->session->gone || call->session->state == SESSION_DEAD));
	if (over)
		call_settle(call);
	else
		call_let_end(call, how, reason);
}

void call_fail(struct call *call, enum call_end how, const char *reason, int code, const char *text, const char *data)
{
	char reason_data[96];
	struct buf body = {0};
	snprintf(reason_data, sizeof(reason_data), "{\"reason\":\"%s\"}", reason);
	message_add_error(&body, code, text, data ? data : reason_data);
	call_end(call, how, reason, &body);
}

static void call_on_timer(void *arg)
{
	struct call *call = arg;
	switch (call->state) {
	case CALL_WAITING:
		call_fail(call, CALL_END_REFUSED, "busy", RPC_INTERNAL_ERROR,
			"The server was busy with other calls for too long; nothing was sent (deadlines.wait)", NULL);
		break;
	case CALL_RUNNING:
		call->row->seen.timed_out++;
		call_fail(call, CALL_END_REFUSED, "timeout", RPC_INTERNAL_ERROR,
			"The server did not answer in time; the call may have had effects", NULL);
		break;
	case CALL_GATHERING:
		call_park(call);
		break;
	case CALL_PARKED:
		call_end(call, CALL_END_ABANDONED, "deadline", NULL);
		break;
	case CALL_RESUMING:
		call_unresume(call);
		break;
	case CALL_ENDING:
		if (!call->cancel_sent) {
			cancel_upstream(call, "Nobody answered in time");
			call->cancel_sent = true;
			call_set_state(call, CALL_ENDING);
			break;
		}
		if (call->recycle)
			session_retire(call->session, "an abandoned call does not end");
		call_settle(call);
		break;
	default:
		call_set_state(call, CALL_DEAD);
		break;
	}
}
