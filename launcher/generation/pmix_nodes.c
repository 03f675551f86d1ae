#include "pmix_nodes.h"

#include "pmi_exchange.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/pmix/pmix_hello.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_RANK = -1 };

struct pmix_nodes {
    struct pmix_nodes_opts opts;
    struct pmi_exchange *exchange; /* owned */
    uv_timer_t timer;              /* until all have begun */
    bool has_met, has_failed;
    struct co_buf all; /* owned; the parts of the fence under way */
    int64_t gone;      /* a rank that never comes, of the round under way; NO_RANK */
    struct pmix_hello hellos[];
};

static void fail(struct pmix_nodes *n, const char *text)
{
    if (n->has_failed)
        return;
    n->has_failed = true;
    uv_timer_stop(&n->timer);
    n->opts.on_failed(n->opts.arg, text);
}

/* --- what other nodes bring --- */

static int take_part(struct pmix_nodes *n, const uint8_t *bytes, size_t len)
{
    struct pmix_part part;
    int rc = pmix_part_read(bytes, len, &part);
    if (rc == 0 && !part.is_gone)
        return co_buf_append(&n->all, part.bytes, part.len);
    if (rc == 0)
        n->gone = part.rank;
    return rc;
}

static void on_part(void *arg, uint32_t node, const uint8_t *bytes, size_t len)
{
    struct pmix_nodes *n = arg;
    struct co_error err = {.text = "a node sent an invalid PMIx fence"};
    if (n->has_failed)
        return;
    int rc =
        n->has_met ? take_part(n, bytes, len) : pmix_hello_read(bytes, len, &n->hellos[node], &err);
    if (rc < 0)
        fail(n, rc == -ENOMEM ? "out of memory" : err.text);
}

static void end_fence(struct pmix_nodes *n)
{
    const size_t len = co_buf_len(&n->all);
    uint8_t *bytes = len > 0 ? malloc(len) : NULL;
    if (len > 0 && bytes == NULL) {
        fail(n, "out of memory");
        return;
    }
    if (len > 0)
        memcpy(bytes, co_buf_bytes(&n->all), len);
    co_buf_consume(&n->all, len);
    n->opts.on_fence(n->opts.arg, bytes, len);
}

static void end_without(struct pmix_nodes *n)
{
    const uint32_t rank = (uint32_t)n->gone;
    n->gone = NO_RANK;
    co_buf_consume(&n->all, co_buf_len(&n->all));
    n->opts.on_gone(n->opts.arg, rank);
}

static void on_round(void *arg, uint32_t round)
{
    struct pmix_nodes *n = arg;
    (void)round;
    if (n->has_failed)
        return;
    if (!n->has_met) {
        n->has_met = true;
        uv_timer_stop(&n->timer);
        n->opts.on_met(n->opts.arg);
    } else if (n->gone != NO_RANK) {
        end_without(n);
    } else {
        end_fence(n);
    }
}

static void on_exchange_failed(void *arg, const char *text)
{
    fail(arg, text);
}

static void on_late(uv_timer_t *timer)
{
    char text[160];
    snprintf(text, sizeof text,
             "timed out after %d s waiting for PMIx on the other nodes: use the same --mpi on all "
             "nodes",
             PMIX_NODES_MEET_MS / 1000);
    fail(timer->data, text);
}

/* --- what this node brings --- */

int pmix_nodes_bring_fence(struct pmix_nodes *n, const uint8_t *bytes, size_t len)
{
    struct co_buf part = {0};
    const uint8_t first = PMIX_PART_FENCE;
    int rc = co_buf_append(&part, &first, 1);
    if (rc == 0 && len > 0)
        rc = co_buf_append(&part, bytes, len);
    if (rc == 0)
        rc = pmi_exchange_bring(n->exchange, co_buf_bytes(&part), co_buf_len(&part));
    co_buf_fini(&part);
    return rc;
}

int pmix_nodes_bring_gone(struct pmix_nodes *n, uint32_t rank)
{
    char text[PMIX_PART_GONE_BYTES];
    const int len = pmix_part_print_gone(rank, text);
    return pmi_exchange_bring(n->exchange, (const uint8_t *)text, (size_t)len);
}

const struct pmix_hello *pmix_nodes_get(const struct pmix_nodes *n, uint32_t node)
{
    return &n->hellos[node];
}

/* --- beginning and end --- */

static int open_exchange(struct pmix_nodes *n, uv_loop_t *loop, const struct pmix_nodes_opts *opts,
                         struct co_error *err)
{
    const struct pmi_exchange_opts of_exchange = {.host = opts->store_host,
                                                  .port = opts->store_port,
                                                  .generation = opts->generation,
                                                  .node = opts->node,
                                                  .n_nodes = opts->n_nodes,
                                                  .on_part = on_part,
                                                  .on_round = on_round,
                                                  .on_failed = on_exchange_failed,
                                                  .arg = n};
    char text[PMIX_HELLO_BYTES];
    const int len = pmix_hello_print(opts->own, text);
    if (len < 0)
        return co_fail(err, len, "this node's PMIx announcement is too long");
    int rc = pmi_exchange_open(loop, &of_exchange, &n->exchange, err);
    if (rc == 0 && pmi_exchange_bring(n->exchange, (const uint8_t *)text, (size_t)len) < 0)
        rc = co_fail(err, -ENOMEM, "out of memory");
    return rc;
}

int pmix_nodes_open(uv_loop_t *loop, const struct pmix_nodes_opts *opts, struct pmix_nodes **ret,
                    struct co_error *err)
{
    struct pmix_nodes *n = calloc(1, sizeof *n + opts->n_nodes * sizeof n->hellos[0]);
    if (n == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    n->opts = *opts;
    n->opts.store_host = NULL; /* was lent, as the next one */
    n->opts.own = NULL;
    n->gone = NO_RANK;
    uv_timer_init(loop, &n->timer);
    n->timer.data = n;
    int rc = open_exchange(n, loop, opts, err);
    if (rc < 0) {
        pmix_nodes_close(n);
        return rc;
    }
    uv_timer_start(&n->timer, on_late, PMIX_NODES_MEET_MS, 0);
    *ret = n;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct pmix_nodes *n = handle->data;
    co_buf_fini(&n->all);
    free(n);
}

void pmix_nodes_close(struct pmix_nodes *n)
{
    if (n == NULL)
        return;
    pmi_exchange_close(n->exchange);
    n->exchange = NULL;
    uv_close((uv_handle_t *)&n->timer, on_timer_closed);
}
