/* Downstream: one client on standard input and output, JSON-RPC in lines (2026-07-28 basic/transports/stdio).
 *
 * One struct client stands for it, with one constant principal; a client cancels with notifications/cancelled. Blank
 * lines are skipped; a line over limits.message_bytes is refused with -32600; a truncated last line is never parsed.
 *
 * Backpressure: while more than an eighth of limits.downstream_queue_bytes waits to be read by the client, nothing is
 * read from it, until half of that is gone; notifications that would exceed limits.downstream_queue_bytes are dropped.
 * Responses are never dropped.
 *
 * The end of the input begins the orderly end of the program: running requests finish and their responses are written.
 * A client that does not take its output any more is gone: its requests are cancelled.
 *
 * The descriptors may be pipes, sockets, terminals, or files and devices that the kernel cannot poll. They are made
 * non-blocking; stdio_face_free() gives them their old flags back, because others may share them. */
#ifndef MCP_VALET_STDIO_FACE_H
#define MCP_VALET_STDIO_FACE_H

#include "policy/policy.h"
#include "proxy/face.h"

struct loop;
struct stdio_face;

/* Begins to read when the loop runs. Takes a reference of `policy`; the descriptors stay the caller's. NULL with
 * *error. */
struct stdio_face *stdio_face_new(struct loop *loop, struct proxy *proxy, struct policy *policy, int in_fd, int out_fd,
	struct error *error) MUST_CHECK;
void stdio_face_set_policy(struct stdio_face *face, struct policy *policy);
/* Reads nothing more. */
void stdio_face_stop_accepting(struct stdio_face *face);
/* Whether everything was written. */
bool stdio_face_is_idle(const struct stdio_face *face);
/* The client is gone, and the face with it. */
void stdio_face_free(struct stdio_face *face);

#endif
