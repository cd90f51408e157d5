/* What a child process writes to stderr: line by line into the log, as many as a limit a second allows. The last lines
 * are kept, to be quoted when the child is lost. */
#ifndef MCP_VALET_CHILD_STDERR_H
#define MCP_VALET_CHILD_STDERR_H

#include "adapters/line_reader.h"
#include "adapters/log.h"

enum { LAST_WORDS = 3, LAST_WORDS_BYTES = 110 };

/* Zeroed but for the first two members: nothing was read. */
struct child_stderr {
	const struct env *env;
	const char *session; /* its name, for the log */
	struct line_reader lines;
	struct log_rate rate;
	char last_words[LAST_WORDS][LAST_WORDS_BYTES + 1]; /* a ring */
	unsigned word_count;
};

enum child_stderr_result { STDERR_MORE, STDERR_NOTHING, STDERR_CLOSED };

/* Reads once from a non-blocking descriptor. STDERR_NOTHING: not now; STDERR_CLOSED: never again. */
enum child_stderr_result child_stderr_read(struct child_stderr *words, int fd) MUST_CHECK;
/* Appends "; it said: a | b | c", or nothing if it said nothing. */
void child_stderr_quote(const struct child_stderr *words, struct buf *out);
void child_stderr_free(struct child_stderr *words);

#endif
