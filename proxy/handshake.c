/* The handshake of a legacy session: initialize, its answer, notifications/initialized (lifecycle "Initialization"). */
#include "proxy/session.h"

#include <stdio.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

enum { MAX_ATTEMPTS = 3 }; /* as offered; in the plain shape; in a revision that the server named */

static void write_initialize(const struct session *session, struct buf *out)
{
	buf_printf(out,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\",",
		(unsigned long long)session->initialize_id, legacy_version_names[session->version]);
	buf_add_text(out, "\"capabilities\":");
	capabilities_write_legacy(&session->caps, session->plain, out);
	buf_add_text(out, ",\"clientInfo\":");
	buf_add_text(out, session->client_info ? session->client_info
					       : "{\"name\":\"mcp-valet\",\"version\":\"" PACKAGE_VERSION "\"}");
	buf_add_text(out, "}}");
}

static void on_deadline(void *arg)
{
	session_fail(arg, 0, "the server did not answer initialize in time (deadlines.initialize)");
}

int session_start_handshake(struct session *session, struct error *error)
{
	struct proxy *proxy = session->proxy;
	struct buf message = {0};
	session->state = SESSION_OPENING;
	session->attempts++;
	session->upstream = proxy->upstream->open(proxy->upstream_ctx, session, error);
	if (!session->upstream)
		return error->code ? error->code : ERROR_SYSTEM;
	session->initialize_id = session->next_id++;
	write_initialize(session, &message);
	int status = session_send(session, UPSTREAM_REQUEST, session->initialize_id, &message);
	if (status) {
		proxy->upstream->close(session->upstream);
		session->upstream = NULL;
		return error_set(error, status, "initialize could not be sent to the server");
	}
	timer_set(&proxy->timers, &session->timer, proxy_now(proxy) + proxy->policy->deadlines.initialize_ms,
		on_deadline, session);
	return 0;
}

/* Another try with a fresh connection, since a server that refused may not listen any more. */
static void start_again(struct session *session, const char *why)
{
	struct error error = {0};
	session_log(session, LOG_INFO, "handshake-again", "%s", why);
	session->proxy->metrics.handshakes_repeated++;
	server_requests_drop(session); /* their ids mean nothing to the next connection */
	session->proxy->upstream->close(session->upstream);
	session->upstream = NULL;
	if (session_start_handshake(session, &error))
		session_fail(session, 0, error.text);
}

static bool find_version(struct span value, enum legacy_version *version)
{
	for (int i = LEGACY_VERSIONS - 1; i >= 0; i--)
		if (value.ptr && json_type(value) == JSON_STRING && json_string_is(value, legacy_version_names[i])) {
			*version = (enum legacy_version)i;
			return true;
		}
	return false;
}

/* The newest revision of ours in `data.supported` of a refusal (lifecycle "Error Handling"). */
static bool find_supported(struct span refusal, enum legacy_version *best)
{
	struct span data, list, element;
	enum legacy_version version;
	bool found = false;
	if (!json_get(refusal, NULL, "data", &data) || !json_get(data, NULL, "supported", &list))
		return false;
	struct json_walk walk = json_walk(list, NULL);
	while (json_next_element(&walk, &element))
		if (find_version(element, &version) && (!found || version > *best)) {
			*best = version;
			found = true;
		}
	return found;
}

static bool differs_when_plain(const struct session *session)
{
	struct buf full = {0}, plain = {0};
	capabilities_write_legacy(&session->caps, false, &full);
	capabilities_write_legacy(&session->caps, true, &plain);
	bool differs = !span_equal(buf_span(&full), buf_span(&plain));
	buf_free(&full);
	buf_free(&plain);
	return differs;
}

static void on_refused(struct session *session, struct span refusal)
{
	enum legacy_version version;
	struct span message = {0};
	char why[300];
	if (session->attempts < MAX_ATTEMPTS && find_supported(refusal, &version) && version != session->version) {
		session->version = version;
		start_again(session, "the server named the revisions that it supports");
		return;
	}
	if (session->attempts < MAX_ATTEMPTS && !session->plain && differs_when_plain(session)) {
		session->plain = true;
		start_again(session, "the server may not know the shape of the capabilities");
		return;
	}
	json_get(refusal, NULL, "message", &message);
	snprintf(why, sizeof(why), "the server refused to initialize: %.*s",
		(int)(message.len < 200 ? message.len : 200), message.ptr ? message.ptr : "");
	session_fail(session, 0, why);
}

void session_on_initialize_answer(struct session *session, const struct message *message)
{
	struct span version = {0};
	struct error error = {0};
	struct buf initialized = {0};
	if (message->error.ptr) {
		on_refused(session, message->error);
		return;
	}
	json_get(message->result, &message->index, "protocolVersion", &version);
	if (!find_version(version, &session->version)) {
		session_fail(session, 0, "the server speaks none of the protocol revisions 2024-11-05 to 2025-11-25");
		return;
	}
	/* An older server takes every elicitation capability for forms. */
	if (session->version < LEGACY_2025_11_25 && session->caps.elicitation_url && !session->caps.elicitation_form &&
		!session->plain) {
		session->plain = true;
		start_again(session, "the server does not know URL elicitation");
		return;
	}
	if (server_identity_read(&session->identity, message->result, &error)) {
		session_fail(session, 0, error.text);
		return;
	}
	buf_add_text(&initialized, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
	session->state = SESSION_ESTABLISHING;
	if (session_send(session, UPSTREAM_NOTIFICATION, 0, &initialized)) {
		session_fail(session, 0, "the server does not read what it is sent");
		return;
	}
	session->proxy->upstream->establish(session->upstream, legacy_version_names[session->version]);
}
