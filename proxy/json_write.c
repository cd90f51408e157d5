#include "proxy/json_write.h"

void json_add_separator(struct buf *out)
{
	if (out->len && out->data[out->len - 1] != '{' && out->data[out->len - 1] != '[')
		buf_add(out, ",", 1);
}

void json_add_key(struct buf *out, const char *key)
{
	json_add_separator(out);
	buf_add(out, "\"", 1);
	buf_add_text(out, key);
	buf_add(out, "\":", 2);
}

void json_add_member(struct buf *out, const struct json_member *member)
{
	json_add_separator(out);
	buf_add(out, "\"", 1);
	buf_add_span(out, member->key);
	buf_add(out, "\":", 2);
	buf_add_span(out, member->value);
}
