#include "adapters/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 65536 };

/* Reads the whole of a small file. Returns how many bytes, or -1 with *error. */
static ssize_t read_all(int fd, const char *path, char *out, size_t size, struct error *error)
{
	size_t len = 0;
	while (len < size) {
		ssize_t part = read(fd, out + len, size - len);
		if (part == 0)
			return (ssize_t)len;
		if (part > 0)
			len += (size_t)part;
		else if (errno != EINTR)
			return error_set(error, ERROR_SYSTEM, "key file %s: %s", path, strerror(errno)), -1;
	}
	error_set(error, ERROR_LIMIT, "key file %s: larger than %zu bytes", path, size);
	return -1;
}

static bool is_private(int fd, const char *path, struct error *error)
{
	struct stat stat;
	if (fstat(fd, &stat)) {
		error_set(error, ERROR_SYSTEM, "key file %s: %s", path, strerror(errno));
		return false;
	}
	if (!S_ISREG(stat.st_mode)) {
		error_set(error, ERROR_REFUSED, "key file %s is not a regular file", path);
		return false;
	}
	if ((stat.st_mode & 027) == 0)
		return true;
	error_set(error, ERROR_REFUSED, "key file %s is open to others (mode %04o): chmod 600 it", path,
		(unsigned)(stat.st_mode & 07777));
	return false;
}

struct keyring *key_file_load(const char *path, struct error *error)
{
	char content[FILE_BYTES];
	struct keyring *keys = NULL;
	/* A FIFO in its place must not hold up the start, nor the event loop at a reload. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0) {
		error_set(error, ERROR_SYSTEM, "key file %s: %s%s", path, strerror(errno),
			errno == ENOENT ? " (mcp-valet keygen makes one)" : "");
		return NULL;
	}
	if (is_private(fd, path, error)) {
		ssize_t len = read_all(fd, path, content, sizeof(content), error);
		if (len >= 0)
			keys = keyring_parse((struct span){content, (size_t)len}, path, error);
		sodium_memzero(content, sizeof(content));
	}
	close(fd);
	return keys;
}
