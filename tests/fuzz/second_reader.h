/* JSON as somebody else reads it (jansson), for what fuzz targets demand of the proxy. A text in which a key occurs twice, or
 * that jansson does not read (numbers beyond a double, lone surrogates), is not readable: of it nothing is demanded. */
#ifndef MCP_VALET_SECOND_READER_H
#define MCP_VALET_SECOND_READER_H

#include "proxy/bytes.h"

bool second_reads(struct span text);
/* Appends the string that stands behind the keys, which NULL ends. false if there is none. */
bool second_string(struct span text, const char *const *keys, struct buf *out);
/* Whether two readable texts are the same value; keys: which member of the first one, NULL for all of it. */
bool second_equal(struct span a, const char *key, struct span b);
bool second_has(struct span text, const char *key);
/* Whether this is an answer to a sampling request. */
bool second_is_sample(struct span answer);
/* Whether this is an answer to an elicitation with these params. If checked, what is accepted must fit the requestedSchema. */
bool second_is_elicited(struct span params, struct span answer, bool checked);

#endif
