/* What a child writes to stdout: messages in lines, for the core. */
#include "adapters/child_session.h"

#include <errno.h>
#include <unistd.h>

enum {
	READ_BYTES = PROCESS_PIPE_BYTES,
	LINES_A_TURN = 64, /* of one child, before others have their turn */
	NOISE_LINES_A_SECOND = 5,
};

void child_output_close(struct upstream *child)
{
	event_del(&child->on_output);
	event_del(&child->on_more);
	process_close(&child->process.out);
}

static bool looks_like_json(struct span line)
{
	return line.len && (*line.ptr == '{' || *line.ptr == '[');
}

static void on_noise(struct upstream *child, struct span line)
{
	unsigned left_out;
	if (!log_rate_allows(&child->noise_rate, NOISE_LINES_A_SECOND, child_now(child), &left_out))
		return;
	if (left_out)
		child_log(child, LOG_WARNING, "server-noise", "(%u lines were left out)", left_out);
	child_log(child, LOG_WARNING, "server-noise", "no message on the server's standard output: %.*s",
		(int)(line.len < 200 ? line.len : 200), line.ptr);
}

static void on_line(struct upstream *child, enum line kind, struct span line)
{
	while (line.len && (*line.ptr == ' ' || *line.ptr == '\t' || *line.ptr == '\r')) {
		line.ptr++;
		line.len--;
	}
	if (line.len == 0)
		return;
	if (!looks_like_json(line)) {
		on_noise(child, line);
	} else if (kind == LINE_TOO_LONG) {
		char why[120];
		snprintf(why, sizeof(why), "the server sent a message longer than the limit of %zu bytes",
			child->lines.limit_bytes);
		child_lose(child, why);
	} else {
		session_on_message(child->session, line, 0);
	}
}

bool child_output_hand_out(struct upstream *child, unsigned max)
{
	struct span line;
	enum line kind;
	for (unsigned i = 0; i < max; i++) {
		if (!child->session || (kind = line_reader_next(&child->lines, &line)) == LINE_NONE)
			return false;
		on_line(child, kind, line);
	}
	return true;
}

bool child_output_read(struct upstream *child)
{
	size_t room = READ_BYTES;
	char *space = line_reader_space(&child->lines, &room);
	ssize_t len = space ? read(child->process.out, space, room) : -1;
	if (len > 0) {
		line_reader_add(&child->lines, (size_t)len);
		return true;
	}
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (!space)
		child_log(child, LOG_ERROR, "no-memory", "the server's output cannot be read");
	else if (line_reader_rest(&child->lines).len)
		child_log(child, LOG_WARNING, "line-truncated", "the server's output ended in the middle of a line");
	child_output_close(child);
	child_note_broken(child, "standard output");
	return false;
}

/* A child that is ending may still have to get rid of its output. */
static void discard_output(struct upstream *child)
{
	char bytes[65536];
	ssize_t len = read(child->process.out, bytes, sizeof(bytes));
	line_reader_free(&child->lines);
	if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR))
		child_output_close(child);
}

/* Hands out a turn's share of lines. More lines wait for the next turn, and reading waits for them. */
static void work_off(struct upstream *child)
{
	static const struct timeval at_once = {0};
	if (child_output_hand_out(child, LINES_A_TURN)) {
		event_del(&child->on_output);
		if (event_add(&child->on_more, &at_once))
			child_lose(child, "the event loop takes no more events");
		return;
	}
	if (child->process.out >= 0 && event_add(&child->on_output, NULL))
		child_lose(child, "the event loop takes no more events");
	line_reader_trim(&child->lines);
}

static void on_output(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	struct upstream *child = arg;
	if (!child->session)
		discard_output(child);
	else if (child_output_read(child))
		work_off(child);
}

static void on_more(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	work_off(arg);
}

bool child_output_watch(struct upstream *child)
{
	struct event_base *base = loop_base(child->owner->loop);
	event_assign(&child->on_output, base, child->process.out, EV_READ | EV_PERSIST, on_output, child);
	evtimer_assign(&child->on_more, base, on_more, child);
	return event_add(&child->on_output, NULL) == 0;
}
