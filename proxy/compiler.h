/* What the compiler is told about functions: results that must be looked at, printf formats, pointers that are never NULL. */
#ifndef MCP_VALET_COMPILER_H
#define MCP_VALET_COMPILER_H

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(string, first) __attribute__((format(printf, string, first)))
#define UNUSED __attribute__((unused))

/* The object of type `type` whose member `member` is at `pointer`. */
#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
