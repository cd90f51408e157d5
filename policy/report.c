#include "policy/report.h"

#include <stdarg.h>

enum { MAX_FAULTS = 100 };

void report_fault(struct report *report, unsigned line, unsigned column, const char *format, ...)
{
	char text[400];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (report->faults++ == 0)
		error_set(report->error, ERROR_SYNTAX, "%s:%u:%u: %s", report->name, line, column, text);
	if (report->out && report->faults <= MAX_FAULTS)
		fprintf(report->out, "%s:%u:%u: %s\n", report->name, line, column, text);
	else if (report->out && report->faults == MAX_FAULTS + 1)
		fprintf(report->out, "%s: more faults are not shown\n", report->name);
}
