#include "adapters/http_connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS_A_TURN = 64, PAUSE_MS = 100, REFUSALS_A_SECOND = 10 };

static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

static void log_face(const struct http_face *face, enum log_level level, const char *event, const char *text)
{
	if (level <= face->env->log_level)
		face->env->log(face->env->ctx, &(struct log_line){.level = level, .event = event, .text = text});
}

static unsigned count_peer(const struct http_face *face, const char *peer)
{
	const struct connection *connection;
	unsigned count = 0;
	TAILQ_FOREACH (connection, &face->connections, link)
		count += strcmp(connection->peer, peer) == 0;
	return count;
}

/* A flood of connections is no flood of lines. */
static void log_refusal(struct http_face *face)
{
	char text[160];
	unsigned left_out;
	if (!log_rate_allows(&face->refusals, REFUSALS_A_SECOND, face->env->now_ms(face->env->ctx), &left_out))
		return;
	snprintf(text, sizeof(text), "too many connections (limits.connections, limits.connections_per_address)");
	if (left_out)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "; %u more were refused before", left_out);
	log_face(face, LOG_WARNING, "connection-refused", text);
}

static void take_connection(struct http_face *face, int fd, const struct sockaddr_storage *address)
{
	const struct policy_limits *limits = &face->policy->limits;
	char peer[64];
	listener_peer_name(address, peer);
	if (face->count >= limits->connections ||
		(!face->listener.is_unix && count_peer(face, peer) >= limits->connections_per_address)) {
		log_refusal(face);
		if (send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			log_face(face, LOG_DEBUG, "connection-refused", "and it did not hear of it");
		close(fd);
		return;
	}
	if (!connection_open(face, fd, peer))
		log_face(face, LOG_WARNING, "connection-refused", "out of memory");
}

static void log_accept_failed(struct http_face *face)
{
	unsigned left_out;
	if (log_rate_allows(&face->accept_rate, 1, face->env->now_ms(face->env->ctx), &left_out))
		log_event(
			face->env, LOG_ERROR, "accept-failed", "out of descriptors or memory, %u times", left_out + 1);
}

/* A bounded number a turn, so that a flood does not starve the others. Without descriptors the listener rests, or it would
 * spin. */
static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct http_face *face = arg;
	(void)what;
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		struct sockaddr_storage address = {0};
		socklen_t len = sizeof(address);
		int accepted = accept4(fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (accepted >= 0) {
			take_connection(face, accepted, &address);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			static const struct timeval pause = {0, PAUSE_MS * 1000};
			log_accept_failed(face);
			event_del(face->accept_event);
			event_add(face->pause_timer, &pause);
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct http_face *face = arg;
	(void)fd;
	(void)what;
	if (!face->stopped)
		event_add(face->accept_event, NULL);
}

static void on_bury(evutil_socket_t fd, short what, void *arg)
{
	struct http_face *face = arg;
	struct connection *connection;
	(void)fd;
	(void)what;
	while ((connection = TAILQ_FIRST(&face->dead))) {
		TAILQ_REMOVE(&face->dead, connection, link);
		connection_free(connection);
	}
}

struct http_face *http_face_new(struct event_base *base, struct proxy *proxy, struct policy *policy,
	const struct env *env, const struct http_face_config *config, struct error *error)
{
	struct http_face *face = calloc(1, sizeof(*face));
	if (!face) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return NULL;
	}
	face->base = base;
	face->proxy = proxy;
	face->policy = policy_ref(policy);
	face->env = env;
	TAILQ_INIT(&face->connections);
	TAILQ_INIT(&face->dead);
	face->listener.fd = -1;
	face->path = strdup(config->path);
	if (config->path[0] != '/')
		error_set(error, ERROR_SYNTAX, "--path %s: expected a path that begins with /", config->path);
	else if (listener_open(&face->listener, config->listen, config->allow_remote, error) == 0) {
		face->accept_event = event_new(base, face->listener.fd, EV_READ | EV_PERSIST, on_accept, face);
		face->pause_timer = event_new(base, -1, 0, on_pause_over, face);
		face->bury_timer = event_new(base, -1, 0, on_bury, face);
		if (face->path && face->accept_event && face->pause_timer && face->bury_timer &&
			event_add(face->accept_event, NULL) == 0)
			return face;
		error_set(error, ERROR_MEMORY, "out of memory");
	}
	http_face_free(face);
	return NULL;
}

const char *http_face_address(const struct http_face *face)
{
	return face->listener.name;
}

void http_face_set_metadata(struct http_face *face, struct http_upstream *upstream)
{
	face->metadata = upstream;
}

void http_face_set_policy(struct http_face *face, struct policy *policy)
{
	policy_ref(policy);
	policy_unref(face->policy);
	face->policy = policy;
}

void http_face_stop_accepting(struct http_face *face)
{
	struct connection *connection = TAILQ_FIRST(&face->connections);
	if (face->stopped)
		return;
	face->stopped = true;
	event_del(face->accept_event);
	event_del(face->pause_timer);
	listener_close(&face->listener);
	while (connection) {
		struct connection *next = TAILQ_NEXT(connection, link);
		if (connection->state == CONNECTION_HEAD || connection->state == CONNECTION_BODY)
			connection_end(connection);
		connection = next;
	}
}

bool http_face_is_idle(const struct http_face *face)
{
	const struct connection *connection;
	TAILQ_FOREACH (connection, &face->connections, link)
		if (connection->state == CONNECTION_PENDING || outbox_bytes(&connection->outbox))
			return false;
	return true;
}

void http_face_free(struct http_face *face)
{
	struct connection *connection;
	if (!face)
		return;
	while ((connection = TAILQ_FIRST(&face->connections)))
		connection_end(connection);
	on_bury(-1, 0, face);
	if (face->accept_event)
		event_free(face->accept_event);
	if (face->pause_timer)
		event_free(face->pause_timer);
	if (face->bury_timer)
		event_free(face->bury_timer);
	listener_close(&face->listener);
	policy_unref(face->policy);
	free(face->path);
	free(face);
}
