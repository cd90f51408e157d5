#include "tests/sim/random.h"

#include <string.h>

void prng_seed(struct prng *prng, uint64_t seed)
{
	prng->state = seed * 0x2545F4914F6CDD1D + 0x9E3779B97F4A7C15;
	prng_next(prng);
}

/* splitmix64: every state follows every other, and neighbouring seeds have nothing in common. */
uint64_t prng_next(struct prng *prng)
{
	uint64_t z = prng->state += 0x9E3779B97F4A7C15;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
	return z ^ (z >> 31);
}

void prng_fill(struct prng *prng, void *out, size_t len)
{
	unsigned char *at = out;
	while (len) {
		uint64_t bits = prng_next(prng);
		size_t part = len < sizeof(bits) ? len : sizeof(bits);
		memcpy(at, &bits, part);
		at += part;
		len -= part;
	}
}

int64_t prng_between(struct prng *prng, int64_t low, int64_t high)
{
	return low + (int64_t)(prng_next(prng) % (uint64_t)(high - low + 1));
}

bool prng_chance(struct prng *prng, unsigned percent)
{
	return prng_next(prng) % 100 < percent;
}
