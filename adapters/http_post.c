/* One POST and what comes of it: a JSON body, or an event stream that may break and be resumed (2025-11-25
 * basic/transports "Sending Messages to the Server", "Resumability and Redelivery"). */
#include "adapters/http_session.h"

#include "proxy/message.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void on_head(void *arg, const struct http_response *response);
static void on_data(void *arg, struct span bytes);
static void on_done(void *arg, const char *fault, bool unsent);

static const struct http_handlers handlers = {on_head, on_data, on_done};

static void start_transfer(struct post *post, struct buf *message);

void post_free(struct post *post)
{
	TAILQ_REMOVE(&post->upstream->posts, post, link);
	post->upstream->unsent_bytes -= post->bytes;
	if (post->transfer)
		http_transfer_cancel(post->transfer);
	if (post->timer)
		event_free(post->timer);
	sse_free(&post->sse);
	buf_free(&post->body);
	free(post->last_event_id);
	free(post->id);
	free(post);
}

/* The request cannot be answered any more. */
static void fail(struct post *post, int status, const char *why)
{
	struct upstream *upstream = post->upstream;
	uint64_t id = post->request_id;
	bool handshake = post->is_handshake, unseen = post->unseen,
	     waits = post->kind == UPSTREAM_REQUEST && !post->answered;
	upstream_log(upstream, waits ? LOG_INFO : LOG_WARNING, waits ? "request-failed" : "message-not-taken", why);
	bool initialized = post->is_initialized;
	post_free(post);
	if (initialized || (handshake && waits))
		upstream_lose(upstream, status, why);
	else if (waits && upstream->session && unseen)
		session_on_request_unseen(upstream->session, id, why);
	else if (waits && upstream->session)
		session_on_request_failed(upstream->session, id, status, why);
}

/* What is no answer: our words, and the server's. */
static void fail_with_words(struct post *post, const char *ours)
{
	struct span error, message;
	char why[300];
	struct buf body = buf_take(&post->body);
	struct span text = buf_span(&body);
	if (json_get(text, NULL, "error", &error) && json_get(error, NULL, "message", &message))
		text = message;
	snprintf(why, sizeof(why), "%s%s%.*s", ours, text.len ? ": " : "", (int)(text.len < 200 ? text.len : 200),
		text.ptr ? text.ptr : "");
	fail(post, post->status / 100 == 2 ? 0 : post->status, why);
	buf_free(&body);
}

static void fail_with_status(struct post *post)
{
	char ours[40];
	snprintf(ours, sizeof(ours), "the server answered HTTP %d", post->status);
	fail_with_words(post, ours);
}

static bool mentions(struct span text, const char *words)
{
	size_t len = strlen(words);
	for (size_t i = 0; i + len <= text.len; i++)
		if (strncasecmp(text.ptr + i, words, len) == 0)
			return true;
	return false;
}

/* The server speaks as one of 2026-07-28, which knows no sessions. */
static bool says_it_is_modern(struct span message)
{
	struct span error, value;
	int64_t code;
	return json_get(message, NULL, "error", &error) && json_get(error, NULL, "code", &value) &&
	       json_integer(value, &code) && (code == RPC_HEADER_MISMATCH || code == RPC_UNSUPPORTED_VERSION);
}

/* The signs of a session that is gone, as servers show them. */
static bool session_is_gone(const struct post *post)
{
	struct span body = buf_span(&post->body);
	if (!post->upstream->session_id || post->is_handshake)
		return false;
	return post->status == 404 ||
	       (post->status == 400 &&
		       (mentions(body, "not initialized") || mentions(body, "session") || says_it_is_modern(body)));
}

/* Some servers say it in a JSON-RPC error under HTTP 200. */
static bool says_session_is_gone(struct span message)
{
	struct span error, text;
	return json_get(message, NULL, "error", &error) && json_get(error, NULL, "message", &text) &&
	       (mentions(text, "session not found") || mentions(text, "invalid session") ||
		       mentions(text, "session expired") || mentions(text, "unknown session"));
}

/* HTTP+SSE servers do not know a POST to this address. */
static bool may_be_http_sse(const struct post *post)
{
	return post->is_handshake && post->upstream->mode == HTTP_MODE_UNKNOWN &&
	       (post->status == 400 || post->status == 404 || post->status == 405);
}

enum verdict { NO_ANSWER, OUR_ANSWER, ANOTHERS_ANSWER };

/* Whether a message is the response to the request of this POST. Servers in JavaScript round the numbers of ids. */
static enum verdict judge(const struct post *post, struct span message)
{
	struct span id, own;
	if (message.len && *message.ptr == '[') {
		struct json_walk walk = json_walk(message, NULL);
		while (json_next_element(&walk, &id))
			if (id.len && *id.ptr != '[' && judge(post, id) == OUR_ANSWER)
				return OUR_ANSWER;
		return NO_ANSWER;
	}
	if (!post->id || !upstream_is_response(message, &id))
		return NO_ANSWER;
	own = span_of(post->id);
	return id.ptr && (json_same(id, own) || json_number(id) == json_number(own)) ? OUR_ANSWER : ANOTHERS_ANSWER;
}

static void on_event(void *arg, const struct sse_event *event)
{
	struct post *post = arg;
	struct upstream *upstream = post->upstream;
	post->retries = 0;
	if (event->retry_ms >= 0)
		post->retry_ms = event->retry_ms;
	if (event->id.ptr) {
		free(post->last_event_id);
		post->last_event_id = event->id.len ? span_dup(event->id) : NULL;
	}
	if (!event->data.len || (event->type.len && !span_is(event->type, "message")))
		return;
	bool gone = upstream->session_id && says_session_is_gone(event->data);
	bool ours = judge(post, event->data) == OUR_ANSWER;
	if (upstream_deliver(upstream, event->data, post->request_id)) {
		post->polls = 0;
		post->answered |= ours;
	}
	if (gone)
		upstream_lose(upstream, 0, "the server does not know the session any more");
	/* After the response nothing of interest comes; without a session nothing at all. */
	post->sse.stopped = post->answered || !upstream->session;
}

static void on_head(void *arg, const struct http_response *response)
{
	struct post *post = arg;
	struct upstream *upstream = post->upstream;
	int status = response->status;
	post->status = status;
	if (upstream->session && (status == 401 || status == 403))
		session_set_challenge(upstream->session, response->challenge);
	upstream->unsent_bytes -= post->bytes;
	post->bytes = 0;
	if (post->is_handshake && status / 100 == 2 && response->bad_session_id) {
		upstream_lose(
			upstream, 0, "the server's Mcp-Session-Id is not visible ASCII, or longer than 511 bytes");
		return;
	}
	post->is_stream = upstream_is_stream(response);
	if (post->is_handshake && status / 100 == 2 && upstream->mode == HTTP_MODE_UNKNOWN) {
		upstream->mode = HTTP_MODE_STREAMABLE;
		if (response->session_id && !upstream->session_id)
			upstream->session_id = strdup(response->session_id);
	}
	if (post->is_stream)
		sse_init(&post->sse, upstream->http->policy->limits.message_bytes, on_event, post);
}

static void finish_stream_data(struct post *post, int status)
{
	if (status == ERROR_LIMIT) {
		fail(post, 0, "the server sent an event larger than the limit (limits.message)");
	} else if (status) {
		fail(post, 0, "out of memory");
	} else if (post->answered || !post->upstream->session) {
		post_free(post);
	}
}

static void on_data(void *arg, struct span bytes)
{
	struct post *post = arg;
	if (post->is_stream) {
		post->feeding = true;
		int status = sse_feed(&post->sse, bytes);
		post->feeding = false;
		finish_stream_data(post, status);
		return;
	}
	bool wanted = post->kind == UPSTREAM_REQUEST && (post->status / 100 == 2 || post->upstream->modern);
	size_t limit = wanted ? post->upstream->http->policy->limits.message_bytes : HTTP_MAX_FAULT;
	if (post->body.len + bytes.len <= limit)
		buf_add_span(&post->body, bytes);
	else if (wanted)
		fail(post, 0, "the server sent a message larger than the limit (limits.message)");
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	start_transfer(arg, NULL);
}

/* A stream that ended before the response goes on by GET, if the server named a place to go on from. */
static bool resume(struct post *post)
{
	if (!post->last_event_id || post->kind != UPSTREAM_REQUEST || ++post->retries > HTTP_MAX_RETRIES)
		return false;
	if (!post->timer)
		post->timer = event_new(post->upstream->http->base, -1, 0, on_resume, post);
	int64_t pause = upstream_pause(post->retry_ms, post->polls++);
	struct timeval delay = {pause / 1000, pause % 1000 * 1000};
	if (!post->timer || event_add(post->timer, &delay))
		return false;
	sse_free(&post->sse);
	post->resumed = true;
	return true;
}

/* The body that a request was answered by: one message, or a batch where revisions know it. Nothing more will come. */
static void take_answer(struct post *post)
{
	struct upstream *upstream = post->upstream;
	enum verdict verdict = judge(post, buf_span(&post->body));
	if (verdict == ANOTHERS_ANSWER) {
		/* Or an error without an id, as JSON-RPC 2.0 has it where the server did not understand the request. */
		fail_with_words(post, "the server answered with another id");
		return;
	}
	struct buf body = buf_take(&post->body);
	bool gone = upstream->session_id && says_session_is_gone(buf_span(&body));
	post->feeding = true;
	if (body.len && upstream_deliver(upstream, buf_span(&body), post->request_id))
		post->answered |= verdict == OUR_ANSWER;
	post->feeding = false;
	buf_free(&body);
	if (gone)
		upstream_lose(upstream, 0, "the server does not know the session any more");
	if (!post->answered && upstream->session)
		fail(post, 0, "the server answered without a response");
	else
		post_free(post);
}

/* The end of a 2xx. */
static void finish_body(struct post *post)
{
	struct upstream *upstream = post->upstream;
	bool initialized = post->is_initialized;
	if (upstream->mode == HTTP_MODE_SSE) {
		post_free(post); /* "Accepted": the answer comes on the stream */
	} else if (post->kind == UPSTREAM_REQUEST) {
		take_answer(post);
	} else {
		post_free(post);
		if (initialized)
			stream_open(upstream);
	}
}

/* A modern server gives its errors statuses of their own; the body says the same as JSON-RPC. */
static bool is_error_response(const struct post *post)
{
	struct span error;
	return post->upstream->modern && post->kind == UPSTREAM_REQUEST &&
	       json_get(buf_span(&post->body), NULL, "error", &error) && json_type(error) == JSON_OBJECT &&
	       post->status != 401 && post->status != 403;
}

/* What else is on its way in the session has an answer of its own; but a question whose answer was not taken holds its call
 * for ever, and a server that is modern now knows none of it. */
static void on_gone(struct post *post)
{
	static const char why[] = "the server does not know the session any more";
	struct upstream *upstream = post->upstream;
	enum upstream_kind kind = post->kind;
	uint64_t id = kind == UPSTREAM_REQUEST ? post->request_id : 0;
	bool resumed = post->resumed, is_modern = says_it_is_modern(buf_span(&post->body));
	post_free(post);
	if (kind == UPSTREAM_RESPONSE) {
		upstream_lose(upstream, 404, why);
		return;
	}
	if (is_modern && id)
		session_on_request_unseen(upstream->session, id, why);
	else
		session_on_gone(upstream->session, resumed ? 0 : id, why);
	if (is_modern)
		upstream_lose(upstream, 404, why);
	else if (resumed && upstream->session)
		session_on_request_failed(upstream->session, id, 404, why);
}

static void on_done(void *arg, const char *fault, bool unsent)
{
	struct post *post = arg;
	struct upstream *upstream = post->upstream;
	post->transfer = NULL;
	post->unseen = unsent && !post->resumed;
	if (!upstream->session)
		return; /* freed with the session */
	if (post->is_stream || (post->resumed && fault)) {
		if (!resume(post))
			fail(post, 0, fault ? fault : "the stream ended before the response");
	} else if (fault) {
		fail(post, 0, fault);
	} else if (session_is_gone(post)) {
		on_gone(post);
	} else if (may_be_http_sse(post)) {
		post_free(post);
		upstream->mode = HTTP_MODE_SSE;
		stream_open(upstream);
	} else if (post->status / 100 != 2 && !is_error_response(post)) {
		/* A server that cannot take `initialized` has no session with us; an answer it refuses is only that answer. */
		fail_with_status(post);
	} else {
		finish_body(post);
	}
}

/* Whether a message may reach the server twice: if a kept connection breaks under it, nobody can tell whether it was done. What
 * is not known to change nothing the second time may not. An answer counts once, by its id. */
static bool may_repeat(const struct post *post, struct span message)
{
	static const char *const harmless[] = {"initialize", "ping", "server/discover", "subscriptions/listen",
		"tools/list", "prompts/list", "prompts/get", "resources/list", "resources/templates/list",
		"resources/read", "resources/subscribe", "resources/unsubscribe", "completion/complete",
		"logging/setLevel", "tasks/list", "tasks/get", "notifications/initialized", "notifications/cancelled",
		"notifications/progress", "notifications/roots/list_changed"};
	struct json_walk walk = json_walk(message, NULL);
	struct json_member member;
	struct span state;
	bool known = post->kind == UPSTREAM_RESPONSE;
	while (post->kind != UPSTREAM_RESPONSE && json_next_member(&walk, &member)) {
		if (json_key_is(member.key, "method")) {
			known = false;
			for (size_t i = 0; !known && i < sizeof(harmless) / sizeof(harmless[0]); i++)
				known = json_string_is(member.value, harmless[i]);
			if (!known)
				return false;
		} else if (json_key_is(member.key, "params") && json_get(member.value, NULL, "requestState", &state)) {
			return false; /* good for one time */
		}
	}
	return known;
}

static void start_transfer(struct post *post, struct buf *message)
{
	struct upstream *upstream = post->upstream;
	struct header_lines headers;
	const char *accept = message ? "Accept: application/json, text/event-stream" : "Accept: text/event-stream";
	post->is_stream = false;
	if (upstream_write_headers(upstream, &headers, accept, message ? buf_span(message) : (struct span){0},
		    message ? NULL : post->last_event_id))
		post->transfer = http_transfer_start(upstream->http->client,
			&(struct http_request){.method = message ? "POST" : "GET",
				.url = upstream->endpoint,
				.headers = headers.lines,
				.body = message,
				.repeatable = !message || may_repeat(post, buf_span(message))},
			&handlers, post);
	header_lines_free(&headers);
	if (!post->transfer && !message)
		fail(post, 0, "out of memory");
}

/* The id that a request of ours bears, to be freed. */
static char *id_of(struct span message)
{
	struct json_walk walk = json_walk(message, NULL);
	struct json_member member;
	while (json_next_member(&walk, &member))
		if (json_key_is(member.key, "id"))
			return span_dup(member.value);
	return NULL;
}

int post_start(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id, struct buf *message)
{
	struct post *post = calloc(1, sizeof(*post));
	if (!post) {
		buf_free(message);
		return ERROR_MEMORY;
	}
	post->upstream = upstream;
	post->kind = kind;
	post->request_id = request_id;
	post->id = kind == UPSTREAM_REQUEST ? id_of(buf_span(message)) : NULL;
	post->retry_ms = HTTP_RETRY_MS;
	post->bytes = message->len;
	post->is_handshake = kind == UPSTREAM_REQUEST && request_id == upstream->handshake_id;
	/* The first notification of a session is `initialized`. */
	post->is_initialized = kind == UPSTREAM_NOTIFICATION && !upstream->initialized_sent && !upstream->modern;
	upstream->initialized_sent |= kind == UPSTREAM_NOTIFICATION;
	upstream->unsent_bytes += post->bytes;
	TAILQ_INSERT_TAIL(&upstream->posts, post, link);
	if (post->id || kind != UPSTREAM_REQUEST)
		start_transfer(post, message);
	buf_free(message);
	if (!post->transfer) {
		post_free(post);
		return ERROR_MEMORY;
	}
	if (kind == UPSTREAM_REQUEST && !post->is_handshake)
		stream_watch(upstream);
	return 0;
}

void post_forget(struct upstream *upstream, uint64_t request_id)
{
	struct post *post;
	/* Old ones are parked calls; mostly it is a young one that ends. */
	TAILQ_FOREACH_REVERSE(post, &upstream->posts, post_list, link)
	if (post->request_id == request_id && post->kind == UPSTREAM_REQUEST)
		break;
	if (!post)
		return;
	post->answered = true;
	post->sse.stopped = true;
	if (!post->feeding) /* else it ends when what it is being fed is used up */
		post_free(post);
}
