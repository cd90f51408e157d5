/* Upstream: a legacy server as a child process that speaks JSON-RPC in lines on stdin and stdout (basic/transports,
 * "stdio").
 *
 * Each session has a process of its own. What it writes to stdout is read in large pieces and handed to the core line
 * by line: blank lines are skipped, lines that do not begin like JSON are logged and skipped, a truncated last line is
 * never parsed, a message over limits.message_bytes ends the session. Some lines a turn, so that a flood does not stall
 * the loop. What it writes to stderr goes into the log, as much as a limit a second allows.
 *
 * Writing never blocks. A request or notification that would let more than limits.upstream_queue_bytes wait is refused
 * with ERROR_LIMIT; responses may fill twice that. A single message is always taken when nothing waits.
 *
 * The end: stdin is closed (once what was queued is written), after deadlines.exit_ms, or sooner when the whole program
 * ends (loop_patience_ms()), the group gets SIGTERM, after exit_ms more SIGKILL. A server that exits by itself is lost
 * after its output was read; the exit alone decides, because grandchildren may hold the pipe. One that closes its stdin
 * or stdout and lives on is lost after a moment.
 *
 * A server that is lost before its handshake is over has failed to start. From then on starts are refused for 100 ms,
 * doubled with every further failure up to deadlines.restart_ms. */
#ifndef MCP_VALET_CHILD_H
#define MCP_VALET_CHILD_H

#include "policy/policy.h"
#include "proxy/upstream.h"

struct child_upstream;
struct loop;

extern const struct upstream_ops child_upstream_ops; /* ctx is a struct child_upstream */

/* `argv` is the command, borrowed; a reference of `policy` is taken. NULL without memory. */
struct child_upstream *child_upstream_new(struct loop *loop, struct policy *policy, char *const *argv) MUST_CHECK;
void child_upstream_set_policy(struct child_upstream *children, struct policy *policy);
/* Whether no process is left. */
bool child_upstream_is_idle(const struct child_upstream *children);
/* SIGKILL to every group. */
void child_upstream_kill_all(struct child_upstream *children);
/* Kills what is left, without waiting for it. The core holds no upstream any more. */
void child_upstream_free(struct child_upstream *children);

#endif
