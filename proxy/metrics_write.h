/* The counters as text for Prometheus (text exposition format 0.0.4). */
#ifndef MCP_VALET_METRICS_WRITE_H
#define MCP_VALET_METRICS_WRITE_H

#include "proxy/metrics.h"

/* Upper bounds of the histogram's buckets. */
extern const int metrics_bucket_ms[METRICS_BUCKETS];

/* Appends a label value with its quotes, escaped. */
void metrics_write_label(struct buf *out, const char *value);

#endif
