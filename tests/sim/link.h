/* Links: connections of the core to legacy servers, the simulated upstream adapter. Messages travel in order, each
 * direction for itself, and take up to the world's latency. */
#ifndef MCP_VALET_SIM_LINK_H
#define MCP_VALET_SIM_LINK_H

#include "proxy/capabilities.h"
#include "tests/sim/world.h"

/* A request that the core sent. */
struct sent {
	struct sent *next;
	uint64_t id;	  /* in the message */
	uint64_t request; /* as the core names it to the transport */
	const char *method;
	struct job *job; /* or NULL */
	bool answered, cancelled, forgotten;
	bool wants_progress;
	struct span outcome; /* of a modern server: result or error */
	bool has_error;
};

struct link {
	struct link *next;
	struct world *world;
	struct session *session;
	unsigned number;
	unsigned principal;
	bool open;
	bool modern;	       /* the core takes the server for a modern one */
	struct dialog *dialog; /* the legacy client's, or NULL */
	bool refused, agreed, initialized, established;
	const char *version; /* agreed */
	struct capabilities caps;
	bool roots_may_change;
	bool has_tasks; /* the server's */
	bool confused;	/* a question was asked when the core could not know for whom, and went to another call */
	struct sent *sent;
	int64_t next_in_ms, next_out_ms;
	void *model;
};

const struct upstream_ops *link_ops(bool has_streams);

/* What a server or its transport does. All but the first happen when the messages before them have arrived. */
/* `stream` is the id that the message of the request has. */
void link_receive(struct link *link, struct span text, uint64_t stream);
void link_established_now(struct link *link);
void link_establish(struct link *link, int64_t delay_ms);
void link_lose(struct link *link, int http_status, const char *why);
void link_fail_request(struct link *link, uint64_t id);

struct sent *link_find_sent(const struct link *link, uint64_t id);

#endif
