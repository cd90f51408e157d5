/* Scenario statements about the server, which does nothing by itself but shake hands and answer pings. */
#include "tests/sim/scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scenario *scenario_of(const struct link *link)
{
	return link->world->model;
}

static void say(struct link *link, uint64_t stream, const char *format, ...) PRINTF_LIKE(3, 4);

static void say(struct link *link, uint64_t stream, const char *format, ...)
{
	char text[16000];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	link_receive(link, span_of(text), stream);
}

/* By itself. */

static void shake_hands(struct link *link, int64_t id, struct span params)
{
	const struct scenario *scenario = scenario_of(link);
	struct span offered = get(params, "protocolVersion");
	struct span elicitation = get(get(params, "capabilities"), "elicitation");
	if (scenario->silent)
		return;
	if (scenario->plain_only && elicitation.len > 2)
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"error\":{\"code\":-32603,\"message\":\"Unrecognized\"}}",
			(long long)id);
	else if (scenario->names_version && !json_string_is(offered, scenario->version))
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"error\":{\"code\":-32602,\"message\":\"Unsupported\","
			"\"data\":"
			"{\"supported\":[\"%s\"]}}}",
			(long long)id, scenario->version);
	else
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"protocolVersion\":\"%s\",\"capabilities\":{"
			"\"tools\":"
			"{}%s},\"serverInfo\":{\"name\":\"legacy\",\"version\":\"1\"}}}",
			(long long)id, scenario->version,
			scenario->tasks ? ",\"tasks\":{\"requests\":{\"tools\":{\"call\":{}}}}" : "");
}

static void discover(struct link *link, int64_t id)
{
	if (scenario_of(link)->modern)
		say(link, (uint64_t)id,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{\"resultType\":\"complete\","
			"\"supportedVersions\":["
			"\"2026-07-28\"],\"capabilities\":{\"tools\":{\"listChanged\":true},\"resources\":{"
			"\"subscribe\":"
			"true}}}}",
			(long long)id);
	else if (!scenario_of(link)->silent && !scenario_of(link)->mute)
		say(link, (uint64_t)id,
			"{\"jsonrpc\":\"2.0\",\"id\":%lld,\"error\":{\"code\":-32601,\"message\":\"Method not "
			"found\"}}",
			(long long)id);
}

static void on_request(struct link *link, const struct message *message)
{
	int64_t id = 0;
	bool initializes = json_string_is(message->method, "initialize");
	if (!json_integer(message->id, &id) || (!initializes && mark_of(message->params, "sim/t", 't')) ||
		json_string_is(message->method, "tasks/result") ||
		json_string_is(message->method, "subscriptions/listen"))
		return;
	if (json_string_is(message->method, "server/discover"))
		discover(link, id);
	else if (initializes)
		shake_hands(link, id, message->params);
	else
		say(link, 0, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{}}", (long long)id);
}

static void on_from_proxy(struct link *link, struct span text)
{
	struct span value;
	struct json_index index = {0};
	struct message message;
	struct error error;
	if (json_check(text, &value, &index, &error) || message_parse(&message, value, &index, &error))
		return;
	if (message.kind == MESSAGE_REQUEST)
		on_request(link, &message);
}

static bool may_open(struct world *world)
{
	(void)world;
	return true;
}

static void on_link(struct link *link)
{
	(void)link;
}

static int queue_status(struct link *link)
{
	(void)link;
	return 0;
}

static void on_establish(struct link *link, const char *version)
{
	(void)version;
	link_established_now(link);
}

static void on_notified(struct party *party, struct span message)
{
	struct scenario *scenario = party->world->model;
	struct span progress = get(get(message, "params"), "progress");
	for (unsigned i = 0; i < scenario->actor_count; i++) {
		struct actor *actor = &scenario->actors[i];
		if (actor->party != party)
			continue;
		if (progress.ptr)
			actor->progress = strtod(progress.ptr, NULL);
		actor->logs += json_string_is(get(message, "method"), "notifications/message");
	}
}

static void on_responded(struct party *party, struct ask *ask, int http_status, struct span message)
{
	(void)http_status;
	(void)message;
	if (party->dialog && ask)
		scenario_opened(ask);
	if (!ask || !ask->model)
		return;
	struct labelled_job *job = ask->model;
	struct span state = get(get_response(ask, "result"), "requestState");
	if (!state.ptr || job->rounds == 16)
		return;
	state = (struct span){state.ptr + 1, state.len - 2};
	for (unsigned i = 0; i < job->rounds; i++)
		if (span_equal(job->states[i], state))
			return;
	job->states[job->rounds++] = state;
}

const struct driver scenario_driver = {
	.may_open = may_open,
	.opened = on_link,
	.queue_status = queue_status,
	.from_proxy = on_from_proxy,
	.establish = on_establish,
	.closed = on_link,
	.notified = on_notified,
	.responded = on_responded,
};

/* As the scenario says. */

struct link *scenario_link(struct scenario *scenario, const char *name)
{
	const struct actor *actor = find_actor(scenario, name);
	struct link *link = scenario->world->ledger->links;
	while (actor && link && (link->principal != actor->principal || !link->open))
		link = link->next;
	return actor ? link : NULL;
}

static const char *question_params(struct question *question, const char *sort, const char *schema)
{
	struct arena *arena = &question->link->world->arena;
	question->url = strcmp(sort, "url") == 0;
	question->tools = strcmp(sort, "tools") == 0;
	question->no_schema = strcmp(sort, "form") == 0;
	if (question->url)
		return "\"mode\":\"url\",\"message\":\"m\",\"elicitationId\":\"e\",\"url\":\"https://x.example/\",";
	if (question->no_schema)
		return "\"message\":\"m\",";
	if (strcmp(sort, "elicitation") == 0)
		return arena_printf(arena, "\"message\":\"m\",\"requestedSchema\":%s,", schema);
	if (strcmp(sort, "roots") == 0)
		return "";
	return question->tools ? "\"messages\":[],\"maxTokens\":9,\"tools\":[]," : "\"messages\":[],\"maxTokens\":9,";
}

static enum policy_kind kind_of(const char *sort)
{
	return strcmp(sort, "roots") == 0				     ? POLICY_ROOTS
	       : strcmp(sort, "sampling") == 0 || strcmp(sort, "tools") == 0 ? POLICY_SAMPLING
									     : POLICY_ELICITATION;
}

/* server asks Q SORT in LABEL | at NAME … */
static void play_ask(struct scenario *scenario, char **words)
{
	static const char *const methods[] = {"elicitation/create", "sampling/createMessage", "roots/list"};
	struct arena *arena = &scenario->world->arena;
	if (!words[0] || !words[1] || !words[2] || !words[3] || scenario->question_count == MAX_NAMED) {
		scenario_fail(scenario, "asks LABEL KIND in JOB | at CLIENT");
		return;
	}
	const char *label = words[0], *sort = words[1], *schema = "{\"type\":\"object\",\"properties\":{}}";
	struct labelled_job *job = word_is(words + 2, "in") ? find_labelled_job(scenario, words[3]) : NULL;
	struct link *link = job ? job->job->link : scenario_link(scenario, words[3]);
	if (!link || !link->open) {
		scenario_fail(scenario, "%s is on no connection", words[3]);
		return;
	}
	struct question *question = ledger_question(link, job ? job->job : NULL, kind_of(sort));
	question->id = arena_printf(arena, "\"%s\"", label);
	uint64_t stream = 0;
	for (words += 4; *words; words++) {
		if (word_is(words, "stream") && job)
			stream = job->job->upstream_id;
		else if (word_is(words, "token") && words[1])
			question->progress_token = *++words;
		else if (word_is(words, "schema") && words[1])
			schema = *++words;
		else if (word_is(words, "like") && find_labelled_question(scenario, words[1]))
			question->like = find_labelled_question(scenario, *++words)->question->number;
		else
			scenario_fail(scenario, "not understood: %s", *words);
	}
	scenario->questions[scenario->question_count++] =
		(struct labelled_question){.label = label, .question = question};
	if (link->modern) {
		say(link, job->job->upstream_id,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"resultType\":\"input_required\","
			"\"inputRequests\":{%s:"
			"{\"method\":\"%s\",\"params\":{%s\"_meta\":{\"sim/q\":\"q%u\"}}}},\"requestState\":\"state of "
			"%s\"}}",
			(unsigned long long)job->job->upstream_id, question->id, methods[question->kind],
			question_params(question, sort, schema), question->number, label);
		return;
	}
	const char *token =
		question->progress_token ? arena_printf(arena, ",\"progressToken\":%s", question->progress_token) : "";
	say(link, stream,
		"{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"%s\",\"params\":{%s\"_meta\":{\"sim/q\":\"q%u\"%s}}}",
		question->id, methods[question->kind], question_params(question, sort, schema),
		question->like ? question->like : question->number, token);
}

static void play_about_job(struct scenario *scenario, struct labelled_job *job, const char *verb, const char *word)
{
	struct link *link = job->job->link;
	uint64_t id = job->job->upstream_id;
	unsigned number = job->job->number;
	if (!link)
		scenario_fail(scenario, "the server knows nothing of %s", job->label);
	else if (strcmp(verb, "answers") == 0)
		say(link, id,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{%s\"content\":[],\"structuredContent\":%s,\"_"
			"meta\":"
			"{\"sim/r\":\"t%u\"}}}",
			(unsigned long long)id, link->modern ? "\"resultType\":\"complete\"," : "", word ? word : "{}",
			number);
	else if (strcmp(verb, "fails") == 0)
		say(link, id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":%s,\"message\":\"E:t%u\"}}",
			(unsigned long long)id, word ? word : "-32603", number);
	else if (strcmp(verb, "requires") == 0)
		say(link, id,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"error\":{\"code\":-32042,\"message\":\"E:t%u\",\"data\":"
			"{\"elicitations\":[{\"mode\":\"url\",\"message\":\"m\",\"elicitationId\":\"u%u\",\"url\":"
			"\"https://x.example/\"}]}}}",
			(unsigned long long)id, number, number);
	else if (strcmp(verb, "creates") == 0)
		say(link, id,
			"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"task\":{\"taskId\":\"task-%u\",\"status\":"
			"\"working\"}}}",
			(unsigned long long)id, number);
	else if (strcmp(verb, "breaks") == 0)
		link_fail_request(link, id);
	else if (strcmp(verb, "completes") == 0)
		say(link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/elicitation/complete\",\"params\":"
			"{\"elicitationId\":\"u%u\"}}",
			number);
	else if (strcmp(verb, "progresses") == 0)
		say(link, id,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%llu,"
			"\"progress\":%s,\"message\":\"P:t%u\"}}",
			(unsigned long long)id, word ? word : "1", number);
	else if (strcmp(verb, "logs") == 0)
		say(link, id,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"%s\","
			"\"data\":\"L:t%u\"}}",
			word ? word : "error", number);
	else
		scenario_fail(scenario, "not understood: %s", verb);
}

struct sent *scenario_listen(const struct link *link, unsigned number)
{
	unsigned count = 0;
	for (struct sent *sent = link->sent; sent; sent = sent->next)
		count += strcmp(sent->method, "subscriptions/listen") == 0;
	for (struct sent *sent = link->sent; sent; sent = sent->next) /* newest first */
		if (strcmp(sent->method, "subscriptions/listen") == 0 && count-- == number)
			return sent;
	return NULL;
}

/* server acknowledges A N [URI] | server finishes A N */
static void play_subscription(struct scenario *scenario, struct link *link, char **words)
{
	struct sent *listen = words[2] ? scenario_listen(link, (unsigned)atoi(words[2])) : NULL;
	if (!listen)
		scenario_fail(scenario, "there is no subscription %s", words[2] ? words[2] : "");
	else if (word_is(words, "finishes"))
		say(link, listen->id, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"result\":{\"resultType\":\"complete\"}}",
			(unsigned long long)listen->id);
	else
		say(link, listen->id,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{"
			"\"notifications\":{\"toolsListChanged\":true,\"resourceSubscriptions\":[%s%s%s]},\"_meta\":{"
			"\"io.modelcontextprotocol/subscriptionId\":%llu}}}",
			words[3] ? "\"" : "", words[3] ? words[3] : "", words[3] ? "\"" : "",
			(unsigned long long)listen->id);
}

void play_server(struct scenario *scenario, char **words)
{
	struct labelled_job *job = words[0] ? find_labelled_job(scenario, words[1]) : NULL;
	struct labelled_question *question = words[0] ? find_labelled_question(scenario, words[1]) : NULL;
	struct link *link = words[0] ? scenario_link(scenario, words[1]) : NULL;
	if (word_is(words, "asks"))
		play_ask(scenario, words + 1);
	else if (word_is(words, "withdraws") && question)
		say(question->question->link, 0,
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%s}}",
			question->question->id);
	else if (word_is(words, "says") && link && words[2])
		say(link, 0, "%s", words[2]);
	else if ((word_is(words, "acknowledges") || word_is(words, "finishes")) && link)
		play_subscription(scenario, link, words);
	else if (word_is(words, "crashes") && link)
		link_lose(link, 0, "the server crashed");
	else if (job)
		play_about_job(scenario, job, words[0], words[2]);
	else
		scenario_fail(
			scenario, "not understood: server %s %s", words[0] ? words[0] : "", words[1] ? words[1] : "");
}
