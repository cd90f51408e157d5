/* A modern request over HTTP: the first byte chooses the era of the server, then come a head and a body. Whatever is let through
 * to the server has headers that say what its body says (2026-07-28 transports/streamable-http "Request Metadata"), as another
 * reader of JSON and of Base64 reads them. */
#include "adapters/http_check.h"
#include "proxy/face.h"
#include "proxy/proxy.h"
#include "tests/fuzz/second_reader.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const char legacy[] = "version: 1\nlegacy_clients: refuse\n";
static const char modern[] = "version: 1\nlegacy_clients: refuse\nupstream: { era: modern }\n";

struct face {
	struct client client;
	struct http1_head head;
	unsigned responses;
	bool passed; /* the server would have been asked */
};

static int64_t now_ms(void *ctx)
{
	(void)ctx;
	return 1;
}

static void random_bytes(void *ctx, void *out, size_t len)
{
	(void)ctx;
	memset(out, 0x5A, len);
}

static void ignore_log(void *ctx, const struct log_line *line)
{
	(void)ctx;
	(void)line;
}

static struct upstream *refuse_to_open(void *ctx, struct session *session, struct error *error)
{
	struct face *face = ctx;
	(void)session;
	face->passed = true;
	error_set(error, ERROR_SYSTEM, "no server");
	return NULL;
}

static void on_notify(struct client *client, struct buf *message)
{
	(void)client;
	buf_free(message);
	abort(); /* nothing precedes a response here */
}

static void on_respond(struct client *client, int http_status, struct buf *message)
{
	struct face *face = (struct face *)(void *)client;
	struct span value;
	if (face->responses++ || http_status < 200 || json_check(buf_span(message), &value, NULL, NULL))
		abort();
	buf_free(message);
}

static bool on_header(const struct client *client, const char *name, struct span *value)
{
	return http1_field(&((const struct face *)(const void *)client)->head, name, value) == 1;
}

/* "=?base64?…?=" without the library that the proxy uses. */
static struct buf decode(struct span header)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	struct buf out = {0};
	uint32_t bits = 0;
	unsigned count = 0;
	if (header.len < 11 || memcmp(header.ptr, "=?base64?", 9) != 0 ||
		memcmp(header.ptr + header.len - 2, "?=", 2) != 0) {
		buf_add_span(&out, header);
		return out;
	}
	for (size_t i = 9; i < header.len - 2 && header.ptr[i] != '='; i++) {
		const char *digit = header.ptr[i] ? strchr(digits, header.ptr[i]) : NULL;
		if (!digit)
			abort(); /* let through, and no Base64 */
		bits = bits << 6 | (uint32_t)(digit - digits);
		count += 6;
		if (count >= 8) {
			count -= 8;
			buf_add(&out, &(char){(char)(bits >> count)}, 1);
		}
	}
	return out;
}

/* The header says what stands behind these keys, if that is a string. */
static void require_same(const struct http1_head *head, const char *name, struct span body, const char *const *keys)
{
	struct span header;
	struct buf value = {0};
	if (!second_string(body, keys, &value))
		return;
	if (http1_field(head, name, &header) != 1)
		abort();
	struct buf said = decode(header);
	if (!span_equal(buf_span(&said), buf_span(&value)))
		abort();
	buf_free(&said);
	buf_free(&value);
}

/* The request has passed. */
static void require_truth(const struct http1_head *head, struct span body)
{
	static const char *const version[] = {"params", "_meta", "io.modelcontextprotocol/protocolVersion", NULL};
	static const char *const method[] = {"method", NULL}, *const name[] = {"params", "name", NULL},
				 *const uri[] = {"params", "uri", NULL};
	struct buf which = {0};
	if (!second_reads(body))
		return;
	second_string(body, method, &which);
	require_same(head, "mcp-method", body, method);
	require_same(head, "mcp-protocol-version", body, version);
	if (span_is(buf_span(&which), "tools/call") || span_is(buf_span(&which), "prompts/get"))
		require_same(head, "mcp-name", body, name);
	if (span_is(buf_span(&which), "resources/read"))
		require_same(head, "mcp-name", body, uri);
	buf_free(&which);
}

static void send(struct face *face, struct policy *policy, struct keyring *keys, struct span body)
{
	static const struct env env = {
		.now_ms = now_ms, .wall_ms = now_ms, .random = random_bytes, .log = ignore_log, .log_level = LOG_ERROR};
	static const struct upstream_ops upstream_ops = {.open = refuse_to_open};
	struct proxy *proxy = proxy_new(&(struct proxy_config){
		.env = &env, .policy = policy, .keys = keys, .upstream = &upstream_ops, .upstream_ctx = face});
	struct request_headers headers = {0};
	http1_field(&face->head, "mcp-protocol-version", &headers.protocol_version);
	http1_field(&face->head, "mcp-method", &headers.method);
	http1_field(&face->head, "mcp-name", &headers.name);
	enum received received = proxy_receive(proxy, &face->client, body, &headers);
	if (face->responses != (received == RECEIVED_NOTIFICATION ? 0 : 1))
		abort();
	if (face->passed)
		require_truth(&face->head, body);
	client_gone(proxy, &face->client);
	proxy_turn(proxy);
	proxy_free(proxy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct face_ops ops = {.notify = on_notify, .respond = on_respond, .header = on_header};
	struct face face = {0};
	struct error error;
	const char *fault;
	size_t scanned = 0;
	if (size < 2 || sodium_init() < 0)
		return 0;
	struct span text = {(const char *)data + 1, size - 1};
	size_t end = http1_find_head_end(text, &scanned);
	if (!end || end == HTTP1_BAD_LINE || http1_parse_head((struct span){text.ptr, end}, &face.head, &fault))
		return 0;
	struct policy *policy = policy_parse(data[0] % 2 ? SPAN(modern) : SPAN(legacy), "p", NULL, &error);
	struct keyring *keys = keyring_parse(
		SPAN("v1 0a1b2c3d 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"), "k", &error);
	if (!policy || !keys)
		abort();
	client_init(&face.client, &ops);
	http_principal(&face.head, policy, face.client.principal);
	if (http_check_head(&face.head, "/mcp", true, policy, &fault) == 0)
		send(&face, policy, keys, (struct span){text.ptr + end, text.len - end});
	policy_unref(policy);
	keyring_unref(keys);
	return 0;
}
