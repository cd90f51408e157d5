/* What the core needs from the outside world: clocks, random bytes, a place for log lines. The event loop fills it in
 * for real life, the simulation for tests. */
#ifndef MCP_VALET_ENV_H
#define MCP_VALET_ENV_H

#include "proxy/compiler.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* One event. Strings are borrowed for the duration of the call; any but `event` and `text` may be NULL. Secrets, answers
 * and request states never appear: `call` is a short hash. */
struct log_line {
	enum log_level level;
	const char *event;   /* a stable word from the documented list, such as "call-parked" */
	const char *session; /* which legacy session */
	const char *call;    /* which call */
	const char *subject; /* method and name, such as "tools/call report" */
	const char *trace;   /* W3C trace id of the request, if it carried one */
	const char *text;    /* words for people */
};

struct env {
	void *ctx;
	int64_t (*now_ms)(void *ctx);  /* monotonic clock, milliseconds */
	int64_t (*wall_ms)(void *ctx); /* Unix time, milliseconds: only for the expiry of request states */
	void (*random)(void *ctx, void *out, size_t len);
	void (*log)(void *ctx, const struct log_line *line);
	enum log_level log_level; /* lines above this level are not made */
};

enum { ENV_LOG_BYTES = 400, ENV_LOG_MOST_BYTES = 600 }; /* room for the words of a line */

/* Makes the words of a line, as far as `room` goes, and logs it, if its level is wanted. */
void env_log(const struct env *env, struct log_line line, size_t room, const char *format, va_list args)
	PRINTF_LIKE(4, 0);

/* How much of a talkative peer goes into the log: `burst` lines in a second. A zeroed struct has seen none. */
struct log_rate {
	int64_t since_ms;
	unsigned seen, left_out;
};

/* Whether one more line may be written now. *left_out is how many were left out before this one, to be told with it. */
bool log_rate_allows(struct log_rate *rate, unsigned burst, int64_t now_ms, unsigned *left_out) MUST_CHECK;

#endif
