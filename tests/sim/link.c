#include "tests/sim/link.h"

#include "tests/sim/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message under way. */
struct letter {
	struct link *link;
	enum { LETTER_IN, LETTER_OUT, LETTER_LOSS, LETTER_BROKEN_STREAM, LETTER_ESTABLISHED } what;
	struct span text;
	uint64_t stream;
	int http_status;
	const char *why;
};

static void deliver(struct world *world, void *arg);

static void post(struct link *link, struct letter letter, int64_t extra_ms)
{
	struct world *world = link->world;
	int64_t *next_ms = letter.what == LETTER_OUT ? &link->next_out_ms : &link->next_in_ms;
	int64_t at_ms = world->now_ms + choose(world, 0, world->latency_ms) + extra_ms;
	if (at_ms < *next_ms)
		at_ms = *next_ms;
	*next_ms = at_ms;
	struct letter *copy = arena_alloc(&world->arena, sizeof(*copy));
	*copy = letter;
	copy->link = link;
	world_at(world, at_ms - world->now_ms, deliver, copy);
}

static struct sent *find_request(const struct link *link, uint64_t request)
{
	struct sent *sent = link->sent;
	while (sent && sent->request != request)
		sent = sent->next;
	return sent;
}

static void deliver(struct world *world, void *arg)
{
	struct letter *letter = arg;
	struct link *link = letter->link;
	if (!link->open)
		return;
	switch (letter->what) {
	case LETTER_OUT:
		world->driver->from_proxy(link, letter->text);
		break;
	case LETTER_IN: {
		struct sent *of = find_request(link, letter->stream);
		if (link->modern && of && of->forgotten)
			break; /* its stream is closed */
		world_trace(world, "s%u < %.*s%s", link->number, (int)letter->text.len, letter->text.ptr,
			letter->stream ? "  (on a stream)" : "");
		ledger_from_server(link, letter->text, letter->stream);
		/* In memory of its own and of its exact size, so that no read beyond it goes unseen. */
		char *exact = malloc(letter->text.len);
		memcpy(exact, letter->text.ptr, letter->text.len);
		session_on_message(link->session, (struct span){exact, letter->text.len}, letter->stream);
		free(exact);
		ledger_passed_down(link);
		break;
	}
	case LETTER_LOSS:
		world_trace(world, "s%u lost: %s", link->number, letter->why);
		link->open = false;
		ledger_link_over(link, false);
		session_on_lost(link->session, letter->http_status, letter->why);
		break;
	case LETTER_BROKEN_STREAM: {
		struct sent *sent = find_request(link, letter->stream);
		world_trace(world, "s%u: the stream of request %llu broke", link->number,
			(unsigned long long)letter->stream);
		if (sent && sent->job)
			sent->job->lost = true;
		session_on_request_failed(link->session, letter->stream, 0, "the stream broke");
		break;
	}
	case LETTER_ESTABLISHED:
		link_established_now(link);
		break;
	}
}

void link_receive(struct link *link, struct span text, uint64_t stream)
{
	const struct sent *sent = link_find_sent(link, stream);
	if (link->open)
		post(link,
			(struct letter){.what = LETTER_IN,
				.text = arena_copy(&link->world->arena, text),
				.stream = !link->world->has_streams ? 0
					  : sent		    ? sent->request
								    : stream},
			0);
}

void link_established_now(struct link *link)
{
	if (!link->open || link->established)
		return;
	link->established = true;
	world_trace(link->world, "s%u established", link->number);
	session_on_established(link->session);
}

void link_establish(struct link *link, int64_t delay_ms)
{
	post(link, (struct letter){.what = LETTER_ESTABLISHED}, delay_ms);
}

void link_lose(struct link *link, int http_status, const char *why)
{
	post(link, (struct letter){.what = LETTER_LOSS, .http_status = http_status, .why = why}, 0);
}

void link_fail_request(struct link *link, uint64_t id)
{
	const struct sent *sent = link_find_sent(link, id);
	post(link, (struct letter){.what = LETTER_BROKEN_STREAM, .stream = sent ? sent->request : id}, 0);
}

struct sent *link_find_sent(const struct link *link, uint64_t id)
{
	for (struct sent *sent = link->sent; sent; sent = sent->next)
		if (sent->id == id)
			return sent;
	return NULL;
}

/* The adapter's operations. */

static struct upstream *on_open(void *ctx, struct session *session, struct error *error)
{
	struct world *world = ctx;
	if (!world->driver->may_open(world)) {
		error_set(error, ERROR_SYSTEM, "the simulated server cannot be started");
		return NULL;
	}
	struct link *link = arena_alloc(&world->arena, sizeof(*link));
	link->world = world;
	link->session = session;
	link->number = ++world->ledger->link_count;
	link->open = true;
	link->modern = session_is_modern(session);
	const char *credentials = session_authorization(session);
	if (!credentials || sscanf(credentials, "principal %u", &link->principal) != 1)
		world_fail(world, "a session without its client's credentials");
	link->next = world->ledger->links;
	world->ledger->links = link;
	world_trace(world, "s%u opened for principal %u", link->number, link->principal);
	world->driver->opened(link);
	return (struct upstream *)link;
}

static int on_send(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id, struct buf *message)
{
	struct link *link = (struct link *)upstream;
	struct world *world = link->world;
	struct span text = arena_copy(&world->arena, buf_span(message));
	if (!buf_ok(message))
		world_fail(world, "a message that is not complete for lack of memory was sent to the server");
	buf_free(message);
	int status = world->driver->queue_status(link);
	world_trace(world, "s%u > %.*s%s", link->number, (int)text.len, text.ptr, status ? "  (queue full)" : "");
	ledger_to_server(link, kind, request_id, text, status != 0);
	if (status == 0 && link->open)
		post(link, (struct letter){.what = LETTER_OUT, .text = text}, 0);
	return status;
}

static void on_establish(struct upstream *upstream, const char *version)
{
	struct link *link = (struct link *)upstream;
	if (!link->modern && (!link->initialized || strcmp(version, link->version) != 0))
		world_fail(link->world, "establish(%s) before the handshake ended with that revision", version);
	link->world->driver->establish(link, version);
}

static void on_forget(struct upstream *upstream, uint64_t request_id)
{
	struct link *link = (struct link *)upstream;
	struct sent *sent = find_request(link, request_id);
	if (!link->open)
		world_fail(link->world, "forget() on a connection that is closed");
	if (sent)
		sent->forgotten = true;
}

static void on_close(struct upstream *upstream)
{
	struct link *link = (struct link *)upstream;
	if (!link->open)
		world_fail(link->world, "close() on a connection that is closed");
	world_trace(link->world, "s%u closed by the proxy", link->number);
	link->open = false;
	ledger_link_over(link, true);
	link->world->driver->closed(link);
}

const struct upstream_ops *link_ops(bool has_streams)
{
	static const struct upstream_ops pipes = {
		.open = on_open, .send = on_send, .establish = on_establish, .forget = on_forget, .close = on_close};
	static const struct upstream_ops streams = {.open = on_open,
		.send = on_send,
		.establish = on_establish,
		.forget = on_forget,
		.close = on_close,
		.has_streams = true};
	return has_streams ? &streams : &pipes;
}
