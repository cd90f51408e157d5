/* What the migration report learns from legacy clients in front of a legacy server: the same as from modern ones, except for
 * how long people take and what they answer, which passes unread. */
#include "proxy/method.h"
#include "proxy/metrics.h"
#include "proxy/relay.h"
#include "proxy/session.h"
#include "proxy/translate.h"

#include <stdlib.h>

void relay_observe_request(struct relay_stream *stream, const struct message *message)
{
	const struct method *method = stream->method;
	struct span value;
	if (stream->relay->elder || !method || !method->may_ask ||
		!json_get(message->params, &message->index, method->name_member, &value))
		return;
	char *name = json_string_dup(value);
	if (name)
		stream->row = metrics_row_take(&stream->relay->session->proxy->metrics, method->subject, name);
	free(name);
}

static void end(struct relay_stream *stream, enum call_end how)
{
	stream->row->ends[how]++;
	metrics_row_release(stream->row);
	stream->row = NULL;
}

void relay_observe_answer(struct relay_stream *stream, const struct message *message)
{
	if (!stream->row)
		return;
	observe_answer(&stream->row->seen, message->result, message->error, &message->index);
	end(stream, CALL_END_ANSWERED);
}

void relay_observe_end(struct relay_stream *stream)
{
	if (stream->row)
		end(stream, stream->cancelled ? CALL_END_CANCELLED : CALL_END_LOST);
}

/* Whose question it is: of the request whose stream it came on, or of the only one that may ask; else NULL. */
static struct metrics_row *find_row(struct relay *relay, uint64_t request)
{
	struct relay_stream *stream = request ? relay_stream_of_request(relay, request) : NULL;
	struct metrics_row *only = NULL;
	if (stream)
		return stream->row;
	TAILQ_FOREACH (stream, &relay->streams, link) {
		if (stream->row && only)
			return NULL;
		if (stream->row)
			only = stream->row;
	}
	return only;
}

void relay_observe_question(struct relay *relay, const struct message *message, uint64_t request)
{
	struct capability_need need;
	if (message->kind != MESSAGE_REQUEST || !translate_need(message->method, message->params, &need))
		return;
	struct metrics_row *row = find_row(relay, request);
	if (!row)
		row = &relay->session->proxy->metrics.other;
	row->forwarded[need.kind]++;
	observe_question(&row->seen, &need, message->params);
}
