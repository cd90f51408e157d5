#include "policy/node.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 32, MAX_NODES = 100000 };

struct reader {
	yaml_parser_t parser;
	struct report *report;
	unsigned nodes;
	bool failed;
};

static struct node *read_node(struct reader *reader, const yaml_event_t *event, unsigned depth);

static void fault(struct reader *reader, yaml_mark_t mark, const char *what)
{
	report_fault(reader->report, (unsigned)mark.line + 1, (unsigned)mark.column + 1, "%s", what);
	reader->failed = true;
}

static bool next(struct reader *reader, yaml_event_t *event)
{
	if (reader->failed)
		return false;
	if (yaml_parser_parse(&reader->parser, event))
		return true;
	const char *problem = reader->parser.problem ? reader->parser.problem : "unreadable";
	fault(reader, reader->parser.problem_mark, problem);
	return false;
}

void node_free(struct node *node)
{
	if (!node)
		return;
	for (size_t i = 0; i < node->count; i++) {
		if (node->keys)
			node_free(node->keys[i]);
		node_free(node->values[i]);
	}
	free(node->keys);
	free(node->values);
	free(node->text);
	free(node);
}

static struct node *node_new(struct reader *reader, enum node_type type, yaml_mark_t mark)
{
	struct node *node = ++reader->nodes <= MAX_NODES ? calloc(1, sizeof(*node)) : NULL;
	if (!node) {
		fault(reader, mark, reader->nodes > MAX_NODES ? "the file holds too many values" : "out of memory");
		return NULL;
	}
	node->type = type;
	node->line = (unsigned)mark.line + 1;
	node->column = (unsigned)mark.column + 1;
	return node;
}

static bool append(struct node *node, struct node *key, struct node *value)
{
	if ((node->count & (node->count + 1)) == 0) { /* grow at 0, 1, 3, 7 … */
		size_t cap = node->count * 2 + 1;
		struct node **values = reallocarray(node->values, cap, sizeof(*values));
		if (values)
			node->values = values;
		struct node **keys = key && values ? reallocarray(node->keys, cap, sizeof(*keys)) : NULL;
		if (keys)
			node->keys = keys;
		if (!values || (key && !keys))
			return false;
	}
	if (key)
		node->keys[node->count] = key;
	node->values[node->count++] = value;
	return true;
}

static struct node *read_scalar(struct reader *reader, const yaml_event_t *event)
{
	struct node *node;
	if (event->data.scalar.anchor || event->data.scalar.tag) {
		fault(reader, event->start_mark, "anchors and tags are not used here");
		return NULL;
	}
	if (memchr(event->data.scalar.value, '\0', event->data.scalar.length)) {
		fault(reader, event->start_mark, "a text holds U+0000");
		return NULL;
	}
	node = node_new(reader, NODE_SCALAR, event->start_mark);
	if (!node)
		return NULL;
	node->text = strndup((const char *)event->data.scalar.value, event->data.scalar.length);
	node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	if (!node->text)
		fault(reader, event->start_mark, "out of memory");
	return node;
}

static struct node *read_list(struct reader *reader, const yaml_event_t *start, unsigned depth)
{
	struct node *list = node_new(reader, NODE_LIST, start->start_mark);
	yaml_event_t event;
	while (list && next(reader, &event)) {
		bool end = event.type == YAML_SEQUENCE_END_EVENT;
		struct node *value = end ? NULL : read_node(reader, &event, depth + 1);
		if (value && !append(list, NULL, value)) {
			node_free(value);
			fault(reader, event.start_mark, "out of memory");
		}
		yaml_event_delete(&event);
		if (end)
			break;
	}
	return list;
}

/* A key and its value. The event of the key is the caller's. */
static void read_pair(struct reader *reader, struct node *map, const yaml_event_t *key_event, unsigned depth)
{
	yaml_event_t event;
	struct node *value = NULL;
	if (key_event->type != YAML_SCALAR_EVENT) {
		fault(reader, key_event->start_mark, "a key is not a text");
		return;
	}
	struct node *key = read_scalar(reader, key_event);
	if (key && !reader->failed && node_get(map, key->text)) {
		report_fault(reader->report, key->line, key->column, "%s is given twice", key->text);
		reader->failed = true;
	}
	if (next(reader, &event)) {
		value = read_node(reader, &event, depth + 1);
		yaml_event_delete(&event);
	}
	if (key && value && append(map, key, value))
		return;
	if (key && value)
		fault(reader, key_event->start_mark, "out of memory");
	node_free(key);
	node_free(value);
	reader->failed = true;
}

static struct node *read_map(struct reader *reader, const yaml_event_t *start, unsigned depth)
{
	struct node *map = node_new(reader, NODE_MAP, start->start_mark);
	yaml_event_t event;
	while (map && next(reader, &event)) {
		bool end = event.type == YAML_MAPPING_END_EVENT;
		if (!end)
			read_pair(reader, map, &event, depth);
		yaml_event_delete(&event);
		if (end)
			break;
	}
	return map;
}

static struct node *read_node(struct reader *reader, const yaml_event_t *event, unsigned depth)
{
	if (depth > MAX_DEPTH) {
		fault(reader, event->start_mark, "nested too deeply");
		return NULL;
	}
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return read_scalar(reader, event);
	case YAML_SEQUENCE_START_EVENT:
		if (!event->data.sequence_start.anchor && !event->data.sequence_start.tag)
			return read_list(reader, event, depth);
		break;
	case YAML_MAPPING_START_EVENT:
		if (!event->data.mapping_start.anchor && !event->data.mapping_start.tag)
			return read_map(reader, event, depth);
		break;
	default:
		break;
	}
	fault(reader, event->start_mark, "anchors, aliases and tags are not used here");
	return NULL;
}

static struct node *read_document(struct reader *reader)
{
	struct node *root = NULL;
	yaml_event_t event;
	unsigned documents = 0;
	bool end = false;
	while (!end && next(reader, &event)) {
		end = event.type == YAML_STREAM_END_EVENT;
		if (event.type == YAML_DOCUMENT_START_EVENT && ++documents > 1)
			fault(reader, event.start_mark, "a second document; a policy is one");
		else if (event.type == YAML_SCALAR_EVENT || event.type == YAML_ALIAS_EVENT ||
			 event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT)
			root = read_node(reader, &event, 0);
		yaml_event_delete(&event);
	}
	return root;
}

struct node *node_read(struct span text, struct report *report)
{
	struct reader reader = {.report = report};
	if (!yaml_parser_initialize(&reader.parser)) {
		report_fault(report, 1, 1, "out of memory");
		return NULL;
	}
	yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
	/* Of an empty file there is no pointer, and libyaml wants one. */
	yaml_parser_set_input_string(&reader.parser, (const unsigned char *)(text.ptr ? text.ptr : ""), text.len);
	struct node *root = read_document(&reader);
	yaml_parser_delete(&reader.parser);
	if (!root && !reader.failed)
		report_fault(report, 1, 1, "the file is empty; a policy begins with version: 1");
	if (reader.failed) {
		node_free(root);
		return NULL;
	}
	return root;
}

const struct node *node_get(const struct node *map, const char *key)
{
	for (size_t i = 0; map->type == NODE_MAP && i < map->count; i++)
		if (strcmp(map->keys[i]->text, key) == 0)
			return map->values[i];
	return NULL;
}

/* Whether a plain scalar is a JSON value as it stands: null, true, false or a number. */
static bool is_json_scalar(const char *text)
{
	struct span value;
	return json_check(span_of(text), &value, NULL, NULL) == 0 && json_type(value) != JSON_STRING &&
	       json_type(value) != JSON_OBJECT && json_type(value) != JSON_ARRAY;
}

void node_write_json(const struct node *node, struct buf *out)
{
	if (node->type == NODE_SCALAR) {
		if (!node->quoted && is_json_scalar(node->text))
			buf_add_text(out, node->text);
		else
			buf_add_json_string(out, span_of(node->text));
		return;
	}
	buf_add_text(out, node->type == NODE_MAP ? "{" : "[");
	for (size_t i = 0; i < node->count; i++) {
		if (i)
			buf_add_text(out, ",");
		if (node->type == NODE_MAP) {
			buf_add_json_string(out, span_of(node->keys[i]->text));
			buf_add_text(out, ":");
		}
		node_write_json(node->values[i], out);
	}
	buf_add_text(out, node->type == NODE_MAP ? "}" : "]");
}
