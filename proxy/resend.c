/* Calls that the server has certainly not begun with. A server that was started again, or gave up an idle session, answers the
 * next request of the session with 404 before it looks at it (2025-11-25 basic/transports "Session Management"). A modern
 * client knows of no session, so its call goes to a new one, once; what the session knew is gone for later calls, too. */
#include "proxy/call.h"
#include "proxy/session.h"
#include "proxy/translate.h"

#include <stdlib.h>

enum { MAX_SPARE = 65536 }; /* bytes: larger ones are not held twice */

void call_keep_request(struct call *call)
{
	buf_free(&call->spare);
	if (!call->proxy->upstream->has_streams || call->request.len > MAX_SPARE)
		return;
	buf_add_span(&call->spare, buf_span(&call->request));
	if (!buf_ok(&call->spare))
		buf_free(&call->spare); /* then there is no second try */
}

/* From the list that it is on to that of another session. */
static void move(struct call *call, struct session *session)
{
	struct session *old = call->session;
	call_leave(call);
	call_set_state(call, CALL_WAITING);
	TAILQ_REMOVE(&old->waiting, call, link);
	old->waiting_count--;
	call->session = session;
	TAILQ_INSERT_TAIL(&session->waiting, call, link);
	session->waiting_count++;
	call_set_state(call, CALL_WAITING); /* how long it waits depends on the session */
}

/* false if that cannot be tried; nothing has changed then. */
static bool resend(struct call *call)
{
	const struct exchange *exchange = TAILQ_FIRST(&call->waiters);
	const struct session *old = call->session;
	struct request request = {.client_info = old->client_info ? span_of(old->client_info) : (struct span){0}};
	struct buf *kept = call->sent ? &call->spare : &call->request;
	struct span params = {0};
	struct error error = {0};
	bool has_request = call->method->id != METHOD_DISCOVER;
	if (call->resent || !exchange || (has_request && !json_get(buf_span(kept), NULL, "params", &params)))
		return false;
	struct session *session =
		session_for(call->proxy, exchange->client, &call->caps, &request, call->method->may_ask, &error);
	if (!session) {
		call_log(call, LOG_INFO, "call-not-resent", "%s", error.text);
		return false;
	}
	struct buf message = {0};
	uint64_t id = has_request ? session->next_id++ : 0;
	if (has_request)
		translate_request(call->method, params, NULL, id, &message);
	if (!buf_ok(&message) && has_request) {
		buf_free(&message);
		return false;
	}
	call_log(call, LOG_INFO, "call-resent", "in session %s", session->name);
	move(call, session);
	call->resent = true;
	call->as_task = false;
	call->roots_renewed = false;
	call->upstream_id = id;
	buf_free(&call->spare);
	buf_free(&call->request);
	call->request = message;
	session_pump(session);
	return true;
}

void call_on_unseen(struct call *call, const char *why)
{
	if (call->state == CALL_RUNNING && call->session->gone && resend(call))
		return;
	/* What fetches the result of a task is not the call itself. */
	if (!call->task_id)
		call_leave(call);
	call_on_session_lost(call, 0, why);
}

void call_resend_waiting(struct session *session)
{
	struct call *call = TAILQ_FIRST(&session->waiting);
	while (call) {
		struct call *next = TAILQ_NEXT(call, link);
		(void)resend(call);
		call = next;
	}
}
