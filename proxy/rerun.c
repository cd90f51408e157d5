#include "proxy/rerun.h"

#include "proxy/json_write.h"
#include "proxy/tool_names.h"
#include "proxy/translate.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEX_BYTES = DIGEST_BYTES * 2 + 1, MAX_ANSWERS = 64 };

static bool hints_allow(
	const struct proxy *proxy, const struct method *method, const struct policy_rule *rule, const char *name)
{
	return rule->rerun_hints && method->id == METHOD_TOOLS_CALL && tool_names_have(&proxy->repeatable_tools, name);
}

bool rerun_allowed(const struct call *call)
{
	const char *name = strchr(call->subject, ' '); /* the subject is "tools/call NAME" */
	return call->rule->rerun != POLICY_RERUN_NEVER ||
	       (name && hints_allow(call->proxy, call->method, call->rule, name + 1));
}

static bool is_true(struct span object, const char *key)
{
	struct span value;
	return json_get(object, NULL, key, &value) && json_type(value) == JSON_TRUE;
}

void rerun_learn(struct proxy *proxy, struct span result)
{
	struct span list, tool, annotations, name;
	if (!json_get(result, NULL, "tools", &list))
		return;
	struct json_walk walk = json_walk(list, NULL);
	while (json_next_element(&walk, &tool))
		if (json_get(tool, NULL, "annotations", &annotations) &&
			(is_true(annotations, "readOnlyHint") || is_true(annotations, "idempotentHint")) &&
			json_get(tool, NULL, "name", &name))
			tool_names_add(&proxy->repeatable_tools, json_string_dup(name));
}

/* What the policy says of a request that has no call yet: its rule's `rerun`, or if-lost where hints allow it. */
static enum policy_rerun rerun_of(const struct proxy *proxy, const struct request *request)
{
	enum policy_rerun rerun = POLICY_RERUN_NEVER;
	char *name = json_string_dup(request->name);
	if (name) {
		const struct policy_rule *rule = policy_rule(proxy->policy, request->method->subject, name);
		rerun = rule->rerun;
		if (rerun == POLICY_RERUN_NEVER && hints_allow(proxy, request->method, rule, name))
			rerun = POLICY_RERUN_IF_LOST;
	}
	free(name);
	return rerun;
}

bool rerun_allowed_for(const struct proxy *proxy, const struct request *request)
{
	return rerun_of(proxy, request) != POLICY_RERUN_NEVER;
}

bool rerun_is_untracked(const struct proxy *proxy, const struct request *request)
{
	return rerun_of(proxy, request) == POLICY_RERUN_ALWAYS;
}

static bool question_of(const struct input *input, char hex[HEX_BYTES])
{
	uint8_t digest[DIGEST_BYTES];
	if (digest_json(digest, "question", buf_span(&input->entry), NULL))
		return false;
	sodium_bin2hex(hex, HEX_BYTES, digest, sizeof(digest));
	return true;
}

static void add_answer(struct buf *answers, const char *question, struct span answer)
{
	if (answers->len)
		buf_add_text(answers, ",");
	buf_printf(answers, "{\"question\":\"%s\",\"answer\":", question);
	buf_add_span(answers, answer);
	buf_add_text(answers, "}");
}

void rerun_record(struct call *call, const struct input *input, struct span answer)
{
	char question[HEX_BYTES];
	if (!rerun_allowed(call))
		return;
	if (question_of(input, question))
		add_answer(&call->answers, question, answer);
	else
		call->answers.failed = true;
}

void rerun_write_script(const struct call *call, struct buf *out)
{
	struct input *input;
	char question[HEX_BYTES] = ""; /* stays so without memory */
	buf_add_text(out, "{\"answers\":[");
	buf_add_span(out, buf_span(&call->answers));
	buf_add_text(out, "],\"open\":{");
	TAILQ_FOREACH (input, &call->inputs, link) {
		json_add_separator(out);
		buf_add_json_string(out, span_of(input->key));
		out->failed |= !question_of(input, question);
		buf_printf(out, ":{\"question\":\"%s\",\"kind\":%d}", question, (int)input->kind);
	}
	buf_add_text(out, "}}");
	out->failed |= call->answers.failed;
}

bool rerun_find_answer(struct call *call, const struct input *input, struct span *answer)
{
	char question[HEX_BYTES];
	struct span entry, value;
	if (!call->script.len || !question_of(input, question))
		return false;
	struct json_walk walk = json_walk(buf_span(&call->script), NULL);
	for (unsigned i = 0; i < MAX_ANSWERS && json_next_element(&walk, &entry); i++) {
		if (call->script_used >> i & 1 || !json_get(entry, NULL, "question", &value) ||
			!json_string_is(value, question))
			continue;
		call->script_used |= (uint64_t)1 << i;
		return json_get(entry, NULL, "answer", answer) == 1;
	}
	return false;
}

/* Adds the answers that the retry brings to the open questions. false after the exchange was answered with a fault. */
static bool take_new_answers(
	struct exchange *exchange, const struct request *request, struct span open, struct buf *answers)
{
	struct json_member member;
	struct json_walk walk = json_walk(open, NULL);
	while (json_next_member(&walk, &member)) {
		struct span answer, value;
		struct error error = {0};
		int64_t kind = 0;
		char question[HEX_BYTES], key[128], text[400];
		snprintf(key, sizeof(key), "%.*s", (int)member.key.len, member.key.ptr);
		if (!json_get(request->input_responses, NULL, key, &answer))
			continue;
		if (json_get(member.value, NULL, "kind", &value))
			json_integer(value, &kind);
		if (translate_check_answer((enum policy_kind)kind, answer, &error)) {
			snprintf(text, sizeof(text), "inputResponses[\"%.100s\"]: %.250s", key, error.text);
			exchange_fail(exchange, 200, RPC_INVALID_PARAMS, text, NULL);
			return false;
		}
		if (!json_get(member.value, NULL, "question", &value) || value.len != HEX_BYTES + 1)
			continue;
		snprintf(question, sizeof(question), "%.*s", HEX_BYTES - 1, value.ptr + 1);
		add_answer(answers, question, answer);
	}
	return true;
}

static unsigned count(struct span container)
{
	struct json_walk walk = json_walk(container, NULL);
	struct json_member member;
	struct span element;
	unsigned n = 0;
	while (json_type(container) == JSON_OBJECT ? json_next_member(&walk, &member)
						   : json_next_element(&walk, &element))
		n++;
	return n;
}

bool rerun_start(
	struct exchange *exchange, const struct request *request, struct span script, uint32_t round, struct call *lost)
{
	struct span value, old, open;
	struct error error = {0};
	struct buf answers = {0}, all = {0};
	bool started = false;
	/* We sealed it ourselves; the check is what the scanner wants before it walks. */
	if (json_check(script, &value, NULL, &error) || !json_get(value, NULL, "answers", &old) ||
		!json_get(value, NULL, "open", &open)) {
		exchange_fail(exchange, 200, RPC_INVALID_PARAMS, "The request state holds no script", NULL);
		return false;
	}
	buf_add(&answers, old.ptr + 1, old.len - 2);
	if (take_new_answers(exchange, request, open, &answers)) {
		buf_add_text(&all, "[");
		buf_add_span(&all, buf_span(&answers));
		buf_add_text(&all, "]");
		all.failed |= answers.failed;
		struct request again = *request;
		again.script = buf_span(&all);
		again.round = round;
		again.lost = lost;
		again.asked = count(old) + count(open);
		exchange_log(exchange, LOG_INFO, "call-rerun", "%s from round %u", request->method->name, round);
		started = buf_ok(&all);
		if (started)
			call_start(exchange, &again);
		else
			exchange_fail(exchange, 503, RPC_INTERNAL_ERROR, "Out of memory", NULL);
	}
	buf_free(&answers);
	buf_free(&all);
	return started;
}
