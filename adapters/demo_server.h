/* `mcp-valet demo --server`: a small legacy MCP server (2025-11-25 and older, stdio) that asks its client in the middle
 * of a call, for the demonstration and for tests that need no Node.js.
 *
 * Tools: `echo` asks nothing; `book_table` asks the user for a form and then a model for a sentence; `ask_two` asks two
 * forms at once; `delete_everything` asks for a confirmation; `show_roots` asks for the client's roots. One prompt,
 * `welcome`, and one resource, `demo://menu`. It answers several calls at a time and obeys cancellation. */
#ifndef MCP_VALET_DEMO_SERVER_H
#define MCP_VALET_DEMO_SERVER_H

/* Serves standard input and output until the input ends. Returns the exit status of the process: 0, or 1 if the client
 * could not be written to or memory was short. */
int demo_server_run(void);

#endif
