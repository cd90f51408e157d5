/* The two ways to run a world. */
#ifndef MCP_VALET_SIM_SIM_H
#define MCP_VALET_SIM_SIM_H

#include "tests/sim/world.h"

/* The random models, after world_init(): the seed decides everything. `passed`: with legacy clients, or a modern server, whose
 * sessions are passed through. */
void model_run(struct world *world, bool passed);

/* Plays a scenario file and prints TAP for it under `number`. false if it failed. */
bool scenario_play(struct world *world, const char *path, unsigned number, bool verbose);

#endif
