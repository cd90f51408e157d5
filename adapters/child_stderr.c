#include "adapters/child_stderr.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum {
	READ_BYTES = 16384,
	LINE_BYTES = 2048, /* more of one line is not logged */
	LINES_A_SECOND = 50,
};

static void say(const struct child_stderr *words, const char *text)
{
	if (words->env->log_level < LOG_INFO)
		return;
	words->env->log(words->env->ctx,
		&(struct log_line){
			.level = LOG_INFO, .event = "server-stderr", .session = words->session, .text = text});
}

static void on_line(struct child_stderr *words, struct span line)
{
	char text[LINE_BYTES + 1];
	unsigned left_out;
	while (line.len && (line.ptr[line.len - 1] == ' ' || line.ptr[line.len - 1] == '\r'))
		line.len--;
	if (line.len == 0)
		return;
	snprintf(text, sizeof(text), "%.*s", (int)line.len, line.ptr);
	snprintf(words->last_words[words->word_count++ % LAST_WORDS], LAST_WORDS_BYTES + 1, "%.*s", LAST_WORDS_BYTES,
		text);
	if (!log_rate_allows(&words->rate, LINES_A_SECOND, words->env->now_ms(words->env->ctx), &left_out))
		return;
	if (left_out) {
		char note[64];
		snprintf(note, sizeof(note), "(%u lines were left out)", left_out);
		say(words, note);
	}
	say(words, text);
}

enum child_stderr_result child_stderr_read(struct child_stderr *words, int fd)
{
	struct span line;
	size_t room = READ_BYTES;
	words->lines.limit_bytes = LINE_BYTES;
	char *space = line_reader_space(&words->lines, &room);
	ssize_t len = space ? read(fd, space, room) : 0;
	if (len > 0) {
		line_reader_add(&words->lines, (size_t)len);
		while (line_reader_next(&words->lines, &line) != LINE_NONE)
			on_line(words, line);
		line_reader_trim(&words->lines);
		return STDERR_MORE;
	}
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return STDERR_NOTHING;
	/* Words without a line end are words too. */
	on_line(words, line_reader_rest(&words->lines));
	line_reader_free(&words->lines);
	return STDERR_CLOSED;
}

void child_stderr_quote(const struct child_stderr *words, struct buf *out)
{
	unsigned count = words->word_count < LAST_WORDS ? words->word_count : LAST_WORDS;
	unsigned first = words->word_count - count;
	for (unsigned i = first; i < words->word_count; i++) {
		buf_add_text(out, i == first ? "; it said: " : " | ");
		buf_add_text(out, words->last_words[i % LAST_WORDS]);
	}
}

void child_stderr_free(struct child_stderr *words)
{
	line_reader_free(&words->lines);
}
