/* net_probe.c - see the header. Each round is an exchange of one piece in both directions; both
 * sides number it like a collective. */
#include "net_probe.h"

#include "common/clock.h"
#include "common/scope.h"
#include "net.h"
#include "net_watch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    LANES = 4,
    MOST_BYTES = 4 << 20, /* of an exchange; a node sends as much, in all */
    LEAST_BYTES = 1 << 20,
    ROUNDS = 2,
    SLOW_US = 250 * 1000, /* then measuring would take a second, and the network stays as it is */
};

enum way { ONE, MANY, N_WAYS };

static _Atomic unsigned answer; /* 0: nothing was measured; 1: the first connection; LANES */

struct probe {
    struct net *n;
    unsigned peer, n_peers; /* 0: this rank has no partner, and only agrees */
    size_t bytes;
    uint8_t *sent, *received;
    double us[N_WAYS]; /* the least of all rounds; 0: of none yet */
};

uint16_t net_probe_wish(bool *ret_is_open)
{
    const unsigned found = atomic_load(&answer);
    *ret_is_open = found == 0;
    return found == 1 ? 0 : LANES;
}

/* Lanes cost memory, descriptors and a frame each way, so a small gain is not enough. */
bool net_probe_prefers_lanes(double one_us, double lanes_us)
{
    return lanes_us > 0 && lanes_us < 0.8 * one_us;
}

static bool is_wanted(const struct net *n)
{
    bool all = n->n_lanes > 0;
    for (unsigned p = 0; all && p < n->map.n; p++)
        all = (n->member[p].ends.flags & NET_ENDS_PROBED) != 0;
    return all;
}

static void find_partner(struct probe *p)
{
    const struct net_map *m = &p->n->map;
    const unsigned node = m->node ^ 1;
    p->n_peers = net_is_slot(p->n) && node < m->n_nodes;
    if (p->n_peers > 0)
        p->peer = m->first[node] + m->local;
    p->bytes = MOST_BYTES / m->n_slots;
    p->bytes = p->bytes > LEAST_BYTES ? p->bytes : LEAST_BYTES;
}

static enum tcp_next probe_piece(void *arg, bool is_out, unsigned peer, size_t i,
                                 struct tcp_piece *ret)
{
    const struct probe *p = arg;
    (void)peer;
    *ret = (struct tcp_piece){is_out ? p->sent : p->received, p->bytes};
    return i == 0 ? TCP_READY : TCP_END;
}

static size_t probe_bytes(void *arg, bool is_out, unsigned peer)
{
    const struct probe *p = arg;
    (void)is_out;
    (void)peer;
    return p->bytes;
}

static int exchange(struct probe *p, enum way way, struct co_error *err)
{
    struct net *n = p->n;
    const struct tcp_plan plan = {.peer = &p->peer,
                                  .n_peers = p->n_peers,
                                  .arg = p,
                                  .piece = probe_piece,
                                  .bytes = probe_bytes};
    const struct call call = {.kind = CALL_ALL_TO_ALL, .dtype = DDP_UINT8, .count = p->bytes};
    n->number++;
    n->job.call = call; /* for messages */
    if (p->n_peers == 0)
        return 0;
    transport_tcp_stripe_from(n->tcp, way == MANY ? n->tuning.striped_bytes : SIZE_MAX);
    const uint64_t begun_ns = co_now_ns();
    transport_tcp_open(n->tcp, &call, n->number, 0, &plan);
    const int code = transport_tcp_advance(n->tcp, true, err);
    if (code < 0)
        return net_fail(n, code, net_watch_look(n->watch), err);
    const double us = (double)(co_now_ns() - begun_ns) / 1e3;
    p->us[way] = p->us[way] == 0 || us < p->us[way] ? us : p->us[way];
    return 0;
}

/* The greatest of all ranks' times, on all ranks. */
static int agree(struct probe *p, struct co_error *err)
{
    const struct collective greatest = {.kind = CALL_ALL_REDUCE,
                                        .dtype = DDP_FLOAT64,
                                        .op = DDP_MAX,
                                        .count = N_WAYS,
                                        .in = p->us,
                                        .out = p->us};
    return backend_run(&p->n->backend, &greatest, err);
}

static int measure(struct probe *p, struct co_error *err)
{
    int code = exchange(p, MANY, err); /* makes the lanes */
    code = code == 0 ? agree(p, err) : code;
    const bool is_slow = p->us[MANY] > SLOW_US;
    p->us[MANY] = 0;
    for (int i = 0; code == 0 && !is_slow && i < ROUNDS * N_WAYS; i++)
        code = exchange(p, i % N_WAYS, err);
    return code == 0 ? agree(p, err) : code;
}

static void settle(struct net *n, bool pays)
{
    atomic_store(&answer, pays ? LANES : 1);
    if (!pays) { /* groups that are split off inherit the size */
        n->tuning.striped_bytes = SIZE_MAX;
        n->n_lanes = 0;
    }
    transport_tcp_stripe_from(n->tcp, n->tuning.striped_bytes);
}

void net_probe(struct net *n)
{
    struct probe p = {.n = n};
    struct co_error err;
    if (!is_wanted(n))
        return;
    find_partner(&p);
    co_autofree uint8_t *memory = calloc(2, p.bytes);
    p.sent = memory;
    p.received = memory + p.bytes;
    if (memory == NULL)
        net_fail(n, co_fail(&err, -ENOMEM, "out of memory"), false, &err);
    else if (measure(&p, &err) == 0)
        settle(n, net_probe_prefers_lanes(p.us[ONE], p.us[MANY]));
}
