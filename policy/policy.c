#include "policy/policy.h"

#include "policy/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILE = 4 * 1024 * 1024 };

/* What a policy holds besides its public part: where its settings came from. */
struct policy_with_source {
	struct policy policy;
	struct rule defaults;	  /* the rule of `defaults`; its settings are copied into the public part */
	unsigned lines[MAX_KEYS]; /* of the keys outside rules */
	char *name;		  /* of the file, or NULL */
};

_Static_assert(sizeof(enum policy_action) == sizeof(int), "words are written through int");

static struct policy_with_source *with_source(const struct policy *policy)
{
	return (struct policy_with_source *)(void *)policy;
}

static void policy_free(struct policy *policy)
{
	struct policy_with_source *whole = with_source(policy);
	keys_free_owned(SECTION_TOP, SECTION_UPSTREAM, policy);
	keys_free_owned(SECTION_RULE, SECTION_CACHE, &whole->defaults.settings);
	rules_free(policy->rules);
	free(whole->name);
	free(whole);
}

static struct policy_with_source *policy_new(void)
{
	struct policy_with_source *whole = calloc(1, sizeof(*whole));
	if (!whole)
		return NULL;
	whole->policy.references = 1;
	if (!keys_set_defaults(SECTION_TOP, SECTION_UPSTREAM, &whole->policy) ||
		!keys_set_defaults(SECTION_RULE, SECTION_CACHE, &whole->defaults.settings)) {
		policy_free(&whole->policy);
		return NULL;
	}
	return whole;
}

struct policy *policy_ref(struct policy *policy)
{
	policy->references++;
	return policy;
}

void policy_unref(struct policy *policy)
{
	if (policy && --policy->references == 0)
		policy_free(policy);
}

/* The public part shares the texts of the source's defaults, which live as long. */
static struct policy *finish(struct policy_with_source *whole, const struct node *rules, struct report *report)
{
	whole->policy.defaults = whole->defaults.settings;
	whole->policy.rules = rules_read(rules, &whole->defaults, report);
	whole->policy.tasks = whole->defaults.settings.task_after_ms >= 0 || rules_make_tasks(whole->policy.rules);
	if (whole->policy.rules && !report->faults)
		return &whole->policy;
	if (!report->faults)
		report_fault(report, 1, 1, "out of memory");
	policy_free(&whole->policy);
	return NULL;
}

struct policy *policy_default(void)
{
	struct report report = {.name = "defaults"};
	struct policy_with_source *whole = policy_new();
	return whole ? finish(whole, NULL, &report) : NULL;
}

static void read_section(
	struct policy_with_source *whole, enum key_section section, const struct node *node, struct report *report)
{
	if (node->type != NODE_MAP) {
		report_fault(report, node->line, node->column, "%s: expected a map", section_name(section));
		return;
	}
	for (size_t i = 0; i < node->count; i++) {
		const struct key *key = key_find(section, node->keys[i]->text);
		if (!key)
			report_unknown_key(report, node->keys[i], section);
		else if (key_set(key, &whole->policy, node->values[i], report))
			whole->lines[key - keys] = node->values[i]->line;
	}
}

static void read_top(struct policy_with_source *whole, const struct node *root, struct report *report)
{
	for (size_t i = 0; i < root->count; i++) {
		const char *name = root->keys[i]->text;
		const struct node *value = root->values[i];
		const struct key *key = key_find(SECTION_TOP, name);
		if (key && key_set(key, &whole->policy, value, report))
			whole->lines[key - keys] = value->line;
		else if (strcmp(name, "limits") == 0)
			read_section(whole, SECTION_LIMITS, value, report);
		else if (strcmp(name, "deadlines") == 0)
			read_section(whole, SECTION_DEADLINES, value, report);
		else if (strcmp(name, "upstream") == 0)
			read_section(whole, SECTION_UPSTREAM, value, report);
		else if (strcmp(name, "defaults") == 0)
			rule_read(&whole->defaults, value, false, report);
		else if (!key && strcmp(name, "version") != 0 && strcmp(name, "rules") != 0)
			report_unknown_key(report, root->keys[i], SECTION_TOP);
	}
}

/* Headers that the connection to the server has of its own, or that must not be told to it. */
static bool may_be_forwarded(const char *name)
{
	static const char *const own[] = {"accept", "accept-encoding", "authorization", "connection", "content-length",
		"content-type", "expect", "host", "keep-alive", "last-event-id", "origin", "te", "trailer",
		"transfer-encoding", "upgrade"};
	for (const char *p = name; *p; p++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *p))
			return false;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcasecmp(name, own[i]) == 0)
			return false;
	return strncasecmp(name, "mcp-", 4) != 0;
}

static void check_forwarded(const struct policy *policy, const struct node *root, struct report *report)
{
	const struct node *upstream = node_get(root, "upstream");
	const struct node *list = upstream ? node_get(upstream, "forward_headers") : NULL;
	for (size_t i = 0; list && i < policy->upstream.forward_header_count && i < list->count; i++)
		if (!may_be_forwarded(policy->upstream.forward_headers[i]))
			report_fault(report, list->values[i]->line, list->values[i]->column,
				"forward_headers: %s cannot be forwarded; expected a header of the application",
				policy->upstream.forward_headers[i]);
}

static void check_whole(const struct policy *policy, const struct node *root, struct report *report)
{
	const struct node *version = node_get(root, "version"), *limits = node_get(root, "limits");
	const struct node *pool = limits ? node_get(limits, "pool") : NULL;
	check_forwarded(policy, root, report);
	if (!version || version->type != NODE_SCALAR || strcmp(version->text, "1") != 0)
		report_fault(report, version ? version->line : root->line, version ? version->column : root->column,
			"version: expected 1");
	if (pool && policy->limits.pool > policy->limits.sessions_per_principal)
		report_fault(report, pool->line, pool->column, "pool: %u is more than sessions_per_principal, %u",
			policy->limits.pool, policy->limits.sessions_per_principal);
}

struct policy *policy_parse(struct span text, const char *name, FILE *out, struct error *error)
{
	struct report report = {.name = name, .out = out, .error = error};
	struct node *root = node_read(text, &report);
	struct policy_with_source *whole = root ? policy_new() : NULL;
	struct policy *policy = NULL;
	if (root && root->type != NODE_MAP) {
		report_fault(&report, root->line, root->column, "expected a map that begins with version: 1");
	} else if (whole && (whole->name = strdup(name))) {
		read_top(whole, root, &report);
		check_whole(&whole->policy, root, &report);
		policy = finish(whole, node_get(root, "rules"), &report);
		whole = NULL;
	} else if (root) {
		report_fault(&report, 1, 1, "out of memory");
	}
	if (whole)
		policy_free(&whole->policy);
	node_free(root);
	return policy;
}

static int read_file(const char *path, struct buf *out, struct error *error)
{
	char piece[16384];
	size_t len;
	FILE *file = fopen(path, "re");
	if (!file)
		return error_set(error, ERROR_SYSTEM, "%s: %s", path, strerror(errno));
	while ((len = fread(piece, 1, sizeof(piece), file)) > 0 && out->len <= MAX_FILE)
		buf_add(out, piece, len);
	bool bad = ferror(file) || !buf_ok(out);
	fclose(file);
	if (bad)
		return error_set(error, ERROR_SYSTEM, "%s: it cannot be read", path);
	return out->len > MAX_FILE ? error_set(error, ERROR_LIMIT, "%s: larger than %d bytes", path, MAX_FILE) : 0;
}

struct policy *policy_load(const char *path, FILE *report, struct error *error)
{
	struct buf text = {0};
	struct policy *policy = NULL;
	struct error own = {0};
	if (!error)
		error = &own;
	if (read_file(path, &text, error) == 0)
		policy = policy_parse(buf_span(&text), path, report, error);
	else if (report)
		fprintf(report, "%s\n", error->text);
	buf_free(&text);
	return policy;
}

const struct policy_rule *policy_rule(const struct policy *policy, enum policy_subject subject, const char *name)
{
	const struct rule *rule = rules_find(policy->rules, subject, name);
	return rule ? &rule->settings : &policy->defaults;
}

void policy_explain(const struct policy *policy, enum policy_subject subject, const char *name, FILE *out)
{
	const struct policy_with_source *whole = with_source(policy);
	const struct rule *rule = rules_find(policy->rules, subject, name);
	const struct rule *from = rule ? rule : &whole->defaults;
	if (rule)
		fprintf(out, "# the rule of %s:%u\n", whole->name, rule->line);
	else
		fprintf(out, "# no rule matches\n");
	for (size_t i = 0; i < key_count; i++) {
		if (keys[i].section != SECTION_RULE && keys[i].section != SECTION_CACHE)
			continue;
		fprintf(out, "%s%s: ", keys[i].section == SECTION_CACHE ? "cache." : "", keys[i].name);
		key_write(&keys[i], &from->settings, out);
		if (from->lines[i])
			fprintf(out, "  # %s:%u\n", whole->name, from->lines[i]);
		else
			fprintf(out, "  # default\n");
	}
}
