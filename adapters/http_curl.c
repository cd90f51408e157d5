/* HTTP requests on libcurl's multi interface, driven by the event loop. Callbacks are made outside of libcurl's own, so that
 * they may start and cancel transfers. */
#include "adapters/curl_library.h"
#include "adapters/http1.h"
#include "adapters/http_engine.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum { BUFFER_BYTES = 16384, IDLE_CONNECTIONS = 256, WAITING_BYTES = 1 << 20 };

TAILQ_HEAD(transfer_list, curl_transfer);

struct http_curl {
	struct curl_library lib;
	struct event_base *base;
	struct http_target target;
	CURLM *multi;
	struct event *timer; /* libcurl's */
	struct event *turn;  /* hands over what came, outside of libcurl */
	struct transfer_list transfers;
	long transfer_count;
	struct transfer_list ready; /* with something to hand over: thousands may only wait */
};

/* A socket that libcurl wants watched. */
struct watch {
	struct http_curl *curl;
	struct event *event;
};

struct curl_transfer {
	struct http_transfer base;
	TAILQ_ENTRY(curl_transfer) link, ready_link;
	struct http_curl *curl;
	CURL *easy;
	struct curl_slist *headers;
	struct buf body;
	struct http_handlers handlers;
	void *arg;
	char session_id[HTTP_MAX_SESSION_ID], challenge[HTTP_MAX_CHALLENGE];
	bool bad_session_id;
	bool ready, head_told, paused, done, cancelled;
	CURLcode result;
	struct buf waiting; /* received, not yet handed over */
	char fault[CURL_ERROR_SIZE];
};

static void schedule(struct http_curl *curl)
{
	event_active(curl->turn, EV_TIMEOUT, 0);
}

static void set_ready(struct curl_transfer *transfer)
{
	if (!transfer->ready)
		TAILQ_INSERT_TAIL(&transfer->curl->ready, transfer, ready_link);
	transfer->ready = true;
	schedule(transfer->curl);
}

static void unset_ready(struct curl_transfer *transfer)
{
	if (transfer->ready)
		TAILQ_REMOVE(&transfer->curl->ready, transfer, ready_link);
	transfer->ready = false;
}

/* libcurl's callbacks: they only collect. */

/* Copies the value of a header line if it is of this header, fits, and is_value(), because clients get it in a header, too.
 * false if it is of this header, but not such. */
static bool take_header(struct span line, const char *name, bool (*is_value)(struct span), char *out, size_t size)
{
	size_t name_len = strlen(name);
	if (line.len <= name_len || strncasecmp(line.ptr, name, name_len) != 0)
		return true;
	struct span value = {line.ptr + name_len, line.len - name_len};
	while (value.len && (*value.ptr == ' ' || *value.ptr == '\t')) {
		value.ptr++;
		value.len--;
	}
	while (value.len && strchr(" \t\r\n", value.ptr[value.len - 1]))
		value.len--;
	if (value.len >= size || !is_value(value))
		return false;
	memcpy(out, value.ptr, value.len);
	out[value.len] = '\0';
	return true;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *arg)
{
	struct curl_transfer *transfer = arg;
	size_t len = size * count;
	struct span line = {bytes, len};
	if (!take_header(line, "mcp-session-id:", http1_is_visible, transfer->session_id, sizeof(transfer->session_id)))
		transfer->bad_session_id = true;
	(void)take_header(line, "www-authenticate:", http1_is_value, transfer->challenge, sizeof(transfer->challenge));
	/* The empty line: the head is complete, also where no body follows for a long time. */
	if (len == 2 && memcmp(bytes, "\r\n", 2) == 0)
		set_ready(transfer);
	return len;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
	struct curl_transfer *transfer = arg;
	if (transfer->cancelled)
		return 0;
	if (transfer->waiting.len > WAITING_BYTES) {
		transfer->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	buf_add(&transfer->waiting, bytes, size * count);
	set_ready(transfer);
	return buf_ok(&transfer->waiting) ? size * count : 0;
}

/* Handing over. */

/* libcurl counts the connections in use too: were they not allowed for, many open streams would let it close every
 * connection after one request, and look through all of them each time. */
static void count_transfers(struct http_curl *curl, int change)
{
	curl->transfer_count += change;
	curl->lib.multi_setopt(curl->multi, CURLMOPT_MAXCONNECTS, curl->transfer_count + IDLE_CONNECTIONS);
}

static void transfer_free(struct curl_transfer *transfer)
{
	struct http_curl *curl = transfer->curl;
	unset_ready(transfer);
	TAILQ_REMOVE(&curl->transfers, transfer, link);
	curl->lib.multi_remove_handle(curl->multi, transfer->easy);
	curl->lib.easy_cleanup(transfer->easy);
	count_transfers(curl, -1);
	curl->lib.slist_free_all(transfer->headers);
	buf_free(&transfer->body);
	buf_free(&transfer->waiting);
	free(transfer);
}

static void tell_head(struct curl_transfer *transfer)
{
	long status = 0;
	char *type = NULL;
	transfer->curl->lib.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
	if (transfer->head_told || status < 200)
		return;
	transfer->head_told = true;
	transfer->curl->lib.easy_getinfo(transfer->easy, CURLINFO_CONTENT_TYPE, &type);
	transfer->handlers.on_head(
		transfer->arg, &(struct http_response){.status = (int)status,
				       .content_type = type && http1_is_value(span_of(type)) ? type : "",
				       .session_id = transfer->session_id[0] ? transfer->session_id : NULL,
				       .bad_session_id = transfer->bad_session_id,
				       .challenge = transfer->challenge[0] ? transfer->challenge : NULL});
}

static void tell_data(struct curl_transfer *transfer)
{
	struct buf data = buf_take(&transfer->waiting);
	if (data.len)
		transfer->handlers.on_data(transfer->arg, buf_span(&data));
	buf_free(&data);
	if (transfer->paused && !transfer->cancelled) {
		transfer->paused = false;
		transfer->curl->lib.easy_pause(transfer->easy, CURLPAUSE_CONT);
	}
}

static void tell_done(struct curl_transfer *transfer)
{
	const char *fault = NULL;
	long sent = 0;
	if (transfer->result != CURLE_OK)
		fault = transfer->fault[0] ? transfer->fault : transfer->curl->lib.easy_strerror(transfer->result);
	bool unsent = fault &&
		      transfer->curl->lib.easy_getinfo(transfer->easy, CURLINFO_REQUEST_SIZE, &sent) == CURLE_OK &&
		      !sent;
	transfer->cancelled = true;
	transfer->handlers.on_done(transfer->arg, fault, unsent);
}

static void collect_finished(struct http_curl *curl)
{
	CURLMsg *message;
	int left;
	while ((message = curl->lib.multi_info_read(curl->multi, &left))) {
		struct curl_transfer *transfer = NULL;
		if (message->msg != CURLMSG_DONE)
			continue;
		curl->lib.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
		transfer->done = true;
		transfer->result = message->data.result;
		set_ready(transfer);
	}
}

static void hand_over(struct curl_transfer *transfer)
{
	if (!transfer->cancelled)
		tell_head(transfer);
	if (!transfer->cancelled && transfer->waiting.len)
		tell_data(transfer);
	if (!transfer->cancelled && transfer->done && !transfer->paused && !transfer->waiting.len)
		tell_done(transfer);
	if (transfer->cancelled)
		transfer_free(transfer);
}

/* Those that are ready now; any of them may be cancelled, and new ones may come, within the handlers. Those that become
 * ready meanwhile stand behind the last one, and have the next turn. */
static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct http_curl *curl = arg;
	(void)fd;
	(void)what;
	collect_finished(curl);
	const struct curl_transfer *last = TAILQ_LAST(&curl->ready, transfer_list);
	struct curl_transfer *transfer;
	bool more = last != NULL;
	while (more) {
		transfer = TAILQ_FIRST(&curl->ready);
		more = transfer != last;
		unset_ready(transfer);
		hand_over(transfer);
	}
}

/* The event loop and libcurl. */

static void act(struct http_curl *curl, curl_socket_t socket, int events)
{
	int running;
	curl->lib.multi_socket_action(curl->multi, socket, events, &running);
	schedule(curl);
}

static void on_socket_ready(evutil_socket_t fd, short what, void *arg)
{
	const struct watch *watch = arg;
	act(watch->curl, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int watch_socket(CURL *easy, curl_socket_t socket, int what, void *arg, void *socket_arg)
{
	struct http_curl *curl = arg;
	struct watch *watch = socket_arg;
	(void)easy;
	if (watch && watch->event)
		event_free(watch->event);
	if (what == CURL_POLL_REMOVE) {
		free(watch);
		curl->lib.multi_assign(curl->multi, socket, NULL);
		return 0;
	}
	if (!watch && !(watch = calloc(1, sizeof(*watch))))
		return -1;
	watch->curl = curl;
	short events =
		(short)(EV_PERSIST | (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0));
	watch->event = event_new(curl->base, socket, events, on_socket_ready, watch);
	curl->lib.multi_assign(curl->multi, socket, watch);
	return watch->event && event_add(watch->event, NULL) == 0 ? 0 : -1;
}

static int set_timer(CURLM *multi, long ms, void *arg)
{
	struct http_curl *curl = arg;
	(void)multi;
	if (ms < 0) {
		event_del(curl->timer);
		return 0;
	}
	struct timeval delay = {ms / 1000, (ms % 1000) * 1000};
	return event_add(curl->timer, &delay);
}

struct http_curl *http_curl_new(struct event_base *base, const struct http_target *target, struct error *error)
{
	struct curl_library lib;
	if (curl_library_load(&lib, error))
		return NULL;
	struct http_curl *curl = calloc(1, sizeof(*curl));
	if (!curl || lib.global_init(CURL_GLOBAL_DEFAULT)) {
		error_set(error, ERROR_MEMORY, "out of memory");
		free(curl);
		return NULL;
	}
	curl->lib = lib;
	curl->base = base;
	curl->target = *target;
	TAILQ_INIT(&curl->transfers);
	TAILQ_INIT(&curl->ready);
	curl->multi = curl->lib.multi_init();
	curl->timer = event_new(base, -1, 0, on_timeout, curl);
	curl->turn = event_new(base, -1, 0, on_turn, curl);
	if (!curl->multi || !curl->timer || !curl->turn) {
		error_set(error, ERROR_MEMORY, "out of memory");
		http_curl_free(curl);
		return NULL;
	}
	curl->lib.multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	curl->lib.multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
	curl->lib.multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl->lib.multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
	count_transfers(curl, 0);
	return curl;
}

void http_curl_free(struct http_curl *curl)
{
	struct curl_transfer *transfer;
	if (!curl)
		return;
	while ((transfer = TAILQ_FIRST(&curl->transfers)))
		transfer_free(transfer);
	if (curl->multi)
		curl->lib.multi_cleanup(curl->multi);
	if (curl->timer)
		event_free(curl->timer);
	if (curl->turn)
		event_free(curl->turn);
	curl->lib.global_cleanup();
	free(curl);
}

bool http_curl_is_idle(const struct http_curl *curl)
{
	return TAILQ_EMPTY(&curl->transfers);
}

/* Transfers. */

static bool set_headers(struct curl_transfer *transfer, const char *const *headers)
{
	for (; *headers; headers++) {
		struct curl_slist *longer = transfer->curl->lib.slist_append(transfer->headers, *headers);
		if (!longer)
			return false;
		transfer->headers = longer;
	}
	return true;
}

static bool set_options(struct curl_transfer *transfer, const struct http_request *request)
{
	const struct curl_library *lib = &transfer->curl->lib;
	const struct http_target *target = &transfer->curl->target;
	CURL *easy = transfer->easy;
	CURLcode bad = CURLE_OK;
	bad |= lib->easy_setopt(easy, CURLOPT_URL, request->url ? request->url : target->url);
	bad |= lib->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	bad |= lib->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	bad |= lib->easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	bad |= lib->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	bad |= lib->easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
	bad |= lib->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)target->connect_ms);
	bad |= lib->easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
	bad |= lib->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	bad |= lib->easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
	bad |= lib->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	bad |= lib->easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
	bad |= lib->easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->fault);
	bad |= lib->easy_setopt(easy, CURLOPT_PRIVATE, transfer);
	bad |= lib->easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	if (target->unix_socket)
		bad |= lib->easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, target->unix_socket);
	if (target->direct)
		bad |= lib->easy_setopt(easy, CURLOPT_PROXY, "");
	if (target->ca_file)
		bad |= lib->easy_setopt(easy, CURLOPT_CAINFO, target->ca_file);
	if (target->certificate)
		bad |= lib->easy_setopt(easy, CURLOPT_SSLCERT, target->certificate);
	if (target->key)
		bad |= lib->easy_setopt(easy, CURLOPT_SSLKEY, target->key);
	if (request->body) {
		bad |= lib->easy_setopt(easy, CURLOPT_POST, 1L);
		bad |= lib->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)transfer->body.len);
		bad |= lib->easy_setopt(easy, CURLOPT_POSTFIELDS, transfer->body.data);
	}
	if (strcmp(request->method, "POST") != 0)
		bad |= lib->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	return bad == CURLE_OK;
}

static void cancel(struct http_transfer *base)
{
	struct curl_transfer *transfer = container_of(base, struct curl_transfer, base);
	transfer->cancelled = true;
	set_ready(transfer);
}

struct http_transfer *http_curl_start(
	struct http_curl *curl, const struct http_request *request, const struct http_handlers *handlers, void *arg)
{
	struct curl_transfer *transfer = calloc(1, sizeof(*transfer));
	if (!transfer) {
		if (request->body)
			buf_free(request->body);
		return NULL;
	}
	transfer->base.cancel = cancel;
	transfer->curl = curl;
	transfer->handlers = *handlers;
	transfer->arg = arg;
	if (request->body)
		transfer->body = buf_take(request->body);
	transfer->easy = curl->lib.easy_init();
	TAILQ_INSERT_TAIL(&curl->transfers, transfer, link);
	count_transfers(curl, 1);
	if (!transfer->easy || !set_headers(transfer, request->headers) || !set_options(transfer, request) ||
		curl->lib.multi_add_handle(curl->multi, transfer->easy) != CURLM_OK) {
		transfer_free(transfer);
		return NULL;
	}
	return &transfer->base;
}
