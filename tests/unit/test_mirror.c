/* Headers that mirror a body: which a schema asks for, and whether they are true. */
#include "proxy/mirror.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void says_plain_and_base64(void **unused)
{
	(void)unused;
	static const struct {
		const char *header, *string;
		bool equal;
	} cases[] = {
		{"us-west1", "\"us-west1\"", true},
		{"us-west1", "\"us-\\u0077est1\"", true},
		{"us-west1", "\"US-west1\"", false},
		{"", "\"\"", true},
		{"=?base64?SGVsbG8=?=", "\"Hello\"", true},
		{"=?base64?SGVsbG8sIOS4lueVjA==?=", "\"Hello, 世界\"", true},
		{"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "\"=?base64?literal?=\"", true},
		{"=?base64?SGVsbG8?=", "\"Hello\"", false},
		{"=?base64?SGVs!!!bG8=?=", "\"Hello\"", false},
		{"=?BASE64?SGVsbG8=?=", "\"Hello\"", false},
		{"=?base64?SGVsbG8=", "\"=?base64?SGVsbG8=\"", true},
		{"SGVsbG8=?=", "\"SGVsbG8=?=\"", true},
		{"=?base64?=", "\"=?base64?=\"", true},
		/* what a header must not hold, even where the body holds the same */
		{"世界", "\"世界\"", false},
		{"a\x01", "\"a\\u0001\"", false},
		{"a\x7f", "\"a\\u007f\"", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (mirror_says(span_of(cases[i].header), span_of(cases[i].string)) != cases[i].equal)
			fail_msg("%s and %s", cases[i].header, cases[i].string);
}

/* `expected`: the rules, or NULL where the annotations are not usable. */
static void assert_rules(const char *schema, const char *expected)
{
	struct buf rules = {0};
	struct span value;
	struct error error;
	assert_int_equal(json_check(span_of(schema), &value, NULL, &error), 0);
	bool good = mirror_read(value, &rules);
	buf_add(&rules, "", 1);
	if (good != (expected != NULL) || (good && strcmp(rules.data, expected) != 0))
		fail_msg("%s\n  gives %s %s\n  instead of %s", schema, good ? "true" : "false", rules.data,
			expected ? expected : "false");
	buf_free(&rules);
}

#define PROPERTIES(text) "{\"type\":\"object\",\"properties\":{" text "}}"
#define ASKS(type, name) "{\"type\":\"" type "\",\"x-mcp-header\":" name "}"

static void reads_annotations(void **unused)
{
	(void)unused;
	assert_rules("{}", "[]");
	assert_rules("true", "[]");
	assert_rules(PROPERTIES("\"x-mcp-header\":{\"type\":\"string\"}"), "[]");
	assert_rules(PROPERTIES("\"a\":" ASKS("string", "\"R\\u0065gion\"")), "[[\"Region\",\"a\"]]");
	assert_rules(PROPERTIES("\"a\":" ASKS("integer", "\"A\"") ",\"b\":" PROPERTIES(
			     "\"\\u0063\":" ASKS("boolean", "\"B\"")) ",\"properties\":" ASKS("string", "\"C\"")),
		"[[\"A\",\"a\"],[\"B\",\"b\",\"\\u0063\"],[\"C\",\"properties\"]]");
}

static void knows_what_clients_reject(void **unused)
{
	(void)unused;
	static const char *const names[] = {
		"\"\"", "1", "null", "\"a b\"", "\"a:\"", "\"a\\r\\n\"", "\"\\u0000\"", "\"é\""};
	static const char *const types[] = {"number", "object", "array", "null"};
	static const struct {
		const char *before, *after;
	} places[] = {{"\"items\":", ""}, {"\"anyOf\":[", "]"}, {"\"if\":", ""}, {"\"$defs\":{\"d\":", "}"},
		{"\"properties\":{\"a\":{\"items\":", "}}"}, {"\"items\":{\"properties\":{\"a\":", "}}"},
		{"\"properties\":{\"\\u0000\":", "}"}};
	char text[600];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), PROPERTIES("\"a\":{\"type\":\"string\",\"x-mcp-header\":%s}"), names[i]);
		assert_rules(text, NULL);
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		snprintf(text, sizeof(text), PROPERTIES("\"a\":{\"type\":\"%s\",\"x-mcp-header\":\"A\"}"), types[i]);
		assert_rules(text, NULL);
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(text, sizeof(text), "{%s" ASKS("string", "\"A\"") "%s}", places[i].before, places[i].after);
		assert_rules(text, NULL);
	}
	assert_rules(ASKS("string", "\"A\""), NULL); /* the arguments as a whole */
	assert_rules(PROPERTIES("\"a\":{\"x-mcp-header\":\"A\"}"), NULL);
	assert_rules(PROPERTIES("\"a\":" ASKS("string", "\"A\"") ",\"b\":" ASKS("string", "\"a\"")), NULL);
}

static void bounds_what_it_reads(void **unused)
{
	(void)unused;
	static char key[40000];
	struct buf many = {0}, rules = {0};
	buf_add_text(&many, "{\"properties\":{");
	for (int i = 0; i < 65; i++)
		buf_printf(&many, "%s\"p%d\":{\"type\":\"string\",\"x-mcp-header\":\"H%d\"}", i ? "," : "", i, i);
	buf_add_text(&many, "}}");
	assert_false(mirror_read(buf_span(&many), &rules));
	buf_free(&many);
	buf_free(&rules);
	memset(key, 'k', sizeof(key) - 1);
	buf_printf(&many, "{\"properties\":{\"%s\":" ASKS("string", "\"A\"") "}}", key);
	assert_false(mirror_read(buf_span(&many), &rules));
	buf_free(&many);
	buf_free(&rules);
}

static void checks_requests(void **unused)
{
	(void)unused;
	static const char rules[] = "[[\"Region\",\"region\"],[\"N\",\"o\",\"n\"],[\"Flag\",\"f\"]]";
	static const struct {
		const char *arguments, *lines, *fault; /* NULL: good */
	} cases[] = {
		{NULL, "", NULL},
		{"{}", "Mcp-Param-Other: x\n", NULL},
		{"{\"region\":\"a\"}", "mcp-param-REGION: a\n", NULL},
		{"{\"region\":\"a\"}", "Mcp-Param-Region:\ta \t\nMcp-Param-Regional: b\n", NULL},
		{"{\"r\\u0065gion\":\"a\"}", "", "Mcp-Param-Region header is missing"},
		{"{\"region\":\"a\"}", "Mcp-Param-Region: A\n", "does not match"},
		{"{\"region\":\"a\"}", "Mcp-Param-Region: a\nmcp-param-region: a\n", "twice"},
		{"{\"region\":\"a\",\"region\":\"b\"}", "Mcp-Param-Region: b\n", "twice"},
		{"{\"region\":\"\"}", "Mcp-Param-Region:\n", NULL},
		{"{\"region\":null}", "", NULL},
		{"{\"region\":null}", "Mcp-Param-Region: null\n", "no argument"},
		{"{}", "Mcp-Param-Region: a\n", "no argument"},
		{NULL, "Mcp-Param-Region: a\n", "no argument"},
		{"{\"region\":{}}", "", NULL},
		{"{\"region\":[\"a\"]}", "Mcp-Param-Region: a\n", "no argument"},
		{"{\"o\":{\"n\":42}}", "Mcp-Param-N: 42\n", NULL},
		{"{\"o\":{\"n\":42}}", "Mcp-Param-N: 42.0\n", NULL},
		{"{\"o\":{\"n\":4.2e1}}", "Mcp-Param-N: =?base64?NDI=?=\n", NULL},
		{"{\"o\":{\"n\":42}}", "Mcp-Param-N: 43\n", "does not match"},
		{"{\"o\":{\"n\":42}}", "Mcp-Param-N: 42 x\n", "does not match"},
		{"{\"o\":{\"n\":\"42\"}}", "Mcp-Param-N: 42.0\n", "does not match"},
		{"{\"o\":{\"n\":9007199254740993}}", "Mcp-Param-N: 9007199254740992\n", "does not match"},
		{"{\"o\":{\"n\":9007199254740993}}", "Mcp-Param-N: 9007199254740993\n", NULL},
		{"{\"n\":42}", "Mcp-Param-N: 42\n", "no argument"},
		{"{\"o\":7}", "", NULL},
		{"{\"f\":true}", "Mcp-Param-Flag: true\n", NULL},
		{"{\"f\":true}", "Mcp-Param-Flag: True\n", "does not match"},
		{"{\"f\":false}", "", "missing"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error = {0};
		bool good = mirror_check(span_of(rules), span_of(cases[i].arguments), span_of(cases[i].lines), &error);
		if (good != !cases[i].fault || (!good && !strstr(error.text, cases[i].fault)))
			fail_msg("%s with %s: %s", cases[i].arguments, cases[i].lines, good ? "good" : error.text);
	}
}

/* The examples of "Value Encoding", and what has no header. */
static void writes_headers(void **unused)
{
	(void)unused;
	static const char rules[] = "[[\"A\",\"a\"],[\"B\",\"b\",\"c\"]]";
	static const struct {
		const char *arguments, *lines;
	} cases[] = {
		{"{\"a\":\"us-west1\",\"b\":{\"c\":42}}", "Mcp-Param-A: us-west1\nMcp-Param-B: 42\n"},
		{"{\"a\":\"Hello, 世界\"}", "Mcp-Param-A: =?base64?SGVsbG8sIOS4lueVjA==?=\n"},
		{"{\"a\":\" padded \"}", "Mcp-Param-A: =?base64?IHBhZGRlZCA=?=\n"},
		{"{\"a\":\"line1\\nline2\"}", "Mcp-Param-A: =?base64?bGluZTEKbGluZTI=?=\n"},
		{"{\"a\":\"=?base64?literal?=\"}", "Mcp-Param-A: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=\n"},
		{"{\"a\":\"\"}", "Mcp-Param-A: =?base64?\?=\n"},
		{"{\"b\":{\"c\":false}}", "Mcp-Param-B: false\n"},
		{"{\"a\":null,\"b\":{\"c\":[1]}}", ""},
		{"{\"a\":1,\"a\":2,\"b\":7}", ""},
		{"{}", ""},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf lines = {0};
		mirror_write(SPAN(rules), span_of(cases[i].arguments), &lines);
		if (!span_is(buf_span(&lines), cases[i].lines))
			fail_msg("%s gives %.*s", cases[i].arguments, (int)lines.len, lines.data);
		buf_free(&lines);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_plain_and_base64),
		cmocka_unit_test(reads_annotations),
		cmocka_unit_test(knows_what_clients_reject),
		cmocka_unit_test(bounds_what_it_reads),
		cmocka_unit_test(checks_requests),
		cmocka_unit_test(writes_headers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
