/* The file with the keys for request states. */
#ifndef MCP_VALET_KEY_FILE_H
#define MCP_VALET_KEY_FILE_H

#include "proxy/request_state.h"

/* Reads a key file. It is refused if its group or others may use it: whoever has the key can make states. NULL with
 * *error. */
struct keyring *key_file_load(const char *path, struct error *error) MUST_CHECK;

#endif
