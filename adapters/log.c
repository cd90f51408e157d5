#include "adapters/log.h"

#include "proxy/utf8.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bytes of the words and of each other member; with them a line stays below PIPE_BUF unless much must be escaped. */
enum { TEXT_MAX = 3000, MEMBER_MAX = 100 };

static const char *const level_names[] = {"error", "warning", "info", "debug"};

const char *log_level_name(enum log_level level)
{
	return level_names[level];
}

bool log_level_parse(const char *name, enum log_level *level)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(*level_names); i++) {
		if (strcmp(name, level_names[i]) != 0)
			continue;
		*level = (enum log_level)i;
		return true;
	}
	return false;
}

bool log_format_parse(const char *name, enum log_format *format)
{
	bool is_json = strcmp(name, "json") == 0;
	*format = is_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
	return is_json || strcmp(name, "text") == 0;
}

static void add_time(struct buf *out, int64_t wall_ms)
{
	time_t seconds = (time_t)(wall_ms / 1000);
	struct tm tm;
	char text[32] = "";
	if (gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(out, "%s.%03dZ", text, (int)(wall_ms % 1000));
}

/* The words as they are, but for what a terminal obeys or does not show, and for the backslash that escapes it. Within quotes
 * these are escaped, too. */
static void add_plain(struct buf *out, const char *text, bool quoted)
{
	struct span rest = span_of(text);
	while (rest.len) {
		unsigned char byte = (unsigned char)*rest.ptr;
		size_t len = utf8_sequence(rest);
		bool unseen = len == 0 || byte < 0x20 || byte == 0x7f || utf8_is_unseen(rest, len);
		len = len ? len : 1;
		if (byte == '\t')
			buf_add(out, " ", 1);
		else if (byte == '\\' || (quoted && byte == '"'))
			buf_printf(out, "\\%c", byte);
		else if (!unseen)
			buf_add(out, rest.ptr, len);
		else
			for (size_t i = 0; i < len; i++)
				buf_printf(out, "\\x%02x", (unsigned char)rest.ptr[i]);
		rest = (struct span){rest.ptr + len, rest.len - len};
	}
}

static void add_text_member(struct buf *out, const char *name, const char *value)
{
	bool bare = *value && !value[strcspn(value, " \"\t:=")];
	buf_printf(out, bare ? " %s=" : " %s=\"", name);
	add_plain(out, value, !bare);
	if (!bare)
		buf_add_text(out, "\"");
}

static void add_json_member(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, ",\"%s\":", name);
	buf_add_json_string(out, span_of(value));
}

/* The text, cut to `max` bytes so that no UTF-8 sequence is cut in two. `room` has place for max + 4 bytes. */
static const char *cut(const char *text, size_t max, char *room)
{
	if (strnlen(text, max + 1) <= max)
		return text;
	size_t len = max;
	while (len && ((unsigned char)text[len] & 0xc0) == 0x80)
		len--;
	memcpy(room, text, len);
	memcpy(room + len, "...", 4);
	return room;
}

static void add_member(struct buf *out, enum log_format format, const char *name, const char *value)
{
	char room[MEMBER_MAX + 4];
	if (!value)
		return;
	value = cut(value, MEMBER_MAX, room);
	if (format == LOG_FORMAT_JSON)
		add_json_member(out, name, value);
	else
		add_text_member(out, name, value);
}

static void format_line(
	struct buf *out, enum log_format format, int64_t wall_ms, const struct log_line *line, size_t text_max)
{
	char room[TEXT_MAX + 4];
	const char *text = cut(line->text, text_max, room);
	bool is_json = format == LOG_FORMAT_JSON;
	if (is_json)
		buf_add_text(out, "{\"time\":\"");
	add_time(out, wall_ms);
	buf_printf(out, is_json ? "\",\"level\":\"%s\",\"event\":\"%s\"" : " %s %s", level_names[line->level],
		line->event);
	add_member(out, format, "session", line->session);
	add_member(out, format, "call", line->call);
	add_member(out, format, "subject", line->subject);
	add_member(out, format, "trace", line->trace);
	if (is_json) {
		add_json_member(out, "text", text);
		buf_add_text(out, "}\n");
	} else {
		buf_add_text(out, ": ");
		add_plain(out, text, false);
		buf_add_text(out, "\n");
	}
}

void log_format_line(struct buf *out, enum log_format format, int64_t wall_ms, const struct log_line *line)
{
	size_t before = out->len;
	format_line(out, format, wall_ms, line, TEXT_MAX);
	/* Escapes can make a text many times as long. */
	for (size_t max = TEXT_MAX / 2; out->len - before > PIPE_BUF && max > MEMBER_MAX / 2; max /= 2) {
		out->len = before;
		format_line(out, format, wall_ms, line, max);
	}
}

/* Whether a write of up to PIPE_BUF bytes will not block. */
static bool is_writable(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLOUT};
	return poll(&pollfd, 1, 0) == 1 && (pollfd.revents & POLLOUT);
}

static void write_line(struct log *log, const struct log_line *line)
{
	struct buf out = {0};
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	log_format_line(&out, log->format, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, line);
	if (!buf_ok(&out) || !is_writable(log->fd) || write(log->fd, out.data, out.len) < 0)
		log->dropped++;
	buf_free(&out);
}

void log_write(void *ctx, const struct log_line *line)
{
	struct log *log = ctx;
	if (log->dropped && is_writable(log->fd)) {
		char text[80];
		snprintf(text, sizeof(text), "%lu lines were dropped because nobody read them", log->dropped);
		log->dropped = 0;
		write_line(log, &(struct log_line){.level = LOG_WARNING, .event = "log-dropped", .text = text});
	}
	write_line(log, line);
}

void log_event(const struct env *env, enum log_level level, const char *event, const char *format, ...)
{
	if (level > env->log_level)
		return;
	char text[TEXT_MAX];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	env->log(env->ctx, &(struct log_line){.level = level, .event = event, .text = text});
}
