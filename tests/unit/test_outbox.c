#include "adapters/outbox.h"

#include "proxy/error.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void make_pipe(int ends[2])
{
	assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
}

static void close_pipe(int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}

static void test_writes_in_order(void **state)
{
	(void)state;
	struct outbox outbox = {0};
	int ends[2];
	char got[64] = "";
	make_pipe(ends);
	assert_true(outbox_add_text(&outbox, "one "));
	assert_true(outbox_add_text(&outbox, ""));
	assert_true(outbox_add_text(&outbox, "two "));
	assert_true(outbox_add_text(&outbox, "three"));
	assert_int_equal(outbox_bytes(&outbox), 13);
	assert_int_equal(outbox_write(&outbox, ends[1]), 0);
	assert_int_equal(outbox_bytes(&outbox), 0);
	assert_int_equal(read(ends[0], got, sizeof(got)), 13);
	assert_string_equal(got, "one two three");
	assert_int_equal(outbox_write(&outbox, ends[1]), 0);
	close_pipe(ends);
	outbox_free(&outbox);
}

/* More than a pipe holds and more chunks than one write takes: nothing is lost, doubled or reordered. */
static void test_partial_writes(void **state)
{
	(void)state;
	struct outbox outbox = {0};
	int ends[2];
	size_t sent = 0, received = 0, turns = 0;
	unsigned char got[10007];
	make_pipe(ends);
	for (size_t i = 0; i < 100; i++) {
		struct buf bytes = {0};
		size_t len = 1 + i * 97 % 9973;
		assert_true(buf_reserve(&bytes, len));
		for (size_t k = 0; k < len; k++)
			bytes.data[bytes.len++] = (char)(sent++ % 251);
		assert_true(outbox_add(&outbox, &bytes));
		assert_null(bytes.data);
	}
	assert_int_equal(outbox_bytes(&outbox), sent);
	while (received < sent) {
		assert_int_equal(outbox_write(&outbox, ends[1]), 0);
		ssize_t len = read(ends[0], got, sizeof(got));
		assert_true(len > 0);
		for (ssize_t k = 0; k < len; k++)
			assert_int_equal(got[k], received++ % 251);
		turns++;
	}
	assert_true(turns > 1);
	assert_int_equal(outbox_bytes(&outbox), 0);
	close_pipe(ends);
	outbox_free(&outbox);
}

static void test_would_block(void **state)
{
	(void)state;
	struct outbox outbox = {0};
	int ends[2];
	make_pipe(ends);
	struct buf bytes = {0};
	size_t much = 4 << 20;
	assert_true(buf_reserve(&bytes, much));
	memset(bytes.data, 'x', much);
	bytes.len = much;
	assert_true(outbox_add(&outbox, &bytes));
	assert_int_equal(outbox_write(&outbox, ends[1]), 0);
	size_t left = outbox_bytes(&outbox);
	assert_true(left > 0 && left < much);
	assert_int_equal(outbox_write(&outbox, ends[1]), 0);
	assert_int_equal(outbox_bytes(&outbox), left);
	close_pipe(ends);
	outbox_free(&outbox);
}

static void test_reader_gone(void **state)
{
	(void)state;
	struct outbox outbox = {0};
	int ends[2];
	make_pipe(ends);
	close(ends[0]);
	assert_true(outbox_add_text(&outbox, "nobody reads this"));
	assert_int_equal(outbox_write(&outbox, ends[1]), ERROR_LOST);
	close(ends[1]);
	outbox_free(&outbox);
	assert_int_equal(outbox_bytes(&outbox), 0);
}

static void test_refuses_incomplete_buffers(void **state)
{
	(void)state;
	struct outbox outbox = {0};
	struct buf bytes = {0};
	buf_add_text(&bytes, "half");
	bytes.failed = true;
	assert_false(outbox_add(&outbox, &bytes));
	assert_null(bytes.data);
	assert_int_equal(outbox_bytes(&outbox), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes_in_order),
		cmocka_unit_test(test_partial_writes),
		cmocka_unit_test(test_would_block),
		cmocka_unit_test(test_reader_gone),
		cmocka_unit_test(test_refuses_incomplete_buffers),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
