#include "tests/sim/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void arena_init(struct arena *arena, size_t size)
{
	void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	*arena = (struct arena){.base = base, .size = size};
}

void *arena_take(struct arena *arena, size_t size)
{
	size = (size + 15) & ~(size_t)15;
	if (size > arena->size - arena->used) {
		fprintf(stderr, "sim: the arena is full\n");
		exit(2);
	}
	void *memory = arena->base + arena->used;
	arena->used += size;
	return memory;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	return memset(arena_take(arena, size), 0, size);
}

struct span arena_copy(struct arena *arena, struct span bytes)
{
	char *copy = arena_alloc(arena, bytes.len + 1);
	if (bytes.len)
		memcpy(copy, bytes.ptr, bytes.len);
	return (struct span){copy, bytes.len};
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	char *text = arena_alloc(arena, (size_t)len + 1);
	va_start(args, format);
	vsnprintf(text, (size_t)len + 1, format, args);
	va_end(args);
	return text;
}

void arena_reset(struct arena *arena)
{
	arena->used = 0;
}
