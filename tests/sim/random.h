/* Seeded choices: the same seed makes the same run, on every machine. */
#ifndef MCP_VALET_SIM_RANDOM_H
#define MCP_VALET_SIM_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prng {
	uint64_t state;
	const uint8_t *choices; /* of a fuzzer: prng_between() and prng_chance() use these up first */
	size_t choices_left;
};

void prng_seed(struct prng *prng, uint64_t seed);
uint64_t prng_next(struct prng *prng);
void prng_fill(struct prng *prng, void *out, size_t len);
/* A number from `low` to `high`, both included. */
int64_t prng_between(struct prng *prng, int64_t low, int64_t high);
/* True in `percent` of a hundred cases. */
bool prng_chance(struct prng *prng, unsigned percent);

#endif
