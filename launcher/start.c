#include "start.h"

#include "binding.h"
#include "generation.h"
#include "image.h"
#include "job_spec.h"
#include "node_memory.h"
#include "nursery.h"
#include "rank_argv.h"
#include "rank_io.h"
#include "scale.h"
#include "worker_env.h"

#include "common/scope.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* What a rank needs until the nursery has been asked for it. */
struct one {
    char **env;
    char **argv;      /* NULL: the job's words serve it as they are */
    const char *path; /* borrowed of the job */
    struct rank_fds io;
    int node_fd, scale_fd; /* -1: none */
};

static void one_fini(struct one *r)
{
    free(r->env);
    free(r->argv);
    rank_fds_close(&r->io);
    if (r->node_fd >= 0)
        close(r->node_fd);
    if (r->scale_fd >= 0)
        close(r->scale_fd);
}

static int make_words(const struct start *s, int local_rank, struct one *r)
{
    char error_file[PATH_MAX];
    struct rank_place place = {
        .rank = s->first_rank + local_rank,
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

static int one_init(const struct start *s, int local_rank, struct one *ret)
{
    *ret = (struct one){.io = {.owned = {-1, -1}}, .node_fd = -1, .scale_fd = -1};
    int rc = make_words(s, local_rank, ret);
    if (rc == 0)
        rc = rank_io_make(s->io, local_rank, s->first_rank + local_rank, &ret->io, NULL);
    if (rc == 0)
        rc = node_memory_add(s->gen->memory, local_rank, &ret->node_fd);
    if (rc == 0 && s->gen->scale != NULL)
        rc = scale_add(s->gen->scale, local_rank, &ret->scale_fd);
    if (rc < 0)
        one_fini(ret);
    return rc;
}

static const struct cpu_set *cpus_of(const struct job_spec *spec, int local_rank)
{
    const struct binding *b = spec->binding;
    return b != NULL && b->is_bound ? &b->ranks[local_rank].cpus : NULL;
}

static int ask(const struct start *s, int first, const struct one *ranks, int n)
{
    struct image_words words[SPAWN_AT_ONCE];
    int fds[SPAWN_AT_ONCE][SPAWN_N_FDS];
    co_autoclose_fd int image_fd = -1;
    for (int i = 0; i < n; i++) {
        const struct one *r = &ranks[i];
        words[i] = (struct image_words){
            .path = r->path,
            .argv = r->argv != NULL ? r->argv : job_spec_program(s->spec, first + i).argv,
            .env = r->env,
            .cpus = cpus_of(s->spec, first + i)};
        for (int j = 0; j < SPAWN_NODE_FD; j++)
            fds[i][j] = r->io.fds[j];
        fds[i][SPAWN_NODE_FD] = r->node_fd;
        fds[i][SPAWN_SCALE_FD] = r->scale_fd;
    }
    int rc = image_make(words, (size_t)n, &image_fd, NULL);
    return rc < 0 ? rc : nursery_spawn(s->nursery, first, n, image_fd, fds);
}

int start_ranks(struct start *s, int first, int n, int *ret_n)
{
    struct one ranks[SPAWN_AT_ONCE];
    int n_made = 0;
    int rc = 0;
    if (s->env == NULL)
        rc = worker_env_create(s->spec, &s->place, s->environment, &s->env, NULL);
    while (rc == 0 && n_made < n) {
        rc = one_init(s, first + n_made, &ranks[n_made]);
        n_made += rc == 0;
    }
    int asked = n_made > 0 ? ask(s, first, ranks, n_made) : 0;
    for (int i = 0; i < n_made; i++)
        one_fini(&ranks[i]);
    *ret_n = asked == 0 ? n_made : 0;
    return asked < 0 ? asked : rc;
}

void start_fini(struct start *s)
{
    worker_env_destroy(s->env);
    s->env = NULL;
}
