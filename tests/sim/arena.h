/* Memory of one simulated run: taken piece by piece, given back all at once. It does not come from the heap, so that the
 * heap holds only what the core allocates, and a leak of a run is the difference of two numbers. */
#ifndef MCP_VALET_SIM_ARENA_H
#define MCP_VALET_SIM_ARENA_H

#include "proxy/bytes.h"

struct arena {
	char *base;
	size_t used;
	size_t size;
};

/* Reserves address space; pages come as they are touched. Ends the program if that fails. */
void arena_init(struct arena *arena, size_t size);
/* Memory as it is, for arrays that are written before they are read. Ends the program when the arena is full. */
void *arena_take(struct arena *arena, size_t size);
/* Zeroed memory. */
void *arena_alloc(struct arena *arena, size_t size);
struct span arena_copy(struct arena *arena, struct span bytes); /* terminated */
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
/* Forgets everything. */
void arena_reset(struct arena *arena);

#endif
