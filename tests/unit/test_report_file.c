/* The file of the report: counts go on after a restart, and nothing that is not its own is ever written over. */
#include "adapters/report_file.h"
#include "proxy/core.h"
#include "proxy/method.h"
#include "proxy/observe.h"

#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { NEVER_MS = 3600000 };

/* One process, as far as the file knows it. */
struct program {
	struct proxy proxy;
	struct env env;
	struct event_base *base;
	struct report_file *file;
	char events[1024]; /* "event: words\n" */
};

static char folder[64], path[96];

static void on_log(void *ctx, const struct log_line *line)
{
	struct program *program = ctx;
	size_t len = strlen(program->events);
	snprintf(program->events + len, sizeof(program->events) - len, "%s: %s\n", line->event, line->text);
}

static struct program *start(unsigned interval_ms)
{
	struct program *program = calloc(1, sizeof(*program));
	program->env = (struct env){.ctx = program, .log = on_log, .log_level = LOG_INFO};
	program->base = event_base_new();
	program->file = report_file_new(program->base, &program->env, &program->proxy, path, interval_ms);
	assert_non_null(program->file);
	return program;
}

/* Without a last save: a crash. */
static void crash(struct program *program)
{
	report_file_free(program->file);
	event_base_free(program->base);
	metrics_free(&program->proxy.metrics);
	free(program);
}

static void stop(struct program *program)
{
	report_file_finish(program->file);
	crash(program);
}

static struct metrics_row *row_of(struct program *program, const char *name)
{
	struct metrics_row *row = metrics_row_take(&program->proxy.metrics, POLICY_TOOL, name);
	metrics_row_release(row);
	return row;
}

static void ask(struct program *program, const char *name)
{
	static const struct capability_need form = {.kind = POLICY_ELICITATION};
	observe_question(&row_of(program, name)->seen, &form,
		SPAN("{\"requestedSchema\":{\"properties\":{\"a\":{\"type\":\"string\"}}}}"));
	row_of(program, name)->rounds++;
}

static char *content_of(const char *name)
{
	static char content[65536];
	FILE *file = fopen(name, "r");
	size_t len = file ? fread(content, 1, sizeof(content) - 1, file) : 0;
	content[len] = '\0';
	if (file)
		fclose(file);
	return content;
}

static void put(const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int set_up(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/report-file.XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/report", folder);
	return 0;
}

static int tear_down(void **state)
{
	static const char *const suffixes[] = {"", ".lock", ".mcp-valet-new", ".other"};
	char name[128];
	(void)state;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		if (unlink(name))
			(void)rmdir(name);
	}
	return rmdir(folder);
}

static void counts_go_on_after_a_restart(void **state)
{
	(void)state;
	struct stat stat;
	struct program *program = start(NEVER_MS);
	ask(program, "book");
	ask(program, "book");
	program->proxy.metrics.methods[METHOD_LISTEN] = 7;
	program->proxy.metrics.other.ends[0] = 3;
	stop(program);
	assert_int_equal(lstat(path, &stat), 0);
	assert_int_equal(stat.st_mode, S_IFREG | 0600);

	program = start(NEVER_MS);
	struct metrics_row *row = row_of(program, "book");
	assert_int_equal(row->rounds, 2);
	assert_true(row->seen.known);
	assert_string_equal(row->seen.shapes[0].text, "a? string");
	assert_int_equal(row->seen.shapes[0].count, 2);
	assert_int_equal(program->proxy.metrics.methods[METHOD_LISTEN], 7);
	assert_int_equal(program->proxy.metrics.other.ends[0], 3);
	ask(program, "book");
	stop(program);

	program = start(NEVER_MS);
	assert_int_equal(row_of(program, "book")->rounds, 3);
	crash(program);
}

static void every_count_comes_back(void **state)
{
	(void)state;
	struct proxy before = {0}, after = {0};
	struct buf one = {0}, two = {0};
	struct error error = {0};
	static const char *const names[] = {"quote\"d", "back\\slash", "db://x?token", "\xc3\xbc", "", "x\nline"};
	uint64_t next = 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct metrics_row *row =
			metrics_row_take(&before.metrics, (enum policy_subject)(i % (POLICY_RESOURCE + 1)), names[i]);
		row->rounds = next++;
		row->people_ms = next++;
		row->people_count = next++;
		for (size_t end = 0; end < METRICS_ENDS; end++)
			row->ends[end] = next++;
		for (size_t kind = 0; kind < POLICY_KINDS; kind++) {
			row->forwarded[kind] = next++;
			for (size_t outcome = 0; outcome < SERVER_REQUEST_OUTCOMES; outcome++)
				row->requests[kind][outcome] = next++;
		}
		row->seen.known = i % 2;
		row->seen.urls = next++;
		row->seen.sampling_tools = next++;
		row->seen.tasks = next++;
		row->seen.logs = next++;
		row->seen.timed_out = next++;
		row->seen.longest_ms = next++;
		row->seen.most_rounds = (uint32_t)next++;
		for (size_t shape = 0; shape < OBSERVE_SHAPES; shape++) {
			char text[32];
			snprintf(text, sizeof(text), "f%zu \\u0041", shape);
			row->seen.shapes[shape].text = strdup(text);
			row->seen.shapes[shape].count = next++;
		}
		row->seen.other_shapes = next++;
		metrics_row_release(row);
	}
	before.metrics.methods[METHOD_LISTEN] = next++;
	proxy_write_report(&before, &one);
	assert_int_equal(proxy_read_report(&after, buf_span(&one), &error), 0);
	proxy_write_report(&after, &two);
	assert_int_equal(one.len, two.len);
	assert_memory_equal(one.data, two.data, one.len);
	/* Once more is twice as much. */
	assert_int_equal(proxy_read_report(&after, buf_span(&one), &error), 0);
	assert_int_equal(after.metrics.rows[1]->ends[4], 2 * before.metrics.rows[1]->ends[4]);
	assert_int_equal(after.metrics.rows[1]->seen.most_rounds, before.metrics.rows[1]->seen.most_rounds);
	/* Every beginning of it is none, and adds nothing. */
	struct proxy nothing = {0};
	for (size_t len = 0; len + 2 < one.len; len++)
		assert_true(proxy_read_report(&nothing, (struct span){one.data, len}, &error) < 0);
	assert_int_equal(nothing.metrics.row_count, 0);
	buf_free(&one);
	buf_free(&two);
	metrics_free(&before.metrics);
	metrics_free(&after.metrics);
}

static void what_is_no_report_is_left_alone(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"shopping list\n",
		"{}",
		"[]",
		"{\"version\":1,\"entries\":[]}",
		"{\"report\":\"mcp-valet\",\"version\":2,\"entries\":[]}",
		"{\"report\":\"mcp-valet\",\"version\":1,\"entries\":[7]}",
		"{\"report\":\"mcp-valet\",\"version\":1,\"entries\":[{\"subject\":\"tool\",\"name\":\"a\"},"
		"{\"subject\":\"spoon\",\"name\":\"a\"}]}",
		"{\"report\":\"mcp-valet\",\"version\":1,\"entries\":[{\"subject\":\"tool\",\"name\":\"a\",\"rounds\":-"
		"1}]}",
		"{\"report\":\"mcp-valet\",\"version\":1,\"entries\":[{\"subject\":\"tool\",\"name\":\"a\",\"forms\":[{"
		"}"
		"]}]}",
		"{\"report\":\"mcp-valet\",\"version\":1,\"entries\":[{\"subject\":\"tool\",\"name\":\"a\",\"calls\":"
		"{\"lost\":99999999999999999999}}]}",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		put(texts[i]);
		struct program *program = start(NEVER_MS);
		assert_int_equal(program->proxy.metrics.row_count, 0);
		assert_non_null(strstr(program->events, "report-file-failed"));
		assert_non_null(strstr(program->events, "left as it is"));
		ask(program, "book");
		report_file_finish(program->file);
		assert_string_equal(content_of(path), texts[i]);
		/* It is said once, and taken up when the file is moved away. */
		assert_null(strstr(strstr(program->events, "report-file-failed") + 1, "report-file-failed"));
		assert_int_equal(unlink(path), 0);
		stop(program);
		assert_non_null(strstr(content_of(path), "\"book\""));
	}
}

static void an_empty_file_is_none(void **state)
{
	(void)state;
	put("");
	struct program *program = start(NEVER_MS);
	ask(program, "book");
	stop(program);
	assert_non_null(strstr(content_of(path), "\"book\""));
}

static void links_pipes_and_folders_are_left_alone(void **state)
{
	(void)state;
	char other[128];
	struct stat stat;
	snprintf(other, sizeof(other), "%s.other", path);
	assert_int_equal(symlink(other, path), 0);
	struct program *program = start(NEVER_MS);
	ask(program, "book");
	stop(program);
	assert_int_equal(lstat(path, &stat), 0);
	assert_true(S_ISLNK(stat.st_mode));
	assert_int_equal(access(other, F_OK), -1);
	assert_int_equal(unlink(path), 0);

	assert_int_equal(mkfifo(path, 0600), 0);
	program = start(NEVER_MS);
	ask(program, "book");
	stop(program);
	assert_int_equal(lstat(path, &stat), 0);
	assert_true(S_ISFIFO(stat.st_mode));
	assert_int_equal(unlink(path), 0);

	assert_int_equal(mkdir(path, 0700), 0);
	program = start(NEVER_MS);
	ask(program, "book");
	stop(program);
	assert_int_equal(lstat(path, &stat), 0);
	assert_true(S_ISDIR(stat.st_mode));
}

static void what_others_wrote_meanwhile_is_left_alone(void **state)
{
	(void)state;
	struct program *program = start(NEVER_MS);
	ask(program, "book");
	report_file_finish(program->file);
	put("mine now");
	ask(program, "book");
	report_file_finish(program->file);
	assert_string_equal(content_of(path), "mine now");
	assert_non_null(strstr(program->events, "changed by somebody else"));
	/* Gone is gone: the next one is whole again. */
	assert_int_equal(unlink(path), 0);
	stop(program);
	program = start(NEVER_MS);
	assert_int_equal(row_of(program, "book")->rounds, 2);
	crash(program);
}

static void two_do_not_write_one_file(void **state)
{
	(void)state;
	struct program *first = start(NEVER_MS), *second = start(NEVER_MS);
	assert_non_null(strstr(second->events, "another process writes it"));
	ask(first, "book");
	ask(second, "book");
	ask(second, "sign");
	report_file_finish(second->file);
	assert_string_equal(content_of(path), "");
	stop(first);
	assert_null(strstr(content_of(path), "sign"));
	/* Now it is the turn of the second, which adds what it saw. */
	stop(second);
	struct program *third = start(NEVER_MS);
	assert_int_equal(row_of(third, "book")->rounds, 2);
	assert_int_equal(row_of(third, "sign")->rounds, 1);
	crash(third);
}

static void run_for(struct program *program, unsigned ms)
{
	struct timeval time = {0, (suseconds_t)ms * 1000};
	event_base_loopexit(program->base, &time);
	event_base_dispatch(program->base);
}

static void it_is_saved_now_and_then_when_something_changed(void **state)
{
	(void)state;
	struct stat first, later;
	struct program *program = start(20);
	ask(program, "book");
	run_for(program, 200);
	assert_int_equal(lstat(path, &first), 0);
	run_for(program, 100);
	assert_int_equal(lstat(path, &later), 0);
	assert_int_equal(first.st_ino, later.st_ino);
	assert_int_equal(first.st_mtim.tv_nsec, later.st_mtim.tv_nsec);
	ask(program, "book");
	run_for(program, 200);
	crash(program);
	program = start(NEVER_MS);
	assert_int_equal(row_of(program, "book")->rounds, 2);
	crash(program);
}

static void what_a_crash_left_behind_is_in_nobodys_way(void **state)
{
	(void)state;
	char left[128];
	snprintf(left, sizeof(left), "%s.mcp-valet-new", path);
	assert_int_equal(symlink("/nonexistent/file", left), 0);
	struct program *program = start(NEVER_MS);
	ask(program, "book");
	stop(program);
	assert_non_null(strstr(content_of(path), "\"book\""));
	assert_int_equal(access(left, F_OK), -1);
}

static void a_folder_that_is_not_there_is_told(void **state)
{
	(void)state;
	struct program *program;
	char *slash = strrchr(path, '/');
	memmove(slash + 2, slash, strlen(slash) + 1);
	memcpy(slash, "/x", 2);
	program = start(NEVER_MS);
	assert_non_null(strstr(program->events, "No such file or directory"));
	stop(program);
	memmove(slash, slash + 2, strlen(slash + 2) + 1);
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(counts_go_on_after_a_restart),
		cmocka_unit_test(every_count_comes_back),
		WITH_FOLDER(what_is_no_report_is_left_alone),
		WITH_FOLDER(an_empty_file_is_none),
		WITH_FOLDER(links_pipes_and_folders_are_left_alone),
		WITH_FOLDER(what_others_wrote_meanwhile_is_left_alone),
		WITH_FOLDER(two_do_not_write_one_file),
		WITH_FOLDER(it_is_saved_now_and_then_when_something_changed),
		WITH_FOLDER(what_a_crash_left_behind_is_in_nobodys_way),
		WITH_FOLDER(a_folder_that_is_not_there_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
