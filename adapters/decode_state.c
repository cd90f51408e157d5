#include "adapters/decode_state.h"

#include "adapters/key_file.h"
#include "policy/policy.h"
#include "proxy/json.h"
#include "proxy/metrics_write.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKEN_BYTES = 4 << 20, SHOWN_BYTES = 4 };

/* The token without the white space around it. */
static int read_token(FILE *in, struct buf *token, struct error *error)
{
	char bytes[4096];
	size_t len;
	while ((len = fread(bytes, 1, sizeof(bytes), in)) && token->len <= MAX_TOKEN_BYTES)
		buf_add(token, bytes, len);
	if (ferror(in))
		return error_set(error, ERROR_SYSTEM, "standard input cannot be read");
	if (!buf_ok(token))
		return error_set(error, ERROR_MEMORY, "out of memory");
	if (token->len > MAX_TOKEN_BYTES)
		return error_set(error, ERROR_LIMIT, "standard input: larger than a request state can be");
	while (token->len && strchr(" \t\r\n", token->data[token->len - 1]))
		token->len--;
	return 0;
}

static void write_time(FILE *out, const char *label, int64_t unix_ms, const char *remark)
{
	char text[32] = "?";
	struct tm tm;
	time_t seconds = (time_t)(unix_ms / 1000);
	if (gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(out, "%-11s%s%s\n", label, text, remark);
}

/* The first `len` bytes. */
static void write_hex(FILE *out, const char *label, const uint8_t *bytes, size_t len, const char *remark)
{
	fprintf(out, "%-11s", label);
	for (size_t i = 0; i < len; i++)
		fprintf(out, "%02x", bytes[i]);
	fprintf(out, "%s\n", remark);
}

static void write_head(FILE *out, const struct request_state *state)
{
	char hash[CALL_HASH_CHARS];
	call_hash(state->call_id, hash);
	fprintf(out, "%-11s%s\n", "kind",
		state->kind == REQUEST_STATE_RERUN ? "rerun (the call may be run again if it is not parked any more)"
						   : "parked (the call waits in the process that made this)");
	fprintf(out, "%-11s%s (as in the log)\n", "call", hash);
	fprintf(out, "%-11s%u\n", "round", (unsigned)state->round);
	write_time(out, "issued", state->issued_ms, "");
	write_time(out, "expires", state->expires_ms, state->expires_ms / 1000 <= (int64_t)time(NULL) ? " (over)" : "");
	write_hex(out, "process", state->instance, INSTANCE_BYTES, "");
	write_hex(out, "principal", state->principal, SHOWN_BYTES, "... (hash)");
	write_hex(out, "request", state->digest, SHOWN_BYTES, "... (hash)");
}

/* The script of rerun.h. */
static int write_script(FILE *out, struct span text, bool with_answers, struct error *error)
{
	struct span script, answers, open, entry, value;
	struct json_member member;
	unsigned count = 0;
	if (json_check(text, &script, NULL, error) || !json_get(script, NULL, "answers", &answers) ||
		!json_get(script, NULL, "open", &open))
		return error_set(error, ERROR_SYNTAX, "the state's script is not one of this version");
	struct json_walk walk = json_walk(answers, NULL);
	while (json_next_element(&walk, &entry)) {
		count++;
		if (with_answers && json_get(entry, NULL, "answer", &value))
			fprintf(out, "%-11s%.*s\n", "answer", (int)value.len, value.ptr);
	}
	if (!with_answers)
		fprintf(out, "%-11s%u\n", "answers", count);
	walk = json_walk(open, NULL);
	while (json_next_member(&walk, &member)) {
		int64_t kind = -1;
		if (json_get(member.value, NULL, "kind", &value))
			json_integer(value, &kind);
		fprintf(out, "%-11s%.*s: %s\n", "open", (int)member.key.len, member.key.ptr,
			kind >= 0 && kind < POLICY_KINDS ? metrics_kind_names[kind] : "?");
	}
	return 0;
}

int decode_state(const char *key_file, const char *text, bool with_answers, FILE *in, FILE *out, struct error *error)
{
	struct request_state state;
	struct buf token = {0}, script = {0};
	struct keyring *keys = key_file_load(key_file, error);
	int status = keys ? 0 : error ? (int)error->code : ERROR_SYSTEM;
	if (!status)
		status = strcmp(text, "-") == 0 ? read_token(in, &token, error) : (buf_add_text(&token, text), 0);
	if (!status)
		status = request_state_open(keys, buf_span(&token), &state, &script, error);
	if (!status && !buf_ok(&script))
		status = error_set(error, ERROR_MEMORY, "out of memory");
	if (!status) {
		write_head(out, &state);
		if (script.len)
			status = write_script(out, buf_span(&script), with_answers, error);
	}
	if (script.data)
		sodium_memzero(script.data, script.cap);
	buf_free(&script);
	buf_free(&token);
	keyring_unref(keys);
	return status;
}
