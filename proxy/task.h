/* Tasks of 2025-11-25 (basic/utilities/tasks): tools that can only be called as a task. The proxy makes the call one,
 * fetches the result when it is there, and the client sees an ordinary call. Tools whose support is optional are called
 * plainly.
 *
 * Which tools require it is learned from the tool lists that pass, and from the server's refusal of a plain call. */
#ifndef MCP_VALET_TASK_H
#define MCP_VALET_TASK_H

#include "proxy/call.h"

/* Learns from a tools/list result of a session. */
void task_learn(struct session *session, struct span result);
/* Before a call is sent: makes its request a task's if that is known to be required, or keeps what a second try needs. */
void task_prepare(struct call *call);
/* The server's answer to the call, or to the fetching of its result. true if the call goes on: it was refused and is tried
 * again as a task, or the task was created and its result is waited for. */
bool task_on_answer(struct call *call, struct span result, struct span error);
/* Cancels the task of a call. false if it has none. */
bool task_cancel(struct call *call);
/* The call whose task a server request belongs to, by its `_meta`; NULL if none. */
struct call *task_find_call(struct session *session, struct span meta);

#endif
