/* The environment of the ranks, in two steps. worker_env_create() makes what all ranks of a
 * generation have: fill_settings() lists our variables, put_parent() takes over those of ddprun
 * that may pass, put_settings() adds ours. worker_env_make() then copies the pointers for one
 * rank and fills in those that differ (enum own). Read fill_settings() first: it is the list of
 * all variables.
 *
 * Invariant: the variables of a rank are at the same index in each environment (own_at), so that
 * the image of many ranks (image.c) holds the common part once. */
#include "worker_env.h"

#include "common/error.h"
#include "job_spec.h"
#include "launcher/platform/binding.h"
#include "launcher/platform/gpus.h"

#include <ddp/env.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What launchers of ddprun (mpirun, mpiexec, srun with PMI) leave for their own child, which our
 * workers are not: a worker that finds them takes itself for a rank of that launcher. Also the
 * nodes' secret, which workers do not get. */
static const char *const scrubbed[] = {"PMI_", "PMIX_",     "OMPI_",          "MV2_",
                                       "HYD",  "MPI_LOCAL", DDP_ENV_TOKEN "="};

/* With Open MPI, a user sets parameters by these, except those by which a launcher of ddprun
 * places its child. */
static const char *const parameters[] = {"OMPI_MCA_", "PMIX_MCA_"};
static const char *const places[] = {"OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix="};

enum { SETTINGS_MAX = 45 + WORKER_VARIABLES_MAX, NUMBER_BYTES = 24 };

/* Variables of which each rank has a value of its own. */
enum own {
    OWN_RANK,
    OWN_LOCAL_RANK,
    OWN_ROLE_RANK,
    OWN_ERROR_FILE,
    OWN_DEVICE,
    OWN_HIP_DEVICE,
    OWN_PMI_RANK,
    OWN_PMIX_RANK,
    OWN_OMPI_RANK,
    OWN_OMPI_LOCAL_RANK,
    OWN_OMPI_NODE_RANK,
    N_OWN
};

static const char *const own_names[N_OWN] = {
    [OWN_RANK] = DDP_ENV_RANK,
    [OWN_LOCAL_RANK] = DDP_ENV_LOCAL_RANK,
    [OWN_ROLE_RANK] = DDP_ENV_ROLE_RANK,
    [OWN_ERROR_FILE] = DDP_ENV_ERROR_FILE,
    [OWN_DEVICE] = DDP_ENV_CUDA_VISIBLE_DEVICES,
    [OWN_HIP_DEVICE] = DDP_ENV_HIP_VISIBLE_DEVICES,
    [OWN_PMI_RANK] = DDP_ENV_PMI_RANK,
    [OWN_PMIX_RANK] = "PMIX_RANK",
    [OWN_OMPI_RANK] = "OMPI_COMM_WORLD_RANK",
    [OWN_OMPI_LOCAL_RANK] = "OMPI_COMM_WORLD_LOCAL_RANK",
    [OWN_OMPI_NODE_RANK] = "OMPI_COMM_WORLD_NODE_RANK",
};

#define NOWHERE SIZE_MAX

struct worker_env { /* one block of memory, the text and the list of devices in it */
    bool virtual_local_rank;
    const char *devices;  /* --gpus or the parent's list of them; NULL: none */
    size_t own_at[N_OWN]; /* which variables; NOWHERE: the workers have none */
    size_t n;             /* of variables */
    char *variables[];    /* NULL at own_at; then a NULL */
};

struct setting {
    const char *name;
    const char *value; /* NULL: the worker has none */
    size_t name_len, value_len;
    int own;         /* enum own: each rank has its own value; -1: this one is for all */
    bool is_default; /* the parent's value, if there is one, stays */
    bool is_kept;    /* there is one */
};

struct settings {
    struct setting of[SETTINGS_MAX];
    size_t n;
    bool passes_parameters; /* of Open MPI and libpmix */
    char numbers[SETTINGS_MAX][NUMBER_BYTES];
};

static struct setting *set_variable(struct settings *s, const char *name, const char *value)
{
    struct setting *new = &s->of[s->n++];
    *new = (struct setting){.name = name, .value = value, .name_len = strlen(name), .own = -1};
    new->value_len = value != NULL ? strlen(value) : 0;
    return new;
}

static struct setting *set_number_variable(struct settings *s, const char *name, int64_t number)
{
    char *text = s->numbers[s->n];
    snprintf(text, NUMBER_BYTES, "%" PRId64, number);
    return set_variable(s, name, text);
}

/* Only processes of this machine may ask NCCL. */
static void set_ras_address(struct settings *s, uint16_t port)
{
    char *text = s->numbers[s->n];
    if (port == 0)
        return;
    snprintf(text, NUMBER_BYTES, "127.0.0.1:%u", (unsigned)port);
    set_variable(s, DDP_ENV_NCCL_RAS_ADDR, text)->is_default = true;
}

static void set_own(struct settings *s, enum own own)
{
    set_variable(s, own_names[own], "")->own = (int)own;
}

static void set_fd(struct settings *s, const char *name, int fd)
{
    if (fd >= 0)
        set_number_variable(s, name, fd);
    else
        set_variable(s, name, NULL); /* that of a ddprun around this one is not ours to give */
}

static void set_pmix(struct settings *s, const struct generation_place *place)
{
    s->passes_parameters = true;
    for (size_t i = 0; i < place->n_variables; i++) {
        const struct worker_variable *v = &place->variables[i];
        set_variable(s, v->name, v->value)->is_default = v->is_default;
    }
    set_own(s, OWN_PMIX_RANK);
    set_own(s, OWN_OMPI_RANK);
    set_own(s, OWN_OMPI_LOCAL_RANK);
    set_own(s, OWN_OMPI_NODE_RANK);
}

/* is_hip   ddprun has a list in HIP_VISIBLE_DEVICES, which HIP prefers */
static void fill_devices(struct settings *s, const struct job_spec *spec, bool is_hip)
{
    if (spec->virtual_local_rank)
        set_own(s, OWN_DEVICE);
    else if (spec->gpus != NULL)
        set_variable(s, DDP_ENV_CUDA_VISIBLE_DEVICES, spec->gpus);
    if (is_hip && spec->virtual_local_rank)
        set_own(s, OWN_HIP_DEVICE);
    else if (is_hip && spec->gpus != NULL)
        set_variable(s, DDP_ENV_HIP_VISIBLE_DEVICES, spec->gpus);
}

static void fill_settings(struct settings *s, const struct job_spec *spec,
                          const struct generation_place *place, bool is_hip)
{
    s->n = 0;
    s->passes_parameters = false;
    set_own(s, OWN_RANK);
    set_number_variable(s, DDP_ENV_WORLD_SIZE, place->world_size);
    set_own(s, OWN_LOCAL_RANK);
    set_number_variable(s, DDP_ENV_LOCAL_WORLD_SIZE, place->local_world_size);
    set_number_variable(s, DDP_ENV_GROUP_RANK, place->node_rank);
    set_number_variable(s, DDP_ENV_GROUP_WORLD_SIZE, place->n_nodes);
    set_variable(s, DDP_ENV_ROLE_NAME, spec->role);
    set_own(s, OWN_ROLE_RANK);
    set_number_variable(s, DDP_ENV_ROLE_WORLD_SIZE, place->world_size);
    set_variable(s, DDP_ENV_MASTER_ADDR, place->master_addr);
    set_number_variable(s, DDP_ENV_MASTER_PORT, place->master_port);
    set_variable(s, DDP_ENV_MASTER_HOST, place->master_host);
    set_number_variable(s, DDP_ENV_RESTART_COUNT, place->generation);
    set_number_variable(s, DDP_ENV_MAX_RESTARTS, spec->max_restarts);
    set_variable(s, DDP_ENV_RUN_ID, spec->run_id);
    set_variable(s, DDP_ENV_USE_AGENT_STORE, place->agent_store ? "True" : "False");
    set_own(s, OWN_ERROR_FILE);
    set_variable(s, DDP_ENV_SIGNALS_TO_HANDLE, spec->signals_to_handle);
    set_variable(s, DDP_ENV_NCCL_ASYNC_ERROR_HANDLING, "1")->is_default = true;
    set_ras_address(s, place->ras_port);
    if (place->timer_file != NULL)
        set_variable(s, DDP_ENV_TIMER_FILE, place->timer_file);
    if (spec->omp_threads > 0)
        set_number_variable(s, DDP_ENV_OMP_NUM_THREADS, spec->omp_threads)->is_default =
            !spec->omp_asked;
    fill_devices(s, spec, is_hip);
    const struct binding *binding = spec->binding;
    set_variable(s, DDP_ENV_NUMA_NODES,
                 binding != NULL && binding->is_bound ? binding->node_list : NULL);
    set_number_variable(s, DDP_ENV_GENERATION, place->generation);
    set_number_variable(s, DDP_ENV_TERM, place->term != 0 ? (int64_t)place->term : 1);
    set_fd(s, DDP_ENV_NODE_FD, place->node_fd);
    set_variable(s, DDP_ENV_NODE_DIR, place->node_dir);
    set_variable(s, DDP_ENV_STANDBY, NULL); /* nor what it gave to the process that started this
                                             * one */
    set_fd(s, DDP_ENV_PROGRESS_FD, place->progress_fd);
    set_fd(s, DDP_ENV_ENCRYPT_FD, place->encrypt_fd > 0 ? place->encrypt_fd : -1);
    set_fd(s, DDP_ENV_MEMORY_FD, place->memory_fd > 0 ? place->memory_fd : -1);
    if (spec->encrypt)
        set_variable(s, DDP_ENV_ENCRYPT, "1");
    set_fd(s, DDP_ENV_CHECKPOINT_FD, place->checkpoint_fd);
    if (place->checkpoint_fd >= 0)
        set_number_variable(s, DDP_ENV_CHECKPOINT_SIGNAL, WORKER_CHECKPOINT_SIGNAL);
    else
        set_variable(s, DDP_ENV_CHECKPOINT_SIGNAL, NULL);
    if (spec->mpi == MPI_BY_PMIX)
        set_pmix(s, place);
    if (place->pmi_fd < 0)
        return;
    set_fd(s, DDP_ENV_PMI_FD, place->pmi_fd);
    set_own(s, OWN_PMI_RANK);
    set_number_variable(s, DDP_ENV_PMI_SIZE, place->world_size);
}

static struct setting *find_setting(struct settings *s, const char *variable)
{
    for (size_t i = 0; i < s->n; i++) {
        struct setting *t = &s->of[i];
        if (t->name[0] == variable[0] && strncmp(t->name, variable, t->name_len) == 0 &&
            (variable[t->name_len] == '=' || variable[t->name_len] == '\0'))
            return t;
    }
    return NULL;
}

static bool begins_with_one(const char *variable, const char *const *prefixes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

#define BEGINS_WITH(variable, of) begins_with_one(variable, of, sizeof(of) / sizeof *(of))

/* Does the worker get this variable of the parent's? */
static bool passes(struct settings *s, const char *variable)
{
    const bool is_parameter =
        s->passes_parameters && BEGINS_WITH(variable, parameters) && !BEGINS_WITH(variable, places);
    if (BEGINS_WITH(variable, scrubbed) && !is_parameter)
        return false;
    struct setting *t = find_setting(s, variable);
    if (t == NULL)
        return true;
    t->is_kept = t->is_default;
    return t->is_kept;
}

static char *put_parent(struct worker_env *e, struct settings *settings, char *const *parent,
                        char *text)
{
    for (char *const *v = parent; *v != NULL; v++)
        if (passes(settings, *v)) {
            e->variables[e->n++] = text;
            text = stpcpy(text, *v) + 1;
        }
    return text;
}

/* After the parent's: those decide which defaults are kept. */
static char *put_settings(struct worker_env *e, const struct settings *settings, char *text)
{
    for (size_t i = 0; i < settings->n; i++) {
        const struct setting *t = &settings->of[i];
        if (t->value == NULL || t->is_kept)
            continue;
        if (t->own >= 0) {
            e->own_at[t->own] = e->n;
            e->variables[e->n++] = NULL;
            continue;
        }
        e->variables[e->n++] = text;
        text = stpcpy(stpcpy(stpcpy(text, t->name), "="), t->value) + 1;
    }
    e->variables[e->n] = NULL;
    return text;
}

/* arg   the parent's environment */
static const char *get_from_parent(void *arg, const char *name)
{
    const size_t len = strlen(name);
    for (char *const *v = arg; *v != NULL; v++)
        if (strncmp(*v, name, len) == 0 && (*v)[len] == '=')
            return *v + len + 1;
    return NULL;
}

int worker_env_create(const struct job_spec *spec, const struct generation_place *place,
                      char *const *parent, struct worker_env **ret_env, struct co_error *err)
{
    struct settings settings;
    const char *list_name;
    const char *devices = gpus_visible(get_from_parent, (void *)parent, &list_name);
    fill_settings(&settings, spec, place, strcmp(list_name, DDP_ENV_HIP_VISIBLE_DEVICES) == 0);
    if (spec->gpus != NULL)
        devices = spec->gpus;
    if (!spec->virtual_local_rank)
        devices = NULL;
    size_t n_max = settings.n; /* all may pass, and none be kept */
    size_t bytes = devices != NULL ? strlen(devices) + 1 : 0;
    for (char *const *v = parent; *v != NULL; v++, n_max++)
        bytes += strlen(*v) + 1;
    for (size_t i = 0; i < settings.n; i++)
        bytes += settings.of[i].name_len + 1 + settings.of[i].value_len + 1;

    struct worker_env *e = malloc(sizeof *e + (n_max + 1) * sizeof e->variables[0] + bytes);
    if (e == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *e = (struct worker_env){.virtual_local_rank = spec->virtual_local_rank};
    for (int i = 0; i < N_OWN; i++)
        e->own_at[i] = NOWHERE;
    char *text = put_parent(e, &settings, parent, (char *)(e->variables + n_max + 1));
    text = put_settings(e, &settings, text);
    if (devices != NULL)
        e->devices = strcpy(text, devices);
    *ret_env = e;
    return 0;
}

void worker_env_destroy(struct worker_env *e)
{
    free(e);
}

struct value {
    const char *text;
    size_t len;
};

/* The nth entry of the list of devices is the rank's only one; without a list, n. */
static struct value choose_device(const char *list, int local_rank, const char *number)
{
    if (list == NULL)
        return (struct value){number, strlen(number)};
    for (int i = 0; i < local_rank && *list != '\0'; i++) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    list += strspn(list, " ");
    size_t len = strcspn(list, ",");
    while (len > 0 && list[len - 1] == ' ')
        len--;
    return (struct value){list, len};
}

int worker_env_make_standby(const struct worker_env *e, uint64_t bytes, char ***ret_env,
                            struct co_error *err)
{
    enum { TEXT_BYTES = sizeof DDP_ENV_STANDBY + 24 };
    char **env = malloc((e->n + 2) * sizeof *env + TEXT_BYTES);
    size_t n = 0;
    if (env == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < e->n; i++)
        if (e->variables[i] != NULL) /* else it is a rank's own */
            env[n++] = e->variables[i];
    char *text = (char *)(env + e->n + 2);
    snprintf(text, TEXT_BYTES, DDP_ENV_STANDBY "=%" PRIu64, bytes);
    env[n++] = text;
    env[n] = NULL;
    *ret_env = env;
    return 0;
}

int worker_env_make(const struct worker_env *e, const struct rank_place *place, char ***ret_env,
                    struct co_error *err)
{
    char rank[NUMBER_BYTES], local_rank[NUMBER_BYTES];
    snprintf(rank, sizeof rank, "%d", place->rank);
    snprintf(local_rank, sizeof local_rank, "%d", place->local_rank);
    struct value own[N_OWN] = {
        [OWN_RANK] = {rank, strlen(rank)},
        [OWN_LOCAL_RANK] = {local_rank, strlen(local_rank)},
        [OWN_ROLE_RANK] = {rank, strlen(rank)},
        [OWN_ERROR_FILE] = {place->error_file, strlen(place->error_file)},
        [OWN_PMI_RANK] = {rank, strlen(rank)},
        [OWN_PMIX_RANK] = {rank, strlen(rank)},
        [OWN_OMPI_RANK] = {rank, strlen(rank)},
        [OWN_OMPI_LOCAL_RANK] = {local_rank, strlen(local_rank)},
        [OWN_OMPI_NODE_RANK] = {local_rank, strlen(local_rank)},
    };
    if (e->virtual_local_rank) {
        own[OWN_LOCAL_RANK] = (struct value){"0", 1};
        own[OWN_DEVICE] = choose_device(e->devices, place->local_rank, local_rank);
        own[OWN_HIP_DEVICE] = own[OWN_DEVICE];
    }
    size_t bytes = 0;
    for (int i = 0; i < N_OWN; i++)
        bytes += strlen(own_names[i]) + 1 + own[i].len + 1;
    char **env = malloc((e->n + 1) * sizeof *env + bytes);
    if (env == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    memcpy(env, e->variables, (e->n + 1) * sizeof *env);
    char *text = (char *)(env + e->n + 1);
    for (int i = 0; i < N_OWN; i++) {
        if (e->own_at[i] == NOWHERE)
            continue;
        env[e->own_at[i]] = text;
        text = stpcpy(stpcpy(text, own_names[i]), "=");
        text = mempcpy(text, own[i].text, own[i].len);
        *text++ = '\0';
    }
    *ret_env = env;
    return 0;
}
