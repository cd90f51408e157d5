/* The whole core in the simulated world, with the input as the choices: who sends what, when, and what breaks. Once the
 * input is used up, a fixed seed goes on choosing, so that every run comes to its end. */
#include "tests/sim/model.h"
#include "tests/sim/sim.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	if (sodium_init() < 0)
		abort();
	world_init(&world, 1, &model_driver, false);
	world.prng.choices = data;
	world.prng.choices_left = size;
	model_run(&world, size && data[size - 1] % 2);
	world_end(&world);
	if (world.failed) {
		fprintf(stderr, "%s\n", world.failure);
		abort();
	}
	return 0;
}
