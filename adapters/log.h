/* Log lines on a descriptor, usually standard error: one event, one line, one write.
 *
 *   text  2026-07-28T12:00:00.250Z warning session-lost session=s1 call=9f2c41 subject="tools/call report" trace=…:
 * words
 *   json  {"time":"…","level":"warning","event":"session-lost","session":"s1",…,"text":"words"}
 *
 * A line never stops the program: it is at most PIPE_BUF long, so that writes of several processes do not mix, and
 * where nobody reads it is dropped and counted; the next line that can be written says how many were. Control
 * characters are written as escapes, so that nobody's words look like a line of ours. */
#ifndef MCP_VALET_LOG_H
#define MCP_VALET_LOG_H

#include "proxy/bytes.h"
#include "proxy/env.h"

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log {
	enum log_format format;
	int fd;
	unsigned long dropped;
};

/* Writes one line with the time of now. `ctx` is a struct log, so that this fits struct env. */
void log_write(void *ctx, const struct log_line *line);
/* The same from outside the core: nothing is made if `level` is above env's. Only `event` and words. */
void log_event(const struct env *env, enum log_level level, const char *event, const char *format, ...)
	PRINTF_LIKE(4, 5);
/* Appends the line, with its line end. Pure. */
void log_format_line(struct buf *out, enum log_format format, int64_t wall_ms, const struct log_line *line);

const char *log_level_name(enum log_level level);
/* false if there is no such level, or no such format. */
bool log_level_parse(const char *name, enum log_level *level) MUST_CHECK;
bool log_format_parse(const char *name, enum log_format *format) MUST_CHECK;

#endif
