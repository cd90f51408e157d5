/* The world that a core under test lives in: a clock, a server that a test's serve() plays, and messages on their way from
 * it. What it needs is static, so that failing allocations are the core's alone. */
#ifndef MCP_VALET_SMALL_WORLD_H
#define MCP_VALET_SMALL_WORLD_H

#include "proxy/message.h"
#include "proxy/proxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TEXT = 4096, MAX_MAIL = 64, MAX_LINKS = 16 };

struct link {
	struct session *session;
	bool open;
	bool asked; /* an elicitation is open */
};

static struct {
	int64_t now_ms;
	uint8_t random;
	struct proxy *proxy;
	struct link links[MAX_LINKS];
	unsigned link_count;
	struct mail {
		struct link *link;
		uint64_t stream;
		char text[MAX_TEXT];
	} mail[MAX_MAIL]; /* from the server, on its way */
	unsigned mail_first, mail_count;
	unsigned warnings;
	char words[MAX_TEXT]; /* of the newest warning */
} around;

/* The test's server reads a message; `request_id` is that of a request, or 0. */
static void serve(struct link *link, uint64_t request_id, struct span text);

static int64_t now_ms(void *ctx)
{
	(void)ctx;
	return around.now_ms;
}

static void random_bytes(void *ctx, void *out, size_t len)
{
	(void)ctx;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)out)[i] = around.random++;
}

static void take_log(void *ctx, const struct log_line *line)
{
	(void)ctx;
	assert_non_null(line->event);
	assert_non_null(line->text);
	if (line->level == LOG_WARNING) {
		around.warnings++;
		snprintf(around.words, sizeof(around.words), "%s", line->text);
	}
}

static const struct env env = {
	.now_ms = now_ms, .wall_ms = now_ms, .random = random_bytes, .log = take_log, .log_level = LOG_DEBUG};

static void say(struct link *link, uint64_t stream, const char *format, ...) PRINTF_LIKE(3, 4);

static void say(struct link *link, uint64_t stream, const char *format, ...)
{
	va_list args;
	assert_true(around.mail_count < MAX_MAIL);
	struct mail *mail = &around.mail[(around.mail_first + around.mail_count++) % MAX_MAIL];
	mail->link = link;
	mail->stream = stream;
	va_start(args, format);
	vsnprintf(mail->text, sizeof(mail->text), format, args);
	va_end(args);
}

static struct upstream *on_open(void *ctx, struct session *session, struct error *error)
{
	(void)ctx;
	if (around.link_count == MAX_LINKS) {
		error_set(error, ERROR_SYSTEM, "no more");
		return NULL;
	}
	struct link *link = &around.links[around.link_count++];
	*link = (struct link){.session = session, .open = true};
	return (struct upstream *)link;
}

static int on_send(struct upstream *upstream, enum upstream_kind kind, uint64_t request_id, struct buf *message)
{
	static char text[MAX_TEXT];
	struct link *link = (struct link *)upstream;
	assert_true(buf_ok(message));
	assert_true(link->open);
	assert_int_equal(kind == UPSTREAM_REQUEST, request_id != 0);
	assert_in_range(message->len, 1, sizeof(text) - 1);
	memcpy(text, message->data, message->len);
	size_t len = message->len;
	buf_free(message);
	serve(link, request_id, (struct span){text, len});
	return 0;
}

static void on_establish(struct upstream *upstream, const char *version)
{
	(void)version;
	session_on_established(((struct link *)upstream)->session);
}

static void on_forget(struct upstream *upstream, uint64_t request_id)
{
	(void)upstream;
	(void)request_id;
}

static void on_close(struct upstream *upstream)
{
	struct link *link = (struct link *)upstream;
	assert_true(link->open);
	link->open = false;
}

static const struct upstream_ops upstream_ops = {
	.open = on_open, .send = on_send, .establish = on_establish, .forget = on_forget, .close = on_close};

static void turn(void)
{
	while (around.mail_count) {
		struct mail *mail = &around.mail[around.mail_first];
		around.mail_first = (around.mail_first + 1) % MAX_MAIL;
		around.mail_count--;
		if (mail->link->open)
			session_on_message(mail->link->session, span_of(mail->text), mail->stream);
	}
	proxy_turn(around.proxy);
}

static void advance(int64_t ms)
{
	int64_t until_ms = around.now_ms + ms;
	for (;;) {
		turn();
		int64_t due_ms = proxy_next_due(around.proxy);
		if (around.mail_count || due_ms <= around.now_ms)
			continue;
		if (due_ms > until_ms)
			break;
		around.now_ms = due_ms;
	}
	around.now_ms = until_ms;
}

#endif
