/* With `mcp_headers: validate`, the headers that mirror the arguments of a tools/call are checked before the call goes to
 * the server (transports/streamable-http "Server Behavior for Custom Headers").
 *
 * What to expect stands in the tools' schemas. A session learns it from the lists that pass, and where no whole list has
 * passed since the last change, it lists the tools by itself, and such calls wait. What no tool asks for is not looked at.
 * Bounded: what does not fit is not learned, and that is logged. */
#ifndef MCP_VALET_TOOL_MIRRORS_H
#define MCP_VALET_TOOL_MIRRORS_H

#include "proxy/exchange.h"

struct session;

struct tool_mirror {
	char *name;	  /* of the tool, decoded */
	struct buf rules; /* see mirror_read() */
};

/* What a session knows. */
struct tool_mirrors {
	struct tool_mirror *tools; /* only those that ask for headers */
	size_t count;
	bool known;	   /* from a whole list, and no change was announced since */
	uint64_t list_id;  /* of our own tools/list, or 0 */
	int64_t listed_ms; /* when that was sent */
	unsigned pages;	   /* of it, answered */
};

void tool_mirrors_free(struct tool_mirrors *mirrors);

/* Whether the headers of this request are to be checked. */
bool tool_mirrors_apply(const struct exchange *exchange, const struct request *request);
/* Checks the headers of a retry, as far as a session of its principal knows what to expect: the call itself, which is bound
 * to the same arguments, was checked. If they are not true, *error says why. */
bool tool_mirrors_check_retry(
	const struct exchange *exchange, const struct request *request, struct error *error) MUST_CHECK;

/* Appends the headers that mirror the params of a tools/call, each as a line ended by LF, as far as a list that has passed says
 * which. For a modern server behind a legacy client, which makes none. */
void tool_mirrors_write(const struct session *session, struct span params, struct buf *lines);

/* Whether calls can be checked now. If not, the server is asked, and session_pump() follows. */
bool tool_mirrors_known(struct session *session);
/* Checks a waiting call. false if it was refused. */
bool tool_mirrors_admit(struct call *call);

/* A result of tools/list passes. `from_start`: it was asked for without a cursor. */
void tool_mirrors_learn(struct session *session, struct span result, bool from_start);
/* What became of our own list. */
void tool_mirrors_on_answer(struct session *session, const struct message *message);
void tool_mirrors_on_failed(struct session *session, const char *why);
/* The server says that its tools have changed. */
void tool_mirrors_on_change(struct session *session);

#endif
