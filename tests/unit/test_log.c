#include "adapters/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* 2026-07-28T12:00:00.250Z */
static const int64_t moment_ms = 1785240000250;

static const struct log_line full = {
	.level = LOG_WARNING,
	.event = "session-lost",
	.session = "s1",
	.call = "9f2c41",
	.subject = "tools/call report",
	.trace = "0af7651916cd43dd8448eb211c80319c",
	.text = "the server was killed by signal 9",
};

static void expect(enum log_format format, const struct log_line *line, const char *want)
{
	struct buf out = {0};
	log_format_line(&out, format, moment_ms, line);
	assert_true(buf_ok(&out));
	buf_add(&out, "", 1);
	assert_string_equal(out.data, want);
	buf_free(&out);
}

static void test_text(void **state)
{
	(void)state;
	expect(LOG_FORMAT_TEXT, &full,
		"2026-07-28T12:00:00.250Z warning session-lost session=s1 call=9f2c41 subject=\"tools/call report\" "
		"trace=0af7651916cd43dd8448eb211c80319c: the server was killed by signal 9\n");
	expect(LOG_FORMAT_TEXT, &(struct log_line){.level = LOG_INFO, .event = "start", .text = "ready"},
		"2026-07-28T12:00:00.250Z info start: ready\n");
}

static void test_json(void **state)
{
	(void)state;
	expect(LOG_FORMAT_JSON, &full,
		"{\"time\":\"2026-07-28T12:00:00.250Z\",\"level\":\"warning\",\"event\":\"session-lost\",\"session\":"
		"\"s1\","
		"\"call\":\"9f2c41\",\"subject\":\"tools/call report\",\"trace\":\"0af7651916cd43dd8448eb211c80319c\","
		"\"text\":\"the server was killed by signal 9\"}\n");
}

/* Nobody's words begin a line of their own or reach the terminal as control sequences. */
static void test_control_characters(void **state)
{
	(void)state;
	struct log_line line = {.level = LOG_ERROR,
		.event = "server-stderr",
		.session = "a\nb",
		.text = "x\r\n2026 error fake\x1b[31m\ty\x7f"};
	expect(LOG_FORMAT_TEXT, &line,
		"2026-07-28T12:00:00.250Z error server-stderr session=a\\x0ab: x\\x0d\\x0a2026 error fake\\x1b[31m "
		"y\\x7f\n");
	/* A member cannot end itself and begin another, and an escape cannot be forged. */
	expect(LOG_FORMAT_TEXT,
		&(struct log_line){.level = LOG_INFO, .event = "e", .subject = "a\" session=\\\"", .text = "\"\\x0a\""},
		"2026-07-28T12:00:00.250Z info e subject=\"a\\\" session=\\\\\\\"\": \"\\\\x0a\"\n");
	/* CSI as one byte and as a character, line ends of Unicode, an override of direction; others stay as they are. */
	struct log_line unseen = {.level = LOG_INFO,
		.event = "e",
		.text = "\x9b"
			"1m\xc2\x9b"
			"1m\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"};
	expect(LOG_FORMAT_TEXT, &unseen,
		"2026-07-28T12:00:00.250Z info e: \\x9b1m\\xc2\\x9b1m\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa6"
		"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n");
	expect(LOG_FORMAT_JSON, &unseen,
		"{\"time\":\"2026-07-28T12:00:00.250Z\",\"level\":\"info\",\"event\":\"e\",\"text\":\"\xef\xbf\xbd"
		"1m\\u009b1m\\u2028\\u202e\\u2066\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"}\n");
	struct buf out = {0};
	log_format_line(&out, LOG_FORMAT_JSON, moment_ms, &line);
	assert_ptr_equal(memchr(out.data, '\n', out.len), out.data + out.len - 1);
	json_t *json = json_loadb(out.data, out.len, 0, NULL);
	assert_non_null(json);
	assert_string_equal(json_string_value(json_object_get(json, "text")), line.text);
	json_decref(json);
	buf_free(&out);
}

static void expect_fits(char fill, enum log_format format)
{
	static char text[100000], member[5000];
	struct buf out = {0};
	memset(text, fill, sizeof(text) - 1);
	memset(member, fill, sizeof(member) - 1);
	log_format_line(&out, format, moment_ms,
		&(struct log_line){.level = LOG_INFO,
			.event = "event",
			.session = member,
			.call = member,
			.subject = member,
			.trace = member,
			.text = text});
	assert_true(buf_ok(&out));
	assert_true(out.len <= PIPE_BUF);
	assert_int_equal(out.data[out.len - 1], '\n');
	buf_free(&out);
}

static void test_long_lines_fit_in_a_pipe(void **state)
{
	(void)state;
	expect_fits('x', LOG_FORMAT_TEXT);
	expect_fits('x', LOG_FORMAT_JSON);
	expect_fits('\x01', LOG_FORMAT_TEXT);
	expect_fits('\x01', LOG_FORMAT_JSON);
	expect_fits('\xff', LOG_FORMAT_JSON);
}

/* A long text of two-byte characters is cut between characters. */
static void test_cut_keeps_utf8(void **state)
{
	(void)state;
	static char text[8001];
	struct buf out = {0};
	for (size_t i = 1; i < sizeof(text) - 2; i += 2)
		memcpy(text + i, "\xc3\xa4", 2);
	text[0] = 'x';
	log_format_line(
		&out, LOG_FORMAT_JSON, moment_ms, &(struct log_line){.level = LOG_INFO, .event = "e", .text = text});
	json_t *json = json_loadb(out.data, out.len, 0, NULL);
	assert_non_null(json);
	const char *shown = json_string_value(json_object_get(json, "text"));
	assert_null(strstr(shown, "\xef\xbf\xbd"));
	assert_string_equal(shown + strlen(shown) - 5, "\xc3\xa4...");
	json_decref(json);
	buf_free(&out);
}

/* Where nobody reads, writing returns at once; later the log says how much was lost. */
static void test_never_blocks(void **state)
{
	(void)state;
	int ends[2];
	char got[4096];
	ssize_t len;
	assert_int_equal(pipe(ends), 0);
	struct log log = {.format = LOG_FORMAT_TEXT, .fd = ends[1]};
	for (int i = 0; i < 5000; i++)
		log_write(&log, &full);
	assert_true(log.dropped > 0 && log.dropped < 5000);
	unsigned long dropped = log.dropped;
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	while (read(ends[0], got, sizeof(got)) > 0)
		;
	log_write(&log, &full);
	assert_int_equal(log.dropped, 0);
	len = read(ends[0], got, sizeof(got) - 1);
	assert_true(len > 0);
	got[len] = '\0';
	char want[100];
	snprintf(want, sizeof(want), "warning log-dropped: %lu lines were dropped", dropped);
	assert_non_null(strstr(got, want));
	assert_non_null(strstr(got, "session-lost"));
	close(ends[0]);
	close(ends[1]);
}

static void count_line(void *ctx, const struct log_line *line)
{
	(*(unsigned *)ctx)++;
	assert_string_equal(line->event, "word");
	assert_string_equal(line->text, "7 words");
}

static void test_levels(void **state)
{
	(void)state;
	unsigned lines = 0;
	struct env env = {.ctx = &lines, .log = count_line, .log_level = LOG_WARNING};
	log_event(&env, LOG_ERROR, "word", "%d words", 7);
	log_event(&env, LOG_WARNING, "word", "%d words", 7);
	log_event(&env, LOG_INFO, "word", "%d words", 7);
	assert_int_equal(lines, 2);

	enum log_level level;
	enum log_format format;
	assert_true(log_level_parse("debug", &level));
	assert_int_equal(level, LOG_DEBUG);
	assert_string_equal(log_level_name(level), "debug");
	assert_false(log_level_parse("verbose", &level));
	assert_true(log_format_parse("json", &format));
	assert_int_equal(format, LOG_FORMAT_JSON);
	assert_true(log_format_parse("text", &format));
	assert_int_equal(format, LOG_FORMAT_TEXT);
	assert_false(log_format_parse("xml", &format));
}

static void test_rate(void **state)
{
	(void)state;
	struct log_rate rate = {0};
	unsigned left_out;
	for (int i = 0; i < 3; i++)
		assert_true(log_rate_allows(&rate, 3, 5000 + i, &left_out));
	for (int i = 0; i < 10; i++)
		assert_false(log_rate_allows(&rate, 3, 5999, &left_out));
	assert_true(log_rate_allows(&rate, 3, 6000, &left_out));
	assert_int_equal(left_out, 10);
	assert_true(log_rate_allows(&rate, 3, 6001, &left_out));
	assert_int_equal(left_out, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_control_characters),
		cmocka_unit_test(test_long_lines_fit_in_a_pipe),
		cmocka_unit_test(test_cut_keeps_utf8),
		cmocka_unit_test(test_never_blocks),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_rate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
