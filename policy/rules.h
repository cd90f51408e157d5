/* The rules of a policy, compiled: names first, then patterns from the most to the least specific. */
#ifndef MCP_VALET_POLICY_RULES_H
#define MCP_VALET_POLICY_RULES_H

#include "policy/keys.h"

enum { MAX_KEYS = 96 };

/* A rule of the file: its settings, and the line that each came from (0: a default). */
struct rule {
	struct policy_rule settings;
	unsigned lines[MAX_KEYS]; /* by place in the key table */
	unsigned line;		  /* of the rule */
};

struct policy_rules;

/* Reads `rules`, on top of `defaults`. Faults are reported; NULL without memory. `node` may be NULL. */
struct policy_rules *rules_read(const struct node *node, const struct rule *defaults, struct report *report) MUST_CHECK;
void rules_free(struct policy_rules *rules);

/* The rule for a name, NULL if none matches. */
const struct rule *rules_find(const struct policy_rules *rules, enum policy_subject subject, const char *name);

/* Whether one of them has task_after. `rules` may be NULL. */
bool rules_make_tasks(const struct policy_rules *rules);

/* Reads the settings of one rule, or of `defaults`, over what *rule holds. */
void rule_read(struct rule *rule, const struct node *node, bool is_rule, struct report *report);

/* Glob patterns: `*` is any run of characters, `?` is one. Exposed for tests. */
bool glob_matches(const char *pattern, const char *name);
/* Whether some name matches both. */
bool globs_overlap(const char *a, const char *b);

/* Reports an unknown key, with the nearest known one. */
void report_unknown_key(struct report *report, const struct node *key, enum key_section section);

#endif
