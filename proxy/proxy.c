#include "proxy/proxy.h"

#include "proxy/session.h"
#include "proxy/subscription.h"
#include "proxy/tool_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void proxy_log(const struct proxy *proxy, enum log_level level, const char *event, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	env_log(proxy->env, (struct log_line){.level = level, .event = event}, ENV_LOG_BYTES, format, args);
	va_end(args);
}

struct proxy *proxy_new(const struct proxy_config *config)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	if (!proxy)
		return NULL;
	proxy->env = config->env;
	proxy->policy = policy_ref(config->policy);
	proxy->keys = keyring_ref(config->keys);
	proxy->era = config->policy->upstream.era;
	proxy->upstream = config->upstream;
	proxy->upstream_ctx = config->upstream_ctx;
	TAILQ_INIT(&proxy->sessions);
	TAILQ_INIT(&proxy->kept);
	TAILQ_INIT(&proxy->homeless);
	TAILQ_INIT(&proxy->undecided);
	proxy->env->random(proxy->env->ctx, proxy->instance, sizeof(proxy->instance));
	proxy->env->random(proxy->env->ctx, proxy->table_key, sizeof(proxy->table_key));
	return proxy;
}

void proxy_bury(struct proxy *proxy, struct grave *grave, void (*grave_free)(struct grave *grave))
{
	grave->free = grave_free;
	grave->next = proxy->graveyard;
	proxy->graveyard = grave;
}

static void empty_graveyard(struct proxy *proxy)
{
	struct grave *grave = proxy->graveyard;
	proxy->graveyard = NULL;
	while (grave) {
		struct grave *next = grave->next;
		grave->free(grave);
		grave = next;
	}
}

static void forget_outcomes(struct proxy *proxy)
{
	struct call *call;
	while ((call = TAILQ_FIRST(&proxy->kept)))
		call_set_state(call, CALL_DEAD);
}

static void close_all(struct proxy *proxy, const char *reason)
{
	struct session *session;
	while ((session = TAILQ_FIRST(&proxy->sessions)))
		session_fail(session, 0, reason);
	forget_outcomes(proxy);
}

void proxy_free(struct proxy *proxy)
{
	if (!proxy)
		return;
	close_all(proxy, "the proxy ends");
	empty_graveyard(proxy);
	metrics_free(&proxy->metrics);
	tool_names_free(&proxy->task_tools);
	tool_names_free(&proxy->repeatable_tools);
	policy_unref(proxy->policy);
	keyring_unref(proxy->keys);
	free(proxy);
}

int64_t proxy_next_due(const struct proxy *proxy)
{
	return proxy->graveyard ? 0 : timers_next_due(&proxy->timers);
}

void proxy_turn(struct proxy *proxy)
{
	timers_run(&proxy->timers, proxy_now(proxy));
	empty_graveyard(proxy);
}

void proxy_reload(struct proxy *proxy, struct policy *policy, struct keyring *keys)
{
	policy_ref(policy);
	keyring_ref(keys);
	if (policy->upstream.era != proxy->policy->upstream.era)
		proxy->era = policy->upstream.era;
	proxy->tasks_before |= proxy->policy->tasks;
	policy_unref(proxy->policy);
	keyring_unref(proxy->keys);
	proxy->policy = policy;
	proxy->keys = keys;
}

struct proxy_counts proxy_counts(const struct proxy *proxy)
{
	return proxy->counts;
}

/* The orderly end. */

static void abandon_all(struct call_list *list)
{
	struct call *call;
	while ((call = TAILQ_FIRST(list)))
		call_end(call, CALL_END_ABANDONED, "shutdown", NULL);
}

static void finish_all(struct subscription_list *list)
{
	struct subscription *subscription;
	while ((subscription = TAILQ_FIRST(list)))
		subscription_finish(subscription);
}

static void on_shutdown_over(void *arg)
{
	struct proxy *proxy = arg;
	close_all(proxy, "the proxy is shutting down");
}

void proxy_shutdown(struct proxy *proxy)
{
	struct session *session = TAILQ_FIRST(&proxy->sessions);
	if (proxy->shutting_down)
		return;
	proxy->shutting_down = true;
	timer_set(&proxy->timers, &proxy->shutdown_timer, proxy_now(proxy) + proxy->policy->deadlines.shutdown_ms,
		on_shutdown_over, proxy);
	while (session) {
		struct session *next = TAILQ_NEXT(session, link);
		session->pumping = true; /* nothing moves while the lists are walked */
		abandon_all(&session->parked);
		finish_all(&session->subscriptions);
		session->pumping = false;
		session_pump(session); /* what waits may still run; without calls the session closes */
		session = next;
	}
	finish_all(&proxy->homeless);
	forget_outcomes(proxy);
}

bool proxy_is_idle(const struct proxy *proxy)
{
	return proxy->counts.exchanges == 0 && TAILQ_EMPTY(&proxy->sessions);
}
