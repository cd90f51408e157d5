#include "adapters/report_file.h"

#include "adapters/log.h"
#include "proxy/observe.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 8 << 20, SAFELY = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

struct report_file {
	const struct env *env;
	struct proxy *proxy;
	char *path, *new_path, *lock_path;
	struct event *timer;
	int lock;				/* -1: not held */
	bool is_read;				/* what was in it is counted: it may be written */
	bool exists;				/* as `newest` */
	struct stat newest;			/* as it was read or written last */
	uint8_t hash[crypto_generichash_BYTES]; /* of what it says */
	struct error said;			/* what is in the log already */
};

/* Tells why the observations are not kept, once. */
static void complain(struct report_file *file, const struct error *error)
{
	if (strcmp(error->text, file->said.text) == 0)
		return;
	file->said = *error;
	log_event(file->env, LOG_WARNING, "report-file-failed", "observations are not kept: %s", error->text);
}

static int system_error(struct error *error, const char *path)
{
	return error_set(error, ERROR_SYSTEM, "%s: %s", path, strerror(errno));
}

/* Reading. */

static int lock(struct report_file *file, struct error *error)
{
	if (file->lock >= 0)
		return 0;
	int fd = open(file->lock_path, O_RDWR | O_CREAT | SAFELY, 0600);
	if (fd < 0)
		return system_error(error, file->lock_path);
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno == EWOULDBLOCK)
			error_set(error, ERROR_REFUSED, "%s: another process writes it", file->path);
		else
			system_error(error, file->lock_path);
		close(fd);
		return error->code;
	}
	file->lock = fd;
	return 0;
}

static int read_all(int fd, const char *path, struct buf *content, struct error *error)
{
	char bytes[16384];
	ssize_t len;
	while ((len = read(fd, bytes, sizeof(bytes))) != 0) {
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return system_error(error, path);
		buf_add(content, bytes, (size_t)len);
		if (content->len > MAX_BYTES)
			return error_set(error, ERROR_LIMIT, "%s: too large for a report", path);
	}
	return buf_ok(content) ? 0 : error_set(error, ERROR_MEMORY, "%s: out of memory", path);
}

static int count_content(struct report_file *file, int fd, struct error *error)
{
	struct buf content = {0};
	struct error fault = {0};
	if (fstat(fd, &file->newest))
		return system_error(error, file->path);
	if (!S_ISREG(file->newest.st_mode))
		return error_set(error, ERROR_REFUSED, "%s: not a regular file, and left as it is", file->path);
	int status = read_all(fd, file->path, &content, error);
	if (!status && content.len && proxy_read_report(file->proxy, buf_span(&content), &fault))
		status = error_set(error, ERROR_REFUSED,
			"%s: not a whole report of mcp-valet, and left as it is: move it away (%s)", file->path,
			fault.text);
	buf_free(&content);
	return status;
}

/* Adds what the file says. Without a file, there is nothing to add. */
static int take_up(struct report_file *file, struct error *error)
{
	int status = lock(file, error);
	if (status || file->is_read)
		return status;
	int fd = open(file->path, O_RDONLY | SAFELY);
	if (fd < 0 && errno != ENOENT)
		return errno == ELOOP
			       ? error_set(error, ERROR_REFUSED, "%s: a symbolic link, and left as it is", file->path)
			       : system_error(error, file->path);
	file->exists = fd >= 0;
	if (file->exists) {
		status = count_content(file, fd, error);
		close(fd);
	}
	if (status)
		return status;
	file->is_read = true;
	log_event(file->env, LOG_INFO, "report-file", "%s: %s", file->path,
		file->exists ? "its counts go on" : "made anew");
	return 0;
}

/* Writing. */

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Whether the file is still what was read or written last, or gone. */
static int check_untouched(const struct report_file *file, struct error *error)
{
	struct stat now;
	if (lstat(file->path, &now))
		return errno == ENOENT ? 0 : system_error(error, file->path);
	return file->exists && is_same(&now, &file->newest)
		       ? 0
		       : error_set(error, ERROR_REFUSED, "%s: changed by somebody else, and left as it is", file->path);
}

static int write_all(int fd, struct span content)
{
	while (content.len) {
		ssize_t len = write(fd, content.ptr, content.len);
		if (len < 0 && errno != EINTR)
			return -1;
		content.ptr += len > 0 ? len : 0;
		content.len -= len > 0 ? (size_t)len : 0;
	}
	return 0;
}

static int replace(struct report_file *file, struct span content, bool durably, struct error *error)
{
	(void)unlink(file->new_path); /* of a process that died */
	int fd = open(file->new_path, O_WRONLY | O_CREAT | O_EXCL | SAFELY, 0600);
	if (fd < 0)
		return system_error(error, file->new_path);
	bool bad = write_all(fd, content) || (durably && fsync(fd)) || fstat(fd, &file->newest) ||
		   rename(file->new_path, file->path);
	int status = bad ? system_error(error, file->new_path) : 0;
	close(fd);
	if (bad)
		(void)unlink(file->new_path);
	file->exists |= !bad;
	return status;
}

static int write_content(struct report_file *file, struct span content, bool durably, struct error *error)
{
	uint8_t hash[sizeof(file->hash)];
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)content.ptr, content.len, NULL, 0);
	if (memcmp(hash, file->hash, sizeof(hash)) == 0)
		return 0;
	int status = check_untouched(file, error);
	if (!status)
		status = replace(file, content, durably, error);
	if (!status)
		memcpy(file->hash, hash, sizeof(hash));
	return status;
}

static void save(struct report_file *file, bool durably)
{
	struct error error = {0};
	struct buf content = {0};
	int status = take_up(file, &error);
	if (!status) {
		proxy_write_report(file->proxy, &content);
		status = buf_ok(&content) ? write_content(file, buf_span(&content), durably, &error)
					  : error_set(&error, ERROR_MEMORY, "%s: out of memory", file->path);
		buf_free(&content);
	}
	if (status)
		complain(file, &error);
	else
		file->said.text[0] = '\0';
}

static void on_timer(evutil_socket_t fd UNUSED, short what UNUSED, void *arg)
{
	save(arg, false);
}

void report_file_finish(struct report_file *file)
{
	save(file, true);
}

/* Making and freeing. */

static char *with_suffix(const char *path, const char *suffix)
{
	struct buf text = {0};
	buf_printf(&text, "%s%s", path, suffix);
	buf_add(&text, "", 1);
	if (text.failed)
		buf_free(&text);
	return text.data;
}

struct report_file *report_file_new(
	struct event_base *base, const struct env *env, struct proxy *proxy, const char *path, unsigned interval_ms)
{
	struct timeval interval = {(time_t)(interval_ms / 1000), (suseconds_t)(interval_ms % 1000 * 1000)};
	struct report_file *file = calloc(1, sizeof(*file));
	struct error error = {0};
	if (!file)
		return NULL;
	file->env = env;
	file->proxy = proxy;
	file->lock = -1;
	file->path = with_suffix(path, "");
	file->new_path = with_suffix(path, ".mcp-valet-new");
	file->lock_path = with_suffix(path, ".lock");
	file->timer = event_new(base, -1, EV_PERSIST, on_timer, file);
	if (!file->path || !file->new_path || !file->lock_path || !file->timer || event_add(file->timer, &interval)) {
		report_file_free(file);
		return NULL;
	}
	if (take_up(file, &error))
		complain(file, &error);
	return file;
}

void report_file_free(struct report_file *file)
{
	if (!file)
		return;
	if (file->timer)
		event_free(file->timer);
	if (file->lock >= 0)
		close(file->lock);
	free(file->path);
	free(file->new_path);
	free(file->lock_path);
	free(file);
}
