/* A heap that fails when it is told to. Linked with -Wl,--wrap for malloc, calloc, realloc, reallocarray, strdup, strndup and free:
 * only what our own objects allocate is counted and fails, and what a test's script itself needs is static. */
#ifndef MCP_VALET_FAILING_HEAP_H
#define MCP_VALET_FAILING_HEAP_H

#include <stdbool.h>
#include <stddef.h>

static struct {
	size_t count;	   /* allocations so far */
	size_t fail_at;	   /* which of them fails, from 1; 0: none */
	size_t fail_until; /* the last one that fails */
	long live;
} heap;

static bool must_fail(void)
{
	heap.count++;
	return heap.fail_at && heap.count >= heap.fail_at && heap.count <= heap.fail_until;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_reallocarray(void *memory, size_t count, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_reallocarray(void *memory, size_t count, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
	void *memory = must_fail() ? NULL : __real_malloc(size);
	heap.live += memory != NULL;
	return memory;
}

void *__wrap_calloc(size_t count, size_t size)
{
	void *memory = must_fail() ? NULL : __real_calloc(count, size);
	heap.live += memory != NULL;
	return memory;
}

void *__wrap_realloc(void *memory, size_t size)
{
	void *grown = must_fail() ? NULL : __real_realloc(memory, size);
	heap.live += grown != NULL && memory == NULL;
	return grown;
}

void *__wrap_reallocarray(void *memory, size_t count, size_t size)
{
	void *grown = must_fail() ? NULL : __real_reallocarray(memory, count, size);
	heap.live += grown != NULL && memory == NULL;
	return grown;
}

char *__wrap_strdup(const char *text)
{
	char *copy = must_fail() ? NULL : __real_strdup(text);
	heap.live += copy != NULL;
	return copy;
}

char *__wrap_strndup(const char *text, size_t len)
{
	char *copy = must_fail() ? NULL : __real_strndup(text, len);
	heap.live += copy != NULL;
	return copy;
}

void __wrap_free(void *memory)
{
	heap.live -= memory != NULL;
	__real_free(memory);
}

#endif
