/* Elicitation answers against the schemas that the specification allows: as strict as it, and no stricter. */
#include "proxy/answer_schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FIELD(schema) "{\"type\":\"object\",\"properties\":{\"f\":{" schema "}},\"required\":[\"f\"]}"

#define ZEROS "000000000000000000000000000000000000000000000000000000000000000" /* 63 */

static void judges_fields(void **unused)
{
	(void)unused;
	static const struct {
		const char *schema, *content, *fault; /* NULL: none */
	} cases[] = {
		{FIELD("\"type\":\"string\""), "{\"f\":\"x\"}", NULL},
		{FIELD("\"type\":\"string\""), "{\"f\":1}", "content.f is not a string"},
		{FIELD("\"type\":\"string\""), "{}", "content.f is missing"},
		{FIELD("\"type\":\"string\""), "{\"f\":\"a\",\"f\":\"b\"}", "content.f occurs twice"},
		{FIELD("\"type\":\"string\""), "{\"f\":\"a\",\"other\":{\"x\":1}}", NULL},
		{FIELD("\"type\":\"string\""), "{\"\\u0066\":\"a\"}", NULL},
		{FIELD("\"type\":\"string\",\"minLength\":2"), "{\"f\":\"\xc3\xa9\"}", "content.f is too short"},
		{FIELD("\"type\":\"string\",\"maxLength\":2"), "{\"f\":\"\xc3\xa9\\u00e9\"}", NULL},
		{FIELD("\"type\":\"string\",\"maxLength\":1"), "{\"f\":\"ab\"}", "content.f is too long"},
		{FIELD("\"type\":\"string\",\"format\":\"email\""), "{\"f\":\"anything\"}", NULL},
		{FIELD("\"type\":\"string\",\"enum\":[\"a\",\"\\u0062\"]"), "{\"f\":\"b\"}", NULL},
		{FIELD("\"type\":\"string\",\"enum\":[\"a\"],\"enumNames\":[\"A\"]"), "{\"f\":\"A\"}",
			"content.f is none of"},
		{FIELD("\"type\":\"string\",\"oneOf\":[{\"const\":\"a\",\"title\":\"A\"}]"), "{\"f\":\"a\"}", NULL},
		{FIELD("\"type\":\"string\",\"oneOf\":[{\"const\":\"a\",\"title\":\"A\"}]"), "{\"f\":\"c\"}",
			"content.f is none of"},
		{FIELD("\"type\":\"string\",\"oneOf\":[{\"pattern\":\"x\"}]"), "{\"f\":\"c\"}", NULL},
		{FIELD("\"type\":\"number\""), "{\"f\":1.5}", NULL},
		{FIELD("\"type\":\"number\""), "{\"f\":1e400}", NULL},
		{FIELD("\"type\":\"number\",\"minimum\":0.5"), "{\"f\":0}", "content.f is too small"},
		{FIELD("\"type\":\"number\",\"maximum\":2"), "{\"f\":2.5}", "content.f is too large"},
		{FIELD("\"type\":\"number\",\"maximum\":2"), "{\"f\":0." ZEROS "1e99}", "content.f is too large"},
		{FIELD("\"type\":\"number\",\"maximum\":2"), "{\"f\":1" ZEROS "e-63}", NULL},
		{FIELD("\"type\":\"integer\""), "{\"f\":1.0}", NULL},
		{FIELD("\"type\":\"integer\""), "{\"f\":9223372036854775807}", NULL},
		{FIELD("\"type\":\"integer\""), "{\"f\":1.5}", "content.f is not an integer"},
		{FIELD("\"type\":\"integer\""), "{\"f\":\"1\"}", "content.f is not an integer"},
		{FIELD("\"type\":\"boolean\""), "{\"f\":false}", NULL},
		{FIELD("\"type\":\"boolean\""), "{\"f\":0}", "content.f is not a boolean"},
		{FIELD("\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"minItems\":1"), "{\"f\":[\"b\"]}",
			NULL},
		{FIELD("\"type\":\"array\",\"items\":{\"enum\":[\"a\"]}"), "{\"f\":[\"b\"]}",
			"content.f holds what was not offered"},
		{FIELD("\"type\":\"array\",\"items\":{\"anyOf\":[{\"const\":\"a\"}]}"), "{\"f\":[\"a\",\"b\"]}",
			"content.f holds what was not offered"},
		{FIELD("\"type\":\"array\",\"minItems\":1"), "{\"f\":[]}", "content.f holds too few values"},
		{FIELD("\"type\":\"array\",\"maxItems\":1"), "{\"f\":[\"a\",\"b\"]}",
			"content.f holds too many values"},
		{FIELD("\"type\":\"array\""), "{\"f\":\"a\"}", "content.f is not an array"},
		{FIELD("\"type\":[\"string\",\"null\"]"), "{\"f\":null}", NULL},
		{"{\"type\":\"object\",\"properties\":{\"f\":{\"type\":\"string\"}}}", "{}", NULL},
		{"{\"type\":\"object\",\"properties\":{}}", "{\"x\":1}", NULL},
		{"{}", "{\"x\":1}", NULL},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error = {0};
		int status = answer_schema_check(span_of(cases[i].schema), span_of(cases[i].content), &error);
		if ((status != 0) != (cases[i].fault != NULL) || (status && !strstr(error.text, cases[i].fault)))
			fail_msg("%s\n  with %s\n  gives %s", cases[i].content, cases[i].schema,
				status ? error.text : "no fault");
	}
}

static void looks_only_at_accepted_forms(void **unused)
{
	(void)unused;
	static const char request[] =
		"{\"method\":\"elicitation/create\",\"params\":{\"requestedSchema\":" FIELD("\"type\":\"string\"") "}}";
	struct error error = {0};
	assert_int_equal(answer_schema_check_answer(SPAN(request), SPAN("{\"action\":\"decline\"}"), &error), 0);
	assert_int_equal(
		answer_schema_check_answer(SPAN(request), SPAN("{\"action\":\"cancel\",\"content\":{}}"), &error), 0);
	assert_int_equal(
		answer_schema_check_answer(SPAN(request), SPAN("{\"action\":\"accept\"}"), &error), ERROR_SYNTAX);
	assert_int_equal(answer_schema_check_answer(
				 SPAN(request), SPAN("{\"action\":\"accept\",\"content\":{\"f\":\"x\"}}"), &error),
		0);
	assert_int_equal(
		answer_schema_check_answer(SPAN("{\"method\":\"roots/list\"}"), SPAN("{\"roots\":[]}"), &error), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(judges_fields),
		cmocka_unit_test(looks_only_at_accepted_forms),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
