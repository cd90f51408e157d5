/* `mcp-valet demo`: the main job for a person to see, without a network and without Node.js. It plays a modern client
 * (2026-07-28), starts this program as the proxy in front of `mcp-valet demo --server`, and shows message by message how
 * a question of the legacy server becomes an InputRequiredResult, how the retry brings the answer, and how a state that
 * was tampered with is refused. Every step is checked.
 *
 * It runs in its own process and blocks; nothing of it is used by the proxy. */
#ifndef MCP_VALET_DEMO_H
#define MCP_VALET_DEMO_H

/* argv[0] is the word `demo`. Returns the exit status: 0 if every step went as it should, 1 if one did not, 2 if the
 * arguments make no sense. */
int demo_main(int argc, char **argv);

#endif
