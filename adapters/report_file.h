/* The file in which the observations of the migration report outlive a restart (policy: report_file). It is what /report.json
 * says: read at the start, its counts go on from there; written now and then if something has changed, and at the end.
 *
 * It is written to FILE.mcp-valet-new, which then takes the name FILE, so that a reader sees a whole report, whatever happens
 * meanwhile. Whoever holds the lock on FILE.lock writes it. While another process does, or while FILE is something that this
 * program did not write, nothing is written and it is tried again later; nothing of this keeps the program from serving.
 *
 * This blocks the event loop: for one file that goes to the page cache, once a minute, and is never larger than the limits of
 * names and forms let it be. 200 names with eight long forms each make 570 KB and were measured at 4 ms; common ones take a
 * fraction of that. Only at the end is it waited for until the disk has it. A crash of the
 * machine may therefore leave an older file, or an empty one, which counts as none. */
#ifndef MCP_VALET_REPORT_FILE_H
#define MCP_VALET_REPORT_FILE_H

#include "proxy/env.h"

struct event_base;
struct proxy;
struct report_file;

/* Reads the file, and writes it again every `interval_ms`. NULL without memory; what is wrong with the file is logged. */
struct report_file *report_file_new(struct event_base *base, const struct env *env, struct proxy *proxy,
	const char *path, unsigned interval_ms) MUST_CHECK;
/* Writes it a last time. */
void report_file_finish(struct report_file *file);
void report_file_free(struct report_file *file);

#endif
