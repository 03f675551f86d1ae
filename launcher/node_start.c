/* node_start.c - the ranks of a generation: when they are asked for, and their place in the job. */
#include "node_state.h"

#include "job_spec.h"
#include "node_guide.h"
#include "node_memory.h"
#include "runtime_dir.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* The ranks of a generation are told where they are once it is made. */
static void take_place(struct node *n)
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
        .scale_fd = n->gen.scale != NULL ? SPAWN_SCALE_FD : -1,
    };
    n->start.first_rank = 0;
    if (n->guide != NULL)
        node_guide_fill_place(n->guide, &n->start.place, &n->start.first_rank);
}

static void on_warm_note(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    (void)status;
    (void)events;
    if (!warm_on_note(&n->warm))
        uv_close((uv_handle_t *)poll, NULL);
}

void node_warm_up(struct node *n)
{
    int fd = warm_start_parent(&n->warm, &n->nursery);
    if (fd < 0 || uv_poll_init(&n->loop, &n->warm_poll, fd) < 0)
        return;
    n->warm_poll.data = n;
    uv_poll_start(&n->warm_poll, UV_READABLE, on_warm_note);
}

static void fail_rank(struct node *n, int rank, int code)
{
    node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_START_FAILED,
                                            .rank = rank,
                                            .status = -code,
                                            .stage = SUPERVISOR_START_INTERNAL});
}

void node_start_ranks(struct node *n, int n_start)
{
    int failure = n->renew_failure;
    if (n->n_started == 0)
        take_place(n);
    while (n_start > 0) {
        int n_asked = 0;
        int n_batch = n_start < SPAWN_AT_ONCE ? n_start : SPAWN_AT_ONCE;
        if (failure == 0)
            failure = start_ranks(&n->start, n->n_started, n_batch, &n_asked);
        if (failure == -EPIPE || failure == -EAGAIN) {
            node_lose_nursery(n);
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

void node_renew(struct node *n)
{
    struct co_error err;
    const struct generation_notes notes = node_generation_notes(n);
    n->n_started = 0;
    start_fini(&n->start);
    n->io.generation = supervisor_generation(n->supervisor);
    runtime_dir_empty(n->runtime_dir);
    oom_watch_renew(&n->oom);
    uint64_t begun_ns = co_now_ns();
    if (n->guide != NULL) /* its store, if it is here, was opened before */
        n->renew_failure = generation_renew_ranks(n->spec, &n->loop, &notes, &n->gen, &err);
    else
        n->renew_failure = generation_renew(n->spec, supervisor_generation(n->supervisor), &n->loop,
                                            &notes, &n->gen, &err);
    if (n->renew_failure < 0)
        node_say(n, "ddprun: %s\n", err.text);
    event_log_generation(&n->event_log, n->io.generation, (double)(co_now_ns() - begun_ns) / 1e6);
}

void node_replace_rank(struct node *n, int rank)
{
    struct co_error err;
    char path[PATH_MAX];
    int n_asked;
    start_fini(&n->start);
    n->io.generation = supervisor_generation(n->supervisor);
    if (n->io.log_dir == NULL) /* what the dead one has written there is not the new one's */
        unlink(runtime_dir_error_file(n->runtime_dir, rank, path, sizeof path));
    take_place(n);
    int rc = generation_replace(&n->gen, rank, n->io.generation, &err);
    if (rc < 0)
        node_say(n, "ddprun: %s\n", err.text);
    else
        rc = start_ranks(&n->start, rank, 1, &n_asked);
    if (rc == -EPIPE || rc == -EAGAIN)
        node_lose_nursery(n);
    else if (rc < 0)
        fail_rank(n, rank, rc);
    else
        node_memory_let_in(n->gen.memory);
}
