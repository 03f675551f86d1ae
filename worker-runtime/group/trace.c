/* trace.c - the events of a rank, written one by one as JSON.
 *
 * An event is begun by begin_event(), which writes what all events have, and ended by end_event(),
 * which ends the trace at its limit or after a failed write. */
#include "trace.h"

#include "common/clock.h"
#include "common/error.h"
#include "worker-runtime/core/group.h"
#include <ddp/env.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAINING, BUCKETS }; /* "threads" of the timeline */

struct trace {
    struct group_child child; /* first member */
    FILE *file;               /* owned; NULL: it has ended */
    int rank;
    uint32_t n_events;
};

bool trace_path(const char *asked_for, int rank, char *path, size_t size)
{
    const char *slash = strrchr(asked_for, '/'), *dot = strrchr(asked_for, '.');
    const char *name = slash != NULL ? slash + 1 : asked_for;
    if (dot == NULL || dot <= name)
        dot = asked_for + strlen(asked_for);
    int n = snprintf(path, size, "%.*s.%d%s", (int)(dot - asked_for), asked_for, rank, dot);
    return n >= 0 && (size_t)n < size;
}

/* --- events ----------------------------------------------------------------------------------- */

static void end_trace(struct trace *t)
{
    if (t->file == NULL)
        return;
    fputs("\n]\n", t->file);
    fclose(t->file);
    t->file = NULL;
}

/* Begin an event: what all have. returns false where the trace has ended */
static bool begin_event(struct trace *t, char phase, int thread, uint64_t at_ns)
{
    if (t == NULL || t->file == NULL)
        return false;
    fprintf(t->file, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64 ".%03u",
            t->n_events++ > 0 ? ",\n" : "[\n", phase, t->rank, thread, at_ns / 1000,
            (unsigned)(at_ns % 1000));
    return true;
}

/* End it, and the trace with it if this was the last one. */
static void end_event(struct trace *t)
{
    fputs("}", t->file);
    if (ferror(t->file)) { /* a full disk: the events so far are there */
        fclose(t->file);
        t->file = NULL;
        return;
    }
    if (t->n_events == TRACE_MOST_EVENTS && begin_event(t, 'i', TRAINING, co_now_ns())) {
        fprintf(t->file,
                ",\"s\":\"p\",\"name\":\"the trace ends here: it is limited to %u events\"}",
                TRACE_MOST_EVENTS);
        end_trace(t);
    }
}

static void name_thread(struct trace *t, const char *what, int thread, const char *name)
{
    if (!begin_event(t, 'M', thread, 0))
        return;
    fprintf(t->file, ",\"name\":\"%s\",\"args\":{\"name\":\"%s\"}", what, name);
    end_event(t);
}

void trace_span(struct trace *t, const char *name, uint64_t began_ns)
{
    const uint64_t took_ns = co_now_ns() - began_ns;
    if (!begin_event(t, 'X', TRAINING, began_ns))
        return;
    fprintf(t->file, ",\"dur\":%" PRIu64 ".%03u,\"name\":\"%s\"", took_ns / 1000,
            (unsigned)(took_ns % 1000), name);
    end_event(t);
    if (t->file != NULL) /* a rank that is killed leaves its last steps, a fork() nothing twice */
        fflush(t->file);
}

/* Buckets overlap: each of them is drawn in a row of its own. */
static void bucket_event(struct trace *t, char phase, size_t bucket, size_t bytes, uint64_t at_ns)
{
    if (!begin_event(t, phase, BUCKETS, at_ns))
        return;
    fprintf(t->file,
            ",\"cat\":\"bucket\",\"id\":%zu,\"name\":\"bucket %zu\",\"args\":{\"bytes\":%zu}",
            bucket, bucket, bytes);
    end_event(t);
}

void trace_bucket(struct trace *t, size_t bucket, size_t bytes, uint64_t began_ns)
{
    if (t == NULL)
        return;
    bucket_event(t, 'b', bucket, bytes, began_ns);
    bucket_event(t, 'e', bucket, bytes, co_now_ns());
}

/* --- making and ending ------------------------------------------------------------------------ */

static void destroy_trace(struct group_child *child)
{
    struct trace *t = (struct trace *)child;
    end_trace(t);
    free(t);
}

static int open_trace(const char *asked_for, int rank, struct trace **ret, struct co_error *err)
{
    char path[PATH_MAX], name[32];
    if (!trace_path(asked_for, rank, path, sizeof(path)))
        return co_fail(err, -ENAMETOOLONG, "%s: the path is too long: '%.100s...'", DDP_ENV_TRACE,
                       asked_for);
    struct trace *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    t->child.destroy = destroy_trace;
    t->rank = rank;
    t->file = fopen(path, "we");
    if (t->file == NULL) {
        int code = -errno;
        free(t);
        return co_fail(err, code, "%s: cannot write '%s': %s", DDP_ENV_TRACE, path,
                       strerror(-code));
    }
    snprintf(name, sizeof(name), "rank %d", rank);
    name_thread(t, "process_name", TRAINING, name);
    name_thread(t, "thread_name", TRAINING, "training");
    name_thread(t, "thread_name", BUCKETS, "buckets");
    *ret = t;
    return 0;
}

int trace_get(struct ddp_group *g, struct trace **ret, struct co_error *err)
{
    struct world *w = g->world;
    const char *asked_for = getenv(DDP_ENV_TRACE);
    if (w->trace == NULL && asked_for != NULL && asked_for[0] != '\0') {
        int code = open_trace(asked_for, w->group.rank, &w->trace, err);
        if (code != 0)
            return code;
        group_adopt(&w->group, (struct group_child *)w->trace);
    }
    *ret = w->trace;
    return 0;
}
