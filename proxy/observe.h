/* What is seen of each tool, prompt and resource beyond plain counts, for the migration report: the shapes of its forms
 * and the legacy features that it uses. Bounded: a few shapes a name, each cut to fit. A shape is made of the names and
 * types in the server's schema; messages, defaults, choices and answers are never in it. */
#ifndef MCP_VALET_OBSERVE_H
#define MCP_VALET_OBSERVE_H

#include "proxy/capabilities.h"

struct proxy;

enum { OBSERVE_SHAPES = 8, OBSERVE_SHAPE_BYTES = 240 };

struct observed {
	bool known;		       /* the server has such a name: it answered with success, or asked something */
	uint64_t urls, sampling_tools; /* questions in URL mode, and those that offer tools */
	uint64_t tasks, logs;	       /* calls run as a task, log messages that a client wanted */
	uint64_t timed_out;
	uint64_t longest_ms; /* of a person */
	uint32_t most_rounds;
	struct {
		char *text;
		uint64_t count;
	} shapes[OBSERVE_SHAPES];
	uint64_t other_shapes; /* questions of shapes for which there was no room */
};

void observed_free(struct observed *seen);
/* Adds what was seen elsewhere. */
void observed_add(struct observed *seen, const struct observed *more);

/* The server asks. `params` are its own, with an empty span where there are none. */
void observe_question(struct observed *seen, const struct capability_need *need, struct span params);

/* The server has answered. Whoever answers with success knows the name that was called; an error may say that there is no
 * such thing, and so may a tool's result with isError. */
void observe_answer(struct observed *seen, struct span result, struct span error, const struct json_index *index);

/* Appends the report: a JSON object, described in mcp-valet(1). */
void proxy_write_report(const struct proxy *proxy, struct buf *out);
/* Adds what a report of before says, all or nothing (observe_read.c). ERROR_SYNTAX or ERROR_LIMIT, with words, if it is none. */
int proxy_read_report(struct proxy *proxy, struct span text, struct error *error) MUST_CHECK;

#endif
