#include "proxy/logging.h"

#include "proxy/session.h"

static const char *const names[LOGGING_LEVELS] = {
	"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

bool logging_read_level(struct span name, int *level)
{
	if (json_type(name) != JSON_STRING)
		return false;
	for (int i = 0; i < LOGGING_LEVELS; i++)
		if (json_string_is(name, names[i])) {
			*level = i;
			return true;
		}
	return false;
}

bool logging_is_wanted(const struct message *message, int level)
{
	struct span name;
	int number;
	return level != LOGGING_NONE && json_get(message->params, &message->index, "level", &name) &&
	       logging_read_level(name, &number) && number >= level;
}

static int lower(int a, int b)
{
	return a == LOGGING_NONE ? b : b == LOGGING_NONE ? a : a < b ? a : b;
}

void logging_prepare(struct session *session, const struct call *call)
{
	struct span capability;
	const struct call *other;
	int level = call->log_level;
	TAILQ_FOREACH (other, &session->running, link)
		level = lower(level, other->log_level);
	if (level == LOGGING_NONE || level == session->log_level ||
		!json_get(span_of(session->identity.capabilities), NULL, "logging", &capability))
		return;
	struct buf message = {0};
	uint64_t id = session->next_id++;
	buf_printf(&message,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"%s\"}}",
		(unsigned long long)id, names[level]);
	if (session_send(session, UPSTREAM_REQUEST, id, &message) == 0)
		session->log_level = level;
}

/* The one request that the message can belong to: that of its stream, or the only one that runs. */
static struct call *find_source(struct session *session, uint64_t stream)
{
	if (stream)
		return session_find_call(session, stream);
	struct call *call = TAILQ_FIRST(&session->running);
	return call && !TAILQ_NEXT(call, link) && TAILQ_EMPTY(&session->ending) ? call : NULL;
}

void logging_on_message(struct session *session, const struct message *message, uint64_t stream)
{
	struct exchange *exchange;
	struct call *call = find_source(session, stream);
	if (!call || !logging_is_wanted(message, call->log_level))
		return;
	call->row->seen.logs++;
	TAILQ_FOREACH (exchange, &call->waiters, of_call)
		exchange_notify(exchange, "notifications/message", message->params, NULL, NULL);
}
