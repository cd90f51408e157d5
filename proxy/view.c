#include "proxy/view.h"

#include "proxy/call.h"
#include "proxy/session.h"

const struct metrics *view_metrics(const struct proxy *proxy)
{
	return &proxy->metrics;
}

static struct view_parked look_at(const struct call *call, int64_t now)
{
	const struct input *input;
	struct view_parked parked = {.subject = call->subject,
		.hash = call->hash,
		.session = call->session->name,
		.round = call->round,
		.for_ms = now - call->entered_ms,
		.left_ms = call->expires_ms - now};
	TAILQ_FOREACH (input, &call->inputs, link)
		parked.asked[input->kind]++;
	return parked;
}

size_t view_parked(
	const struct proxy *proxy, size_t max, void (*show)(void *ctx, const struct view_parked *parked), void *ctx)
{
	const struct session *session;
	const struct call *call;
	int64_t now = proxy_now(proxy);
	TAILQ_FOREACH (session, &proxy->sessions, link)
		TAILQ_FOREACH (call, &session->parked, link) {
			if (max == 0)
				return proxy->counts.parked;
			struct view_parked parked = look_at(call, now);
			show(ctx, &parked);
			max--;
		}
	return proxy->counts.parked;
}

static unsigned count(const struct call_list *list)
{
	const struct call *call;
	unsigned calls = 0;
	TAILQ_FOREACH (call, list, link)
		calls++;
	return calls;
}

size_t view_sessions(
	const struct proxy *proxy, size_t max, void (*show)(void *ctx, const struct view_session *session), void *ctx)
{
	static const char *const states[] = {"opening", "opening", "ready", "retiring", "dead"};
	const struct session *session;
	TAILQ_FOREACH (session, &proxy->sessions, link) {
		if (max-- == 0)
			break;
		show(ctx, &(struct view_session){.name = session->name,
				  .state = states[session->state],
				  .version = session->state < SESSION_ESTABLISHING
						     ? ""
						     : legacy_version_names[session->version],
				  .calls = count(&session->waiting) + count(&session->running) +
					   count(&session->resuming) + count(&session->ending),
				  .parked = count(&session->parked)});
	}
	return proxy->counts.sessions;
}

int64_t view_patience_ms(const struct proxy *proxy)
{
	return proxy->patience_ms;
}

int64_t view_now_ms(const struct proxy *proxy)
{
	return proxy_now(proxy);
}
