#include "adapters/demo_terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_CHARS = 100, LONGEST_STRING = 120, SHOWN_OF_LONG_STRING = 36 };

/* Where a line of JSON stands. */
struct place {
	const struct terminal *terminal;
	const char *mark;
	int depth;
};

void terminal_init(struct terminal *terminal)
{
	*terminal = (struct terminal){.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR")};
}

static void paint(const struct terminal *terminal, const char *code)
{
	if (terminal->colour)
		printf("\033[%sm", code);
}

void terminal_step(struct terminal *terminal, const char *title)
{
	paint(terminal, "1");
	printf("\n%u. %s\n", ++terminal->step, title);
	paint(terminal, "0");
}

void terminal_explain(const char *text)
{
	printf("   %s\n", text);
}

bool terminal_verdict(const struct terminal *terminal, bool good, const char *text)
{
	paint(terminal, good ? "32" : "31");
	printf("   %s %s\n", good ? "ok:" : "FAILED:", text);
	paint(terminal, "0");
	return good;
}

/* A copy with long strings cut and, unless `whole`, without `_meta`. NULL without memory. */
static json_t *shortened(json_t *value, bool whole)
{
	if (json_is_string(value) && json_string_length(value) > LONGEST_STRING)
		return json_sprintf("%.*s... (%zu characters)", SHOWN_OF_LONG_STRING, json_string_value(value),
			json_string_length(value));
	json_t *copy = json_copy(value), *member;
	const char *key;
	size_t index;
	void *next;
	if (!whole)
		json_object_del(copy, "_meta");
	json_object_foreach_safe(copy, next, key, member)
	{
		json_object_set_new(copy, key, shortened(member, whole));
	}
	json_array_foreach(copy, index, member)
	{
		json_array_set_new(copy, index, shortened(member, whole));
	}
	return copy;
}

static void print_line(const struct place *place, const char *key, const char *text, const char *end)
{
	paint(place->terminal, *place->mark == '>' ? "36" : "35");
	printf("   %s %*s", place->mark, 2 * place->depth, "");
	if (key)
		printf("\"%s\": ", key);
	printf("%s%s\n", text, end);
	paint(place->terminal, "0");
}

/* Prints a value on one line if it fits there, else each of its members on a line of its own. */
static void print_value(const struct place *place, const char *key, json_t *value, const char *end)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY);
	size_t count = json_is_object(value) ? json_object_size(value) : json_array_size(value), index;
	struct place inside = {place->terminal, place->mark, place->depth + 1};
	const char *name;
	json_t *member;
	if (!text)
		return;
	if (count == 0 || strlen(text) + (key ? strlen(key) : 0) + 2 * (size_t)place->depth <= LINE_CHARS) {
		print_line(place, key, text, end);
	} else if (json_is_object(value)) {
		print_line(place, key, "{", "");
		json_object_foreach(value, name, member)
		{
			print_value(&inside, name, member, --count ? "," : "");
		}
		print_line(place, NULL, "}", end);
	} else {
		print_line(place, key, "[", "");
		json_array_foreach(value, index, member)
		{
			print_value(&inside, NULL, member, --count ? "," : "");
		}
		print_line(place, NULL, "]", end);
	}
	free(text);
}

void terminal_show(const struct terminal *terminal, const char *mark, json_t *message, bool whole)
{
	json_t *copy = shortened(message, whole);
	print_value(&(struct place){terminal, mark, 0}, NULL, copy, "");
	json_decref(copy);
}
