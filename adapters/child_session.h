/* One child process and its session. Private to child.c and child_output.c. */
#ifndef MCP_VALET_CHILD_SESSION_H
#define MCP_VALET_CHILD_SESSION_H

#include "adapters/child.h"
#include "adapters/child_stderr.h"
#include "adapters/line_reader.h"
#include "adapters/loop.h"
#include "adapters/outbox.h"

#include <event2/event.h>
#include <event2/event_struct.h>

/* Where a child is on its way out. */
enum child_phase {
	CHILD_RUNNING,	  /* stdin is open */
	CHILD_CLOSING,	  /* stdin is closed or about to be; SIGTERM is next */
	CHILD_TERMINATED, /* SIGTERM was sent; SIGKILL is next */
	CHILD_KILLED,	  /* SIGKILL was sent; only reaping is left */
};

struct upstream {
	struct child_upstream *owner;
	struct session *session; /* NULL when the core has closed it or was told that it is lost */
	char name[24];		 /* the session's, for the log */
	struct process process;
	enum child_phase phase;
	bool established;
	const char *broken; /* which pipe the child closed while it ran */
	struct line_reader lines;
	struct child_stderr words;
	struct outbox outbox;
	struct event on_output, on_stderr, on_input, on_more, on_timer;
	struct log_rate noise_rate;
	LIST_ENTRY(upstream) link;
};

struct child_upstream {
	struct loop *loop;
	const struct env *env;
	struct policy *policy;
	char *const *argv;
	LIST_HEAD(, upstream) children;
	unsigned failures; /* starts in a row that did not get through the handshake */
	int64_t next_start_ms;
	char last_failure[512];
};

/* child.c */

void child_log(const struct upstream *child, enum log_level level, const char *event, const char *format, ...)
	PRINTF_LIKE(4, 5);
int64_t child_now(const struct upstream *child);
/* Tells the core that the session is lost, once, and ends the process if it still runs. */
void child_lose(struct upstream *child, const char *why);
/* A pipe of the running child has ended. The exit follows mostly, and has more to say. */
void child_note_broken(struct upstream *child, const char *which);

/* child_output.c */

/* Watches the child's stdout. false if the event loop takes no more events. */
bool child_output_watch(struct upstream *child) MUST_CHECK;
/* Reads once. false when there is nothing more, at present or ever. */
bool child_output_read(struct upstream *child);
/* Hands out up to `max` lines of what was read. Whether it stopped before the last one. */
bool child_output_hand_out(struct upstream *child, unsigned max);
void child_output_close(struct upstream *child);

#endif
