#include "proxy/task.h"

#include "proxy/session.h"
#include "proxy/tool_names.h"

#include <stdlib.h>

static bool server_has_tasks(const struct session *session)
{
	struct span tasks, requests, tools, call;
	return json_get(span_of(session->identity.capabilities), NULL, "tasks", &tasks) &&
	       json_get(tasks, NULL, "requests", &requests) && json_get(requests, NULL, "tools", &tools) &&
	       json_get(tools, NULL, "call", &call);
}

static bool may_be_task(const struct call *call)
{
	return call->method->id == METHOD_TOOLS_CALL && server_has_tasks(call->session);
}

void task_learn(struct session *session, struct span result)
{
	struct span list, tool, execution, support, name;
	if (!server_has_tasks(session) || !json_get(result, NULL, "tools", &list))
		return;
	struct json_walk walk = json_walk(list, NULL);
	while (json_next_element(&walk, &tool))
		if (json_get(tool, NULL, "execution", &execution) &&
			json_get(execution, NULL, "taskSupport", &support) && json_type(support) == JSON_STRING &&
			json_string_is(support, "required") && json_get(tool, NULL, "name", &name))
			tool_names_add(&session->proxy->task_tools, json_string_dup(name));
}

/* Puts `task` into a request that ends with `}}`: its params and itself. The task lives as long as the call may. */
static void augment(struct call *call)
{
	int64_t ttl_ms = call->rule->call_ms + call->rule->park_ms * (int64_t)(call->rule->rounds + 1);
	if (!buf_ok(&call->request))
		return; /* sending it will fail */
	call->request.len -= 2;
	buf_printf(&call->request, "%s\"task\":{\"ttl\":%lld}}}",
		call->request.data[call->request.len - 1] == '{' ? "" : ",", (long long)ttl_ms);
	call->as_task = true;
	call->row->seen.tasks++;
}

void task_prepare(struct call *call)
{
	if (!may_be_task(call))
		return;
	const char *name = call->subject + sizeof("tools/call"); /* the subject is "tools/call NAME" */
	if (tool_names_have(&call->proxy->task_tools, name)) {
		augment(call);
		return;
	}
	if (!call->spare.len)
		buf_add_span(&call->spare, buf_span(&call->request));
	if (!buf_ok(&call->spare))
		buf_free(&call->spare); /* then there is no second try */
}

/* Gives the call a new upstream request. */
static void send_again(struct call *call, struct buf *message, uint64_t id)
{
	struct session *session = call->session;
	struct proxy *proxy = call->proxy;
	call_leave(call);
	proxy->upstream->forget(session->upstream, call->upstream_id);
	call->upstream_id = id;
	call_enter(call);
	int status = call->sent ? session_send(session, UPSTREAM_REQUEST, id, message) : ERROR_MEMORY;
	buf_free(message);
	if (status)
		call_fail(call, CALL_END_REFUSED, "busy", RPC_INTERNAL_ERROR, "The request could not be sent", NULL);
}

/* The refusal of a plain call had no effect, so the call is made again as a task. */
static void try_as_task(struct call *call)
{
	struct buf message = {0};
	struct session *session = call->session;
	uint64_t id = session->next_id++;
	const char *after_id = memmem(call->spare.data, call->spare.len, ",\"method\"", 9);
	tool_names_add(&call->proxy->task_tools, strdup(call->subject + sizeof("tools/call")));
	buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":%llu", (unsigned long long)id);
	buf_add(&message, after_id, call->spare.len - (size_t)(after_id - call->spare.data));
	buf_free(&call->spare);
	buf_free(&call->request);
	call->request = buf_take(&message);
	augment(call);
	message = buf_take(&call->request);
	send_again(call, &message, id);
}

static void fetch_result(struct call *call)
{
	struct buf message = {0};
	uint64_t id = call->session->next_id++;
	buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"tasks/result\",\"params\":{\"taskId\":%s}}",
		(unsigned long long)id, call->task_id);
	send_again(call, &message, id);
}

bool task_on_answer(struct call *call, struct span result, struct span error)
{
	struct span code, task, id;
	int64_t number;
	if (call->spare.len && !call->as_task && error.ptr && json_get(error, NULL, "code", &code) &&
		json_integer(code, &number) && number == RPC_METHOD_NOT_FOUND && may_be_task(call)) {
		try_as_task(call);
		return true;
	}
	buf_free(&call->spare);
	if (!call->as_task || call->task_id || error.ptr || !json_get(result, NULL, "task", &task) ||
		!json_get(task, NULL, "taskId", &id) || json_type(id) != JSON_STRING)
		return false;
	call->task_id = span_dup(id);
	if (!call->task_id)
		return false;
	call_log(call, LOG_DEBUG, "task-created", "the call runs as a task");
	fetch_result(call);
	return true;
}

bool task_cancel(struct call *call)
{
	struct session *session = call->session;
	struct buf message = {0};
	if (!call->task_id)
		return false;
	uint64_t id = session->next_id++;
	buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"tasks/cancel\",\"params\":{\"taskId\":%s}}",
		(unsigned long long)id, call->task_id);
	if (session_send(session, UPSTREAM_REQUEST, id, &message))
		session_log(session, LOG_DEBUG, "cancel-failed", "a task could not be cancelled");
	return true;
}

struct call *task_find_call(struct session *session, struct span meta)
{
	struct call_list *const lists[] = {&session->running, &session->parked, &session->resuming, &session->ending};
	struct span related, id;
	struct call *call;
	if (!json_get(meta, NULL, "io.modelcontextprotocol/related-task", &related) ||
		!json_get(related, NULL, "taskId", &id))
		return NULL;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		TAILQ_FOREACH (call, lists[i], link)
			if (call->task_id && span_is(id, call->task_id))
				return call;
	return NULL;
}
