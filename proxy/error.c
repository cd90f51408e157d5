#include "proxy/error.h"

#include <stdarg.h>
#include <stdio.h>

int error_set(struct error *error, enum error_code code, const char *format, ...)
{
	if (error) {
		va_list args;
		va_start(args, format);
		vsnprintf(error->text, sizeof(error->text), format, args);
		va_end(args);
		error->code = code;
	}
	return code;
}
