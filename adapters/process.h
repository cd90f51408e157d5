/* Child processes: started with posix_spawn, never through a shell, each the leader of its own process group; reaped
 * and ended as a group. It knows nothing of the event loop: the owner calls process_reap() on SIGCHLD.
 *
 * The child gets descriptors 0 to 2 and no other, default signal dispositions, an empty signal mask and the descriptor
 * limit that this program was started with. Our ends of its pipes are non-blocking and close-on-exec; the pipes of
 * stdin and stdout are enlarged where the system allows. */
#ifndef MCP_VALET_PROCESS_H
#define MCP_VALET_PROCESS_H

#include "proxy/error.h"

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { PROCESS_PIPE_BYTES = 256 * 1024 };

struct process {
	pid_t pid;
	int in, out, err; /* our ends of its stdin, stdout and stderr; -1 when closed */
	bool exited;
	int status; /* of waitpid, once exited */
	/* The leader has exited, and what was left of its group was killed. The process may be freed in it. */
	void (*on_exit)(struct process *process);
	LIST_ENTRY(process) link;
};

LIST_HEAD(process_list, process);

/* Starts argv[0], looked up in PATH. The caller has set on_exit; the rest is filled here, and the process stands in
 * `list` until it is reaped. Fails with ERROR_SYSTEM and the reason. */
int process_spawn(struct process *process, struct process_list *list, char *const argv[],
	const struct rlimit *descriptors, struct error *error) MUST_CHECK;

/* Sends a signal to the whole group, if the leader has not been reaped yet. */
void process_signal_group(const struct process *process, int signal);
void process_close(int *fd); /* closes a descriptor and sets it to -1; -1 stays */

/* Reaps every child that has exited: those of the list, and strangers that became ours because we are their subreaper.
 * */
void process_reap(struct process_list *list);
/* Makes this program the parent of what its children leave behind (wrappers such as npx do). */
void process_become_subreaper(void);
/* Kills and reaps every child that is left, wherever it came from. For the very end. */
void process_kill_leftovers(void);

/* Opens descriptors 0 to 2 on /dev/null where they are closed, so that no pipe gets one of these numbers. */
int process_open_standard_descriptors(struct error *error) MUST_CHECK;
/* Keys, answers and credentials are in memory: no core dump, and no debugger of the same user. Not RLIMIT_CORE, which
 * children would inherit and which a core pattern with a pipe ignores; this ends with exec, so that a child dumps as ever. */
void process_forbid_core_dumps(void);
/* Raises the soft limit of open descriptors to the hard one, for many connections. *before is what to give to children.
 * */
void process_raise_descriptor_limit(struct rlimit *before);

/* "exited with status 1", "was killed by signal 9 (Killed)". */
void process_describe_status(int status, char *text, size_t size);

#endif
