#include "policy/rules.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RULES = 10000, MAX_PATTERN_LEN = 256 };

/* One pattern of one rule. */
struct entry {
	enum policy_subject subject;
	char *pattern;
	bool exact;
	size_t literals; /* characters that stand for themselves */
	const struct rule *rule;
	unsigned line, column;
};

struct policy_rules {
	struct rule *rules;
	size_t rule_count;
	struct entry *entries; /* sorted: exact ones by subject and name, then patterns by falling specificity */
	size_t entry_count, exact_count;
};

static const char *const subject_names[] = {"tool", "prompt", "resource"};

/* How many edits lead from one word to the other, up to a bound that is enough to tell slips from other words. */
static unsigned distance(const char *a, const char *b)
{
	size_t a_len = strlen(a), b_len = strlen(b);
	unsigned row[64];
	if (b_len >= 64 || a_len >= 64)
		return 99;
	for (size_t j = 0; j <= b_len; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned diagonal = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[b_len];
}

void report_unknown_key(struct report *report, const struct node *key, enum key_section section)
{
	static const char *const maps[] = {"version", "limits", "deadlines", "upstream", "defaults", "rules", NULL};
	static const char *const in_rule[] = {"match", "cache", NULL};
	const char *best = NULL;
	unsigned best_distance = 3;
	for (size_t i = 0; i < key_count; i++)
		if (keys[i].section == section && distance(key->text, keys[i].name) < best_distance) {
			best = keys[i].name;
			best_distance = distance(key->text, best);
		}
	for (const char *const *name = section == SECTION_TOP ? maps : in_rule; section != SECTION_CACHE && *name;
		name++)
		if ((section == SECTION_TOP || section == SECTION_RULE) && distance(key->text, *name) < best_distance) {
			best = *name;
			best_distance = distance(key->text, best);
		}
	const char *where = section == SECTION_TOP    ? "policy"
			    : section == SECTION_RULE ? "rules"
						      : section_name(section);
	if (best)
		report_fault(report, key->line, key->column, "unknown key %s in %s; did you mean %s?", key->text, where,
			best);
	else
		report_fault(report, key->line, key->column, "unknown key %s in %s", key->text, where);
}

static void read_cache(struct rule *rule, const struct node *node, struct report *report)
{
	if (node->type != NODE_MAP) {
		report_fault(report, node->line, node->column, "cache: expected a map of ttl and scope");
		return;
	}
	for (size_t i = 0; i < node->count; i++) {
		const struct key *key = key_find(SECTION_CACHE, node->keys[i]->text);
		if (!key)
			report_unknown_key(report, node->keys[i], SECTION_CACHE);
		else if (key_set(key, &rule->settings, node->values[i], report))
			rule->lines[key - keys] = node->values[i]->line;
	}
}

/* What cannot be meant together. */
static void check_contradictions(const struct rule *rule, const struct node *node, struct report *report)
{
	const struct node *asks = node_get(node, "asks"), *input_keys = node_get(node, "input_keys");
	const struct node *hide = node_get(node, "hide"), *rerun = node_get(node, "rerun");
	const struct node *task_after = node_get(node, "task_after");
	if (rule->settings.asks_never && asks && input_keys)
		report_fault(report, input_keys->line, input_keys->column,
			"input_keys contradicts asks: never of line %u; expected one of the two", asks->line);
	if (rule->settings.asks_never && asks && rerun && rule->settings.rerun != POLICY_RERUN_NEVER)
		report_fault(report, rerun->line, rerun->column,
			"rerun contradicts asks: never of line %u; a call that never asks is never parked", asks->line);
	if (task_after && rerun && rule->settings.task_after_ms >= 0 && rule->settings.rerun == POLICY_RERUN_ALWAYS)
		report_fault(report, task_after->line, task_after->column,
			"task_after contradicts rerun: always of line %u; a call that is kept nowhere cannot be polled",
			rerun->line);
	if (rule->settings.hide && hide && node->count > (node_get(node, "match") ? 2u : 1u))
		report_fault(report, hide->line, hide->column,
			"hide: true makes the other keys of the rule meaningless; expected it alone");
}

void rule_read(struct rule *rule, const struct node *node, bool is_rule, struct report *report)
{
	if (node->type != NODE_MAP) {
		report_fault(report, node->line, node->column, "expected a map of settings");
		return;
	}
	for (size_t i = 0; i < node->count; i++) {
		const char *name = node->keys[i]->text;
		const struct key *key = key_find(SECTION_RULE, name);
		if (key && key_set(key, &rule->settings, node->values[i], report))
			rule->lines[key - keys] = node->values[i]->line;
		else if (strcmp(name, "cache") == 0)
			read_cache(rule, node->values[i], report);
		else if (!key && !(is_rule && strcmp(name, "match") == 0))
			report_unknown_key(report, node->keys[i], SECTION_RULE);
	}
	check_contradictions(rule, node, report);
}

static void add_pattern(struct policy_rules *rules, enum policy_subject subject, const struct node *node,
	const struct rule *rule, struct report *report)
{
	if (node->type != NODE_SCALAR || !node->text[0] || strlen(node->text) > MAX_PATTERN_LEN) {
		report_fault(report, node->line, node->column, "match: expected a pattern of 1 to %d characters",
			MAX_PATTERN_LEN);
		return;
	}
	struct entry *entries = reallocarray(rules->entries, rules->entry_count + 1, sizeof(*entries));
	char *pattern = entries ? strdup(node->text) : NULL;
	if (entries)
		rules->entries = entries;
	if (!pattern) {
		report_fault(report, node->line, node->column, "out of memory");
		return;
	}
	struct entry *entry = &entries[rules->entry_count++];
	*entry = (struct entry){
		.subject = subject, .pattern = pattern, .rule = rule, .line = node->line, .column = node->column};
	for (const char *p = pattern; *p; p++)
		entry->literals += *p != '*' && *p != '?';
	entry->exact = entry->literals == strlen(pattern);
}

static void read_match(
	struct policy_rules *rules, const struct node *node, const struct rule *rule, struct report *report)
{
	const struct node *match = node_get(node, "match");
	if (!match || match->type != NODE_MAP || match->count == 0) {
		report_fault(report, node->line, node->column,
			"a rule without match; expected match: { tool: PATTERN }, or prompt, or resource");
		return;
	}
	for (size_t i = 0; i < match->count; i++) {
		const struct node *value = match->values[i];
		size_t subject = 0;
		while (subject < 3 && strcmp(match->keys[i]->text, subject_names[subject]) != 0)
			subject++;
		if (subject == 3)
			report_fault(report, match->keys[i]->line, match->keys[i]->column,
				"match: unknown key %s; expected tool, prompt or resource", match->keys[i]->text);
		else if (value->type == NODE_LIST)
			for (size_t j = 0; j < value->count; j++)
				add_pattern(rules, (enum policy_subject)subject, value->values[j], rule, report);
		else
			add_pattern(rules, (enum policy_subject)subject, value, rule, report);
	}
}

static int compare_entries(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	if (a->exact != b->exact)
		return a->exact ? -1 : 1;
	if (!a->exact && a->literals != b->literals)
		return a->literals > b->literals ? -1 : 1;
	if (a->subject != b->subject)
		return a->subject < b->subject ? -1 : 1;
	return strcmp(a->pattern, b->pattern);
}

/* Two patterns of the same specificity must not both match a name: which one wins would depend on their order. */
static void report_ties(const struct policy_rules *rules, struct report *report)
{
	for (size_t i = 0; i < rules->entry_count; i++)
		for (size_t j = i + 1; j < rules->entry_count; j++) {
			const struct entry *a = &rules->entries[i], *b = &rules->entries[j];
			if (a->exact != b->exact || a->literals != b->literals)
				break; /* sorted: no more of this specificity */
			if (a->subject != b->subject || a->rule == b->rule || !globs_overlap(a->pattern, b->pattern))
				continue;
			const struct entry *later = a->line > b->line ? a : b, *earlier = later == a ? b : a;
			report_fault(report, later->line, later->column,
				"match: %s is as specific as %s of line %u and both can match; expected one that is "
				"more specific",
				later->pattern, earlier->pattern, earlier->line);
		}
}

void rules_free(struct policy_rules *rules)
{
	if (!rules)
		return;
	for (size_t i = 0; i < rules->rule_count; i++)
		keys_free_owned(SECTION_RULE, SECTION_CACHE, &rules->rules[i].settings);
	for (size_t i = 0; i < rules->entry_count; i++)
		free(rules->entries[i].pattern);
	free(rules->rules);
	free(rules->entries);
	free(rules);
}

static void read_all(
	struct policy_rules *rules, const struct node *node, const struct rule *defaults, struct report *report)
{
	for (size_t i = 0; i < node->count; i++) {
		struct rule *rule = &rules->rules[rules->rule_count++];
		*rule = *defaults;
		if (!keys_copy_owned(SECTION_RULE, SECTION_CACHE, &rule->settings, &defaults->settings))
			report_fault(report, node->line, node->column, "out of memory");
		rule->line = node->values[i]->line;
		rule_read(rule, node->values[i], true, report);
		read_match(rules, node->values[i], rule, report);
	}
	if (rules->entry_count)
		qsort(rules->entries, rules->entry_count, sizeof(*rules->entries), compare_entries);
	while (rules->exact_count < rules->entry_count && rules->entries[rules->exact_count].exact)
		rules->exact_count++;
	report_ties(rules, report);
}

struct policy_rules *rules_read(const struct node *node, const struct rule *defaults, struct report *report)
{
	struct policy_rules *rules = calloc(1, sizeof(*rules));
	if (!rules || !node)
		return rules;
	if (node->type != NODE_LIST || node->count > MAX_RULES) {
		report_fault(report, node->line, node->column, "rules: expected a list of at most %d rules", MAX_RULES);
		return rules;
	}
	rules->rules = calloc(node->count + 1, sizeof(*rules->rules));
	if (!rules->rules) {
		free(rules);
		return NULL;
	}
	read_all(rules, node, defaults, report);
	return rules;
}

bool rules_make_tasks(const struct policy_rules *rules)
{
	for (size_t i = 0; rules && i < rules->rule_count; i++)
		if (rules->rules[i].settings.task_after_ms >= 0)
			return true;
	return false;
}

const struct rule *rules_find(const struct policy_rules *rules, enum policy_subject subject, const char *name)
{
	const struct entry wanted = {.subject = subject, .pattern = (char *)name, .exact = true};
	const struct entry *found = rules->exact_count ? bsearch(&wanted, rules->entries, rules->exact_count,
								 sizeof(wanted), compare_entries)
						       : NULL;
	for (size_t i = rules->exact_count; !found && i < rules->entry_count; i++)
		if (rules->entries[i].subject == subject && glob_matches(rules->entries[i].pattern, name))
			found = &rules->entries[i];
	return found ? found->rule : NULL;
}
