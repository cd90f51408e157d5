/* Responses, whole and split at every byte (RFC 9112 sections 4 and 6.3). */
#include "adapters/http_response.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK "HTTP/1.1 200 OK\r\n"

struct outcome {
	enum http_response_part last;
	int status;
	bool keep_alive, until_close;
	size_t left;
	char type[32], body[64];
};

/* Feeds the bytes in two pieces, as a socket may give them: in memory of their own each. */
static struct outcome read_response(const char *text, size_t split)
{
	struct http_response_reader reader = {0};
	struct outcome outcome = {.last = HTTP_RESPONSE_MORE};
	const size_t cuts[3] = {0, split, strlen(text)};
	for (int i = 0; i < 2 && outcome.last == HTTP_RESPONSE_MORE; i++) {
		char *piece = strndup(text + cuts[i], cuts[i + 1] - cuts[i]);
		struct span rest = span_of(piece), data, value;
		struct http1_head head;
		do {
			outcome.last = http_response_next(&reader, &rest, &head, &data);
			if (outcome.last == HTTP_RESPONSE_HEAD && http1_field(&head, "content-type", &value))
				snprintf(outcome.type, sizeof(outcome.type), "%.*s", (int)value.len, value.ptr);
			if (outcome.last == HTTP_RESPONSE_DATA)
				strncat(outcome.body, data.ptr, data.len);
		} while (outcome.last == HTTP_RESPONSE_HEAD || outcome.last == HTTP_RESPONSE_DATA);
		outcome.left = rest.len + (cuts[2] - cuts[i + 1]);
		free(piece);
	}
	outcome.status = reader.status;
	outcome.keep_alive = reader.keep_alive;
	outcome.until_close = reader.until_close;
	http_response_free(&reader);
	return outcome;
}

static void reads_responses(void **unused)
{
	(void)unused;
	static const struct {
		const char *text;
		struct outcome expected;
	} cases[] = {
		{OK "Content-Type:  text/x \r\nContent-Length: 3\r\n\r\nabc",
			{HTTP_RESPONSE_DONE, 200, true, false, 0, "text/x", "abc"}},
		{OK "Content-Length: 3\r\nConnection: close\r\n\r\nabc",
			{HTTP_RESPONSE_DONE, 200, false, false, 0, "", "abc"}},
		{"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", {HTTP_RESPONSE_DONE, 200, false, false, 0, "", "a"}},
		{"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", {HTTP_RESPONSE_DONE, 202, true, false, 0, "", ""}},
		{"HTTP/1.1 202 \r\nContent-Length: 0\r\n\r\n", {HTTP_RESPONSE_DONE, 202, true, false, 0, "", ""}},
		{"HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", {HTTP_RESPONSE_DONE, 204, true, false, 0, "", ""}},
		{OK "Content-Length: 1\r\n\r\nabc", {HTTP_RESPONSE_DONE, 200, true, false, 2, "", "a"}},
		{OK "\r\nabc", {HTTP_RESPONSE_MORE, 200, true, true, 0, "", "abc"}},
		{OK "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: 1\r\n\r\n",
			{HTTP_RESPONSE_DONE, 200, true, false, 0, "", "abc"}},
		{OK "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
			{HTTP_RESPONSE_DONE, 200, false, false, 0, "", "a"}},
		{"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
			{HTTP_RESPONSE_DONE, 200, false, false, 0, "", "a"}},
		{OK "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
			{HTTP_RESPONSE_MORE, 200, true, false, 0, "", "ab"}},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX: 1\r\n\r\n" OK "Content-Length: 1\r\n\r\na",
			{HTTP_RESPONSE_DONE, 200, true, false, 0, "", "a"}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t split = 0; split <= strlen(cases[i].text); split++) {
			struct outcome found = read_response(cases[i].text, split);
			const struct outcome *expected = &cases[i].expected;
			if (found.last != expected->last || found.status != expected->status ||
				found.keep_alive != expected->keep_alive ||
				found.until_close != expected->until_close || found.left != expected->left ||
				strcmp(found.type, expected->type) != 0 || strcmp(found.body, expected->body) != 0)
				fail_msg("case %zu split at %zu: part %d status %d left %zu body %s", i, split,
					found.last, found.status, found.left, found.body);
		}
}

static void refuses_what_is_no_response(void **unused)
{
	(void)unused;
	static const char *const cases[] = {
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.x 200 OK\r\n\r\n",
		"HTTP/1.1 2000\r\n\r\n",
		"HTTP/1.1 099 No\r\n\r\n",
		"HTTP/1.1 20x No\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"HTTP/1.1 200 OK\n\n",
		OK "X : 1\r\n\r\n",
		OK "X: 1\r\n folded\r\n\r\n",
		OK "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		OK "Content-Length: -1\r\n\r\n",
		OK "Transfer-Encoding: gzip\r\n\r\n",
		OK "Transfer-Encoding: chunked\r\n\r\nx\r\n",
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t split = 0; split < strlen(cases[i]); split++)
			if (read_response(cases[i], split).last != HTTP_RESPONSE_BAD)
				fail_msg("case %zu split at %zu was taken", i, split);
}

/* Neither a head nor interim responses go on for ever. */
static void heads_are_bounded(void **unused)
{
	(void)unused;
	struct http_response_reader reader = {0};
	enum http_response_part part = HTTP_RESPONSE_MORE;
	struct http1_head head;
	struct span data;
	struct span first = SPAN(OK), line = SPAN("X: 0123456789012345678901234567890123456789012345678901234567\r\n");
	size_t fed = 0;
	assert_int_equal(http_response_next(&reader, &first, &head, &data), HTTP_RESPONSE_MORE);
	for (; part == HTTP_RESPONSE_MORE && fed < 1 << 20; fed += line.len) {
		struct span rest = line;
		part = http_response_next(&reader, &rest, &head, &data);
	}
	assert_int_equal(part, HTTP_RESPONSE_BAD);
	assert_true(fed <= HTTP_RESPONSE_MAX_HEAD + 4096);
	http_response_free(&reader);
	unsigned count = 0;
	do {
		struct span rest = SPAN("HTTP/1.1 103 Early\r\n\r\n");
		part = http_response_next(&reader, &rest, &head, &data);
	} while (part == HTTP_RESPONSE_MORE && count++ < 1000);
	assert_int_equal(part, HTTP_RESPONSE_BAD);
	assert_int_equal(count, HTTP_RESPONSE_MAX_INTERIM);
	http_response_free(&reader);
}

static void reads_how_long_a_connection_is_kept(void **unused)
{
	(void)unused;
	static const struct {
		const char *field;
		int seconds;
	} cases[] = {
		{"", -1},
		{"Keep-Alive: timeout=5\r\n", 5},
		{"keep-alive: max=100, Timeout=15\r\n", 15},
		{"Keep-Alive: timeout=0\r\n", 0},
		{"Keep-Alive: timeout=\r\n", -1},
		{"Keep-Alive: timeout\r\n", -1},
		{"Keep-Alive: timeout=-5\r\n", 0},
		{"Keep-Alive: max=5\r\n", -1},
		{"Keep-Alive: timeout=99999999999999999999\r\n", 99999},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http_response_reader reader = {0};
		struct http1_head head;
		char text[128];
		snprintf(text, sizeof(text), OK "%sContent-Length: 0\r\n\r\n", cases[i].field);
		struct span bytes = span_of(text), data;
		assert_int_equal(http_response_next(&reader, &bytes, &head, &data), HTTP_RESPONSE_HEAD);
		assert_int_equal(reader.keep_s, cases[i].seconds);
		http_response_free(&reader);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_responses),
		cmocka_unit_test(refuses_what_is_no_response),
		cmocka_unit_test(heads_are_bounded),
		cmocka_unit_test(reads_how_long_a_connection_is_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
