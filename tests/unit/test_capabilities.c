/* Capabilities: never more and never fewer upstream than the client declared. */
#include "proxy/capabilities.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void declares_what_the_client_declared(void **unused)
{
	(void)unused;
	static const struct {
		const char *modern, *legacy, *plain;
	} cases[] = {
		{"{}", "{}", "{}"},
		{"{\"elicitation\":{}}", "{\"elicitation\":{}}", "{\"elicitation\":{}}"},
		{"{\"elicitation\":{\"form\":{}}}", "{\"elicitation\":{}}", "{\"elicitation\":{}}"},
		{"{\"elicitation\":{\"form\":{},\"url\":{}}}", "{\"elicitation\":{\"form\":{},\"url\":{}}}",
			"{\"elicitation\":{}}"},
		{"{\"elicitation\":{\"url\":{}}}", "{\"elicitation\":{\"url\":{}}}", "{}"},
		{"{\"roots\":{}}", "{\"roots\":{\"listChanged\":true}}", "{\"roots\":{}}"},
		{"{\"sampling\":{}}", "{\"sampling\":{}}", "{\"sampling\":{}}"},
		{"{\"sampling\":{\"tools\":{}}}", "{\"sampling\":{\"tools\":{}}}", "{\"sampling\":{}}"},
		{"{\"sampling\":{\"context\":{}}}", "{\"sampling\":{\"context\":{}}}", "{\"sampling\":{}}"},
		{"{\"sampling\":{\"context\":{},\"tools\":{}}}", "{\"sampling\":{\"context\":{},\"tools\":{}}}",
			"{\"sampling\":{}}"},
		{"{\"roots\":{},\"sampling\":{},\"elicitation\":{},\"extensions\":{\"a/b\":{}}}",
			"{\"roots\":{\"listChanged\":true},\"sampling\":{},\"elicitation\":{}}",
			"{\"roots\":{},\"sampling\":{},\"elicitation\":{}}"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct capabilities caps;
		struct error error = {0};
		struct buf full = {0}, plain = {0};
		assert_int_equal(capabilities_read(&caps, span_of(cases[i].modern), &error), 0);
		capabilities_write_legacy(&caps, false, &full);
		capabilities_write_legacy(&caps, true, &plain);
		assert_true(span_is(buf_span(&full), cases[i].legacy));
		assert_true(span_is(buf_span(&plain), cases[i].plain));
		buf_free(&full);
		buf_free(&plain);
	}
}

static void reads_the_tasks_extension(void **unused)
{
	(void)unused;
	static const struct {
		const char *modern;
		bool declared;
	} cases[] = {
		{"{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}", true},
		{"{\"extensions\":{\"a/b\":{},\"io.modelcontextprotocol\\/tasks\":{\"x\":1}},\"roots\":{}}", true},
		{"{\"extensions\":{\"a/b\":{}}}", false},
		{"{\"tasks\":{}}", false}, /* of 2025-11-25 */
		{"{\"extensions\":{\"io.modelcontextprotocol/tasks\":true}}", false},
		{"{\"extensions\":{\"io.modelcontextprotocol/tasks\":null}}", false},
		{"{\"extensions\":[\"io.modelcontextprotocol/tasks\"]}", false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct capabilities caps, same = {0};
		struct error error = {0};
		struct buf legacy = {0};
		assert_int_equal(capabilities_read(&caps, span_of(cases[i].modern), &error), 0);
		assert_int_equal(caps.tasks, cases[i].declared);
		/* The legacy server hears nothing of it, so it needs no session of its own. */
		same.roots = caps.roots;
		assert_true(capabilities_equal(&caps, &same));
		capabilities_write_legacy(&caps, true, &legacy);
		assert_true(span_is(buf_span(&legacy), caps.roots ? "{\"roots\":{}}" : "{}"));
		buf_free(&legacy);
	}
}

static void names_the_member_that_is_no_object(void **unused)
{
	(void)unused;
	static const char *const cases[] = {"[]", "null", "{\"roots\":true}", "{\"sampling\":[]}",
		"{\"sampling\":{\"tools\":1}}", "{\"elicitation\":null}", "{\"elicitation\":{\"url\":\"yes\"}}"};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct capabilities caps;
		struct error error = {0};
		assert_int_equal(capabilities_read(&caps, span_of(cases[i]), &error), ERROR_SYNTAX);
		assert_non_null(strstr(error.text, "not an object"));
	}
}

static void knows_what_is_covered(void **unused)
{
	(void)unused;
	static const struct {
		const char *caps;
		struct capability_need need;
		bool covered;
	} cases[] = {
		{"{}", {.kind = POLICY_ROOTS}, false},
		{"{\"roots\":{}}", {.kind = POLICY_ROOTS}, true},
		{"{\"sampling\":{}}", {.kind = POLICY_SAMPLING}, true},
		{"{\"sampling\":{}}", {.kind = POLICY_SAMPLING, .tools = true}, false},
		{"{\"sampling\":{\"tools\":{}}}", {.kind = POLICY_SAMPLING, .tools = true}, true},
		{"{\"elicitation\":{}}", {.kind = POLICY_ELICITATION}, true},
		{"{\"elicitation\":{}}", {.kind = POLICY_ELICITATION, .url = true}, false},
		{"{\"elicitation\":{\"url\":{}}}", {.kind = POLICY_ELICITATION}, false},
		{"{\"elicitation\":{\"url\":{}}}", {.kind = POLICY_ELICITATION, .url = true}, true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct capabilities caps, needed;
		struct error error = {0};
		assert_int_equal(capabilities_read(&caps, span_of(cases[i].caps), &error), 0);
		assert_int_equal(capabilities_cover(&caps, &cases[i].need), cases[i].covered);
		/* Whoever declares what the error asks for is covered. */
		assert_int_equal(capabilities_read(&needed, span_of(capability_need_json(&cases[i].need)), &error), 0);
		assert_true(capabilities_cover(&needed, &cases[i].need));
		assert_int_equal(capabilities_can_ask(&caps), strcmp(cases[i].caps, "{}") != 0);
		assert_int_equal(capabilities_equal(&caps, &needed),
			strcmp(cases[i].caps, "{}") != 0 && cases[i].covered && capabilities_equal(&needed, &caps));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(declares_what_the_client_declared),
		cmocka_unit_test(reads_the_tasks_extension),
		cmocka_unit_test(names_the_member_that_is_no_object),
		cmocka_unit_test(knows_what_is_covered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
