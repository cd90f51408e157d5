/* Results and errors of a legacy server, made into those of 2026-07-28: exact bytes. */
#include "proxy/result.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define INFO "{\"name\":\"s\",\"version\":\"1\"}"
#define SERVER_META "\"_meta\":{\"io.modelcontextprotocol/serverInfo\":" INFO "}"

static struct server_identity identity = {.info = INFO, .capabilities = "{}"};

static void assert_result_under(
	enum policy_mcp_headers headers, const char *method, const char *legacy, bool retried, const char *expected)
{
	struct policy *policy = policy_default();
	policy->mcp_headers = headers;
	struct policy_rule rule = policy->defaults;
	struct span value;
	struct json_index index = {0};
	struct error error;
	struct buf out = {0};
	rule.cache_ttl_ms = 60000;
	rule.cache_scope = POLICY_SCOPE_PUBLIC;
	assert_int_equal(json_check(span_of(legacy), &value, &index, &error), 0);
	result_complete(&out, method_find(span_of(method)), value, &index, &identity, policy, &rule, retried);
	buf_add(&out, "", 1);
	assert_string_equal(out.data, expected);
	buf_free(&out);
	policy_unref(policy);
}

static void assert_result(const char *method, const char *legacy, bool retried, const char *expected)
{
	assert_result_under(POLICY_HEADERS_STRIP, method, legacy, retried, expected);
}

static void completes_results(void **unused)
{
	(void)unused;
	assert_result("\"tools/call\"", "{\"content\":[{\"n\":1e400}],\"isError\":true}", false,
		"\"result\":{\"content\":[{\"n\":1e400}],\"isError\":true,\"resultType\":\"complete\"," SERVER_META
		"}");
	assert_result("\"tools/call\"", "{}", false, "\"result\":{\"resultType\":\"complete\"," SERVER_META "}");
	assert_result("\"resources/read\"", "{\"contents\":[]}", false,
		"\"result\":{\"contents\":[],\"resultType\":\"complete\",\"ttlMs\":60000,\"cacheScope\":"
		"\"public\"," SERVER_META "}");
	/* What depends on answers may not be cached. */
	assert_result("\"resources/read\"", "{\"contents\":[],\"ttlMs\":5,\"cacheScope\":\"public\"}", true,
		"\"result\":{\"contents\":[],\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":"
		"\"private\"," SERVER_META "}");
}

static void lets_no_server_forge_a_round(void **unused)
{
	(void)unused;
	assert_result("\"tools/call\"",
		"{\"resultType\":\"input_required\",\"inputRequests\":{\"a\":{}},\"requestState\":\"x\","
		"\"input\\u0052equests\":1,"
		"\"content\":[]}",
		false, "\"result\":{\"content\":[],\"resultType\":\"complete\"," SERVER_META "}");
	assert_result("\"tools/call\"",
		"{\"_meta\":{\"io.modelcontextprotocol/serverInfo\":{\"name\":\"evil\"},"
		"\"io.modelcontextprotocol/subscriptionId\":1,\"io.modelcontextprotocol/related-task\":{},\"v/"
		"k\":1.0}}",
		false,
		"\"result\":{\"resultType\":\"complete\",\"_meta\":{\"v/k\":1.0,\"io.modelcontextprotocol/"
		"serverInfo\":" INFO "}}");
	assert_result("\"tools/call\"", "[]", false,
		"\"error\":{\"code\":-32603,\"message\":\"The server's result is not an object\"}");
}

static void cleans_tool_lists(void **unused)
{
	(void)unused;
	assert_result("\"tools/list\"",
		"{\"tools\":[{\"name\":\"a\",\"execution\":{\"taskSupport\":\"required\"},\"inputSchema\":{\"type\":"
		"\"object\","
		"\"properties\":{\"x-mcp-header\":{\"type\":\"string\",\"x-mcp-header\":\"A\"},\"n\":{\"items\":[{"
		"\"x-\\u006dcp-header\":1},2.50]}}}},{\"name\":\"b\",\"title\":\"x-mcp-header\"}],\"nextCursor\":\"\"}",
		false,
		"\"result\":{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"x-mcp-"
		"header\":{"
		"\"type\":\"string\"},\"n\":{\"items\":[{},2.50]}}}},{\"name\":\"b\",\"title\":\"x-mcp-header\"}],"
		"\"nextCursor\":\"\",\"resultType\":\"complete\",\"ttlMs\":60000,\"cacheScope\":\"public\"," SERVER_META
		"}");
	assert_result("\"prompts/list\"", "{\"prompts\":[{\"name\":\"a\",\"execution\":1}]}", false,
		"\"result\":{\"prompts\":[{\"name\":\"a\",\"execution\":1}],\"resultType\":\"complete\",\"ttlMs\":"
		"60000,"
		"\"cacheScope\":\"public\"," SERVER_META "}");
	assert_result("\"tools/list\"", "{\"tools\":7}", false,
		"\"result\":{\"tools\":7,\"resultType\":\"complete\",\"ttlMs\":60000,\"cacheScope\":"
		"\"public\"," SERVER_META "}");
}

static void keeps_headers_that_are_checked(void **unused)
{
	(void)unused;
	assert_result_under(POLICY_HEADERS_VALIDATE, "\"tools/list\"",
		"{\"tools\":[{\"inputSchema\":{\"properties\":{\"a\":{\"type\":\"string\",\"x-mcp-header\":\"A\"}}}},"
		"{\"inputSchema\":{\"properties\":{\"a\":{\"type\":\"number\",\"x-mcp-header\":\"A\"}}}}]}",
		false,
		"\"result\":{\"tools\":[{\"inputSchema\":{\"properties\":{\"a\":{\"type\":\"string\",\"x-mcp-header\":"
		"\"A\"}"
		"}}},{\"inputSchema\":{\"properties\":{\"a\":{\"type\":\"number\"}}}}],\"resultType\":\"complete\","
		"\"ttlMs\":60000,\"cacheScope\":\"public\"," SERVER_META "}");
}

static void maps_errors(void **unused)
{
	(void)unused;
	static const struct {
		const char *legacy, *modern;
	} cases[] = {
		{"{\"code\":-32602,\"message\":\"\\u0041\",\"data\":1e400}",
			"\"error\":{\"code\":-32602,\"message\":\"\\u0041\",\"data\":1e400}"},
		{"{\"code\":-32002,\"message\":\"gone\",\"data\":{\"uri\":\"a:b\"}}",
			"\"error\":{\"code\":-32602,\"message\":\"gone\",\"data\":{\"uri\":\"a:b\"}}"},
		{"{\"code\":-32021,\"message\":\"m\",\"data\":{\"requiredCapabilities\":{}}}",
			"\"error\":{\"code\":-32603,\"message\":\"m\",\"data\":{\"reason\":\"upstream_error\",\"code\":"
			"-32021,"
			"\"data\":{\"requiredCapabilities\":{}}}}"},
		{"{\"code\":-32099,\"message\":\"m\"}", "\"error\":{\"code\":-32603,\"message\":\"m\",\"data\":{"
							"\"reason\":\"upstream_error\",\"code\":-32099}}"},
		{"{\"code\":-32042,\"message\":\"m\"}", "\"error\":{\"code\":-32603,\"message\":\"m\",\"data\":{"
							"\"reason\":\"upstream_error\",\"code\":-32042}}"},
		{"{\"code\":-32019,\"message\":\"m\"}", "\"error\":{\"code\":-32019,\"message\":\"m\"}"},
		{"{\"code\":7,\"message\":\"m\"}", "\"error\":{\"code\":7,\"message\":\"m\"}"},
		{"{\"code\":1.5,\"message\":\"m\"}",
			"\"error\":{\"code\":-32603,\"message\":\"The server answered with a malformed error\"}"},
		{"{\"code\":1}",
			"\"error\":{\"code\":-32603,\"message\":\"The server answered with a malformed error\"}"},
		{"\"x\"", "\"error\":{\"code\":-32603,\"message\":\"The server answered with a malformed error\"}"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf out = {0};
		result_error(&out, span_of(cases[i].legacy));
		buf_add(&out, "", 1);
		assert_string_equal(out.data, cases[i].modern);
		buf_free(&out);
	}
}

static void chooses_http_statuses(void **unused)
{
	(void)unused;
	struct policy *policy = policy_default();
	const struct method *call = method_find(SPAN("\"tools/call\"")), *list = method_find(SPAN("\"tools/list\""));
	assert_int_equal(result_http_status(call, policy, SPAN("\"result\":{}")), 200);
	assert_int_equal(result_http_status(call, policy, SPAN("\"error\":{\"code\":-32021,\"message\":\"\"}")), 400);
	assert_int_equal(result_http_status(call, policy, SPAN("\"error\":{\"code\":-32020,\"message\":\"\"}")), 400);
	assert_int_equal(result_http_status(call, policy, SPAN("\"error\":{\"code\":-32601,\"message\":\"\"}")), 200);
	assert_int_equal(result_http_status(list, policy, SPAN("\"error\":{\"code\":-32601,\"message\":\"\"}")), 404);
	assert_int_equal(result_http_status(list, policy, SPAN("\"error\":{\"code\":-32603,\"message\":\"\"}")), 200);
	policy_unref(policy);
}

static void answers_discover(void **unused)
{
	(void)unused;
	struct server_identity own;
	struct error error = {0};
	struct policy *policy = policy_default();
	struct buf out = {0};
	assert_int_equal(
		server_identity_read(&own,
			SPAN("{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{\"listChanged\":true,"
			     "\"x\":1},"
			     "\"resources\":{\"subscribe\":true,\"listChanged\":false},\"tasks\":{},\"logging\":{},"
			     "\"experimental\":{\"e\":{}}},\"serverInfo\":" INFO ",\"instructions\":\"do \\u0041\"}"),
			&error),
		0);
	result_discover(&out, &own, &policy->defaults, false);
	buf_add(&out, "", 1);
	assert_string_equal(out.data,
		"\"result\":{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{\"listChanged\":true},"
		"\"resources\":{\"subscribe\":true},\"logging\":{},\"experimental\":{\"e\":{}}},\"instructions\":\"do "
		"\\u0041\",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"," SERVER_META "}");
	buf_free(&out);
	result_discover(&out, &own, &policy->defaults, true);
	buf_add(&out, "", 1);
	assert_non_null(strstr(
		out.data, ",\"experimental\":{\"e\":{}},\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}},"));
	buf_free(&out);
	server_identity_free(&own);
	policy_unref(policy);
	assert_int_equal(server_identity_read(&own, SPAN("{\"capabilities\":{}}"), &error), ERROR_SYNTAX);
	assert_int_equal(
		server_identity_read(&own, SPAN("{\"capabilities\":[],\"serverInfo\":{}}"), &error), ERROR_SYNTAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(completes_results),
		cmocka_unit_test(lets_no_server_forge_a_round),
		cmocka_unit_test(cleans_tool_lists),
		cmocka_unit_test(keeps_headers_that_are_checked),
		cmocka_unit_test(maps_errors),
		cmocka_unit_test(chooses_http_statuses),
		cmocka_unit_test(answers_discover),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
