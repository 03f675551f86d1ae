/* node_start.c - the ranks of a generation: when they are asked for, and their place in the job. */
#include "node_priv.h"

#include "launcher/generation/checkpoint_request.h"
#include "launcher/generation/node_memory.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/rank_argv.h"
#include "launcher/platform/gpus.h"
#include "launcher/platform/own_addresses.h"
#include "launcher/platform/resources.h"
#include "launcher/spawner/runtime_dir.h"
#include "node_pmi.h"
#include "node_roster.h"
#include "node_standby.h"

#include "common/clock.h"
#include "common/error.h"
#include "segments/broker.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* Without an answer the ranks get MASTER_ADDR as it is: the program may be able to use a name, and
 * reports an error if it cannot. */
static void find_ip(struct node *n)
{
    struct co_error err;
    if (master_ip_find(n->start.place.master_addr, n->master_ip, &err) == 0)
        n->start.place.master_ip = n->master_ip;
    else
        node_say(&n->view, CO_WARNING, "{master_ip}: %s; the ranks get the host name", err.text);
}

/* Jobs of one user on a machine share NCCL's default address, and one of their processes answers.
 * Without a free port, NCCL keeps its default. */
static uint16_t find_ras_port(const struct node *n)
{
    struct co_error err;
    uint16_t port = 0;
    if ((n->spec->n_local > 1 || n->spec->world.has_others) &&
        resources_n_gpus("", gpus_visible_here()) > 0)
        generation_find_port(&port, &err);
    return port;
}

/* The ranks of this node reach the store at a port of their own machine. */
static int lead_to_relay(struct node *n)
{
    struct generation_place *p = &n->start.place;
    struct co_error err;
    if (!p->relayed)
        return 0;
    int rc = generation_open_relay(n->spec, p->generation, p->master_addr, p->master_port, &n->loop,
                                   &n->callbacks, &n->gen, &err);
    if (rc < 0) {
        node_say(&n->view, CO_ERROR, "%s", err.text);
        return rc;
    }
    p->master_host = p->master_addr;
    p->master_addr = GENERATION_LOCAL_HOST;
    p->master_port = n->gen.local_port;
    return 0;
}

/* The ranks of a generation get their places once it is made. returns 0, -errno */
static int take_place(struct node *n)
{
    n->start.place = (struct generation_place){
        .world_size = n->spec->n_local,
        .local_world_size = n->spec->n_local,
        .n_nodes = 1,
        .generation = supervisor_generation(n->supervisor),
        .master_addr = n->spec->master_addr,
        .master_port = n->gen.master_port,
        .agent_store = n->gen.agent_store,
        .node_fd = SPAWN_NODE_FD,
        .checkpoint_fd = n->gen.checkpoint_request != NULL ? SPAWN_CHECKPOINT_FD : -1,
        .pmi_fd = n->spec->mpi == MPI_BY_PMI1 ? SPAWN_PMI_FD : -1,
        .progress_fd = SPAWN_PROGRESS_FD,
        .encrypt_fd = n->encrypt_fd >= 0 ? SPAWN_ENCRYPT_FD : 0,
        .memory_fd = n->memory_fd >= 0 ? SPAWN_MEMORY_FD : 0,
    };
    if (n->ras_port == 0) /* ranks that outlive a generation keep it */
        n->ras_port = find_ras_port(n);
    n->start.place.ras_port = n->ras_port;
    n->start.place.timer_file = n->parts.timer_file;
    n->start.first_rank = 0;
    node_roster_fill_place(n->parts.roster, &n->start.place, &n->start.first_rank);
    n->io.first_rank = n->start.first_rank;
    const int rc = lead_to_relay(n);
    if (rank_argv_uses(n->spec, TEMPLATE_MASTER_IP))
        find_ip(n);
    return rc;
}

static void on_warm_note(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    (void)status;
    (void)events;
    if (!warm_on_note(&n->warm))
        uv_close((uv_handle_t *)poll, NULL);
}

bool node_waits_for_devices(const struct node *n)
{
    return n->spec->on_failure != FAILURE_SHRINKS && resources_n_gpus("", gpus_visible_here()) > 0;
}

void node_warm_up(struct node *n)
{
    int fd = warm_start_parent(&n->warm, &n->spawner);
    if (fd < 0)
        return;
    if (!node_waits_for_devices(n)) /* else a death is seen later, and that is all */
        spawner_watch(&n->spawner);
    if (uv_poll_init(&n->loop, &n->warm_poll, fd) < 0)
        return;
    n->warm_poll.data = n;
    uv_poll_start(&n->warm_poll, UV_READABLE, on_warm_note);
}

/* No rank of this node has imported anything that the fork parent could learn from. */
void node_on_spare(void *arg)
{
    struct node *n = arg;
    n->warm.is_ahead = true;
    node_warm_up(n);
}

static void fail_rank(struct node *n, int rank, int code)
{
    node_post(&n->view, &(struct supervisor_event){.type = SUPERVISOR_EV_START_FAILED,
                                                   .rank = rank,
                                                   .status = -code,
                                                   .stage = SUPERVISOR_START_INTERNAL});
}

static void ask_for_ranks(struct node *n, int n_start)
{
    int failure = n->renew_failure;
    while (n_start > 0) {
        int n_asked = 0;
        int n_batch = n_start < SPAWN_AT_ONCE ? n_start : SPAWN_AT_ONCE;
        if (failure == 0)
            failure = start_ranks(&n->start, n->n_started, n_batch, &n_asked);
        if (failure == -EPIPE || failure == -EAGAIN) {
            node_lose_spawner(&n->view);
            return;
        }
        n->n_started += n_asked;
        n_start -= n_asked;
        if (failure != 0) {
            n_start--;
            fail_rank(n, n->n_started++, failure);
        }
    }
}

void node_start_ranks(struct node *n, int n_start)
{
    if (n->n_started == 0) {
        const int rc = take_place(n);
        if (n->renew_failure == 0)
            n->renew_failure = rc ?: node_features_on_generation(&n->view);
    }
    if (node_pmi_is_meeting(&n->view))
        n->n_held = n_start;
    else
        ask_for_ranks(n, n_start);
}

void node_resume(struct node *n, int failure)
{
    const int n_start = n->n_held;
    n->n_held = 0;
    if (failure != 0)
        n->renew_failure = failure;
    ask_for_ranks(n, n_start);
}

void node_drop_held(struct node *n)
{
    for (; n->n_held > 0; n->n_held--)
        fail_rank(n, n->n_started++, -ECANCELED);
}

void node_renew(struct node *n)
{
    struct co_error err;
    n->n_started = 0;
    if (!n->spec->world.has_others && supervisor_generation(n->supervisor) == 0)
        return; /* it was made before anything was started */
    node_features_on_end(&n->view, false);
    start_fini(&n->start);
    n->io.generation = supervisor_generation(n->supervisor);
    runtime_dir_forget_ranks(n->runtime_dir);
    oom_watch_renew(&n->oom);
    uint64_t begun_ns = co_now_ns();
    if (n->spec->world.has_others) /* its store, if this node has it, was opened before */
        n->renew_failure = generation_renew_ranks(n->spec, n->io.generation, &n->loop,
                                                  &n->callbacks, &n->gen, &err);
    else
        n->renew_failure = generation_renew(n->spec, supervisor_generation(n->supervisor), &n->loop,
                                            &n->callbacks, &n->gen, &err);
    if (n->renew_failure < 0)
        node_say(&n->view, CO_ERROR, "%s", err.text);
    event_log_generation(&n->event_log, n->io.generation, (double)(co_now_ns() - begun_ns) / 1e6);
}

static struct broker_world world_of(const struct start *s)
{
    const struct generation_place *p = &s->place;
    return (struct broker_world){.first_rank = (uint32_t)s->first_rank,
                                 .world_size = (uint32_t)p->world_size,
                                 .node_rank = (uint32_t)p->node_rank,
                                 .n_nodes = (uint32_t)p->n_nodes,
                                 .port = p->master_port,
                                 .host = p->master_addr};
}

/* The ranks that live do not read their environment again: they hear where they are by the node
 * socket. */
static void make_generation(struct node *n)
{
    struct co_error err;
    start_fini(&n->start);
    n->io.generation = supervisor_generation(n->supervisor);
    n->renew_failure = take_place(n);
    if (n->renew_failure < 0)
        return;
    const struct broker_world world = world_of(&n->start);
    n->renew_failure = generation_recover(&n->gen, n->io.generation, &world, &err);
    if (n->renew_failure < 0)
        node_say(&n->view, CO_ERROR, "%s", err.text);
}

static int restart_rank(struct node *n, int rank)
{
    char path[PATH_MAX];
    int n_asked;
    if (n->io.log_dir == NULL) /* what the dead one has written there is not the new one's */
        unlink(runtime_dir_error_file(n->runtime_dir, rank, path, sizeof path));
    if (node_standby_take(&n->view, rank))
        return 0;
    return start_ranks(&n->start, rank, 1, &n_asked);
}

void node_start_again(struct node *n, int rank)
{
    const int rc = restart_rank(n, rank);
    if (rc == -EPIPE || rc == -EAGAIN)
        node_lose_spawner(&n->view);
    else if (rc != 0)
        fail_rank(n, rank, rc);
}

/* Each rank gets an answer, also those that were not tried. */
void node_recover(struct node *n, const struct supervisor_orders *o)
{
    if (o->recover)
        node_features_on_end(&n->view, true);
    for (int i = 0; i < o->n_dropped; i++) {
        node_memory_drop(n->gen.memory, o->dropped[i]);
        if (n->gen.checkpoint_request != NULL)
            checkpoint_request_drop(n->gen.checkpoint_request, o->dropped[i]);
    }
    if (o->recover)
        make_generation(n);
    int failure = n->renew_failure;
    for (int i = 0; i < o->n_restart; i++) {
        if (failure == 0)
            failure = restart_rank(n, o->restart[i]);
        if (failure == -EPIPE || failure == -EAGAIN) {
            node_lose_spawner(&n->view);
            return;
        }
        if (failure != 0)
            fail_rank(n, o->restart[i], failure);
    }
    if (o->recover && failure == 0)
        node_memory_let_in(n->gen.memory);
}
