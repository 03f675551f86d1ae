/* node_start.c - the ranks of a generation: what each is started with. */
#include "node_state.h"

#include "image.h"
#include "job_spec.h"
#include "node_guide.h"
#include "node_memory.h"
#include "rank_argv.h"
#include "runtime_dir.h"
#include "worker_env.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <unistd.h>

/* This node is the whole job. */
static void fill_place_alone(const struct node *n, int local_rank, struct rank_place *place)
{
    place->rank = local_rank;
    place->world_size = n->spec->n_local;
    place->n_nodes = 1;
    place->master_addr = n->spec->master_addr;
    place->master_port = n->gen.master_port;
    place->agent_store = n->gen.agent_store;
}

static int make_image(const struct node *n, const struct rank_place *place, int *ret_fd)
{
    co_autofree char **env = NULL;
    co_autofree char **argv = NULL;
    int rc = worker_env_make(n->spec, place, environ, &env, NULL);
    if (rc == 0)
        rc = rank_argv_make(n->spec, place->local_rank, &argv, NULL);
    if (rc < 0)
        return rc;
    return image_make(n->spec->path, argv != NULL ? argv : n->spec->argv, env, ret_fd, NULL);
}

/* Ask the nursery for a rank. returns 0; -EPIPE, -EAGAIN: of the nursery; else -errno: of this
 * rank */
static int start_rank(struct node *n, int local_rank)
{
    co_autoclose_fd int image_fd = -1;
    co_autoclose_fd int worker_node = -1;
    char error_file[4096];
    struct rank_place place = {
        .local_rank = local_rank,
        .local_world_size = n->spec->n_local,
        .generation = supervisor_generation(n->supervisor),
        .error_file =
            rank_io_error_file(&n->io, n->runtime_dir, local_rank, error_file, sizeof error_file),
        .node_fd = SPAWN_N_FDS - 1,
    };
    if (n->guide != NULL)
        node_guide_fill_place(n->guide, &place);
    else
        fill_place_alone(n, local_rank, &place);
    int rc = make_image(n, &place, &image_fd);
    if (rc < 0)
        return rc;
    struct rank_fds io;
    rc = rank_io_make(&n->io, local_rank, place.rank, &io, NULL);
    if (rc == 0)
        rc = node_memory_add(n->gen.memory, local_rank, &worker_node);
    if (rc == 0) {
        int fds[SPAWN_N_FDS] = {io.fds[0], io.fds[1], io.fds[2], worker_node};
        rc = nursery_spawn(&n->nursery, local_rank, image_fd, fds);
    }
    rank_fds_close(&io);
    return rc;
}

void node_start_ranks(struct node *n, int n_start)
{
    int failure = n->renew_failure;
    for (int i = 0; i < n_start; i++) {
        int rank = n->n_started++;
        int rc = failure != 0 ? failure : start_rank(n, rank);
        if (rc == 0)
            continue;
        if (rc == -EPIPE || rc == -EAGAIN) {
            node_lose_nursery(n);
            return;
        }
        failure = rc;
        node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_START_FAILED,
                                                .rank = rank,
                                                .status = -rc,
                                                .stage = SUPERVISOR_START_INTERNAL});
    }
}

void node_renew(struct node *n)
{
    struct co_error err;
    const struct generation_notes notes = node_generation_notes(n);
    n->n_started = 0;
    n->io.generation = supervisor_generation(n->supervisor);
    runtime_dir_empty(n->runtime_dir);
    if (n->guide != NULL) /* its store, if it is here, was opened before */
        n->renew_failure = generation_renew_memory(n->spec, &n->loop, &notes, &n->gen, &err);
    else
        n->renew_failure = generation_renew(n->spec, &n->loop, &notes, &n->gen, &err);
    if (n->renew_failure < 0)
        node_say(n, "ddprun: %s\n", err.text);
}
