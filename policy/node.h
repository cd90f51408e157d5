/* The tree of a YAML file, with the place of everything. A strict subset of YAML 1.2: one document; no anchors, aliases,
 * tags or duplicate keys; bounded depth and size. JSON is part of it. */
#ifndef MCP_VALET_POLICY_NODE_H
#define MCP_VALET_POLICY_NODE_H

#include "policy/report.h"

enum node_type { NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node {
	enum node_type type;
	unsigned line, column; /* from 1 */
	char *text;	       /* NODE_SCALAR */
	bool quoted;	       /* NODE_SCALAR: always a string */
	struct node **keys;    /* NODE_MAP: scalars */
	struct node **values;  /* NODE_MAP, NODE_LIST */
	size_t count;
};

/* Reads a text. Faults are reported; NULL if there was any, or nothing in the text. */
struct node *node_read(struct span text, struct report *report) MUST_CHECK;
void node_free(struct node *node);

/* The value of a key of a map, or NULL. */
const struct node *node_get(const struct node *map, const char *key);
/* Appends the node as JSON: plain scalars by the core schema, numbers as spelled. */
void node_write_json(const struct node *node, struct buf *out);

#endif
