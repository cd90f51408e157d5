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
