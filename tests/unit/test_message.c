/* JSON-RPC envelopes: what is a request, a notification, a response, and what is none of them. */
#include "proxy/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static int parse(struct message *message, const char *text, struct error *error)
{
	struct span value;
	struct json_index index = {0};
	assert_int_equal(json_check(span_of(text), &value, &index, error), 0);
	return message_parse(message, value, &index, error);
}

static void tells_kinds_apart(void **unused)
{
	(void)unused;
	static const struct {
		const char *text;
		enum message_kind kind;
	} cases[] = {
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"m\",\"params\":{}}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"id\":-99999999999999999999,\"method\":\"m\"}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"id\":1.0,\"method\":\"m\"}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"id\":1e2,\"method\":\"m\"}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}", MESSAGE_NOTIFICATION},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", MESSAGE_RESPONSE},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}", MESSAGE_RESPONSE},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", MESSAGE_RESPONSE},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":null}", MESSAGE_RESPONSE},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null,\"error\":{}}", MESSAGE_RESPONSE},
		{"{\"json\\u0072pc\":\"2.0\",\"i\\u0064\":1,\"m\\u0065thod\":\"m\"}", MESSAGE_REQUEST},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct message message;
		struct error error = {0};
		assert_int_equal(parse(&message, cases[i].text, &error), 0);
		assert_int_equal(message.kind, cases[i].kind);
	}
}

static void refuses_what_is_no_message(void **unused)
{
	(void)unused;
	static const char *const cases[] = {
		"1",
		"\"x\"",
		"{}",
		"{\"id\":1,\"method\":\"m\"}",
		"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}",
		"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1}",
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1e-2,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1e400,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[]}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1,\"method\":\"m\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"m\\u0065thod\":\"n\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{},\"params\":{}}",
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct message message;
		struct error error = {0};
		assert_int_equal(parse(&message, cases[i], &error), ERROR_SYNTAX);
		assert_true(error.text[0] != '\0');
	}
}

/* There are readers to whom the last of these counts. */
static void refuses_members_in_another_spelling(void **unused)
{
	(void)unused;
	static const char *const members[] = {"\"Method\":\"tools/call\"", "\"PARAMS\":{}", "\"param\\u017f\":{}",
		"\"param\xc5\xbf\":{}", "\"\\u0049D\":2", "\"Result\":{}", "\"JSONRPC\":\"2.0\""};
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		struct message message;
		struct json_index index = {0};
		struct error error = {0};
		struct span value;
		char text[200];
		snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{},%s}",
			members[i]);
		assert_int_equal(json_check(span_of(text), &value, &index, &error), 0);
		assert_int_equal(message_parse(&message, value, &index, &error), ERROR_SYNTAX);
		snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{%s}}",
			members[i]);
		assert_int_equal(json_check(span_of(text), &value, &index, &error), 0);
		assert_int_equal(message_parse(&message, value, &index, &error), 0);
	}
}

static void keeps_the_id_for_the_error(void **unused)
{
	(void)unused;
	struct message message;
	struct error error = {0};
	assert_int_equal(
		parse(&message, "{\"jsonrpc\":\"1.0\",\"id\":\"a\\u0062\",\"method\":\"m\"}", &error), ERROR_SYNTAX);
	assert_true(span_is(message.id, "\"a\\u0062\""));
}

static void writes_responses(void **unused)
{
	(void)unused;
	struct buf out = message_error(SPAN("7"), -32602, "a \"b\"", "{\"reason\":\"used\"}");
	assert_true(span_is(buf_span(&out),
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32602,\"message\":\"a \\\"b\\\"\",\"data\":"
		"{\"reason\":\"used\"}}}"));
	buf_free(&out);
	out = message_error((struct span){0}, -32700, "x", NULL);
	assert_true(span_is(buf_span(&out), "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"x\"}}"));
	buf_free(&out);
	out = message_response(SPAN("\"i\""), SPAN("\"result\":{}"));
	assert_true(span_is(buf_span(&out), "{\"jsonrpc\":\"2.0\",\"id\":\"i\",\"result\":{}}"));
	buf_free(&out);
	struct buf body = {0};
	buf_add_text(&body, "\"result\":{}");
	out = message_response_around(SPAN("\"i\""), &body);
	assert_true(span_is(buf_span(&out), "{\"jsonrpc\":\"2.0\",\"id\":\"i\",\"result\":{}}"));
	assert_null(body.data);
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_kinds_apart),
		cmocka_unit_test(refuses_what_is_no_message),
		cmocka_unit_test(refuses_members_in_another_spelling),
		cmocka_unit_test(keeps_the_id_for_the_error),
		cmocka_unit_test(writes_responses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
