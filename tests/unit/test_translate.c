/* Requests and answers from one era into the other: exact bytes. */
#include "proxy/translate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define META                                                                                                           \
	"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/"                        \
	"clientCapabilities\":{},"                                                                                     \
	"\"io.modelcontextprotocol/clientInfo\":{\"name\":\"c\",\"version\":\"1\"},"                                   \
	"\"io.modelcontextprotocol/logLevel\":\"debug\""

static void translates_requests(void **unused)
{
	(void)unused;
	static const struct {
		const char *method, *params, *expected;
	} cases[] = {
		{"\"tools/call\"",
			"{\"name\":\"t\",\"arguments\":{\"a\":1e400,\"a\":-0,\"b\":\"\\ud800\\u0000\"},\"_meta\":{" META
			"}}",
			"{\"name\":\"t\",\"arguments\":{\"a\":1e400,\"a\":-0,\"b\":\"\\ud800\\u0000\"}}"},
		{"\"tools/call\"",
			"{\"_meta\":{" META
			",\"progressToken\":\"p\",\"traceparent\":\"00-x\",\"v/x\":1},\"name\":\"t\"}",
			"{\"_meta\":{\"traceparent\":\"00-x\",\"v/x\":1,\"progressToken\":9},\"name\":\"t\"}"},
		{"\"tools/call\"",
			"{\"name\":\"t\",\"inputResponses\":{\"k\":{}},\"requestState\":\"s\",\"request\\u0053tate\":"
			"\"x\","
			"\"_meta\":{" META "}}",
			"{\"name\":\"t\"}"},
		{"\"tools/call\"", "{\"name\":\"t\",\"task\":{\"ttl\":1},\"arguments\":{\"task\":1}}",
			"{\"name\":\"t\",\"arguments\":{\"task\":1}}"},
		{"\"tools/list\"", "{\"cursor\":\"\",\"_meta\":{" META "}}", "{\"cursor\":\"\"}"},
		{"\"tools/list\"", "{\"_meta\":{" META "}}", "{}"},
		{"\"resources/read\"", "{ \"uri\" : \"a:b\" , \"_meta\" : { " META " } }", "{\"uri\":\"a:b\"}"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct method *method = method_find(span_of(cases[i].method));
		struct buf out = {0}, expected = {0};
		assert_non_null(method);
		translate_request(method, span_of(cases[i].params), NULL, 9, &out);
		buf_printf(&expected, "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":%s,\"params\":%s}", cases[i].method,
			cases[i].expected);
		buf_add(&out, "", 1);
		buf_add(&expected, "", 1);
		assert_string_equal(out.data, expected.data);
		buf_free(&out);
		buf_free(&expected);
	}
}

static void drops_the_context_of_old_completions(void **unused)
{
	(void)unused;
	static const char params[] = "{\"ref\":{\"context\":1},\"context\":{\"arguments\":{}}}";
	static const struct {
		enum legacy_version version;
		const char *expected;
	} cases[] = {
		{LEGACY_2024_11_05, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"completion/complete\",\"params\":"
				    "{\"ref\":{\"context\":1}}}"},
		{LEGACY_2025_03_26, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"completion/complete\",\"params\":"
				    "{\"ref\":{\"context\":1}}}"},
		{LEGACY_2025_06_18, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"completion/complete\",\"params\":"
				    "{\"ref\":{\"context\":1},\"context\":{\"arguments\":{}}}}"},
	};
	const struct method *method = method_find(SPAN("\"completion/complete\""));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf out = {0};
		translate_request(method, span_of(params), NULL, 1, &out);
		translate_for_version(method, cases[i].version, &out);
		assert_true(span_is(buf_span(&out), cases[i].expected));
		buf_free(&out);
	}
}

static void translates_server_requests(void **unused)
{
	(void)unused;
	static const struct {
		const char *method, *params, *expected;
	} cases[] = {
		{"\"roots/list\"", NULL, "{\"method\":\"roots/list\"}"},
		{"\"roots/list\"", "{\"_meta\":{\"progressToken\":1}}", "{\"method\":\"roots/list\"}"},
		{"\"elicitation/create\"", "{\"message\":\"m\"}",
			"{\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\",\"requestedSchema\":"
			"{\"type\":\"object\",\"properties\":{}}}}"},
		{"\"elicitation/create\"",
			"{\"mode\":\"form\",\"message\":\"m\",\"requestedSchema\":{\"type\":\"object\",\"enumNames\":["
			"1.0]},"
			"\"task\":{\"ttl\":1},\"_meta\":{\"progressToken\":5,\"io.modelcontextprotocol/"
			"related-task\":{},"
			"\"k\":1e400}}",
			"{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"form\",\"message\":\"m\","
			"\"requestedSchema\":{\"type\":\"object\",\"enumNames\":[1.0]},\"_meta\":{\"k\":1e400}}}"},
		{"\"elicitation/create\"",
			"{\"mode\":\"url\",\"message\":\"m\",\"url\":\"https://a\",\"elicitationId\":\"e\"}",
			"{\"method\":\"elicitation/"
			"create\",\"params\":{\"mode\":\"url\",\"message\":\"m\",\"url\":\"https://a\"}}"},
		{"\"sampling/createMessage\"", "{\"messages\":[{\"x\":0.10}],\"maxTokens\":1e2,\"task\":{}}",
			"{\"method\":\"sampling/"
			"createMessage\",\"params\":{\"messages\":[{\"x\":0.10}],\"maxTokens\":1e2}}"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct capability_need need;
		struct buf out = {0};
		assert_true(translate_need(span_of(cases[i].method), span_of(cases[i].params), &need));
		translate_server_request(&need, span_of(cases[i].params), &out);
		buf_add(&out, "", 1);
		assert_string_equal(out.data, cases[i].expected);
		buf_free(&out);
	}
}

static void knows_what_a_server_request_needs(void **unused)
{
	(void)unused;
	struct capability_need need;
	assert_false(translate_need(SPAN("\"tasks/get\""), (struct span){0}, &need));
	assert_true(translate_need(SPAN("\"sampling/createMessage\""), SPAN("{\"toolChoice\":{}}"), &need));
	assert_true(need.kind == POLICY_SAMPLING && need.tools);
	assert_true(translate_need(SPAN("\"elicitation/create\""), SPAN("{\"mode\":\"url\"}"), &need));
	assert_true(need.kind == POLICY_ELICITATION && need.url);
	assert_true(translate_need(SPAN("\"elicitation/create\""), SPAN("{\"mode\":\"form\"}"), &need));
	assert_false(need.url);
}

static void checks_answers(void **unused)
{
	(void)unused;
	static const struct {
		enum policy_kind kind;
		const char *answer;
		const char *fault; /* NULL: none */
	} cases[] = {
		{POLICY_ELICITATION, "{\"action\":\"accept\",\"content\":{\"a\":1}}", NULL},
		{POLICY_ELICITATION, "{\"action\":\"accept\"}", NULL},
		{POLICY_ELICITATION, "{\"action\":\"decline\"}", NULL},
		{POLICY_ELICITATION, "{\"action\":\"cancel\",\"x\":1}", NULL},
		{POLICY_ELICITATION, "12345", "not an object"},
		{POLICY_ELICITATION, "{}", "action is missing"},
		{POLICY_ELICITATION, "{\"action\":\"ACCEPT\"}", "none of"},
		{POLICY_ELICITATION, "{\"action\":true}", "action is not a string"},
		{POLICY_ELICITATION, "{\"action\":\"decline\",\"action\":\"accept\"}", "twice"},
		{POLICY_ELICITATION, "{\"action\":\"accept\",\"content\":[]}", "content is not an object"},
		{POLICY_SAMPLING, "{\"role\":\"assistant\",\"content\":{\"type\":\"text\"},\"model\":\"m\"}", NULL},
		{POLICY_SAMPLING, "{\"role\":\"assistant\",\"content\":[],\"model\":\"m\"}", NULL},
		{POLICY_SAMPLING, "{\"role\":\"assistant\",\"content\":\"x\",\"model\":\"m\"}", "content"},
		{POLICY_SAMPLING, "{\"role\":\"assistant\",\"content\":{}}", "model is missing"},
		{POLICY_SAMPLING, "{\"content\":{},\"model\":\"m\"}", "role is missing"},
		{POLICY_ROOTS, "{\"roots\":[]}", NULL},
		{POLICY_ROOTS, "{\"roots\":{}}", "roots is not an array"},
		{POLICY_ROOTS, "{}", "roots is missing"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error = {0};
		int status = translate_check_answer(cases[i].kind, span_of(cases[i].answer), &error);
		assert_int_equal(status, cases[i].fault ? ERROR_SYNTAX : 0);
		if (cases[i].fault)
			assert_non_null(strstr(error.text, cases[i].fault));
	}
}

/* What a browser makes of a URL counts (WHATWG URL), not what it looks like. */
static void knows_where_a_url_leads(void **unused)
{
	(void)unused;
	static char *hosts[] = {"good.example"};
	static const struct policy_rule rule = {.url_hosts = hosts, .url_host_count = 1};
	static const struct capability_need url = {.kind = POLICY_ELICITATION, .url = true},
					    form = {.kind = POLICY_ELICITATION};
	static const struct {
		const char *params;
		bool allowed;
	} cases[] = {
		{"{\"mode\":\"url\",\"url\":\"https://good.example\"}", true},
		{"{\"mode\":\"url\",\"url\":\"HTTP://me@GOOD.example:80/a?b#c\"}", true},
		{"{\"mode\":\"url\",\"url\":\"https://good.example/://\"}", true},
		{"{\"mode\":\"url\",\"url\":\"https://good.example.evil.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://good.example@evil.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://evil.example/@good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://evil.example?@good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://evil.example#@good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://evil.example\\\\@good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https:\\\\\\\\evil.example/://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https:evil.example/://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https:/evil.example/://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https:///evil.example/://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"javascript://good.example/%0aalert(1)\"}", false},
		{"{\"mode\":\"url\",\"url\":\"data:text/html,x://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\" https://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://good.example\\u0000.evil.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://good.example\\t.evil.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://good.example\\n@evil.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://good.exampl%65\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://good.example\",\"URL\":\"https://evil.example\"}", false},
		{"{\"mode\":\"url\",\"url\":\"https://evil.example\",\"url\":\"https://good.example\"}", false},
		{"{\"mode\":\"url\",\"url\":7}", false},
		{"{\"mode\":\"url\"}", false},
		{"{\"mode\":\"url\",\"mode\":\"form\",\"url\":\"https://evil.example\"}", false},
		{"{\"mode\":\"form\"}", true},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct capability_need need;
		assert_true(translate_need(SPAN("\"elicitation/create\""), span_of(cases[i].params), &need));
		if (translate_url_allowed(&need, span_of(cases[i].params), &rule) != cases[i].allowed)
			fail_msg("%s", cases[i].params);
	}
	/* With -32042 it is a URL, whatever its mode says; and without url_hosts all are allowed. */
	assert_false(translate_url_allowed(&url, SPAN("{\"url\":\"https://evil.example\"}"), &rule));
	assert_true(translate_url_allowed(&url, SPAN("{\"url\":\"https://good.example\"}"), &rule));
	assert_true(translate_url_allowed(&url, SPAN("{\"url\":\"x\"}"), &(struct policy_rule){0}));
	assert_true(translate_url_allowed(&form, SPAN("{}"), &rule));
}

static void fails_closed(void **unused)
{
	(void)unused;
	assert_string_equal(translate_unanswered(POLICY_ELICITATION), "\"result\":{\"action\":\"cancel\"}");
	assert_non_null(strstr(translate_unanswered(POLICY_SAMPLING), "\"code\":-1,"));
	assert_non_null(strstr(translate_unanswered(POLICY_ROOTS), "\"error\""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(translates_requests),
		cmocka_unit_test(drops_the_context_of_old_completions),
		cmocka_unit_test(translates_server_requests),
		cmocka_unit_test(knows_what_a_server_request_needs),
		cmocka_unit_test(checks_answers),
		cmocka_unit_test(knows_where_a_url_leads),
		cmocka_unit_test(fails_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
