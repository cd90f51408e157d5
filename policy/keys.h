/* The key table: every key of a policy file, its type, unit, default, range and meaning, one entry each. Checking,
 * defaults, the manual's list and the JSON Schema come from it. */
#ifndef MCP_VALET_POLICY_KEYS_H
#define MCP_VALET_POLICY_KEYS_H

#include "policy/node.h"
#include "policy/policy.h"

enum key_section {
	SECTION_TOP,
	SECTION_LIMITS,
	SECTION_DEADLINES,
	SECTION_UPSTREAM,
	SECTION_RULE,
	SECTION_CACHE,
	SECTIONS
};

enum key_type {
	KEY_SIZE,      /* size_t; B, KiB, MiB, GiB */
	KEY_DURATION,  /* int64_t milliseconds; ms, s, m, h, d */
	KEY_COUNT,     /* unsigned */
	KEY_NUMBER,    /* int */
	KEY_WORD,      /* enum: the place in `words` */
	KEY_FLAG,      /* bool */
	KEY_TEXT,      /* char * */
	KEY_TEXTS,     /* char **, and their count at count_offset */
	KEY_ASK,       /* enum policy_action, and the answer's char * at count_offset */
	KEY_PRINCIPAL, /* enum policy_principal, and the header's char * at count_offset */
};

struct key {
	enum key_section section;
	const char *name;
	enum key_type type;
	size_t offset;	      /* in struct policy, or in struct policy_rule for SECTION_RULE and SECTION_CACHE */
	size_t count_offset;  /* see key_type */
	const char *fallback; /* the default, as a file would spell it; NULL: unset */
	int64_t min, max;
	const char *words; /* KEY_WORD: "a b c" in the order of the enum; KEY_DURATION: a word that means -1, or NULL */
	const char *help;
};

extern const struct key keys[];
extern const size_t key_count;

const char *section_name(enum key_section section); /* "" for the top, "defaults" for rules, "cache" */
const struct key *key_find(enum key_section section, const char *name);

/* Sets one key of `object` (the struct that its offset is in) from a value. Faults are reported; false then. What was set
 * before is freed. */
bool key_set(const struct key *key, void *object, const struct node *value, struct report *report);
/* Sets every key of the sections first to last to its default. false without memory. */
bool keys_set_defaults(enum key_section first, enum key_section last, void *object) MUST_CHECK;
/* Copies, or frees, what the keys of the sections own. */
bool keys_copy_owned(enum key_section first, enum key_section last, void *to, const void *from) MUST_CHECK;
void keys_free_owned(enum key_section first, enum key_section last, void *object);
/* Writes the value of a key as a file would spell it. */
void key_write(const struct key *key, const void *object, FILE *out);

#endif
