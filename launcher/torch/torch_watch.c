#include "torch_watch.h"

#include "torch_query.h"
#include "torch_trace.h"

#include "common/scope.h"

#include <stdlib.h>

struct watched {
    struct torch_query *query; /* owned; NULL: it is not being asked */
    uint64_t total;            /* collectives, in its last answer; 0: it had none yet */
    uint64_t answered_ms;      /* when that came */
    uint64_t moved_ms;         /* 0: not known */
};

struct torch_watch {
    int n;
    struct watched ranks[];
};

struct torch_watch *torch_watch_create(int n_ranks)
{
    struct torch_watch *w = calloc(1, sizeof *w + (size_t)n_ranks * sizeof w->ranks[0]);
    if (w != NULL)
        w->n = n_ranks;
    return w;
}

void torch_watch_renew(struct torch_watch *w)
{
    for (int i = 0; i < w->n; i++) {
        torch_query_destroy(w->ranks[i].query);
        w->ranks[i] = (struct watched){0};
    }
}

void torch_watch_destroy(struct torch_watch *w)
{
    if (w != NULL)
        torch_watch_renew(w);
    free(w);
}

void torch_watch_ask(struct torch_watch *w, int rank, const char *path, uint64_t now_ms)
{
    if (w->ranks[rank].query == NULL)
        torch_query_begin(path, false, now_ms, &w->ranks[rank].query);
}

/* By the time of the call, which may be wrong if the clock has been set since: but it was after the
 * answer before, and equal totals mean that it made no call. */
static void note_calls(struct watched *r, const struct torch_trace *t, uint64_t now_ms,
                       uint64_t now_ns)
{
    const uint64_t total = torch_trace_total(t), newest_ns = torch_trace_newest_ns(t);
    const uint64_t age_ms =
        newest_ns != 0 && newest_ns < now_ns ? (now_ns - newest_ns) / 1000000 : 0;
    uint64_t moved_ms = age_ms < now_ms ? now_ms - age_ms : 0;
    if (total != r->total) {
        if (r->total != 0 && moved_ms < r->answered_ms)
            moved_ms = r->answered_ms;
        r->moved_ms = moved_ms;
    }
    r->total = total;
    r->answered_ms = now_ms;
}

void torch_watch_look(struct torch_watch *w, uint64_t now_ms, uint64_t now_ns)
{
    for (int i = 0; i < w->n; i++) {
        struct watched *r = &w->ranks[i];
        if (r->query == NULL || torch_query_look(r->query, now_ms))
            continue;
        co_autofree struct torch_trace *trace = torch_query_take_trace(r->query);
        if (trace != NULL)
            note_calls(r, trace, now_ms, now_ns);
        torch_query_destroy(r->query);
        r->query = NULL;
    }
}

bool torch_watch_is_busy(const struct torch_watch *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->ranks[i].query != NULL)
            return true;
    return false;
}

uint64_t torch_watch_moved_ms(const struct torch_watch *w, int rank)
{
    return w->ranks[rank].moved_ms;
}
