#include "proxy/env.h"

#include <stdio.h>

void env_log(const struct env *env, struct log_line line, size_t room, const char *format, va_list args)
{
	char text[ENV_LOG_MOST_BYTES];
	if (line.level > env->log_level)
		return;
	vsnprintf(text, room < sizeof(text) ? room : sizeof(text), format, args);
	line.text = text;
	env->log(env->ctx, &line);
}

bool log_rate_allows(struct log_rate *rate, unsigned burst, int64_t now_ms, unsigned *left_out)
{
	*left_out = 0;
	if (rate->seen == 0 || now_ms - rate->since_ms >= 1000) {
		*left_out = rate->left_out;
		*rate = (struct log_rate){.since_ms = now_ms};
	}
	if (rate->seen < burst) {
		rate->seen++;
		return true;
	}
	rate->left_out++;
	return false;
}
