/* Values of keys: from a file's spelling into the policy's structs, and back. */
#include "policy/keys.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *name;
	int64_t factor;
};

static const struct unit size_units[] = {{"B", 1}, {"KiB", 1024}, {"MiB", 1024 * 1024}, {"GiB", 1024LL * 1024 * 1024}};
static const struct unit time_units[] = {
	{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}, {"d", 24 * 3600 * 1000}};

enum { SIZE_UNITS = 4, TIME_UNITS = 5 };

static void *at(const void *object, size_t offset)
{
	return (char *)object + offset;
}

static bool wrong(struct report *report, const struct key *key, const struct node *value, const char *expected)
{
	report_fault(report, value->line, value->column, "%s: %s%s%s; expected %s", key->name,
		value->type == NODE_SCALAR ? "\"" : "",
		value->type == NODE_SCALAR ? value->text
		: value->type == NODE_MAP  ? "a map"
					   : "a list",
		value->type == NODE_SCALAR ? "\"" : "", expected);
	return false;
}

/* Reads `<number><unit>`, the number with up to three decimals. A bare 0 needs no unit. */
static bool read_quantity(const char *text, const struct unit *units, size_t count, int64_t *out)
{
	int64_t whole = 0, thousandths = 0, scale = 1000;
	const char *p = text;
	if (strcmp(text, "0") == 0) {
		*out = 0;
		return true;
	}
	if (!isdigit((unsigned char)*p))
		return false;
	for (; isdigit((unsigned char)*p); p++)
		if ((whole = whole * 10 + (*p - '0')) > 1000000000000)
			return false;
	if (*p == '.') {
		if (!isdigit((unsigned char)*++p))
			return false;
		for (; isdigit((unsigned char)*p); p++) {
			scale /= 10;
			thousandths += (*p - '0') * scale;
		}
	}
	while (*p == ' ')
		p++;
	for (size_t i = 0; i < count; i++)
		if (strcmp(p, units[i].name) == 0) {
			/* 10^12 of the largest unit would overflow; every range is far below that. */
			if (whole > INT64_MAX / 2 / units[i].factor)
				return false;
			*out = whole * units[i].factor + thousandths * units[i].factor / 1000;
			return true;
		}
	return false;
}

static void write_quantity(int64_t value, const struct unit *units, size_t count, FILE *out)
{
	size_t best = 0;
	for (size_t i = 0; i < count; i++)
		if (value && value % units[i].factor == 0)
			best = i;
	fprintf(out, "%" PRId64 "%s", value / units[best].factor, units[best].name);
}

static bool set_quantity(const struct key *key, void *object, const struct node *value, struct report *report)
{
	bool is_size = key->type == KEY_SIZE;
	int64_t number = -1;
	if (value->type == NODE_SCALAR && !is_size && key->words && strcmp(value->text, key->words) == 0) {
		*(int64_t *)at(object, key->offset) = -1;
		return true;
	}
	if (value->type != NODE_SCALAR || !read_quantity(value->text, is_size ? size_units : time_units,
						  is_size ? SIZE_UNITS : TIME_UNITS, &number))
		return wrong(report, key, value,
			is_size	     ? "a size such as 512KiB or 16MiB"
			: key->words ? "a duration such as 500ms, 30s or 10m, or never"
				     : "a duration such as 500ms, 30s or 10m");
	if (number < key->min || number > key->max) {
		report_fault(report, value->line, value->column,
			"%s: %s is out of range; expected %" PRId64 " to %" PRId64 " %s", key->name, value->text,
			key->min, key->max, is_size ? "bytes" : "milliseconds");
		return false;
	}
	if (is_size)
		*(size_t *)at(object, key->offset) = (size_t)number;
	else
		*(int64_t *)at(object, key->offset) = number;
	return true;
}

static bool set_count(const struct key *key, void *object, const struct node *value, struct report *report)
{
	char *end = NULL;
	long long number = value->type == NODE_SCALAR && isdigit((unsigned char)value->text[0])
				   ? strtoll(value->text, &end, 10)
				   : -1;
	if (!end || *end || value->quoted)
		return wrong(report, key, value, "a whole number");
	if (number < key->min || number > key->max) {
		report_fault(report, value->line, value->column,
			"%s: %s is out of range; expected %" PRId64 " to %" PRId64, key->name, value->text, key->min,
			key->max);
		return false;
	}
	if (key->type == KEY_NUMBER && number != key->min && number != key->max)
		return wrong(report, key, value, "200 or 400");
	if (key->type == KEY_NUMBER)
		*(int *)at(object, key->offset) = (int)number;
	else
		*(unsigned *)at(object, key->offset) = (unsigned)number;
	return true;
}

/* Words of which there are two are kept as a bool where the struct says so; every other word is an enum. */
static bool is_bool_word(const struct key *key)
{
	return strcmp(key->name, "asks") == 0 || strcmp(key->name, "check_answers") == 0;
}

/* The place of a word in a list "a b c", -1 if it is not there. */
static int word_index(const char *words, const char *word)
{
	size_t len = strlen(word);
	int index = 0;
	while (*words) {
		size_t step = strcspn(words, " ");
		if (len && step == len && strncmp(words, word, len) == 0)
			return index;
		words += step + (words[step] == ' ');
		index++;
	}
	return -1;
}

static bool set_word(const struct key *key, void *object, const struct node *value, struct report *report)
{
	int index = value->type == NODE_SCALAR ? word_index(key->words, value->text) : -1;
	char expected[160];
	if (index < 0) {
		snprintf(expected, sizeof(expected), "one of %s", key->words);
		return wrong(report, key, value, expected);
	}
	if (is_bool_word(key))
		*(bool *)at(object, key->offset) = index == 1;
	else
		*(int *)at(object, key->offset) = index;
	return true;
}

static bool set_flag(const struct key *key, void *object, const struct node *value, struct report *report)
{
	bool is_true = value->type == NODE_SCALAR && !value->quoted && strcmp(value->text, "true") == 0;
	bool is_false = value->type == NODE_SCALAR && !value->quoted && strcmp(value->text, "false") == 0;
	if (!is_true && !is_false)
		return wrong(report, key, value, "true or false");
	*(bool *)at(object, key->offset) = is_true;
	return true;
}

static bool set_text(char **slot, const char *text, struct report *report, const struct node *value)
{
	char *copy = strdup(text);
	if (!copy) {
		report_fault(report, value->line, value->column, "out of memory");
		return false;
	}
	free(*slot);
	*slot = copy;
	return true;
}

static void free_texts(char ***list, size_t *count)
{
	for (size_t i = 0; i < *count; i++)
		free((*list)[i]);
	free(*list);
	*list = NULL;
	*count = 0;
}

static bool set_texts(const struct key *key, void *object, const struct node *value, struct report *report)
{
	char ***list = at(object, key->offset);
	size_t *count = at(object, key->count_offset);
	bool ok = value->type == NODE_LIST && value->count <= (size_t)key->max;
	for (size_t i = 0; ok && i < value->count; i++)
		ok = value->values[i]->type == NODE_SCALAR && value->values[i]->text[0];
	if (!ok)
		return wrong(report, key, value, "a list of texts");
	for (size_t i = 0; i < value->count; i++)
		for (size_t j = 0; j < i; j++)
			if (strcmp(value->values[i]->text, value->values[j]->text) == 0) {
				report_fault(report, value->values[i]->line, value->values[i]->column,
					"%s: %s is given twice", key->name, value->values[i]->text);
				return false;
			}
	free_texts(list, count);
	*list = value->count ? calloc(value->count, sizeof(**list)) : NULL;
	for (size_t i = 0; *list && i < value->count; i++) {
		if (!set_text(&(*list)[i], value->values[i]->text, report, value))
			return false;
		++*count;
	}
	return *list || !value->count || wrong(report, key, value, "more memory");
}

static bool set_principal(const struct key *key, void *object, const struct node *value, struct report *report)
{
	enum policy_principal *principal = at(object, key->offset);
	char **header = at(object, key->count_offset);
	const char *text = value->type == NODE_SCALAR ? value->text : "";
	if (strcmp(text, "authorization") == 0) {
		*principal = POLICY_PRINCIPAL_AUTHORIZATION;
	} else if (strcmp(text, "none") == 0) {
		*principal = POLICY_PRINCIPAL_NONE;
	} else if (strncmp(text, "header:", 7) == 0 && text[7] &&
		   strspn(text + 7, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
			   strlen(text + 7)) {
		*principal = POLICY_PRINCIPAL_HEADER;
		if (!set_text(header, text + 7, report, value))
			return false;
		for (char *p = *header; *p; p++)
			*p = (char)tolower((unsigned char)*p);
	} else {
		return wrong(report, key, value, "authorization, header:NAME or none");
	}
	return true;
}

/* Checks a fixed answer against the shape of its kind and turns it into the result's JSON text. */
static char *make_answer(enum policy_kind kind, const struct node *answer, const char **expected)
{
	struct buf json = {0};
	struct span action, content, value, element;
	bool ok;
	if (kind == POLICY_ROOTS && answer->type == NODE_LIST) {
		buf_add_text(&json, "{\"roots\":");
		node_write_json(answer, &json);
		buf_add_text(&json, "}");
	} else {
		node_write_json(answer, &json);
	}
	struct span text = buf_span(&json);
	if (kind == POLICY_ELICITATION) {
		*expected = "a map of action (accept, decline or cancel) and, for accept, content (a map)";
		ok = json_get(text, NULL, "action", &action) && json_type(action) == JSON_STRING &&
		     (json_string_is(action, "accept") || json_string_is(action, "decline") ||
			     json_string_is(action, "cancel"));
		if (ok && json_get(text, NULL, "content", &content))
			ok = json_type(content) == JSON_OBJECT && json_string_is(action, "accept");
	} else if (kind == POLICY_SAMPLING) {
		*expected = "a map of role, content and model";
		ok = json_get(text, NULL, "role", &value) && json_type(value) == JSON_STRING &&
		     json_get(text, NULL, "model", &value) && json_type(value) == JSON_STRING &&
		     json_get(text, NULL, "content", &value) &&
		     (json_type(value) == JSON_OBJECT || json_type(value) == JSON_ARRAY);
	} else {
		*expected = "a list of maps with a file:// uri and perhaps a name";
		ok = answer->type == NODE_LIST && json_get(text, NULL, "roots", &value);
		struct json_walk walk = json_walk(ok ? value : (struct span){0}, NULL);
		while (ok && json_next_element(&walk, &element))
			ok = json_get(element, NULL, "uri", &content) && content.len > 9 &&
			     strncmp(content.ptr, "\"file://", 8) == 0;
	}
	buf_add(&json, "", 1);
	if (ok && buf_ok(&json))
		return json.data;
	buf_free(&json);
	return NULL;
}

static bool set_ask(const struct key *key, void *object, const struct node *value, struct report *report)
{
	static const char words[] = "forward deny decline cancel fail";
	enum policy_kind kind = (enum policy_kind)key->min;
	enum policy_action *action = at(object, key->offset);
	char **slot = at(object, key->count_offset);
	const struct node *answer = node_get(value, "answer");
	const char *expected = kind == POLICY_ELICITATION
				       ? "forward, deny, decline, cancel, fail or a map of one key, answer"
				       : "forward, deny, fail or a map of one key, answer";
	int index = value->type == NODE_SCALAR ? word_index(words, value->text) : -1;
	bool only_elicitation = index == POLICY_DECLINE || index == POLICY_CANCEL;
	if (answer && value->count == 1) {
		char *text = make_answer(kind, answer, &expected);
		if (!text)
			return wrong(report, key, answer, expected);
		free(*slot);
		*slot = text;
		*action = POLICY_ANSWER;
		return true;
	}
	if (index < 0 || (only_elicitation && kind != POLICY_ELICITATION))
		return wrong(report, key, value, expected);
	free(*slot);
	*slot = NULL;
	*action = (enum policy_action)index;
	return true;
}

bool key_set(const struct key *key, void *object, const struct node *value, struct report *report)
{
	switch (key->type) {
	case KEY_SIZE:
	case KEY_DURATION:
		return set_quantity(key, object, value, report);
	case KEY_COUNT:
	case KEY_NUMBER:
		return set_count(key, object, value, report);
	case KEY_WORD:
		return set_word(key, object, value, report);
	case KEY_FLAG:
		return set_flag(key, object, value, report);
	case KEY_TEXT:
		if (value->type != NODE_SCALAR || !value->text[0])
			return wrong(report, key, value, "a text");
		return set_text(at(object, key->offset), value->text, report, value);
	case KEY_TEXTS:
		return set_texts(key, object, value, report);
	case KEY_PRINCIPAL:
		return set_principal(key, object, value, report);
	case KEY_ASK:
		return set_ask(key, object, value, report);
	}
	return false;
}

bool keys_set_defaults(enum key_section first, enum key_section last, void *object)
{
	struct report report = {.name = "defaults"};
	for (size_t i = 0; i < key_count; i++) {
		if (keys[i].section < first || keys[i].section > last || !keys[i].fallback)
			continue;
		struct node value = {.type = NODE_SCALAR, .text = (char *)keys[i].fallback};
		key_set(&keys[i], object, &value, &report);
	}
	return report.faults == 0;
}

/* The texts that a key owns: one, or a list. */
static char **owned_text(const struct key *key, const void *object)
{
	if (key->type == KEY_TEXT)
		return at(object, key->offset);
	return key->type == KEY_ASK || key->type == KEY_PRINCIPAL ? at(object, key->count_offset) : NULL;
}

void keys_free_owned(enum key_section first, enum key_section last, void *object)
{
	for (size_t i = 0; i < key_count; i++) {
		if (keys[i].section < first || keys[i].section > last)
			continue;
		char **text = owned_text(&keys[i], object);
		if (text) {
			free(*text);
			*text = NULL;
		}
		if (keys[i].type == KEY_TEXTS)
			free_texts(at(object, keys[i].offset), at(object, keys[i].count_offset));
	}
}

static bool copy_texts(const struct key *key, void *to, const void *from)
{
	char *const *list = *(char ***)at(from, key->offset);
	size_t count = *(size_t *)at(from, key->count_offset);
	char ***copy = at(to, key->offset);
	size_t *copied = at(to, key->count_offset);
	*copied = 0;
	*copy = count ? calloc(count, sizeof(**copy)) : NULL;
	for (; *copy && *copied < count; ++*copied)
		if (!((*copy)[*copied] = strdup(list[*copied])))
			return false;
	return *copied == count;
}

bool keys_copy_owned(enum key_section first, enum key_section last, void *to, const void *from)
{
	bool ok = true;
	for (size_t i = 0; i < key_count; i++) {
		if (keys[i].section < first || keys[i].section > last)
			continue;
		char **text = owned_text(&keys[i], from);
		if (text && *text) {
			*owned_text(&keys[i], to) = strdup(*text);
			ok &= *owned_text(&keys[i], to) != NULL;
		}
		if (keys[i].type == KEY_TEXTS)
			ok &= copy_texts(&keys[i], to, from);
	}
	return ok;
}

static void write_word(const char *words, int index, FILE *out)
{
	for (; index > 0; index--)
		words += strcspn(words, " ") + 1;
	fprintf(out, "%.*s", (int)strcspn(words, " "), words);
}

void key_write(const struct key *key, const void *object, FILE *out)
{
	const void *value = at(object, key->offset);
	const char *text;
	switch (key->type) {
	case KEY_SIZE:
		write_quantity((int64_t) * (const size_t *)value, size_units, SIZE_UNITS, out);
		break;
	case KEY_DURATION:
		if (*(const int64_t *)value < 0)
			fputs(key->words, out);
		else
			write_quantity(*(const int64_t *)value, time_units, TIME_UNITS, out);
		break;
	case KEY_COUNT:
		fprintf(out, "%u", *(const unsigned *)value);
		break;
	case KEY_NUMBER:
		fprintf(out, "%d", *(const int *)value);
		break;
	case KEY_WORD:
		write_word(key->words, is_bool_word(key) ? *(const bool *)value : *(const int *)value, out);
		break;
	case KEY_FLAG:
		fputs(*(const bool *)value ? "true" : "false", out);
		break;
	case KEY_TEXT:
		text = *(char *const *)value;
		fputs(text ? text : "(none)", out);
		break;
	case KEY_TEXTS:
		fputs("[", out);
		for (size_t i = 0; i < *(const size_t *)at(object, key->count_offset); i++)
			fprintf(out, "%s%s", i ? ", " : "", (*(char **const *)value)[i]);
		fputs("]", out);
		break;
	case KEY_PRINCIPAL:
		write_word("authorization header: none", *(const int *)value, out);
		text = *(char *const *)at(object, key->count_offset);
		if (*(const enum policy_principal *)value == POLICY_PRINCIPAL_HEADER && text)
			fputs(text, out);
		break;
	case KEY_ASK:
		text = *(char *const *)at(object, key->count_offset);
		if (*(const enum policy_action *)value == POLICY_ANSWER)
			fprintf(out, "{answer: %s}", text);
		else
			write_word("forward deny decline cancel fail", *(const int *)value, out);
		break;
	}
}
