#include "worker_env.h"

#include "common/error.h"
#include "job_spec.h"

#include <ddp/env.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What starters of ddprun (mpirun, mpiexec, srun with PMI) leave for their own child, which our
 * workers are not: a worker that finds them believes it is the starter's rank. And the nodes'
 * secret, which is not the workers'. */
static const char *const scrubbed[] = {"PMI_", "PMIX_",     "OMPI_",          "MV2_",
                                       "HYD",  "MPI_LOCAL", DDP_ENV_TOKEN "="};

enum { SETTINGS_MAX = 24, NUMBER_BYTES = 12 };

struct setting {
    const char *name;
    const char *value; /* value_len bytes of it; NULL: the worker has none */
    size_t name_len, value_len;
    bool is_default; /* the parent's value, if there is one, stays */
    bool is_kept;    /* there is one */
};

struct settings {
    struct setting of[SETTINGS_MAX];
    size_t n;
    char numbers[SETTINGS_MAX][NUMBER_BYTES];
};

static struct setting *set(struct settings *s, const char *name, const char *value)
{
    struct setting *new = &s->of[s->n++];
    *new = (struct setting){.name = name, .value = value, .name_len = strlen(name)};
    new->value_len = value != NULL ? strlen(value) : 0;
    return new;
}

static struct setting *set_number(struct settings *s, const char *name, int64_t number)
{
    char *text = s->numbers[s->n];
    snprintf(text, NUMBER_BYTES, "%" PRId64, number);
    return set(s, name, text);
}

/* The nth entry of the parent's list of devices is the rank's only one; without a list, n. */
static void set_device(struct settings *s, char *const *parent, int local_rank)
{
    static const char list[] = DDP_ENV_CUDA_VISIBLE_DEVICES "=";
    const char *at = NULL;
    for (char *const *v = parent; at == NULL && *v != NULL; v++)
        if (strncmp(*v, list, sizeof list - 1) == 0)
            at = *v + sizeof list - 1;
    if (at == NULL) {
        set_number(s, DDP_ENV_CUDA_VISIBLE_DEVICES, local_rank);
        return;
    }
    for (int i = 0; i < local_rank && *at != '\0'; i++) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    at += strspn(at, " ");
    size_t len = strcspn(at, ",");
    while (len > 0 && at[len - 1] == ' ')
        len--;
    set(s, DDP_ENV_CUDA_VISIBLE_DEVICES, at)->value_len = len;
}

static void fill(struct settings *s, const struct job_spec *spec, const struct rank_place *place,
                 char *const *parent)
{
    s->n = 0;
    set_number(s, DDP_ENV_RANK, place->rank);
    set_number(s, DDP_ENV_WORLD_SIZE, place->world_size);
    set_number(s, DDP_ENV_LOCAL_RANK, spec->virtual_local_rank ? 0 : place->local_rank);
    set_number(s, DDP_ENV_LOCAL_WORLD_SIZE, place->local_world_size);
    set_number(s, DDP_ENV_GROUP_RANK, place->node_rank);
    set_number(s, DDP_ENV_GROUP_WORLD_SIZE, place->n_nodes);
    set(s, DDP_ENV_ROLE_NAME, spec->role);
    set_number(s, DDP_ENV_ROLE_RANK, place->rank);
    set_number(s, DDP_ENV_ROLE_WORLD_SIZE, place->world_size);
    set(s, DDP_ENV_MASTER_ADDR, place->master_addr);
    set_number(s, DDP_ENV_MASTER_PORT, place->master_port);
    set_number(s, DDP_ENV_RESTART_COUNT, place->generation);
    set_number(s, DDP_ENV_MAX_RESTARTS, spec->max_restarts);
    set(s, DDP_ENV_RUN_ID, spec->run_id);
    set(s, DDP_ENV_USE_AGENT_STORE, place->agent_store ? "True" : "False");
    set(s, DDP_ENV_ERROR_FILE, place->error_file);
    set(s, DDP_ENV_SIGNALS_TO_HANDLE, spec->signals_to_handle);
    set(s, DDP_ENV_NCCL_ASYNC_ERROR_HANDLING, "1")->is_default = true;
    if (spec->omp_threads > 0)
        set_number(s, DDP_ENV_OMP_NUM_THREADS, spec->omp_threads)->is_default = !spec->omp_asked;
    if (spec->virtual_local_rank)
        set_device(s, parent, place->local_rank);
    set_number(s, DDP_ENV_GENERATION, place->generation);
    if (place->node_fd >= 0)
        set_number(s, DDP_ENV_NODE_FD, place->node_fd);
    else
        set(s, DDP_ENV_NODE_FD, NULL); /* that of a ddprun around this one is not ours to give */
}

static struct setting *find(struct settings *s, const char *variable)
{
    for (size_t i = 0; i < s->n; i++) {
        struct setting *t = &s->of[i];
        if (t->name[0] == variable[0] && strncmp(t->name, variable, t->name_len) == 0 &&
            (variable[t->name_len] == '=' || variable[t->name_len] == '\0'))
            return t;
    }
    return NULL;
}

/* Does the worker get this variable of the parent's? */
static bool passes(struct settings *s, const char *variable)
{
    for (size_t i = 0; i < sizeof scrubbed / sizeof *scrubbed; i++)
        if (strncmp(variable, scrubbed[i], strlen(scrubbed[i])) == 0)
            return false;
    struct setting *t = find(s, variable);
    if (t == NULL)
        return true;
    t->is_kept = t->is_default;
    return t->is_kept;
}

int worker_env_make(const struct job_spec *spec, const struct rank_place *place,
                    char *const *parent, char ***ret_env, struct co_error *err)
{
    struct settings settings;
    size_t n = 1;
    size_t bytes = 0;
    fill(&settings, spec, place, parent);
    for (char *const *v = parent; *v != NULL; v++)
        if (passes(&settings, *v)) {
            n++;
            bytes += strlen(*v) + 1;
        }
    for (size_t i = 0; i < settings.n; i++)
        bytes += settings.of[i].name_len + 1 + settings.of[i].value_len + 1;
    n += settings.n;

    char **env = malloc(n * sizeof *env + bytes);
    if (env == NULL)
        return co_fail(err, -ENOMEM, "no memory for the environment of rank %d", place->rank);
    char **to = env;
    char *text = (char *)(env + n);
    for (char *const *v = parent; *v != NULL; v++)
        if (passes(&settings, *v)) {
            *to++ = text;
            text = stpcpy(text, *v) + 1;
        }
    for (size_t i = 0; i < settings.n; i++) {
        const struct setting *t = &settings.of[i];
        if (t->value == NULL || t->is_kept)
            continue;
        *to++ = text;
        text = stpcpy(stpcpy(text, t->name), "=");
        text = mempcpy(text, t->value, t->value_len);
        *text++ = '\0';
    }
    *to = NULL;
    *ret_env = env;
    return 0;
}
