#include "proxy/message.h"

#include <string.h>

/* A whole number is an integer however it is spelled, and beyond 64 bits, too: ids are compared by value and echoed as spelled.
 */
static bool is_request_id(struct span value)
{
	return json_type(value) == JSON_STRING || (json_type(value) == JSON_NUMBER && json_is_whole(value));
}

/* Where the message keeps the member called `key`, NULL if it keeps no such member. */
static struct span *member_slot(struct message *message, struct span *version, struct span key)
{
	const struct {
		const char *key;
		struct span *slot;
	} known[] = {
		{"jsonrpc", version},
		{"id", &message->id},
		{"method", &message->method},
		{"params", &message->params},
		{"result", &message->result},
		{"error", &message->error},
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (json_key_is(key, known[i].key))
			return known[i].slot;
	return NULL;
}

/* Whether there are readers to whom this is one of the members above, and the one that counts. */
static bool is_another_spelling(struct span key)
{
	static const char *const known[] = {"jsonrpc", "id", "method", "params", "result", "error"};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (json_key_resembles(key, known[i]))
			return true;
	return false;
}

static int classify(struct message *message, struct error *error)
{
	/* Some servers spell the absent one of result and error as null. */
	if (message->result.ptr && message->error.ptr) {
		if (json_type(message->error) == JSON_NULL)
			message->error = (struct span){0};
		else if (json_type(message->result) == JSON_NULL)
			message->result = (struct span){0};
	}
	bool has_outcome = message->result.ptr || message->error.ptr;
	if (message->method.ptr) {
		if (has_outcome)
			return error_set(error, ERROR_SYNTAX, "a message with both method and result or error");
		if (json_type(message->method) != JSON_STRING)
			return error_set(error, ERROR_SYNTAX, "method is not a string");
		if (message->params.ptr && json_type(message->params) != JSON_OBJECT)
			return error_set(error, ERROR_SYNTAX, "params is not an object");
		message->kind = message->id.ptr ? MESSAGE_REQUEST : MESSAGE_NOTIFICATION;
		return 0;
	}
	if (!has_outcome)
		return error_set(error, ERROR_SYNTAX, "neither method, result nor error");
	if (message->result.ptr && message->error.ptr)
		return error_set(error, ERROR_SYNTAX, "both result and error");
	message->kind = MESSAGE_RESPONSE;
	return 0;
}

int message_parse(struct message *message, struct span value, const struct json_index *index, struct error *error)
{
	*message = (struct message){.index = *index};
	if (json_type(value) != JSON_OBJECT)
		return error_set(error, ERROR_SYNTAX, "the message is not a JSON object");

	struct span version = {0};
	struct json_member member;
	bool twice = false;
	struct json_walk walk = json_walk(value, &message->index);
	while (json_next_member(&walk, &member)) {
		struct span *slot = member_slot(message, &version, member.key);
		twice |= slot ? slot->ptr != NULL : is_another_spelling(member.key);
		if (slot)
			*slot = member.value;
	}

	bool id_is_null = message->id.ptr && json_type(message->id) == JSON_NULL;
	if (message->id.ptr && !is_request_id(message->id)) {
		message->id = (struct span){0};
		/* An error response may carry a null id when the request's could not be read (JSON-RPC 2.0 section 5). */
		if (!(id_is_null && message->error.ptr && !message->method.ptr))
			return error_set(error, ERROR_SYNTAX, "id is neither a string nor an integer");
	}
	if (twice) /* which of the two counts is anybody's guess, so nobody may guess */
		return error_set(error, ERROR_SYNTAX, "a member of the message occurs twice");
	if (!version.ptr || !json_string_is(version, "2.0"))
		return error_set(error, ERROR_SYNTAX, "jsonrpc is not \"2.0\"");
	return classify(message, error);
}

void message_add_error(struct buf *out, int code, const char *text, const char *data)
{
	buf_printf(out, "\"error\":{\"code\":%d,\"message\":", code);
	buf_add_json_string(out, span_of(text));
	if (data) {
		buf_add_text(out, ",\"data\":");
		buf_add_text(out, data);
	}
	buf_add_text(out, "}");
}

struct buf message_error(struct span id, int code, const char *text, const char *data)
{
	struct buf body = {0};
	message_add_error(&body, code, text, data);
	struct buf out = message_response(id, buf_span(&body));
	out.failed |= body.failed;
	buf_free(&body);
	return out;
}

/* What stands before the body of a response. */
static void add_opening(struct buf *out, struct span id)
{
	buf_add_text(out, "{\"jsonrpc\":\"2.0\",");
	if (id.ptr) {
		buf_add_text(out, "\"id\":");
		buf_add_span(out, id);
		buf_add_text(out, ",");
	}
}

struct buf message_response(struct span id, struct span body)
{
	struct buf out = {0};
	buf_reserve(&out, id.len + body.len + 32);
	add_opening(&out, id);
	buf_add_span(&out, body);
	buf_add_text(&out, "}");
	return out;
}

struct buf message_response_around(struct span id, struct buf *body)
{
	struct buf out = buf_take(body), opening = {0};
	add_opening(&opening, id);
	if (buf_ok(&opening) && buf_reserve(&out, opening.len + 1)) {
		memmove(out.data + opening.len, out.data, out.len);
		memcpy(out.data, opening.data, opening.len);
		out.len += opening.len;
		buf_add(&out, "}", 1);
	}
	out.failed |= opening.failed;
	buf_free(&opening);
	return out;
}

struct span message_body(const struct buf *body)
{
	return buf_ok(body) ? buf_span(body) : SPAN("\"error\":{\"code\":-32603,\"message\":\"Out of memory\"}");
}
