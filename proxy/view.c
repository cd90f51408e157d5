#include "proxy/view.h"

#include "proxy/call.h"
#include "proxy/elder.h"
#include "proxy/session.h"
#include "proxy/through.h"

const struct metrics *view_metrics(const struct proxy *proxy)
{
	return &proxy->metrics;
}

static struct view_parked look_at(const struct call *call, int64_t now, char hash[CALL_HASH_CHARS])
{
	const struct input *input;
	struct view_parked parked = {.subject = call->subject,
		.hash = hash,
		.session = call->session->name,
		.round = call->round,
		.for_ms = now - call->entered_ms,
		.left_ms = call->expires_ms - now};
	call_hash(call->id, hash);
	TAILQ_FOREACH (input, &call->inputs, link)
		parked.asked[input->kind]++;
	return parked;
}

/* The caller, and how many more it wants to see. */
struct visit {
	size_t left;
	void (*show)(void *ctx, const struct view_parked *parked);
	void *ctx;
};

static void show_parked(struct visit *visit, const struct view_parked *parked)
{
	if (!visit->left)
		return;
	visit->left--;
	visit->show(visit->ctx, parked);
}

size_t view_parked(
	const struct proxy *proxy, size_t max, void (*show)(void *ctx, const struct view_parked *parked), void *ctx)
{
	struct visit visit = {max, show, ctx};
	const struct session *session;
	const struct call *call;
	const struct relay_stream *stream;
	char hash[CALL_HASH_CHARS];
	int64_t now = proxy_now(proxy);
	TAILQ_FOREACH (session, &proxy->sessions, link) {
		const struct relay *relay = relay_of_session(session);
		TAILQ_FOREACH (call, &session->parked, link) {
			struct view_parked parked = look_at(call, now, hash);
			show_parked(&visit, &parked);
		}
		if (!relay)
			continue;
		TAILQ_FOREACH (stream, &relay->streams, link) {
			if (!elder_is_parked(stream))
				continue;
			struct view_parked parked = elder_look(stream);
			show_parked(&visit, &parked);
		}
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

/* The revision that the server speaks there, empty while nobody knows. */
static const char *version_of(const struct session *session, const struct relay *relay)
{
	if (session->state < SESSION_ESTABLISHING)
		return "";
	if (session->modern)
		return "2026-07-28";
	if (session->ops)
		return relay && relay->version ? relay->version : "";
	return legacy_version_names[session->version];
}

static struct view_session look_at_session(const struct session *session)
{
	static const char *const states[] = {"opening", "opening", "ready", "retiring", "dead"};
	const struct relay *relay = relay_of_session(session);
	const struct relay_stream *stream;
	struct view_session view = {.name = session->name,
		.state = states[session->state],
		.version = version_of(session, relay),
		.calls = count(&session->waiting) + count(&session->running) + count(&session->resuming) +
			 count(&session->ending) + through_running(session),
		.parked = count(&session->parked)};
	if (!relay)
		return view;
	TAILQ_FOREACH (stream, &relay->streams, link)
		view.parked += elder_is_parked(stream);
	view.calls += relay_running(relay) - view.parked;
	return view;
}

size_t view_sessions(
	const struct proxy *proxy, size_t max, void (*show)(void *ctx, const struct view_session *session), void *ctx)
{
	const struct session *session;
	TAILQ_FOREACH (session, &proxy->sessions, link) {
		if (max-- == 0)
			break;
		struct view_session view = look_at_session(session);
		show(ctx, &view);
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
