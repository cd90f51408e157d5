/* The policy file: every key's good and bad values, faults with their places, rules by specificity. */
#include "policy/keys.h"
#include "policy/policy.h"
#include "policy/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct policy *parse(const char *text, struct error *error)
{
	*error = (struct error){0};
	return policy_parse(span_of(text), "p", NULL, error);
}

static struct policy *must_parse(const char *text)
{
	struct error error;
	struct policy *policy = parse(text, &error);
	if (!policy)
		fail_msg("%s\n  gives %s", text, error.text);
	return policy;
}

static void has_safe_defaults(void **unused)
{
	(void)unused;
	struct policy *policy = policy_default();
	assert_int_equal(policy->limits.message_bytes, 16 << 20);
	assert_int_equal(policy->limits.parked, 10000);
	assert_int_equal(policy->limits.parked_per_principal, 64);
	assert_int_equal(policy->limits.pool, 1);
	assert_int_equal(policy->deadlines.gather_ms, 20);
	assert_int_equal(policy->deadlines.keepalive_ms, 25000);
	assert_int_equal(policy->upstream.overlap_ms, 1000);
	assert_int_equal(policy->principal, POLICY_PRINCIPAL_AUTHORIZATION);
	assert_int_equal(policy->missing_capability_status, 400);
	const struct policy_rule *rule = policy_rule(policy, POLICY_TOOL, "anything");
	assert_int_equal(rule->action[POLICY_ELICITATION], POLICY_FORWARD);
	assert_int_equal(rule->undeclared, POLICY_UNDECLARED_FAIL);
	assert_int_equal(rule->rerun, POLICY_RERUN_NEVER);
	assert_int_equal(rule->park_ms, 600000);
	assert_int_equal(rule->rounds, 10);
	assert_false(rule->hide || rule->asks_never);
	policy_unref(policy);
}

/* Where a key may stand, and how a whole file looks around it. */
static void write_around(struct buf *out, enum key_section section, const char *key, const char *value)
{
	static const char *const opening[SECTIONS] = {
		"", "limits:\n  ", "deadlines:\n  ", "upstream:\n  ", "defaults:\n  ", "defaults:\n  cache:\n    "};
	buf_printf(out, "version: 1\n%s%s: %s\n", opening[section], key, value);
	buf_add(out, "", 1);
}

static void assert_value(const struct key *key, const char *value, bool good)
{
	struct buf text = {0};
	struct error error;
	write_around(&text, key->section, key->name, value);
	struct policy *policy = parse(text.data, &error);
	if ((policy != NULL) != good)
		fail_msg("%s: %s", text.data, policy ? "was taken" : error.text);
	if (!policy) {
		/* The place of the value: its line, and a column behind the key. */
		unsigned line = 0, column = 0;
		assert_int_equal(sscanf(error.text, "p:%u:%u: ", &line, &column), 2);
		assert_true(line >= 2 && column >= 1);
	}
	policy_unref(policy);
	buf_free(&text);
}

static void checks_every_key(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < key_count; i++) {
		const struct key *key = &keys[i];
		if (key->fallback && strcmp(key->fallback, "") != 0)
			assert_value(key, key->fallback, true);
		/* No key takes a map of an unknown word, and none an empty value. */
		assert_value(key, "{ no: such }", false);
		assert_value(key, "\"\"", false);
		switch (key->type) {
		case KEY_SIZE:
			assert_value(key, "64KiB", true);
			assert_value(key, "64KB", false);
			assert_value(key, "65536", false);
			assert_value(key, "-1KiB", false);
			assert_value(key, "99999GiB", false);
			assert_value(key, "99999999999999999999GiB", false);
			break;
		case KEY_DURATION:
			assert_value(key, "1s", true);
			assert_value(key, "1", false);
			assert_value(key, "1 year", false);
			assert_value(key, "-1s", false);
			assert_value(key, "1.s", false);
			assert_value(key, "99999d", false);
			assert_value(key, "never", key->words != NULL);
			break;
		case KEY_COUNT:
			assert_value(key, "1", true);
			assert_value(key, "0", key->min == 0);
			assert_value(key, "1.5", false);
			assert_value(key, "-1", false);
			assert_value(key, "99999999999", false);
			break;
		case KEY_NUMBER:
			assert_value(key, "200", true);
			assert_value(key, "300", false);
			break;
		case KEY_FLAG:
			assert_value(key, "true", true);
			assert_value(key, "yes", false);
			assert_value(key, "\"true\"", false);
			break;
		case KEY_TEXTS:
			assert_value(key, "[ a, b ]", true);
			assert_value(key, "[]", true);
			assert_value(key, "[ a, a ]", false);
			assert_value(key, "[ [a] ]", false);
			assert_value(key, "a", false);
			break;
		default:
			assert_value(key, "perhaps", key->type == KEY_TEXT);
			assert_value(key, "[ forward ]", false);
			break;
		}
	}
}

static void reads_quantities(void **unused)
{
	(void)unused;
	struct policy *policy =
		must_parse("version: 1\nlimits: { message: 1.5MiB, head: 2 KiB }\n"
			   "deadlines: { gather: 0.25s, idle_session: 2h, settle: 0 }\nupstream: { overlap: never }\n");
	assert_int_equal(policy->limits.message_bytes, 3 << 19);
	assert_int_equal(policy->limits.head_bytes, 2048);
	assert_int_equal(policy->deadlines.gather_ms, 250);
	assert_int_equal(policy->deadlines.idle_session_ms, 7200000);
	assert_int_equal(policy->deadlines.settle_ms, 0);
	assert_int_equal(policy->upstream.overlap_ms, -1);
	policy_unref(policy);
}

static void offers_tasks_where_some_tool_has_them(void **unused)
{
	(void)unused;
	static const struct {
		const char *text;
		bool tasks;
	} cases[] = {
		{"version: 1", false},
		{"version: 1\ndefaults: { task_after: never }", false},
		{"version: 1\ndefaults: { task_after: 0s }", true},
		{"version: 1\nrules:\n  - match: { tool: x }\n    task_after: 2s\n  - match: { tool: y }\n    park: 1s",
			true},
		{"version: 1\ndefaults: { task_after: 1s }\nrules:\n  - match: { tool: x }\n    task_after: never",
			true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error;
		struct policy *policy = parse(cases[i].text, &error);
		assert_non_null(policy);
		assert_int_equal(policy->tasks, cases[i].tasks);
		policy_unref(policy);
	}
}

static void says_what_is_wrong_and_where(void **unused)
{
	(void)unused;
	static const struct {
		const char *text, *fault;
	} cases[] = {
		{"", "p:1:1: the file is empty"},
		{"limits: {}", "p:1:1: version: expected 1"},
		{"version: 2", "p:1:10: version: expected 1"},
		{"- 1", "p:1:1: expected a map"},
		{"version: 1\nlimitz: {}", "p:2:1: unknown key limitz in policy; did you mean limits?"},
		{"version: 1\nlimits: { mesage: 1MiB }", "p:2:11: unknown key mesage in limits; did you mean message?"},
		{"version: 1\nversion: 1", "p:2:1: version is given twice"},
		{"version: 1\nlimits: &a { pool: 1 }", "p:2:9: anchors, aliases and tags are not used here"},
		{"version: 1\nprincipal: !x none", "p:2:12: anchors and tags are not used here"},
		{"version: 1\n---\nversion: 1", "p:2:1: a second document"},
		{"version: 1\nlimits: [", "p:"},
		{"version: 1\nlimits: { pool: 9 }", "p:2:17: pool: 9 is more than sessions_per_principal, 8"},
		{"version: 1\nrules:\n  - park: 1s", "p:3:5: a rule without match"},
		{"version: 1\nrules:\n  - match: { tols: x }", "p:3:14: match: unknown key tols"},
		{"version: 1\nrules:\n  - match: { tool: x }\n    sampling: decline",
			"p:4:15: sampling: \"decline\"; expected forward"},
		{"version: 1\nrules:\n  - match: { tool: x }\n    asks: never\n    input_keys: [ a ]",
			"p:5:17: input_keys contradicts asks: never of line 4"},
		{"version: 1\ndefaults:\n  rerun: always\n  task_after: 0s\n",
			"p:4:15: task_after contradicts rerun: always of line 3"},
		{"version: 1\nrules:\n  - match: { tool: x }\n    hide: true\n    park: 1s",
			"p:4:11: hide: true makes the other keys"},
		{"version: 1\nrules:\n  - match: { tool: a* }\n  - match: { tool: a* }",
			"p:4:20: match: a* is as specific as a* of line 3"},
		{"version: 1\nrules:\n  - match: { tool: a*c }\n  - match: { tool: ab* }",
			"p:4:20: match: ab* is as specific as a*c of line 3 and both can match"},
		{"version: 1\ndefaults: { elicitation: { answer: { action: perhaps } } }", "p:2:36: elicitation:"},
		{"version: 1\ndefaults: { elicitation: { answer: { action: decline, content: {} } } }",
			"p:2:36: elicitation:"},
		{"version: 1\ndefaults: { roots: { answer: [ { uri: http://x } ] } }", "p:2:30: roots:"},
		{"version: 1\ndefaults: { sampling: { answer: { role: assistant } } }", "p:2:33: sampling:"},
		{"version: 1\nupstream: { forward_headers: [ x-tenant, Host ] }",
			"p:2:42: forward_headers: Host cannot be forwarded"},
		{"version: 1\nupstream: { forward_headers: [ Mcp-Session-Id ] }", "p:2:32: forward_headers:"},
		{"version: 1\nupstream: { forward_headers: [ \"a b\" ] }", "p:2:32: forward_headers:"},
		{"version: 1\nprincipal: \"header:\"", "p:2:12: principal:"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error;
		struct policy *policy = parse(cases[i].text, &error);
		if (policy || strncmp(error.text, cases[i].fault, strlen(cases[i].fault)) != 0)
			fail_msg("%s\n  gives %s\n  instead of %s", cases[i].text, policy ? "a policy" : error.text,
				cases[i].fault);
	}
}

static void reports_all_faults(void **unused)
{
	(void)unused;
	char report[2000] = "";
	struct error error = {0};
	FILE *out = fmemopen(report, sizeof(report), "w");
	assert_null(policy_parse(
		SPAN("version: 1\nlimits: { pool: x, head: y }\ndeadlines: { wait: z }\n"), "p", out, &error));
	fclose(out);
	assert_non_null(strstr(report, "p:2:17: pool:"));
	assert_non_null(strstr(report, "p:2:26: head:"));
	assert_non_null(strstr(report, "p:3:20: wait:"));
}

static void lets_the_most_specific_rule_win(void **unused)
{
	(void)unused;
	struct policy *policy =
		must_parse("version: 1\n"
			   "defaults: { park: 1s }\n"
			   "rules:\n"
			   "  - match: { tool: \"*\" }\n    park: 2s\n"
			   "  - match: { tool: \"delete_*\" }\n    park: 3s\n"
			   "  - match: { tool: [ delete_all, \"*_everything\" ] }\n    park: 4s\n"
			   "  - match: { prompt: \"delete_*\", resource: \"file:///etc/?\" }\n    park: 5s\n");
	static const struct {
		enum policy_subject subject;
		const char *name;
		int64_t park_ms;
	} cases[] = {
		{POLICY_TOOL, "read", 2000},
		{POLICY_TOOL, "delete_x", 3000},
		{POLICY_TOOL, "delete_", 3000},
		{POLICY_TOOL, "delete_all", 4000},
		{POLICY_TOOL, "delete_everything", 4000},
		{POLICY_TOOL, "", 2000},
		{POLICY_PROMPT, "delete_x", 5000},
		{POLICY_PROMPT, "read", 1000},
		{POLICY_RESOURCE, "file:///etc/x", 5000},
		{POLICY_RESOURCE, "file:///etc/xy", 1000},
		{POLICY_RESOURCE, "delete_x", 1000},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(policy_rule(policy, cases[i].subject, cases[i].name)->park_ms, cases[i].park_ms);
	policy_unref(policy);
}

static void keeps_answers_as_spelled(void **unused)
{
	(void)unused;
	struct policy *policy = must_parse(
		"version: 1\nrules:\n  - match: { tool: t }\n"
		"    elicitation: { answer: { action: accept, content: { n: 1e400, s: \"1\", b: true, w: no, z: null, "
		"q: \"a\\\"b\" } } }\n"
		"    roots: { answer: [ { uri: \"file:///srv\", name: srv } ] }\n"
		"    sampling: { answer: { role: assistant, model: m, content: { type: text, text: hi } } }\n");
	const struct policy_rule *rule = policy_rule(policy, POLICY_TOOL, "t");
	assert_string_equal(rule->answer[POLICY_ELICITATION],
		"{\"action\":\"accept\",\"content\":{\"n\":1e400,\"s\":\"1\",\"b\":"
		"true,\"w\":\"no\",\"z\":null,\"q\":\"a\\\"b\"}}");
	assert_string_equal(rule->answer[POLICY_ROOTS], "{\"roots\":[{\"uri\":\"file:///srv\",\"name\":\"srv\"}]}");
	assert_int_equal(rule->action[POLICY_SAMPLING], POLICY_ANSWER);
	policy_unref(policy);
}

static void takes_json(void **unused)
{
	(void)unused;
	struct policy *policy =
		must_parse("{\"version\": 1,\n\"limits\": {\"pool\": 2, \"message\": \"1MiB\"},\n\"rules\": "
			   "[{\"match\": {\"tool\": \"a\\/b\"}, \"hide\": true}]}\n");
	assert_int_equal(policy->limits.pool, 2);
	assert_true(policy_rule(policy, POLICY_TOOL, "a/b")->hide);
	policy_unref(policy);
}

static void matches_globs(void **unused)
{
	(void)unused;
	static const struct {
		const char *pattern, *name;
		bool matches;
	} cases[] = {{"*", "", true}, {"a*", "a", true}, {"a*", "b", false}, {"*a", "bca", true},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "acb", false}, {"?", "", false}, {"?", "a", true},
		{"??", "a", false}, {"a?c", "abc", true}, {"*aab", "aaaab", true}, {"[a]", "a", false},
		{"[a]", "[a]", true}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(glob_matches(cases[i].pattern, cases[i].name), cases[i].matches);
}

/* Every pair of short patterns against every short name: an overlap is a name that both match. */
static void finds_overlaps(void **unused)
{
	(void)unused;
	static const char letters[] = "ab*?";
	char patterns[400][4], names[64][6];
	size_t pattern_count = 0, name_count = 0;
	for (unsigned n = 0; n < 4 * 4 * 4; n++) {
		for (size_t len = 1; len <= 3; len++) {
			char *p = patterns[pattern_count++];
			p[0] = letters[n % 4];
			p[1] = letters[n / 4 % 4];
			p[2] = letters[n / 16];
			p[len] = '\0';
		}
	}
	for (unsigned len = 0; len <= 5; len++)
		for (unsigned n = 0; n < 1u << len; n++) {
			if (name_count == 63)
				break;
			for (unsigned i = 0; i < len; i++)
				names[name_count][i] = n >> i & 1 ? 'b' : 'a';
			names[name_count++][len] = '\0';
		}
	for (size_t i = 0; i < pattern_count; i++)
		for (size_t j = 0; j < pattern_count; j++) {
			bool overlap = false;
			for (size_t k = 0; k < name_count && !overlap; k++)
				overlap = glob_matches(patterns[i], names[k]) && glob_matches(patterns[j], names[k]);
			if (globs_overlap(patterns[i], patterns[j]) != overlap)
				fail_msg("%s and %s: %s", patterns[i], patterns[j],
					overlap ? "they overlap" : "they do not overlap");
		}
}

static void explains_where_settings_come_from(void **unused)
{
	(void)unused;
	char text[4000] = "";
	struct policy *policy =
		must_parse("version: 1\ndefaults: { call: 7s }\nrules:\n  - match: { tool: t }\n    park: 3s\n");
	FILE *out = fmemopen(text, sizeof(text), "w");
	policy_explain(policy, POLICY_TOOL, "t", out);
	fclose(out);
	assert_non_null(strstr(text, "# the rule of p:4"));
	assert_non_null(strstr(text, "park: 3s  # p:5\n"));
	assert_non_null(strstr(text, "call: 7s  # p:2\n"));
	assert_non_null(strstr(text, "rounds: 10  # default\n"));
	policy_unref(policy);
}

/* What describes the keys to others: the JSON Schema, and the manual's list. */

static char *write_document(void (*write)(FILE *out))
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	write(out);
	fclose(out);
	return text;
}

static struct span must_get(struct span object, const char *key)
{
	struct span value;
	if (json_get(object, NULL, key, &value) != 1)
		fail_msg("%s is not there once in %.*s", key, (int)object.len, object.ptr);
	return value;
}

/* The schema of the keys in a section. */
static struct span properties_of(struct span schema, enum key_section section)
{
	struct span rule = must_get(must_get(schema, "$defs"), "rule");
	struct span top = must_get(schema, section < SECTION_RULE ? "properties" : "$defs");
	if (section == SECTION_TOP)
		return top;
	if (section == SECTION_RULE)
		return must_get(rule, "properties");
	if (section == SECTION_CACHE)
		return must_get(must_get(must_get(rule, "properties"), "cache"), "properties");
	return must_get(must_get(top, section_name(section)), "properties");
}

static void describes_every_key_in_the_schema(void **unused)
{
	(void)unused;
	/* One of each type, but for its description. */
	static const struct {
		enum key_section section;
		const char *name, *member, *value;
	} known[] = {
		{SECTION_TOP, "principal", "pattern", "\"^(authorization|none|header:[A-Za-z0-9_-]+)$\""},
		{SECTION_TOP, "origins", "maxItems", "256"},
		{SECTION_TOP, "http_status_for_missing_capability", "enum", "[200, 400]"},
		{SECTION_LIMITS, "message", "pattern", "\"^[0-9]+([.][0-9]+)? *(B|KiB|MiB|GiB)$\""},
		{SECTION_LIMITS, "parked_per_principal", "minimum", "1"},
		{SECTION_LIMITS, "parked_per_principal", "maximum", "1000000"},
		{SECTION_DEADLINES, "gather", "pattern", "\"^([0-9]+([.][0-9]+)? *(ms|s|m|h|d))$\""},
		{SECTION_UPSTREAM, "overlap", "pattern", "\"^([0-9]+([.][0-9]+)? *(ms|s|m|h|d)|never)$\""},
		{SECTION_UPSTREAM, "era", "enum", "[\"legacy\", \"modern\", \"auto\"]"},
		{SECTION_UPSTREAM, "cross_origin", "type", "\"boolean\""},
		{SECTION_UPSTREAM, "ca_file", "type", "\"string\""},
		{SECTION_RULE, "rounds", "maximum", "1000"},
		{SECTION_CACHE, "scope", "enum", "[\"private\", \"public\"]"},
	};
	char *text = write_document(policy_write_schema);
	struct span schema, choices, choice;
	struct error error;
	assert_int_equal(json_check(span_of(text), &schema, NULL, &error), 0);
	for (size_t i = 0; i < key_count; i++) {
		struct span key = must_get(properties_of(schema, keys[i].section), keys[i].name);
		if (!json_string_is(must_get(key, "description"), keys[i].help))
			fail_msg("%s is described as %.*s", keys[i].name, (int)key.len, key.ptr);
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct span key = must_get(properties_of(schema, known[i].section), known[i].name);
		if (!span_is(must_get(key, known[i].member), known[i].value))
			fail_msg("%s is %.*s", known[i].name, (int)key.len, key.ptr);
	}
	/* Only an elicitation can be declined or cancelled. */
	static const char *const words[] = {
		"[\"forward\", \"deny\", \"decline\", \"cancel\", \"fail\"]", "[\"forward\", \"deny\", \"fail\"]"};
	for (int i = 0; i < 2; i++) {
		choices = must_get(must_get(properties_of(schema, SECTION_RULE), i ? "roots" : "elicitation"), "oneOf");
		struct json_walk walk = json_walk(choices, NULL);
		assert_true(json_next_element(&walk, &choice));
		assert_true(span_is(must_get(choice, "enum"), words[i]));
		assert_true(json_next_element(&walk, &choice));
		assert_true(span_is(must_get(choice, "required"), "[\"answer\"]"));
	}
	/* `match` belongs to rules, and to them alone. */
	assert_true(span_is(must_get(must_get(must_get(schema, "$defs"), "rule"), "required"), "[\"match\"]"));
	assert_false(json_get(
		must_get(must_get(must_get(schema, "$defs"), "settings"), "properties"), NULL, "match", &choices));
	free(text);
}

static void describes_every_key_in_the_manual(void **unused)
{
	(void)unused;
	static const char *const known[] = {
		".Ss Top level\n.Bl -tag -width Ds\n.It Cm principal : Ar authorization, header:NAME or none\n",
		".It Cm http_status_for_missing_capability : Ar 200 or 400\nThe HTTP status of error -32021",
		".It Cm parked : Ar number\nCalls that wait for their clients, in all, tasks (task_after) among "
		"them.\nThe default is\n.Cm 10000 .\n",
		".It Cm message : Ar size\n",
		".It Cm gather : Ar duration\n",
		".It Cm era : Ar legacy modern auto\n",
		".It Cm forward_headers : Ar list of texts\n",
		".It Cm key : Ar text\nIts private key (PEM file).\n.It",
		".It Cm hide : Ar true or false\n",
		".It Cm elicitation : Ar forward, deny, decline, cancel, fail or {answer: RESULT}\n",
		".It Cm roots : Ar forward, deny, fail or {answer: RESULT}\n",
		".Ss cache, in defaults and rules\n",
	};
	char *text = write_document(policy_write_man);
	for (size_t i = 0; i < key_count; i++) {
		char item[100];
		snprintf(item, sizeof(item), ".It Cm %s : Ar ", keys[i].name);
		if (!strstr(text, item))
			fail_msg("no %s", keys[i].name);
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strstr(text, known[i]))
			fail_msg("no %s", known[i]);
	free(text);
}

static void names_missing_files(void **unused)
{
	(void)unused;
	struct error error = {0};
	assert_null(policy_load("/no/such/policy.yaml", NULL, &error));
	assert_non_null(strstr(error.text, "/no/such/policy.yaml: No such file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(has_safe_defaults),
		cmocka_unit_test(checks_every_key),
		cmocka_unit_test(reads_quantities),
		cmocka_unit_test(offers_tasks_where_some_tool_has_them),
		cmocka_unit_test(says_what_is_wrong_and_where),
		cmocka_unit_test(reports_all_faults),
		cmocka_unit_test(lets_the_most_specific_rule_win),
		cmocka_unit_test(keeps_answers_as_spelled),
		cmocka_unit_test(takes_json),
		cmocka_unit_test(matches_globs),
		cmocka_unit_test(finds_overlaps),
		cmocka_unit_test(explains_where_settings_come_from),
		cmocka_unit_test(describes_every_key_in_the_schema),
		cmocka_unit_test(describes_every_key_in_the_manual),
		cmocka_unit_test(names_missing_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
