#include "adapters/stdio_face.h"

#include "adapters/line_reader.h"
#include "adapters/loop.h"
#include "adapters/outbox.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	READ_BYTES = PROCESS_PIPE_BYTES,
	LINES_A_TURN = 64,    /* before others have their turn */
	CLOGGED_FRACTION = 8, /* of the queue limit: reading stops there */
};

struct stdio_face {
	struct client client; /* first: the core hands it back */
	struct loop *loop;
	const struct env *env;
	struct proxy *proxy;
	struct policy *policy;
	int in_fd, out_fd;
	int in_flags, out_flags; /* as they were */
	bool is_pollable;	 /* input: a file, for example, is not, and always ready */
	bool has_more;		 /* complete lines wait in the reader */
	bool paused;		 /* the client does not read, so nothing is read from it */
	bool stopped;		 /* no more input, whatever the reason */
	bool lost;		 /* the output broke; nothing is written any more */
	struct line_reader lines;
	struct outbox outbox;
	struct event on_input, on_turn, on_output;
	struct log_rate drop_rate;
};

/* Output. */

static void next_turn(struct stdio_face *face)
{
	static const struct timeval at_once = {0};
	if (event_add(&face->on_turn, &at_once))
		loop_stop(face->loop, "the event loop takes no more events");
}

/* The client does not take its output. The core may be in the middle of something: it hears of it in the next turn. */
static void lose_client(struct stdio_face *face)
{
	face->lost = true;
	outbox_free(&face->outbox);
	event_del(&face->on_output);
	next_turn(face);
}

static void flush(struct stdio_face *face)
{
	if (outbox_write(&face->outbox, face->out_fd)) {
		lose_client(face);
		return;
	}
	size_t waiting = outbox_bytes(&face->outbox);
	if (waiting == 0)
		event_del(&face->on_output);
	else if (event_add(&face->on_output, NULL))
		lose_client(face);
	if (face->paused && waiting <= face->policy->limits.downstream_queue_bytes / CLOGGED_FRACTION / 2) {
		face->paused = false;
		next_turn(face);
	}
}

static void on_output(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	flush(arg);
}

static void enqueue(struct stdio_face *face, struct buf *message)
{
	if (face->lost) {
		buf_free(message);
		return;
	}
	bool was_empty = outbox_bytes(&face->outbox) == 0;
	line_from_json(message);
	if (!outbox_add(&face->outbox, message)) {
		/* A response that is missing would keep the client waiting for ever. */
		log_event(face->env, LOG_ERROR, "no-memory", "a message to the client cannot be kept");
		lose_client(face);
		return;
	}
	if (was_empty)
		flush(face);
}

static void notify(struct client *client, struct buf *message)
{
	struct stdio_face *face = container_of(client, struct stdio_face, client);
	size_t limit = face->policy->limits.downstream_queue_bytes;
	size_t waiting = outbox_bytes(&face->outbox);
	unsigned left_out;
	if (waiting == 0 || waiting + message->len <= limit) {
		enqueue(face, message);
		return;
	}
	buf_free(message);
	if (log_rate_allows(&face->drop_rate, 1, face->env->now_ms(face->env->ctx), &left_out))
		log_event(face->env, LOG_WARNING, "notification-dropped",
			"the client does not read; %u notifications were dropped", left_out + 1);
}

static void respond(struct client *client, int http_status UNUSED, struct buf *message)
{
	enqueue(container_of(client, struct stdio_face, client), message);
}

static bool send_message(struct client *client, struct buf *message)
{
	struct stdio_face *face = container_of(client, struct stdio_face, client);
	size_t waiting = outbox_bytes(&face->outbox);
	if (!face->lost && waiting && waiting + message->len > face->policy->limits.downstream_queue_bytes) {
		log_event(face->env, LOG_ERROR, "client-too-slow",
			"the client does not read, and more than limits.downstream_queue waits for it");
		lose_client(face);
	}
	enqueue(face, message);
	return !face->lost;
}

/* A legacy client's server has gone: the client shall see that as if it had started the server itself. */
static void finish(struct client *client)
{
	loop_stop(container_of(client, struct stdio_face, client)->loop, "the session of the client has ended");
}

static const struct face_ops ops = {.notify = notify, .respond = respond, .send = send_message, .finish = finish};

/* Input. */

static bool is_clogged(const struct stdio_face *face)
{
	return outbox_bytes(&face->outbox) > face->policy->limits.downstream_queue_bytes / CLOGGED_FRACTION;
}

static bool is_blank(struct span line)
{
	for (size_t i = 0; i < line.len; i++)
		if (line.ptr[i] != ' ' && line.ptr[i] != '\t' && line.ptr[i] != '\r')
			return false;
	return true;
}

static void on_line(struct stdio_face *face, enum line kind, struct span line)
{
	if (kind == LINE_TOO_LONG) {
		struct buf message = {0};
		buf_printf(&message,
			"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"Invalid request: the message is "
			"longer than the limit of %zu bytes\"}}",
			face->lines.limit_bytes);
		log_event(face->env, LOG_WARNING, "message-too-long", "the client sent more than %zu bytes in one line",
			face->lines.limit_bytes);
		enqueue(face, &message);
	} else if (!is_blank(line)) {
		(void)proxy_receive(face->proxy, &face->client, line, NULL);
	}
}

/* Hands out a turn's share of lines and notes whether more are there. */
static void hand_out(struct stdio_face *face)
{
	struct span line;
	enum line kind;
	face->has_more = true;
	for (int i = 0; i < LINES_A_TURN && !is_clogged(face) && !face->lost && !face->stopped; i++) {
		kind = line_reader_next(&face->lines, &line);
		if (kind == LINE_NONE) {
			face->has_more = false;
			line_reader_trim(&face->lines);
			return;
		}
		on_line(face, kind, line);
	}
}

static void end_of_input(struct stdio_face *face, const char *why)
{
	if (line_reader_rest(&face->lines).len)
		log_event(face->env, LOG_WARNING, "line-truncated", "the input ended in the middle of a line");
	loop_stop(face->loop, why);
}

static void read_input(struct stdio_face *face)
{
	size_t room = READ_BYTES;
	char *space = line_reader_space(&face->lines, &room);
	if (!space) {
		end_of_input(face, "no memory for the input");
		return;
	}
	ssize_t len = read(face->in_fd, space, room);
	if (len > 0)
		line_reader_add(&face->lines, (size_t)len);
	else if (len == 0)
		end_of_input(face, "end of input");
	else if (errno != EAGAIN && errno != EINTR)
		end_of_input(face, strerror(errno));
}

/* One turn of work on the input, and what to wait for then. */
static void work(struct stdio_face *face)
{
	if (face->stopped)
		return;
	if (!face->has_more && !is_clogged(face))
		read_input(face);
	hand_out(face);
	if (face->stopped || face->lost)
		return;
	face->paused = is_clogged(face);
	if (face->paused || face->has_more || !face->is_pollable)
		event_del(&face->on_input);
	if (face->paused)
		return;
	if (face->has_more || !face->is_pollable)
		next_turn(face);
	else if (event_add(&face->on_input, NULL))
		loop_stop(face->loop, "the event loop takes no more events");
}

static void on_input(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	work(arg);
}

static void on_turn(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	struct stdio_face *face = arg;
	if (!face->lost) {
		work(face);
		return;
	}
	client_gone(face->proxy, &face->client);
	loop_stop(face->loop, "the client does not take its output");
}

/* Making and freeing. */

/* Regular files and /dev/null cannot be polled: the kernel says so to whoever tries. */
static bool is_pollable(int fd)
{
	int poll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};
	bool can = poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno != EPERM;
	if (poll_fd >= 0)
		close(poll_fd);
	return can;
}

static bool set_flags(struct stdio_face *face)
{
	face->in_flags = fcntl(face->in_fd, F_GETFL);
	face->out_flags = fcntl(face->out_fd, F_GETFL);
	return face->in_flags >= 0 && face->out_flags >= 0 &&
	       fcntl(face->in_fd, F_SETFL, face->in_flags | O_NONBLOCK) == 0 &&
	       fcntl(face->out_fd, F_SETFL, face->out_flags | O_NONBLOCK) == 0;
}

static void restore_flags(const struct stdio_face *face)
{
	if (face->in_flags >= 0)
		(void)fcntl(face->in_fd, F_SETFL, face->in_flags);
	if (face->out_flags >= 0)
		(void)fcntl(face->out_fd, F_SETFL, face->out_flags);
}

struct stdio_face *stdio_face_new(
	struct loop *loop, struct proxy *proxy, struct policy *policy, int in_fd, int out_fd, struct error *error)
{
	struct stdio_face *face = calloc(1, sizeof(*face));
	struct event_base *base = loop_base(loop);
	if (!face) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	face->loop = loop;
	face->env = loop_env(loop);
	face->proxy = proxy;
	face->in_fd = in_fd;
	face->out_fd = out_fd;
	face->lines.limit_bytes = policy->limits.message_bytes;
	face->is_pollable = is_pollable(in_fd);
	/* Larger pipes are faster; what is no pipe, or a system that refuses, does no harm. */
	(void)fcntl(in_fd, F_SETPIPE_SZ, PROCESS_PIPE_BYTES);
	(void)fcntl(out_fd, F_SETPIPE_SZ, PROCESS_PIPE_BYTES);
	memcpy(face->client.principal, "stdio", sizeof("stdio"));
	face->client.cancels_by_message = true;
	client_init(&face->client, &ops);
	event_assign(&face->on_input, base, in_fd, EV_READ | EV_PERSIST, on_input, face);
	event_assign(&face->on_output, base, out_fd, EV_WRITE | EV_PERSIST, on_output, face);
	evtimer_assign(&face->on_turn, base, on_turn, face);
	static const struct timeval at_once = {0};
	if (!set_flags(face) ||
		(face->is_pollable ? event_add(&face->on_input, NULL) : event_add(&face->on_turn, &at_once))) {
		error_set(error, ERROR_SYSTEM, "cannot use standard input and output: %s", strerror(errno));
		restore_flags(face);
		free(face);
		return NULL;
	}
	face->policy = policy_ref(policy);
	return face;
}

void stdio_face_set_policy(struct stdio_face *face, struct policy *policy)
{
	policy_ref(policy);
	policy_unref(face->policy);
	face->policy = policy;
	face->lines.limit_bytes = policy->limits.message_bytes;
}

void stdio_face_stop_accepting(struct stdio_face *face)
{
	face->stopped = true;
	event_del(&face->on_input);
	if (!face->lost)
		event_del(&face->on_turn);
}

bool stdio_face_is_idle(const struct stdio_face *face)
{
	return outbox_bytes(&face->outbox) == 0;
}

void stdio_face_free(struct stdio_face *face)
{
	if (!face)
		return;
	client_gone(face->proxy, &face->client);
	event_del(&face->on_input);
	event_del(&face->on_output);
	event_del(&face->on_turn);
	line_reader_free(&face->lines);
	outbox_free(&face->outbox);
	restore_flags(face);
	policy_unref(face->policy);
	free(face);
}
