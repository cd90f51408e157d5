/* Tasks of the extension io.modelcontextprotocol/tasks (SEP-2663), for clients that declare it: a call that works longer
 * than the policy lets its client wait (task_after) answers its exchanges with a task, and goes on without them. tasks/get
 * tells how it stands, tasks/update brings answers to what its server asks, tasks/cancel ends it.
 *
 * The task is the call: its id is the call's, and it is found in proxy->tickets like a parked call. It counts among the parked
 * calls of its principal until its end has been told, and its end is kept like any outcome. */
#ifndef MCP_VALET_CLIENT_TASK_H
#define MCP_VALET_CLIENT_TASK_H

#include "proxy/call.h"

/* What a call that may become a task has for it. */
struct client_task {
	struct timer timer; /* until it becomes one */
	bool created;
	bool cancelled;		 /* by its client */
	int64_t created_ms;	 /* monotonic clock */
	int64_t created_wall_ms; /* for people */
	char *server_info;	 /* JSON text: the session may end before the task */
	struct buf params;	 /* of the request, where the server may want it again (-32042); else empty */
};

/* Whether tasks exist here for clients. */
bool client_tasks_offered(const struct proxy *proxy);

/* Refuses what only a client that declares the extension may ask for. */
void client_tasks_refuse(struct exchange *exchange);

/* A new request or retry of this call: makes ready for a task, if it may become one. */
void client_task_prepare(struct call *call, const struct request *request);
/* The server has the call, or its answers, and works: the client's patience begins. */
void client_task_on_working(struct call *call);
void client_task_free(struct call *call);

/* Whether the call is a task, which no exchange waits for. */
bool client_task_is(const struct call *call);
/* The latest that a task's question may expire, however often its server asks. */
int64_t client_task_last_expiry(const struct call *call);
/* Whether a task in this state counts among the parked calls. */
bool client_task_keeps_place(const struct call *call, enum call_state state);

/* Answers an exchange with the task (CreateTaskResult): the same request came again. */
void client_task_repeat(struct exchange *exchange, struct call *call);
/* The server took a question back: a parked task may go on with the next session_pump(). */
void client_task_on_withdrawn(struct call *call);
/* A task leaves its session: its end is kept for its client. */
void client_task_settle(struct call *call);

/* tasks/get, tasks/update, tasks/cancel. */
void client_task_request(struct exchange *exchange, const struct request *request);

#endif
