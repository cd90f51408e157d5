/* The manual's list of keys and the JSON Schema, from the key table. */
#include "policy/keys.h"

#include <inttypes.h>
#include <string.h>

static const char *type_words(const struct key *key)
{
	switch (key->type) {
	case KEY_SIZE:
		return "size";
	case KEY_DURATION:
		return "duration";
	case KEY_COUNT:
		return "number";
	case KEY_NUMBER:
		return "200 or 400";
	case KEY_WORD:
		return key->words;
	case KEY_FLAG:
		return "true or false";
	case KEY_TEXT:
		return "text";
	case KEY_TEXTS:
		return "list of texts";
	case KEY_ASK:
		return key->min == POLICY_ELICITATION ? "forward, deny, decline, cancel, fail or {answer: RESULT}"
						      : "forward, deny, fail or {answer: RESULT}";
	case KEY_PRINCIPAL:
		return "authorization, header:NAME or none";
	}
	return "";
}

void policy_write_man(FILE *out)
{
	static const char *const titles[SECTIONS] = {"Top level", "limits", "deadlines", "upstream",
		"defaults, and each of rules", "cache, in defaults and rules"};
	for (int section = 0; section < SECTIONS; section++) {
		fprintf(out, ".Ss %s\n.Bl -tag -width Ds\n", titles[section]);
		for (size_t i = 0; i < key_count; i++) {
			const struct key *key = &keys[i];
			if (key->section != (enum key_section)section)
				continue;
			fprintf(out, ".It Cm %s : Ar %s\n%c%s.\n", key->name, type_words(key),
				key->help[0] >= 'a' && key->help[0] <= 'z' ? key->help[0] - 32 : key->help[0],
				key->help + 1);
			if (key->fallback)
				fprintf(out, "The default is\n.Cm %s .\n", key->fallback);
		}
		fprintf(out, ".El\n");
	}
}

static void write_text(FILE *out, const char *text)
{
	struct buf json = {0};
	buf_add_json_string(&json, span_of(text));
	fprintf(out, "%.*s", (int)json.len, json.data);
	buf_free(&json);
}

static void write_words(FILE *out, const char *words)
{
	fputs("\"enum\": [", out);
	while (*words) {
		size_t len = strcspn(words, " ");
		fprintf(out, "\"%.*s\"", (int)len, words);
		words += len + (words[len] == ' ');
		fputs(*words ? ", " : "]", out);
	}
}

static void write_type(FILE *out, const struct key *key)
{
	switch (key->type) {
	case KEY_SIZE:
		fputs("\"type\": [\"string\", \"integer\"], \"pattern\": \"^[0-9]+([.][0-9]+)? *(B|KiB|MiB|GiB)$\"",
			out);
		break;
	case KEY_DURATION:
		fprintf(out,
			"\"type\": [\"string\", \"integer\"], \"pattern\": \"^([0-9]+([.][0-9]+)? "
			"*(ms|s|m|h|d)%s%s)$\"",
			key->words ? "|" : "", key->words ? key->words : "");
		break;
	case KEY_COUNT:
		fprintf(out, "\"type\": \"integer\", \"minimum\": %" PRId64 ", \"maximum\": %" PRId64, key->min,
			key->max);
		break;
	case KEY_NUMBER:
		fprintf(out, "\"enum\": [%" PRId64 ", %" PRId64 "]", key->min, key->max);
		break;
	case KEY_WORD:
		write_words(out, key->words);
		break;
	case KEY_FLAG:
		fputs("\"type\": \"boolean\"", out);
		break;
	case KEY_TEXT:
		fputs("\"type\": \"string\", \"minLength\": 1", out);
		break;
	case KEY_TEXTS:
		fprintf(out,
			"\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"uniqueItems\": true, \"maxItems\": "
			"%" PRId64,
			key->max);
		break;
	case KEY_ASK:
		fputs("\"oneOf\": [{", out);
		write_words(
			out, key->min == POLICY_ELICITATION ? "forward deny decline cancel fail" : "forward deny fail");
		fputs("}, {\"type\": \"object\", \"required\": [\"answer\"], \"properties\": {\"answer\": {}}, "
		      "\"additionalProperties\": false}]",
			out);
		break;
	case KEY_PRINCIPAL:
		fputs("\"type\": \"string\", \"pattern\": \"^(authorization|none|header:[A-Za-z0-9_-]+)$\"", out);
		break;
	}
}

/* The properties of a section, separated from each other; `more` separates them from what came before. */
static void write_properties(FILE *out, enum key_section section, const char *indent, bool more)
{
	for (size_t i = 0; i < key_count; i++) {
		if (keys[i].section != section)
			continue;
		fprintf(out, "%s%s\"%s\": {\"description\": ", more ? ",\n" : "", indent, keys[i].name);
		write_text(out, keys[i].help);
		fputs(", ", out);
		write_type(out, &keys[i]);
		fputs("}", out);
		more = true;
	}
}

static void write_map(FILE *out, enum key_section section, const char *indent)
{
	char deeper[16];
	snprintf(deeper, sizeof(deeper), "%s  ", indent);
	fprintf(out, ",\n%s\"%s\": {\"type\": \"object\", \"additionalProperties\": false, \"properties\": {\n", indent,
		section_name(section));
	write_properties(out, section, deeper, false);
	fprintf(out, "}}");
}

void policy_write_schema(FILE *out)
{
	fputs("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"mcp-valet "
	      "policy\",\n"
	      "  \"type\": \"object\",\n  \"required\": [\"version\"],\n  \"additionalProperties\": false,\n"
	      "  \"properties\": {\n    \"version\": {\"const\": 1}",
		out);
	write_properties(out, SECTION_TOP, "    ", true);
	for (enum key_section section = SECTION_LIMITS; section <= SECTION_UPSTREAM; section++)
		write_map(out, section, "    ");
	fputs(",\n    \"defaults\": {\"$ref\": \"#/$defs/settings\"},\n"
	      "    \"rules\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/rule\"}}\n  },\n  \"$defs\": {\n"
	      "    \"patterns\": {\"oneOf\": [{\"type\": \"string\"}, {\"type\": \"array\", \"items\": {\"type\": "
	      "\"string\"}}]},\n"
	      "    \"match\": {\"type\": \"object\", \"minProperties\": 1, \"additionalProperties\": false, "
	      "\"properties\": {\n"
	      "      \"tool\": {\"$ref\": \"#/$defs/patterns\"}, \"prompt\": {\"$ref\": \"#/$defs/patterns\"},\n"
	      "      \"resource\": {\"$ref\": \"#/$defs/patterns\"}}},\n",
		out);
	for (int rule = 0; rule < 2; rule++) {
		fprintf(out,
			"    \"%s\": {\"type\": \"object\", \"additionalProperties\": false,%s \"properties\": {\n",
			rule ? "rule" : "settings", rule ? " \"required\": [\"match\"]," : "");
		if (rule)
			fputs("      \"match\": {\"$ref\": \"#/$defs/match\"},\n", out);
		write_properties(out, SECTION_RULE, "      ", false);
		write_map(out, SECTION_CACHE, "      ");
		fprintf(out, "\n    }}%s\n", rule ? "" : ",");
	}
	fputs("  }\n}\n", out);
}
