#include "node_ras.h"

#include "launcher/diagnosis/ras_query.h"
#include "launcher/job/worker_env.h"
#include "launcher/platform/own_addresses.h"
#include "launcher/reporting/status_json.h"

#include "common/clock.h"
#include "common/error.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 50 }; /* at a poll that is under way */

struct node_ras {
    const struct node_view *n;
    uv_timer_t timer;
    struct ras_query *query; /* under way; NULL: none */
    struct ras_query *last;  /* over, and it has a report or a reason; NULL: none */
    uint64_t last_ms;
};

/* --- asking --- */

struct ras_ranks { /* which processes are ranks of this node */
    const struct node_view *n;
    char host[RAS_TEXT_BYTES]; /* that was asked for last ... */
    bool is_here;              /* ... and whether it is this one */
};

static int rank_of_process(void *arg, const char *host, pid_t pid)
{
    struct ras_ranks *r = arg;
    if (strcmp(host, r->host) != 0) {
        snprintf(r->host, sizeof r->host, "%s", host);
        r->is_here = own_addresses_have(host);
    }
    const int local_rank = r->is_here ? node_rank_above(r->n, pid) : -1;
    return local_rank >= 0 ? rank_number(node_numbers(r->n), local_rank) : -1;
}

enum { ADDRESS_BYTES = 32 };

/* The ranks have our environment, and ddprun adds an address where it has none.
 * returns   NULL: the ranks have no RAS that is known */
static const char *find_address(const struct node_view *n, char own[ADDRESS_BYTES])
{
    const char *address = getenv(DDP_ENV_NCCL_RAS_ADDR);
    if (address != NULL && *address != '\0')
        return address;
    if (n->start->place.ras_port == 0)
        return NULL;
    snprintf(own, ADDRESS_BYTES, "127.0.0.1:%u", (unsigned)n->start->place.ras_port);
    return own;
}

struct ras_query *node_ras_ask(const struct node_view *n)
{
    char own[ADDRESS_BYTES];
    const char *address = find_address(n, own);
    struct ras_query *query;
    struct ras_ranks *ranks = address != NULL ? calloc(1, sizeof *ranks) : NULL;
    if (ranks == NULL)
        return NULL;
    ranks->n = n;
    const struct ras_query_opts opts = {
        .address = address, .rank_of = rank_of_process, .on_free = free, .arg = ranks};
    if (ras_query_begin(&opts, co_now_ms(), &query) == 0)
        return query;
    free(ranks);
    return NULL;
}

/* --- polling --- */

static void set_timer(struct node_ras *p, uint64_t ms);

/* returns whether a process has answered, or could have */
static bool keep(struct node_ras *p)
{
    const bool is_any =
        ras_query_report(p->query) != NULL || ras_query_trouble(p->query)[0] != '\0';
    ras_query_destroy(is_any ? p->last : p->query);
    if (is_any) {
        p->last = p->query;
        p->last_ms = co_now_ms();
    }
    p->query = NULL;
    return is_any;
}

static void on_time(uv_timer_t *timer)
{
    struct node_ras *p = timer->data;
    const bool wants = supervisor_get_state(p->n->supervisor) == SUPERVISOR_RUNNING &&
                       p->n->start->place.node_rank == 0;
    if (p->query == NULL && wants)
        p->query = node_ras_ask(p->n);
    if (ras_query_look(p->query, co_now_ms()))
        set_timer(p, LOOK_MS);
    else if (p->query != NULL && keep(p))
        set_timer(p, NODE_RAS_POLL_MS);
    else
        set_timer(p, NODE_RAS_FIRST_MS);
}

static void set_timer(struct node_ras *p, uint64_t ms)
{
    uv_timer_start(&p->timer, on_time, ms, 0);
}

void node_ras_fill_status(const struct node_view *n, struct status *s)
{
    const struct node_ras *p = n->parts->ras;
    if (p == NULL || p->last == NULL)
        return;
    s->nccl = ras_query_report(p->last);
    s->nccl_trouble = ras_query_trouble(p->last);
    s->nccl_ms = p->last_ms;
}

/* --- beginning and end --- */

static void forget(struct node_ras *p)
{
    ras_query_destroy(p->query);
    ras_query_destroy(p->last);
    p->query = p->last = NULL;
}

static int ras_open(const struct node_view *n, struct co_error *err)
{
    struct node_ras *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    uv_timer_init(n->loop, &p->timer);
    p->timer.data = p;
    n->parts->ras = p;
    return 0;
}

static int ras_on_generation(const struct node_view *n)
{
    struct node_ras *p = n->parts->ras;
    char own[ADDRESS_BYTES];
    if (find_address(n, own) != NULL && !uv_is_active((uv_handle_t *)&p->timer))
        set_timer(p, NODE_RAS_FIRST_MS);
    return 0;
}

static void ras_on_end(const struct node_view *n, bool lives)
{
    forget(n->parts->ras);
    if (!lives)
        uv_timer_stop(&n->parts->ras->timer);
}

static void ras_close(const struct node_view *n)
{
    struct node_ras *p = n->parts->ras;
    n->parts->ras = NULL;
    if (p == NULL)
        return;
    forget(p);
    uv_close((uv_handle_t *)&p->timer, node_free_data);
}

const struct node_feature node_ras_feature = {
    .open = ras_open, .on_generation = ras_on_generation, .on_end = ras_on_end, .close = ras_close};
