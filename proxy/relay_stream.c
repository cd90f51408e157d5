/* The streams of a relay, and the events that are kept for clients that come back. */
#include "proxy/relay.h"

#include "proxy/elder.h"
#include "proxy/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct relay_stream *relay_stream_new(struct relay *relay, struct exchange *exchange, const struct message *message)
{
	struct span meta = {0}, token = {0};
	struct relay_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->relay = relay;
	stream->id = span_dup(message->id);
	if (json_get(message->params, &message->index, "_meta", &meta))
		json_get(meta, NULL, "progressToken", &token);
	/* A token as long as no id may be is passed on, but not kept. */
	bool keeps_token = token.ptr && token.len <= MAX_ID_BYTES;
	stream->progress_token = keeps_token ? span_dup(token) : NULL;
	if (!stream->id || (keeps_token && !stream->progress_token)) {
		free(stream->id);
		free(stream->progress_token);
		free(stream);
		return NULL;
	}
	stream->method = method_find(message->method);
	stream->number = stream->request = relay->session->next_id++;
	stream->exchange = exchange;
	exchange->stream = stream;
	TAILQ_INSERT_TAIL(&relay->streams, stream, link);
	return stream;
}

struct exchange *relay_stream_take_exchange(struct relay_stream *stream)
{
	struct exchange *exchange = stream->exchange;
	if (exchange)
		exchange->stream = NULL;
	stream->exchange = NULL;
	return exchange;
}

void relay_stream_end_call(struct relay_stream *stream)
{
	elder_call_free(stream->call);
	stream->call = NULL;
}

void relay_stream_free(struct relay_stream *stream)
{
	struct relay *relay = stream->relay;
	(void)relay_stream_take_exchange(stream);
	relay_observe_end(stream);
	if (stream->reader)
		stream->reader->reads = NULL;
	relay_stream_end_call(stream);
	free(stream->id);
	free(stream->progress_token);
	stream->id = stream->progress_token = NULL;
	if (stream == &relay->standalone)
		return;
	TAILQ_REMOVE(&relay->streams, stream, link);
	free(stream);
}

void relay_stream_settle(struct relay_stream *stream)
{
	bool is_over = stream->answered || stream->cancelled;
	if (stream != &stream->relay->standalone && is_over && !stream->exchange && !stream->reader && !stream->kept)
		relay_stream_free(stream);
}

/* Kept events. */

struct relay_stream *relay_stream_find(struct relay *relay, uint64_t number)
{
	struct relay_stream *stream;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (stream->number == number)
			return stream;
	return number ? NULL : &relay->standalone;
}

struct relay_stream *relay_stream_of_request(struct relay *relay, uint64_t request)
{
	struct relay_stream *stream;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (stream->request == request)
			break;
	return stream;
}

struct relay_stream *relay_stream_by_id(struct relay *relay, struct span id)
{
	struct relay_stream *stream;
	TAILQ_FOREACH (stream, &relay->streams, link)
		if (id.ptr && !stream->answered && !stream->cancelled && json_same(id, span_of(stream->id)))
			return stream;
	return NULL;
}

static void forget_oldest(struct relay *relay)
{
	struct relay_event *event = TAILQ_FIRST(&relay->events);
	struct relay_stream *stream = relay_stream_find(relay, event->stream);
	if (!event->sent)
		session_warn(relay->session, "event-dropped",
			"a message for a client that is not there is dropped (limits.replay)");
	TAILQ_REMOVE(&relay->events, event, link);
	relay->kept_bytes -= event->message.cap;
	buf_free(&event->message);
	free(event);
	if (stream) {
		stream->kept--;
		relay_stream_settle(stream);
	}
}

void relay_forget_events(struct relay *relay)
{
	while (!TAILQ_EMPTY(&relay->events))
		forget_oldest(relay);
}

/* Takes the content of *message. NULL without memory, then or when it was written: half a message is never kept. */
static struct relay_event *keep(struct relay_stream *stream, struct buf *message, bool is_last)
{
	struct relay *relay = stream->relay;
	struct relay_event *event = buf_ok(message) ? calloc(1, sizeof(*event)) : NULL;
	if (!event) {
		buf_free(message);
		return NULL;
	}
	event->message = buf_take(message);
	event->stream = stream->number;
	event->number = ++relay->events_ever;
	event->last = is_last;
	stream->kept++;
	relay->kept_bytes += event->message.cap;
	TAILQ_INSERT_TAIL(&relay->events, event, link);
	return event;
}

/* The newest event stays, however large it is: it may be the only one, and somebody is about to read it. */
static void trim(struct relay *relay)
{
	size_t limit = relay->session->proxy->policy->limits.replay_bytes;
	while (relay->kept_bytes > limit && TAILQ_FIRST(&relay->events) != TAILQ_LAST(&relay->events, relay_events))
		forget_oldest(relay);
}

/* Delivery. */

void relay_stream_hang_up(struct relay_stream *stream)
{
	struct client *reader = stream->reader;
	struct exchange *exchange = relay_stream_take_exchange(stream);
	stream->reader = NULL;
	if (reader) {
		reader->reads = NULL;
		reader->ops->finish(reader);
	}
	if (exchange) {
		struct client *client = exchange->client;
		exchange_drop(exchange);
		client->ops->finish(client);
	}
	session_pump(stream->relay->session);
}

static void send_event(struct relay_stream *stream, struct relay_event *event)
{
	char id[48];
	struct buf copy = {0};
	struct relay *relay = stream->relay;
	struct client *client = stream->reader ? stream->reader : stream->exchange ? stream->exchange->client : NULL;
	if (!client)
		return;
	buf_add_span(&copy, buf_span(&event->message));
	snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, event->stream, event->number);
	client->event_id = id;
	/* A header, and so it goes with whatever is sent first. */
	client->session_id = event->stream == relay->initialize ? relay->id : NULL;
	bool sent = buf_ok(&copy) && client->ops->send(client, &copy);
	client->event_id = NULL;
	client->session_id = NULL;
	buf_free(&copy);
	/* A connection that turned out to be broken was the last that held the session. */
	if (relay->session->state == SESSION_DEAD)
		return;
	event->sent = sent;
	stream->has_events = true;
	/* Who does not read is cut off, and may come back for the rest. */
	if (!event->sent || event->last)
		relay_stream_hang_up(stream);
}

void relay_stream_put(struct relay_stream *stream, struct buf *message, bool is_last)
{
	struct relay *relay = stream->relay;
	stream->answered |= is_last;
	if (is_last)
		relay_stream_end_call(stream);
	if (is_last && stream->exchange && !stream->reader && !stream->has_events) {
		exchange_deliver(relay_stream_take_exchange(stream), 200, message);
		relay_stream_settle(stream);
		return;
	}
	struct relay_event *event = keep(stream, message, is_last);
	if (!event) {
		session_log(relay->session, LOG_ERROR, "no-memory", "a message to the client is lost");
		relay_stream_hang_up(stream);
		relay_stream_settle(stream);
		return;
	}
	send_event(stream, event);
	trim(relay);
}

/* Reading by GET. */

static bool read_digits(const char *at, const char *end, uint64_t *number)
{
	bool any = at < end;
	for (*number = 0; at < end; at++)
		if (*at < '0' || *at > '9' || __builtin_mul_overflow(*number, 10, number) ||
			__builtin_add_overflow(*number, (unsigned)(*at - '0'), number))
			return false;
	return any;
}

/* The stream of an event, by the event's id as written above. NULL if there is none, or none any more. */
static struct relay_stream *find_by_event(struct relay *relay, struct span id, uint64_t *event)
{
	const char *dash = memchr(id.ptr, '-', id.len);
	uint64_t stream;
	if (!dash || !read_digits(id.ptr, dash, &stream) || !read_digits(dash + 1, id.ptr + id.len, event) || !*event ||
		*event > relay->events_ever)
		return NULL;
	return relay_stream_find(relay, stream);
}

static void replay(struct relay_stream *stream, uint64_t after)
{
	struct relay *relay = stream->relay;
	struct relay_event *event = TAILQ_FIRST(&relay->events);
	while (event && relay->session->state != SESSION_DEAD && stream->reader) {
		struct relay_event *next = TAILQ_NEXT(event, link);
		if (event->stream == stream->number && (after ? event->number > after : !event->sent))
			send_event(stream, event);
		event = next;
	}
}

struct relay *relay_of_client(struct proxy *proxy, const struct client *client)
{
	struct span id;
	struct relay *relay = NULL;
	if (!client->ops->header || !client->ops->header(client, "mcp-session-id", &id))
		return NULL;
	HASH_FIND(hh, proxy->relays, id.ptr, id.len, relay);
	bool is_own = relay && sodium_memcmp(relay->session->principal, client->principal, PRINCIPAL_BYTES) == 0;
	return is_own ? relay : NULL;
}

int proxy_listen(struct proxy *proxy, struct client *client)
{
	struct relay *relay = relay_of_client(proxy, client);
	struct span last = {0};
	uint64_t after = 0;
	if (!relay)
		return 404;
	client->ops->header(client, "last-event-id", &last);
	/* An empty id is none, as in server-sent events. Never another stream than the one that was lost. */
	struct relay_stream *stream = last.len ? find_by_event(relay, last, &after) : &relay->standalone;
	if (!stream)
		return 400;
	session_touch(relay->session, client);
	relay_stream_hang_up(stream); /* one reader a stream: the old connection is dead, or is being replaced */
	stream->reader = client;
	client->reads = stream;
	replay(stream, after);
	if (relay->session->state != SESSION_DEAD && stream->reader && stream->answered)
		relay_stream_hang_up(stream);
	return 200;
}

int proxy_end_session(struct proxy *proxy, struct client *client)
{
	struct relay *relay = relay_of_client(proxy, client);
	if (!relay)
		return 404;
	session_close(relay->session, "the client ended it");
	return 200;
}
