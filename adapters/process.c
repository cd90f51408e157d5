#include "adapters/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEFTOVER_ROUNDS = 50, LEFTOVER_WAIT_MS = 20 };

/* The pipes of one child: [0] is what is read from, [1] what is written to. */
struct pipes {
	int in[2], out[2], err[2];
};

void process_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_pipe(int ends[2])
{
	process_close(&ends[0]);
	process_close(&ends[1]);
}

static bool set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* Pipes and not sockets: programs that open /dev/stdin cannot open a socket. */
static int make_pipes(struct pipes *pipes)
{
	*pipes = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}};
	if (pipe2(pipes->in, O_CLOEXEC) || pipe2(pipes->out, O_CLOEXEC) || pipe2(pipes->err, O_CLOEXEC))
		return -1;
	if (!set_nonblocking(pipes->in[1]) || !set_nonblocking(pipes->out[0]) || !set_nonblocking(pipes->err[0]))
		return -1;
	/* Larger pipes are faster; a system that refuses them (fs.pipe-user-pages-soft) does no harm. */
	(void)fcntl(pipes->in[1], F_SETPIPE_SZ, PROCESS_PIPE_BYTES);
	(void)fcntl(pipes->out[0], F_SETPIPE_SZ, PROCESS_PIPE_BYTES);
	return 0;
}

static int add_actions(posix_spawn_file_actions_t *actions, const struct pipes *pipes)
{
	int fault = posix_spawn_file_actions_adddup2(actions, pipes->in[0], STDIN_FILENO);
	if (!fault)
		fault = posix_spawn_file_actions_adddup2(actions, pipes->out[1], STDOUT_FILENO);
	if (!fault)
		fault = posix_spawn_file_actions_adddup2(actions, pipes->err[1], STDERR_FILENO);
	/* What we inherited without close-on-exec is nothing for the child either. */
	if (!fault)
		fault = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
	return fault;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
	sigset_t all, none;
	sigfillset(&all);
	sigemptyset(&none);
	int fault = posix_spawnattr_setflags(
		attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	if (!fault)
		fault = posix_spawnattr_setpgroup(attributes, 0);
	if (!fault)
		fault = posix_spawnattr_setsigdefault(attributes, &all);
	if (!fault)
		fault = posix_spawnattr_setsigmask(attributes, &none);
	return fault;
}

/* posix_spawn hands on our limits, so ours is the child's for a moment. */
static int spawn_with_limit(pid_t *pid, char *const argv[], const posix_spawn_file_actions_t *actions,
	const posix_spawnattr_t *attributes, const struct rlimit *descriptors)
{
	struct rlimit own;
	bool lowered = descriptors && getrlimit(RLIMIT_NOFILE, &own) == 0 && own.rlim_cur != descriptors->rlim_cur &&
		       setrlimit(RLIMIT_NOFILE, &(struct rlimit){descriptors->rlim_cur, own.rlim_max}) == 0;
	int fault = posix_spawnp(pid, argv[0], actions, attributes, argv, environ);
	if (lowered)
		(void)setrlimit(RLIMIT_NOFILE, &own);
	return fault;
}

static int spawn(pid_t *pid, char *const argv[], const struct pipes *pipes, const struct rlimit *descriptors)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int fault = posix_spawn_file_actions_init(&actions);
	if (fault)
		return fault;
	fault = posix_spawnattr_init(&attributes);
	if (fault) {
		posix_spawn_file_actions_destroy(&actions);
		return fault;
	}
	fault = add_actions(&actions, pipes);
	if (!fault)
		fault = set_attributes(&attributes);
	if (!fault)
		fault = spawn_with_limit(pid, argv, &actions, &attributes, descriptors);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return fault;
}

int process_spawn(struct process *process, struct process_list *list, char *const argv[],
	const struct rlimit *descriptors, struct error *error)
{
	struct pipes pipes;
	int fault = make_pipes(&pipes) ? errno : spawn(&process->pid, argv, &pipes, descriptors);
	if (fault) {
		close_pipe(pipes.in);
		close_pipe(pipes.out);
		close_pipe(pipes.err);
		return error_set(error, ERROR_SYSTEM, "cannot start %s: %s", argv[0], strerror(fault));
	}
	process_close(&pipes.in[0]);
	process_close(&pipes.out[1]);
	process_close(&pipes.err[1]);
	process->in = pipes.in[1];
	process->out = pipes.out[0];
	process->err = pipes.err[0];
	process->exited = false;
	process->status = 0;
	LIST_INSERT_HEAD(list, process, link);
	return 0;
}

void process_signal_group(const struct process *process, int signal)
{
	if (!process->exited)
		(void)kill(-process->pid, signal);
}

static struct process *find(struct process_list *list, pid_t pid)
{
	struct process *process;
	LIST_FOREACH (process, list, link)
		if (process->pid == pid)
			return process;
	return NULL;
}

void process_reap(struct process_list *list)
{
	for (;;) {
		siginfo_t info = {0};
		int status;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0)
			return;
		struct process *process = find(list, info.si_pid);
		/* While the leader is not reaped nobody else can get its number: now is the time for its group. */
		if (process)
			(void)kill(-process->pid, SIGKILL);
		if (waitpid(info.si_pid, &status, WNOHANG) != info.si_pid || !process)
			continue;
		process->exited = true;
		process->status = status;
		LIST_REMOVE(process, link);
		process->on_exit(process);
	}
}

void process_become_subreaper(void)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Sends SIGKILL to each of our children that the system lists; what they leave becomes ours. */
static void kill_children(void)
{
	char path[64];
	long pid;
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fscanf(file, "%ld", &pid) == 1)
		if (pid > 1)
			(void)kill((pid_t)pid, SIGKILL);
	fclose(file);
}

void process_kill_leftovers(void)
{
	for (int round = 0; round < LEFTOVER_ROUNDS; round++) {
		kill_children();
		pid_t pid;
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (pid < 0)
			return; /* no children */
		usleep(LEFTOVER_WAIT_MS * 1000);
	}
}

int process_open_standard_descriptors(struct error *error)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* open() takes the lowest number, which is this one. */
		if (open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd)
			return error_set(error, ERROR_SYSTEM, "cannot open /dev/null: %s", strerror(errno));
	}
	return 0;
}

void process_forbid_core_dumps(void)
{
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

void process_raise_descriptor_limit(struct rlimit *before)
{
	if (getrlimit(RLIMIT_NOFILE, before)) {
		*before = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
		return;
	}
	(void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){before->rlim_max, before->rlim_max});
}

void process_describe_status(int status, char *text, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}
