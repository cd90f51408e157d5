/* The connections to a server on this machine: how they are made, and kept for the next request. Private to http_plain.c,
 * which says what is sent over them and reads what comes. */
#ifndef MCP_VALET_HTTP_WIRE_H
#define MCP_VALET_HTTP_WIRE_H

#include "adapters/http_address.h"
#include "adapters/http_response.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/queue.h>

TAILQ_HEAD(wire_list, wire);

struct wires {
	struct event_base *base;
	int64_t connect_ms;
	struct http_address addresses[HTTP_MAX_ADDRESSES];
	unsigned address_count;
	struct wire_list idle; /* the last used first */
	struct wire_list draining;
	unsigned unused_count;	   /* of both */
	int64_t distrusted_until;  /* ms: the server closed one that it had promised nothing of */
	struct event sweep;	   /* closes those that have been idle for too long */
	event_callback_fn on_read; /* of a wire that is connected; its argument is the wire */
	event_callback_fn on_write;
	void (*on_connected)(struct wire *wire, int error); /* 0 or what errno says; the wire is still the owner's */
};

struct wire {
	TAILQ_ENTRY(wire) link; /* idle or draining */
	struct wires *wires;
	struct plain_transfer *transfer; /* NULL: idle or draining */
	int fd;				 /* -1: not yet */
	unsigned address;		 /* which one it is, or tries */
	int error;			 /* of the first try to connect */
	int64_t deadline, pause;	 /* ms, of connecting: until when, and how long before it is tried again */
	int64_t kept_until;		 /* ms, while it is idle */
	bool reused;
	unsigned drains; /* reads that are left for draining, or 0 */
	struct http_response_reader reader;
	struct event on_read, on_write;
};

/* The callbacks and addresses have been filled in. */
void wires_init(struct wires *wires, struct event_base *base, int64_t connect_ms);
void wires_free(struct wires *wires);

/* Begins to connect for a transfer. NULL without memory; all else is told by on_connected(), never from within. */
struct wire *wire_open(struct wires *wires, struct plain_transfer *transfer) MUST_CHECK;
/* An idle one on which nothing came, or NULL. A request that must not go out twice gets none of a server that closes them
 * as it likes. */
struct wire *wire_take(struct wires *wires, bool repeatable) MUST_CHECK;
/* After a complete response: keeps it for the next request, if the server agrees and for as long as it does. */
void wire_release(struct wire *wire, bool keep);
/* Its response is no longer wanted, but may be about to end: it is kept for a moment, for what the owner reads of it.
 * false: there is no room. */
bool wire_drain(struct wire *wire) MUST_CHECK;
/* It is neither idle nor draining any more. */
void wire_end_drain(struct wire *wire);
/* An idle one came to its end, or brought what nobody asked for. */
void wire_drop_idle(struct wire *wire);
/* The server closed one that had been kept, under a request. */
void wires_distrust(struct wires *wires);
void wire_free(struct wire *wire);

#endif
