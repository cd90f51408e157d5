/* Writing JSON objects and arrays by joining literals and spans. The comma comes from what was written last, so writers
 * need no state. */
#ifndef MCP_VALET_JSON_WRITE_H
#define MCP_VALET_JSON_WRITE_H

#include "proxy/json.h"

/* Appends a comma unless the container was just opened. */
void json_add_separator(struct buf *out);
/* Appends `"key":` after a comma where one is needed. `key` needs no escapes. */
void json_add_key(struct buf *out, const char *key);
/* Appends a member as it was spelled, after a comma where one is needed. */
void json_add_member(struct buf *out, const struct json_member *member);

#endif
