/* trace.h - a timeline of training, for chrome://tracing and Perfetto: DDP_TRACE=file.json.
 *
 * Every rank writes a file of its own, file.RANK.json: an array of events in microseconds of the
 * node's monotonic clock, so that those of a node's ranks can be shown together. If there are more
 * events than TRACE_MOST_EVENTS the trace ends with one that reports this; if the disk is full it
 * ends there. Training continues in both cases. */
#ifndef DDP_WORKER_RUNTIME_GROUP_TRACE_H
#define DDP_WORKER_RUNTIME_GROUP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct ddp_group;
struct trace; /* opaque; belongs to the world's group and goes with it */

#define TRACE_MOST_EVENTS 200000u

/* The world's trace, if DDP_TRACE asks for one; made by the first call.
 *
 * ret       NULL: not wanted
 * returns   0
 *           -errno  the file cannot be made; err names it
 *           -ENOMEM */
int trace_get(struct ddp_group *g, struct trace **ret, struct co_error *err);

/* Where rank's file is: ".RANK" goes before the last suffix. returns false: longer than size */
bool trace_path(const char *asked_for, int rank, char *path, size_t size);

/* Something that has just ended. Of a NULL trace nothing is written. */
void trace_span(struct trace *t, const char *name, uint64_t began_ns);
void trace_bucket(struct trace *t, size_t bucket, size_t bytes, uint64_t began_ns);

#endif
