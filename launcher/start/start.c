#include "start.h"

#include "launcher/generation/checkpoint_request.h"
#include "launcher/generation/generation.h"
#include "launcher/generation/node_memory.h"
#include "launcher/generation/pmi_host.h"
#include "launcher/generation/progress_pipes.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/rank_argv.h"
#include "launcher/job/worker_env.h"
#include "launcher/platform/binding.h"
#include "launcher/spawner/image.h"
#include "launcher/spawner/spawner.h"
#include "launcher/stdio/rank_io.h"
#include "launcher/supervisor/rank_numbers.h"

#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a rank needs until the spawner has been asked for it. */
struct new_rank {
    char **env;
    char **argv;      /* NULL: the job's words serve it as they are */
    const char *path; /* borrowed of the job */
    struct rank_fds io;
    int node_fd, checkpoint_fd, pmi_fd, progress_fd; /* -1: none */
};

static void new_rank_fini(struct new_rank *r)
{
    free(r->env);
    free(r->argv);
    rank_fds_close(&r->io);
    if (r->node_fd >= 0)
        close(r->node_fd);
    if (r->checkpoint_fd >= 0)
        close(r->checkpoint_fd);
    if (r->pmi_fd >= 0)
        close(r->pmi_fd);
    if (r->progress_fd >= 0)
        close(r->progress_fd);
}

static int number(const struct start *s, int local_rank)
{
    const struct rank_numbers numbers = {.first = s->first_rank, .supervisor = s->supervisor};
    return rank_number(numbers, local_rank);
}

static int make_words(const struct start *s, int local_rank, struct new_rank *r)
{
    char error_file[PATH_MAX];
    struct rank_place place = {
        .rank = number(s, local_rank),
        .local_rank = local_rank,
        .error_file =
            rank_io_error_file(s->io, s->runtime_dir, local_rank, error_file, sizeof error_file),
    };
    struct rank_values values;
    int rc = worker_env_make(s->env, &place, &r->env, NULL);
    if (rc < 0)
        return rc;
    rank_values_fill(&values, s->spec, &s->place, &place);
    r->path = rank_argv_path(s->spec, &values);
    return rank_argv_make(s->spec, &values, &r->argv, NULL);
}

static int new_rank_init(const struct start *s, int local_rank, struct new_rank *ret)
{
    *ret = (struct new_rank){.io = {.owned = {-1, -1}, .ours = {-1, -1}},
                             .node_fd = -1,
                             .checkpoint_fd = -1,
                             .pmi_fd = -1,
                             .progress_fd = -1};
    int rc = make_words(s, local_rank, ret);
    if (rc == 0)
        rc = rank_io_make(s->io, local_rank, number(s, local_rank), &ret->io, NULL);
    if (rc == 0)
        rc = node_memory_add(s->gen->memory, local_rank, &ret->node_fd);
    if (rc == 0 && s->gen->checkpoint_request != NULL)
        rc = checkpoint_request_add(s->gen->checkpoint_request, local_rank, &ret->checkpoint_fd);
    if (rc == 0)
        rc = progress_pipes_add(s->gen->pipes, local_rank, &ret->progress_fd);
    if (rc == 0 && s->pmi != NULL)
        rc = pmi_host_add(s->pmi, local_rank, &ret->pmi_fd);
    if (rc < 0)
        new_rank_fini(ret);
    return rc;
}

static const struct cpu_set *cpus_of(const struct job_spec *spec, int local_rank)
{
    const struct binding *b = spec->binding;
    return b != NULL && b->is_bound ? &b->ranks[local_rank].cpus : NULL;
}

static int ask_spawner(const struct start *s, int first, const struct new_rank *ranks, int n)
{
    struct image_words words[SPAWN_AT_ONCE];
    int fds[SPAWN_AT_ONCE][SPAWN_N_FDS];
    co_autoclose_fd int image_fd = -1;
    for (int i = 0; i < n; i++) {
        const struct new_rank *r = &ranks[i];
        words[i] = (struct image_words){
            .path = r->path,
            .argv = r->argv != NULL ? r->argv : job_spec_program(s->spec, first + i).argv,
            .env = r->env,
            .cpus = cpus_of(s->spec, first + i)};
        for (int j = 0; j < SPAWN_NODE_FD; j++)
            fds[i][j] = r->io.fds[j];
        fds[i][SPAWN_NODE_FD] = r->node_fd;
        fds[i][SPAWN_CHECKPOINT_FD] = r->checkpoint_fd;
        fds[i][SPAWN_PMI_FD] = r->pmi_fd;
        fds[i][SPAWN_PROGRESS_FD] = r->progress_fd;
        fds[i][SPAWN_ENCRYPT_FD] = s->encrypt_fd;
        fds[i][SPAWN_MEMORY_FD] = s->memory_fd;
    }
    int rc = image_make(words, (size_t)n, &image_fd, NULL);
    return rc < 0 ? rc : spawner_spawn(s->spawner, first, n, image_fd, fds);
}

/* A rank that starts after others were dropped still gets LOCAL_WORLD_SIZE of the job's start,
 * because its local rank may be larger than the number that is left. WORLD_SIZE is raised to it:
 * libraries reject a world that is smaller than its local part. libddp learns the real numbers from
 * the node socket. */
static int make_env(struct start *s)
{
    struct generation_place place = s->place;
    place.node_dir = s->runtime_dir;
    if (place.world_size < place.local_world_size)
        place.world_size = place.local_world_size;
    return worker_env_create(s->spec, &place, s->environment, &s->env, NULL);
}

int start_ranks(struct start *s, int first, int n, int *ret_n)
{
    struct new_rank ranks[SPAWN_AT_ONCE];
    int n_made = 0;
    int rc = 0;
    if (s->env == NULL)
        rc = make_env(s);
    while (rc == 0 && n_made < n) {
        rc = new_rank_init(s, first + n_made, &ranks[n_made]);
        n_made += rc == 0;
    }
    int asked = n_made > 0 ? ask_spawner(s, first, ranks, n_made) : 0;
    for (int i = 0; i < n_made; i++)
        new_rank_fini(&ranks[i]);
    *ret_n = asked == 0 ? n_made : 0;
    return asked < 0 ? asked : rc;
}

/* --- a process in waiting --- */

const struct standby_ends standby_ends_none = {
    .out = {-1, -1}, .node_fd = -1, .checkpoint_fd = -1, .progress_fd = -1};

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void standby_ends_close(struct standby_ends *e)
{
    close_end(&e->out[0]);
    close_end(&e->out[1]);
    close_end(&e->node_fd);
    close_end(&e->checkpoint_fd);
    close_end(&e->progress_fd);
}

/* ours[i]: NULL is fine. theirs: by the number that it has there. returns 0, -errno */
static int make_pairs(bool scales, struct standby_ends *ours, int theirs[SPAWN_N_FDS])
{
    int pair[2];
    for (int which = 0; which < 2; which++) {
        if (pipe2(pair, O_CLOEXEC) < 0)
            return -errno;
        ours->out[which] = pair[0];
        theirs[1 + which] = pair[1];
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ours->node_fd = pair[0];
    theirs[SPAWN_NODE_FD] = pair[1];
    int rc = progress_pipes_open(pair);
    if (rc < 0)
        return rc;
    ours->progress_fd = pair[0];
    theirs[SPAWN_PROGRESS_FD] = pair[1];
    if (!scales)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ours->checkpoint_fd = pair[0];
    theirs[SPAWN_CHECKPOINT_FD] = pair[1];
    return 0;
}

static int ask_standby(const struct start *s, int number, char **env, const int *fds)
{
    const struct image_words words = {.path = s->spec->path, .argv = s->spec->argv, .env = env};
    co_autoclose_fd int image_fd = -1;
    int all[1][SPAWN_N_FDS];
    memcpy(all[0], fds, sizeof all[0]);
    int rc = image_make(&words, 1, &image_fd, NULL);
    return rc < 0 ? rc
                  : spawner_spawn(s->spawner, number, 1, image_fd, (const int(*)[SPAWN_N_FDS])all);
}

int start_standby(struct start *s, int number, uint64_t bytes, struct standby_ends *ret)
{
    int theirs[SPAWN_N_FDS] = {s->io->null_fd, -1, -1, -1, -1, -1, -1, -1, -1};
    co_autofree char **env = NULL;
    *ret = standby_ends_none;
    int rc = 0;
    if (s->env == NULL)
        rc = make_env(s);
    if (rc == 0)
        rc = worker_env_make_standby(s->env, bytes, &env, NULL);
    if (rc == 0)
        rc = make_pairs(s->gen->checkpoint_request != NULL, ret, theirs);
    theirs[SPAWN_ENCRYPT_FD] = s->encrypt_fd;
    theirs[SPAWN_MEMORY_FD] = s->memory_fd;
    if (rc == 0)
        rc = ask_standby(s, number, env, theirs);
    theirs[SPAWN_ENCRYPT_FD] = theirs[SPAWN_MEMORY_FD] = -1; /* the next ranks need them */
    for (int i = 1; i < SPAWN_N_FDS; i++)
        close_end(&theirs[i]);
    if (rc < 0)
        standby_ends_close(ret);
    return rc;
}

void start_fini(struct start *s)
{
    worker_env_destroy(s->env);
    s->env = NULL;
}
