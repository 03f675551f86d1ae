/* perf_network.c - see the header. A message is sent to and fro, which takes the latency and the
 * cost of a message twice; several follow each other, which costs more messages only; and a long
 * one goes in both directions at once. */
#include "perf_network.h"

#include "common/clock.h"
#include "common/scope.h"

#include <ddp/collective.h>
#include <ddp/error.h>
#include <ddp/group.h>
#include <stdlib.h>

enum { ROUNDS = 7, TURNS = 50, BURST = 48, BULK_BYTES = 16 << 20, TAG = 7 };

struct place {
    int32_t node, local;
};

struct pair {
    struct ddp_group *g;
    int peer; /* -1: this rank has none */
    bool is_first;
    struct perf_link us;
    uint8_t *in, *out; /* BULK_BYTES */
};

static int find_peer(struct pair *p)
{
    const int n = ddp_world_size(p->g);
    const struct place own = {ddp_node_rank(p->g), ddp_local_rank(p->g)};
    co_autofree struct place *all = calloc((size_t)n, sizeof *all);
    p->peer = -1;
    if (all == NULL)
        return DDP_ENOMEM;
    const int rc = ddp_all_gather(p->g, &own, all, 2, DDP_INT32, NULL);
    for (int r = 0; rc == 0 && r < n; r++)
        if (all[r].node == (own.node ^ 1) && all[r].local == own.local)
            p->peer = r;
    p->is_first = own.node % 2 == 0;
    return rc;
}

static int pass(const struct pair *p, bool sends)
{
    return sends ? ddp_send(p->g, p->out, 8, DDP_UINT8, p->peer, TAG, NULL)
                 : ddp_recv(p->g, p->in, 8, DDP_UINT8, p->peer, TAG, NULL);
}

/* `n` messages one way, and one back. */
static int turn(const struct pair *p, int n)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = pass(p, p->is_first);
    return rc == 0 ? pass(p, !p->is_first) : rc;
}

static int bulk(const struct pair *p)
{
    struct ddp_request *request;
    int rc = ddp_isend(p->g, p->out, BULK_BYTES, DDP_UINT8, p->peer, TAG, NULL, &request);
    if (rc != 0)
        return rc;
    rc = ddp_recv(p->g, p->in, BULK_BYTES, DDP_UINT8, p->peer, TAG, NULL);
    const int sent = ddp_wait(request);
    return rc != 0 ? rc : sent;
}

static void keep_least(double *us, uint64_t begun_ns, int n)
{
    const double spent = (double)(co_now_ns() - begun_ns) / 1e3 / n;
    *us = *us == 0 || spent < *us ? spent : *us;
}

static int measure(struct pair *p)
{
    int rc = 0;
    uint64_t begun_ns = co_now_ns();
    for (int i = 0; rc == 0 && i < TURNS; i++)
        rc = turn(p, 1);
    keep_least(&p->us.one, begun_ns, 2 * TURNS);
    begun_ns = co_now_ns();
    if (rc == 0)
        rc = turn(p, BURST);
    keep_least(&p->us.burst, begun_ns, 1);
    begun_ns = co_now_ns();
    if (rc == 0)
        rc = bulk(p);
    keep_least(&p->us.bulk, begun_ns, 1);
    return rc;
}

static int run(struct pair *p)
{
    int rc = find_peer(p);
    for (int i = 0; rc == 0 && i < ROUNDS; i++) {
        rc = ddp_barrier(p->g);
        if (rc == 0 && p->peer >= 0)
            rc = measure(p);
    }
    double *us = &p->us.one;
    return rc == 0 ? ddp_all_reduce(p->g, us, us, 3, DDP_FLOAT64, DDP_MAX, NULL) : rc;
}

enum perf_exit perf_network(FILE *out)
{
    co_autofree uint8_t *memory = calloc(2, BULK_BYTES);
    struct pair p = {.in = memory, .out = memory + BULK_BYTES};
    if (memory == NULL) {
        fputs("ddp-perf: error: out of memory\n", stderr);
        return PERF_EXIT_FAILED;
    }
    int rc = ddp_init(NULL, &p.g);
    const int rank = rc == 0 ? ddp_rank(p.g) : -1;
    if (rc == 0)
        rc = run(&p);
    if (rc != 0)
        fprintf(stderr, "ddp-perf: error: %s\n", ddp_last_error());
    if (rank >= 0)
        ddp_finalize(p.g);
    if (rc == 0 && rank == 0)
        perf_text_network(out, &p.us, BURST, BULK_BYTES);
    return rc == 0 ? PERF_EXIT_OK : PERF_EXIT_FAILED;
}
