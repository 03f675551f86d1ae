#include "perf_run.h"

#include "common/error.h"
#include "perf_text.h"
#include "perf_values.h"
#include "perf_work.h"

#include <ddp/ddp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLOCK_READS = 1000, TIMINGS = 20 /* the fastest is reported */ };

struct run {
    const struct perf_spec *spec;
    struct ddp_group *g;
    unsigned rank, n;
    uint8_t *in, *out; /* of the largest size each */
    struct perf_work work;
    struct perf_values values;
    bool in_place;
    const void *call_in; /* where this call's buffers are; NULL: it has none */
    void *call_out;
    double clock_us; /* the time of a reading of the clock */
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The least time between two readings of the clock. */
static double clock_cost_us(void)
{
    double least = 1e3;
    for (int i = 0; i < CLOCK_READS; i++) {
        const double begun = now_us(), took = now_us() - begun;
        least = took < least ? took : least;
    }
    return least;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static int get_buffer(const struct run *r, size_t bytes, uint8_t **ret)
{
    void *p = NULL;
    if (r->spec->buffer == PERF_SEGMENT) {
        int rc = ddp_alloc(r->g, bytes, &p);
        if (rc != 0)
            return rc;
    } else {
        p = malloc(bytes);
        if (p == NULL)
            return DDP_ENOMEM;
    }
    *ret = p;
    return 0;
}

static void give_buffer(struct run *r, uint8_t *p)
{
    if (r->spec->buffer == PERF_PLAIN)
        free(p);
    else
        ddp_free(r->g, p);
}

/* The larger of the two holds the smaller one in place. */
static void place_buffers(struct run *r)
{
    const struct perf_work *w = &r->work;
    const size_t at = w->in_place * ddp_dtype_size(r->spec->dtype);
    uint8_t *in = r->in, *out = r->out;
    if (r->in_place && w->n_in >= w->n_out)
        out = in + (w->n_out < w->n_in ? at : 0);
    else if (r->in_place)
        in = out + at;
    r->call_in = w->n_in > 0 ? in : NULL;
    r->call_out = w->n_out > 0 ? out : NULL;
}

static void write_input(struct run *r)
{
    perf_values_fill(&r->values, r->rank, (void *)r->call_in, r->work.n_in);
}

/* --- calls ------------------------------------------------------------------------------------ */

static int send_and_receive(struct run *r)
{
    const int n = (int)r->n, rank = (int)r->rank;
    struct ddp_request *sent;
    int rc =
        ddp_isend(r->g, r->call_in, r->work.count, r->spec->dtype, (rank + 1) % n, 0, NULL, &sent);
    if (rc != 0)
        return rc;
    rc = ddp_recv(r->g, r->call_out, r->work.count, r->spec->dtype, (rank + n - 1) % n, 0, NULL);
    const int sent_rc = ddp_wait(sent);
    return rc != 0 ? rc : sent_rc;
}

static int call(struct run *r)
{
    const struct perf_spec *s = r->spec;
    const size_t count = r->work.count;
    switch (s->collective) {
    case PERF_ALL_REDUCE:
        return ddp_all_reduce(r->g, r->call_in, r->call_out, count, s->dtype, s->op, NULL);
    case PERF_REDUCE:
        return ddp_reduce(r->g, r->call_in, r->call_out, count, s->dtype, s->op, s->root, NULL);
    case PERF_REDUCE_SCATTER:
        return ddp_reduce_scatter(r->g, r->call_in, r->call_out, count, s->dtype, s->op, NULL);
    case PERF_BROADCAST:
        return ddp_broadcast(r->g, r->call_in, r->call_out, count, s->dtype, s->root, NULL);
    case PERF_ALL_GATHER:
        return ddp_all_gather(r->g, r->call_in, r->call_out, count, s->dtype, NULL);
    case PERF_GATHER:
        return ddp_gather(r->g, r->call_in, r->call_out, count, s->dtype, s->root, NULL);
    case PERF_SCATTER:
        return ddp_scatter(r->g, r->call_in, r->call_out, count, s->dtype, s->root, NULL);
    case PERF_ALL_TO_ALL:
        return ddp_all_to_all(r->g, r->call_in, r->call_out, count, s->dtype, NULL);
    case PERF_SEND_RECV:
        return send_and_receive(r);
    case PERF_BARRIER:
    case PERF_N_COLLECTIVES:
        break;
    }
    return ddp_barrier(r->g);
}

static int check_sums(struct run *r, uint64_t *ret_wrong)
{
    uint64_t wrong = 0;
    if (!r->in_place)
        perf_values_spoil(&r->values, r->call_out, r->work.n_out);
    write_input(r);
    int rc = call(r);
    if (rc == 0 && r->work.n_out > 0)
        wrong = perf_values_count_wrong(&r->values, r->rank, r->call_out, r->work.count);
    if (rc == 0)
        rc = ddp_all_reduce(r->g, &wrong, ret_wrong, 1, DDP_UINT64, DDP_SUM, NULL);
    return rc;
}

/* Timings of some calls each, one after the other. */
static int time_in_a_row(struct run *r, unsigned n_calls, struct perf_times *t)
{
    const unsigned each = (n_calls + TIMINGS - 1) / TIMINGS;
    int rc = ddp_barrier(r->g);
    const double begun = now_us();
    double last = begun;
    for (unsigned done = 0; rc == 0 && done < n_calls; done += each) {
        const unsigned n = n_calls - done < each ? n_calls - done : each;
        for (unsigned i = 0; rc == 0 && i < n; i++)
            rc = call(r);
        const double now = now_us();
        if ((now - last) / n < t->min_us)
            t->min_us = (now - last) / n;
        last = now;
    }
    t->mean_us = (last - begun) / n_calls;
    return rc;
}

/* Each call alone, on buffers that were just written. */
static int time_rewritten(struct run *r, unsigned n_calls, struct perf_times *t)
{
    double sum = 0;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n_calls; i++) {
        write_input(r);
        rc = ddp_barrier(r->g);
        const double begun = now_us();
        if (rc == 0)
            rc = call(r);
        double took = now_us() - begun - r->clock_us;
        took = took > 0 ? took : 0;
        sum += took;
        t->min_us = took < t->min_us ? took : t->min_us;
    }
    t->mean_us = sum / n_calls;
    return rc;
}

/* The times of a call are those of the slowest rank. */
static int agree_on_times(struct run *r, struct perf_times *t)
{
    double times[2] = {t->mean_us, t->min_us};
    int rc = ddp_all_reduce(r->g, times, times, 2, DDP_FLOAT64, DDP_MAX, NULL);
    t->mean_us = times[0];
    t->min_us = times[1];
    return rc;
}

static int measure_size(struct run *r, bool in_place, struct perf_times *t)
{
    const unsigned n_calls = perf_work_iterations(r->spec, r->work.bytes);
    int rc = 0;
    r->in_place = in_place;
    place_buffers(r);
    *t = (struct perf_times){.min_us = 1e30};
    if (r->spec->check)
        rc = check_sums(r, &t->wrong);
    write_input(r); /* pages are touched even without a check */
    for (unsigned i = 0; rc == 0 && i < r->spec->n_warmups; i++)
        rc = call(r);
    if (rc == 0)
        rc = r->spec->rewrite ? time_rewritten(r, n_calls, t) : time_in_a_row(r, n_calls, t);
    return rc == 0 ? agree_on_times(r, t) : rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int measure_all(struct run *r, FILE *out, struct perf_sum *sum)
{
    const struct perf_spec *s = r->spec;
    for (uint64_t bytes = s->collective == PERF_BARRIER ? 1 : s->min_bytes; bytes > 0;
         bytes = perf_work_next(s, bytes)) {
        struct perf_row row = {0};
        r->work = perf_work_of(s, bytes, r->rank, r->n);
        row.bytes = r->work.bytes;
        row.count = r->work.count;
        row.has_in_place = r->work.is_in_place;
        int rc = measure_size(r, false, &row.out_of_place);
        if (rc == 0 && row.has_in_place)
            rc = measure_size(r, true, &row.in_place);
        if (rc != 0)
            return rc;
        if (r->rank == 0)
            perf_text_row(out, s, r->n, &row, sum);
        else
            sum->wrong += row.out_of_place.wrong + row.in_place.wrong;
    }
    return 0;
}

static int check_world(const struct run *r, struct co_error *err)
{
    const struct perf_spec *s = r->spec;
    if (perf_work_has_root(s->collective) && s->root >= (int)r->n)
        return co_fail(err, -EINVAL, "invalid value '%d' for --root: expected one of %u ranks",
                       s->root, r->n);
    if (s->collective == PERF_SEND_RECV && r->n < 2)
        return co_fail(err, -EINVAL, "send_recv requires at least 2 ranks");
    return 0;
}

static void init_run(struct run *r, const struct perf_spec *spec, struct ddp_group *g)
{
    *r = (struct run){.spec = spec,
                      .g = g,
                      .rank = (unsigned)ddp_rank(g),
                      .n = (unsigned)ddp_world_size(g),
                      .clock_us = clock_cost_us()};
    r->values = (struct perf_values){.collective = spec->collective,
                                     .dtype = spec->dtype,
                                     .op = spec->op,
                                     .n = r->n,
                                     .root = spec->root};
}

/* Get buffers of `bytes`, and of a block of one element for each rank at least. */
static int get_buffers(struct run *r, uint64_t bytes)
{
    const size_t least = r->n * ddp_dtype_size(r->spec->dtype);
    const size_t room = bytes > least ? bytes : least;
    int rc = get_buffer(r, room, &r->in);
    return rc != 0 ? rc : get_buffer(r, room, &r->out);
}

static void give_buffers(struct run *r)
{
    give_buffer(r, r->in);
    give_buffer(r, r->out);
}

int perf_run_one(struct ddp_group *g, const struct perf_spec *spec, uint64_t bytes,
                 struct perf_times *ret)
{
    struct run r;
    init_run(&r, spec, g);
    r.work = perf_work_of(spec, bytes, r.rank, r.n);
    int rc = get_buffers(&r, bytes);
    if (rc == 0)
        rc = measure_size(&r, true, ret);
    give_buffers(&r);
    return rc;
}

static enum perf_exit run_in_group(struct run *r, FILE *out, struct co_error *err)
{
    const struct perf_spec *s = r->spec;
    struct perf_sum sum = {0};
    if (check_world(r, err) < 0)
        return PERF_EXIT_USAGE;
    int rc = get_buffers(r, s->max_bytes);
    if (rc == 0 && r->rank == 0)
        perf_text_head(out, s, r->n, (unsigned)ddp_n_nodes(r->g));
    if (rc == 0)
        rc = measure_all(r, out, &sum);
    give_buffers(r);
    if (rc != 0) {
        co_fail(err, -EIO, "%s",
                rc == DDP_ENOMEM && s->buffer == PERF_PLAIN
                    ? "out of memory for the buffers; use a smaller --maxbytes"
                    : ddp_last_error());
        return PERF_EXIT_FAILED;
    }
    if (r->rank == 0)
        perf_text_foot(out, s, &sum);
    return sum.wrong == 0 ? PERF_EXIT_OK : PERF_EXIT_FAILED;
}

enum perf_exit perf_run(const struct perf_spec *spec, FILE *out)
{
    struct ddp_group *g;
    struct run r;
    struct co_error err = {0};
    if (ddp_init(NULL, &g) != 0) {
        fprintf(stderr, "ddp-perf: error: %s\n", ddp_last_error());
        return PERF_EXIT_FAILED;
    }
    init_run(&r, spec, g);
    enum perf_exit status = run_in_group(&r, out, &err);
    if (err.code != 0 && (status != PERF_EXIT_USAGE || r.rank == 0))
        fprintf(stderr, "ddp-perf: error: rank %u: %s\n", r.rank, err.text);
    if (status ==
        PERF_EXIT_USAGE) /* on all ranks: none exits, which ends the job, before rank 0 has printed
                            the error */
        ddp_barrier(g);
    ddp_finalize(g);
    return status;
}
