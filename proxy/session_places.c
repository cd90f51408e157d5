/* Which calls of a session may go ahead: places for those that may ask, and the server's time to come to rest. */
#include "proxy/session.h"

enum { SETTLE_PATIENCE = 20 }; /* times `settle`, for the answer to a ping */

static void on_wake(void *arg);

bool session_is_serial(const struct session *session)
{
	const struct proxy *proxy = session->proxy;
	bool has_streams = proxy->upstream->has_streams && !session->no_streams;
	switch (proxy->policy->upstream.attribution) {
	case POLICY_ATTRIBUTION_SERIAL:
		return true;
	case POLICY_ATTRIBUTION_STREAM:
		return !has_streams;
	default:
		return !has_streams || proxy->serial;
	}
}

static void wake_at(struct session *session, int64_t due_ms)
{
	if (!session->wake.armed || session->wake.due_ms > due_ms)
		timer_set(&session->proxy->timers, &session->wake, due_ms, on_wake, session);
}

/* Whether one more call that may ask can run: none does, or those that do have not asked for so long that they hardly
 * will. Cancelled calls hold their place while they may still ask. */
static bool has_place(struct session *session)
{
	int64_t now = proxy_now(session->proxy);
	int64_t overlap_ms = session->proxy->policy->upstream.overlap_ms;
	struct call *call;
	if (!session_is_serial(session))
		return true;
	TAILQ_FOREACH (call, &session->ending, link)
		if (call_may_ask(call))
			return false;
	TAILQ_FOREACH (call, &session->running, link) {
		if (!call_may_ask(call))
			continue;
		if (overlap_ms < 0 || call->state == CALL_GATHERING)
			return false;
		if (now - call->running_since_ms < overlap_ms) {
			wake_at(session, call->running_since_ms + overlap_ms);
			return false;
		}
	}
	return true;
}

void session_settle(struct session *session)
{
	struct proxy *proxy = session->proxy;
	int64_t settle_ms = proxy->policy->deadlines.settle_ms;
	session->settled_ms = proxy_now(proxy) + settle_ms;
	if (settle_ms && session_ping(session, &session->settle_id))
		session->settled_ms +=
			settle_ms * SETTLE_PATIENCE; /* a server that knows no ping is not waited for much longer */
}

void session_on_pong(struct session *session, uint64_t id)
{
	struct proxy *proxy = session->proxy;
	if (id == session->ping_id)
		session->ping_id = 0;
	if (id != session->settle_id)
		return;
	session->settle_id = 0;
	session->settled_ms = proxy_now(proxy) + proxy->policy->deadlines.settle_ms;
	timer_cancel(&proxy->timers, &session->wake); /* it may be set for later */
	session_pump(session);
}

/* A server whose question for the roots timed out before any call could carry it does not ask again by itself. */
static void make_ask_again(struct session *session)
{
	struct buf message = {0};
	session->roots_given_up = false;
	buf_add_text(&message, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}");
	if (session_send(session, UPSTREAM_NOTIFICATION, 0, &message) == 0)
		session_settle(session);
}

/* Lets one waiting call that may ask go ahead, if it can. */
static bool start_asking_call(struct session *session, struct call *call)
{
	bool tells_roots = call->caps.roots && call->rule->action[POLICY_ROOTS] == POLICY_FORWARD;
	/* In the plain shape no change was promised. Once for each call: while a list waits for the roots, the server hears at
	 * once that there are none, and would ask and be told without end. */
	if (tells_roots && session->roots_given_up && !session->orphan_roots && !session->plain &&
		!call->roots_renewed) {
		call->roots_renewed = true;
		make_ask_again(session);
	}
	if (proxy_now(session->proxy) < session->settled_ms) {
		wake_at(session, session->settled_ms);
		return false;
	}
	if (tells_roots && session->orphan_roots) {
		call_ask_roots(call);
		return true;
	}
	if (!has_place(session))
		return false;
	call_send(call);
	return true;
}

/* Lets one call go ahead. false if none can. */
static bool pump_one(struct session *session)
{
	struct call *call = TAILQ_FIRST(&session->resuming);
	bool blocked = false;
	if (session->state != SESSION_READY && session->state != SESSION_RETIRING)
		return false;
	if (call) {
		if (has_place(session)) {
			call_resume(call);
			return true;
		}
		blocked = true; /* those who come back go first */
	}
	TAILQ_FOREACH (call, &session->waiting, link) {
		if (call->not_before_ms > proxy_now(session->proxy)) {
			wake_at(session, call->not_before_ms);
			continue;
		}
		if (call->mirrored && !tool_mirrors_known(session))
			continue;
		if (call->mirrored && !tool_mirrors_admit(call))
			return true;
		if (!call_may_ask(call)) {
			call_send(call);
			return true;
		}
		if (!blocked && start_asking_call(session, call))
			return true;
		blocked = true;
	}
	return false;
}

void session_pump(struct session *session)
{
	if (session->pumping) {
		session->pump_again = true;
		return;
	}
	session->pumping = true;
	do {
		session->pump_again = false;
		while (pump_one(session))
			;
	} while (session->pump_again);
	session->pumping = false;
	server_requests_hurry_roots(session);
	session_rest(session);
}

static void on_wake(void *arg)
{
	session_pump(arg);
}
