#include "tests/sim/random.h"

#include <string.h>

void prng_seed(struct prng *prng, uint64_t seed)
{
	*prng = (struct prng){.state = seed * 0x2545F4914F6CDD1D + 0x9E3779B97F4A7C15};
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

/* Two bytes of what a fuzzer chose, or else the next number. Ids and keys never come from there: they would repeat. */
static uint64_t next_choice(struct prng *prng)
{
	if (prng->choices_left < 2)
		return prng_next(prng);
	uint64_t choice = (uint64_t)prng->choices[0] << 8 | prng->choices[1];
	prng->choices += 2;
	prng->choices_left -= 2;
	return choice;
}

int64_t prng_between(struct prng *prng, int64_t low, int64_t high)
{
	return low + (int64_t)(next_choice(prng) % (uint64_t)(high - low + 1));
}

bool prng_chance(struct prng *prng, unsigned percent)
{
	return next_choice(prng) % 100 < percent;
}
