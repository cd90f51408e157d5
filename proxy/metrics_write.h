/* The counters as text for Prometheus (text exposition format 0.0.4). */
#ifndef MCP_VALET_METRICS_WRITE_H
#define MCP_VALET_METRICS_WRITE_H

#include "proxy/metrics.h"

/* Upper bounds of the histogram's buckets. */
extern const int metrics_bucket_ms[METRICS_BUCKETS];

/* What subjects, kinds of questions, ends of calls and outcomes of questions are called where people and programs read them. */
extern const char *const metrics_subject_names[]; /* by enum policy_subject */
extern const char *const metrics_kind_names[POLICY_KINDS];
extern const char *const metrics_end_names[METRICS_ENDS];
extern const char *const metrics_outcome_names[SERVER_REQUEST_OUTCOMES];

/* Appends a label value with its quotes, escaped. */
void metrics_write_label(struct buf *out, const char *value);

#endif
