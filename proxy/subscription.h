/* Subscriptions: the long-lived exchanges of subscriptions/listen (2026-07-28 basic/patterns/subscriptions).
 *
 * A subscription belongs to its exchange and listens at the session of its client's principal and capabilities. When that
 * session is lost it moves to a new one and tells the client to look again. It is on its session's list, or on the proxy's
 * list while it has none. */
#ifndef MCP_VALET_SUBSCRIPTION_H
#define MCP_VALET_SUBSCRIPTION_H

#include "proxy/capabilities.h"
#include "proxy/exchange.h"

struct session;

struct subscription {
	struct grave grave;
	TAILQ_ENTRY(subscription) link;
	struct proxy *proxy;
	struct exchange *exchange;
	struct session *session; /* or NULL: on proxy->homeless */
	struct capabilities caps;
	bool tools, prompts, resources; /* list changes that the client asked for */
	char **uris;			/* resources that it asked for */
	size_t uri_count;
	bool acknowledged;
	bool renewed;	   /* the session is not the first one */
	unsigned failures; /* sessions in a row that could not be had */
	struct timer timer;
};

/* Starts a checked subscriptions/listen request. */
void subscription_start(struct exchange *exchange, const struct request *request);
/* Its client is gone, or cancelled it. */
void subscription_drop(struct subscription *subscription);
/* Ends it in order, with its result. */
void subscription_finish(struct subscription *subscription);

/* Events of the session. */
void subscriptions_on_ready(struct session *session);
void subscriptions_on_lost(struct session *session);
/* A notification of a list change or resource update: delivered to whoever asked. */
void subscriptions_notify(struct session *session, const char *method, struct span params);
/* Whether the method is one that subscriptions deliver. */
bool subscriptions_deliver(struct span method, const char **name);

#endif
