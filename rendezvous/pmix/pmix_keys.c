/* The keys of a namespace.
 *
 * The maps of nodes and ranks are all that libpmix needs; it derives the rest. But it does not
 * complete what is given for a rank, so as soon as one rank has keys of its own, as APPNUM and the
 * CPUs that it is bound to, each rank of the job gets all of them. */
#include "pmix_priv.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { JOB_KEYS = 24, RANK_KEYS = 16, APPS_MAX = 64 };

/* What is constant while the ranks are gone through. */
struct ranks {
    const struct pmix_plugin_job *job;
    uint32_t first_rank;          /* of this node */
    uint32_t app_sizes[APPS_MAX]; /* ranks of each program so far */
};

static void add(struct pmix_keys *k, const char *key, const void *value, pmix_data_type_t type)
{
    if (k->n < k->n_max)
        PMIX_INFO_LOAD(&k->of[k->n++], key, value, type);
}

static void add_u32(struct pmix_keys *k, const char *key, uint32_t value)
{
    add(k, key, &value, PMIX_UINT32);
}

static void add_u16(struct pmix_keys *k, const char *key, uint32_t value)
{
    const uint16_t value_u16 = (uint16_t)value;
    add(k, key, &value_u16, PMIX_UINT16);
}

static void add_rank_number(struct pmix_keys *k, const char *key, uint32_t value)
{
    const pmix_rank_t rank = value;
    add(k, key, &rank, PMIX_PROC_RANK);
}

static void add_true(struct pmix_keys *k, const char *key)
{
    const bool yes = true;
    add(k, key, &yes, PMIX_BOOL);
}

static int keys_init(struct pmix_keys *k, size_t n_max)
{
    *k = (struct pmix_keys){.n_max = n_max};
    PMIX_INFO_CREATE(k->of, n_max);
    return k->of != NULL ? 0 : -ENOMEM;
}

void pmix_keys_fini(struct pmix_keys *k)
{
    if (k->of != NULL)
        PMIX_INFO_FREE(k->of, k->n_max);
    k->of = NULL;
}

/* --- maps --- */

/* As PMIX_REGEX: from 3.2 on, a long map is compressed, and a string would end at its first NUL. */
static int add_map(struct pmix_keys *k, const char *key, const char *text,
                   pmix_status_t (*generate)(const char *text, char **ret))
{
    char *map = NULL;
    const pmix_status_t status = generate(text, &map);
    if (status != PMIX_SUCCESS || map == NULL)
        return status == PMIX_ERR_NOMEM ? -ENOMEM : -EIO;
    add(k, key, map, PMIX_REGEX);
    free(map);
    return 0;
}

static int add_maps(struct pmix_keys *k, const struct pmix_plugin_job *job, uint32_t first_rank)
{
    co_autofree char *nodes = NULL;
    co_autofree char *ranks = NULL;
    co_autofree char *peers = NULL;
    int rc = pmix_names_node_list(job->nodes, job->n_nodes, &nodes)
                 ?: pmix_names_rank_list(job->nodes, job->n_nodes, &ranks)
                 ?: pmix_names_ranks(first_rank, job->nodes[job->node].n_ranks, &peers)
                 ?: add_map(k, PMIX_NODE_MAP, nodes, PMIx_generate_regex)
                 ?: add_map(k, PMIX_PROC_MAP, ranks, PMIx_generate_ppn);
    if (rc == 0)
        add(k, PMIX_LOCAL_PEERS, peers, PMIX_STRING);
    return rc;
}

static uint32_t count_apps(const struct pmix_plugin_job *job, uint32_t world_size)
{
    int most = 0;
    for (uint32_t i = 0; job->appnum != NULL && i < world_size; i++)
        most = job->appnum[i] > most ? job->appnum[i] : most;
    return (uint32_t)most + 1;
}

static void add_sizes(struct pmix_keys *k, const struct pmix_plugin_job *job, uint32_t world_size)
{
    const uint32_t n_local = job->nodes[job->node].n_ranks;
    add_u32(k, PMIX_JOB_SIZE, world_size);
    add_u32(k, PMIX_UNIV_SIZE, world_size);
    add_u32(k, PMIX_MAX_PROCS, world_size);
    add_u32(k, PMIX_LOCAL_SIZE, n_local);
    add_u32(k, PMIX_NODE_SIZE, n_local);
    add_u32(k, PMIX_NUM_NODES, job->n_nodes);
    add_u32(k, PMIX_JOB_NUM_APPS, count_apps(job, world_size));
    if (job->appnum == NULL)
        add_u32(k, PMIX_APP_SIZE, world_size);
}

/* --- ranks --- */

/* The way by which libpmix would find out itself looks at all threads of this process. */
static int add_cpus(struct pmix_keys *k, const char *cpus)
{
    char source[] = "hwloc";
    pmix_cpuset_t set = {.source = source};
    char *cpuset = NULL, *locality = NULL;
    hwloc_bitmap_t bitmap = hwloc_bitmap_alloc();
    if (bitmap == NULL)
        return -ENOMEM;
    set.bitmap = bitmap;
    if (hwloc_bitmap_list_sscanf(bitmap, cpus) == 0 &&
        PMIx_server_generate_cpuset_string(&set, &cpuset) == PMIX_SUCCESS &&
        PMIx_server_generate_locality_string(&set, &locality) == PMIX_SUCCESS && cpuset != NULL &&
        locality != NULL) { /* else Open MPI assumes no more than the same node */
        add(k, PMIX_CPUSET, cpuset, PMIX_STRING);
        add(k, PMIX_LOCALITY_STRING, locality, PMIX_STRING);
    }
    free(cpuset);
    free(locality);
    hwloc_bitmap_free(bitmap);
    return 0;
}

static int add_local(struct pmix_keys *k, const struct pmix_plugin_job *job, uint32_t local_rank)
{
    co_autofree char *directory = co_format("%s/%u", job->directory, local_rank);
    if (directory == NULL)
        return -ENOMEM;
    if (mkdir(directory, 0700) < 0 && errno != EEXIST)
        return -errno;
    add(k, PMIX_PROCDIR, directory, PMIX_STRING);
    return job->cpus != NULL ? add_cpus(k, job->cpus[local_rank]) : 0;
}

static int fill_rank(struct pmix_keys *k, struct ranks *r, uint32_t node, uint32_t rank,
                     uint32_t local_rank)
{
    const struct pmix_plugin_job *job = r->job;
    const int app = job->appnum != NULL ? job->appnum[rank] : 0;
    const uint32_t app_rank = r->app_sizes[app < APPS_MAX ? app : APPS_MAX - 1]++;
    add_rank_number(k, PMIX_RANK, rank); /* the first one, or libpmix takes none */
    add_rank_number(k, PMIX_GLOBAL_RANK, rank);
    add_rank_number(k, PMIX_APP_RANK, app_rank);
    add_u32(k, PMIX_APPNUM, (uint32_t)app);
    add_u16(k, PMIX_LOCAL_RANK, local_rank);
    add_u16(k, PMIX_NODE_RANK, local_rank);
    add_u32(k, PMIX_NODEID, node);
    add(k, PMIX_HOSTNAME, job->nodes[node].name, PMIX_STRING);
    add_u32(k, PMIX_REINCARNATION, 0); /* a rank is never replaced alone */
    return node == job->node ? add_local(k, job, local_rank) : 0;
}

static int add_rank(struct pmix_keys *k, struct ranks *r, uint32_t node, uint32_t rank,
                    uint32_t local_rank)
{
    struct pmix_keys of_rank;
    int rc = keys_init(&of_rank, RANK_KEYS);
    if (rc == 0)
        rc = fill_rank(&of_rank, r, node, rank, local_rank);
    if (rc == 0) {
        pmix_data_array_t array = {.type = PMIX_INFO, .size = of_rank.n, .array = of_rank.of};
        add(k, PMIX_PROC_DATA, &array, PMIX_DATA_ARRAY);
    }
    pmix_keys_fini(&of_rank);
    return rc;
}

static int add_ranks(struct pmix_keys *k, struct ranks *r)
{
    uint32_t rank = 0;
    int rc = 0;
    for (uint32_t node = 0; node < r->job->n_nodes; node++)
        for (uint32_t i = 0; rc == 0 && i < r->job->nodes[node].n_ranks; i++)
            rc = add_rank(k, r, node, rank++, i);
    return rc;
}

/* --- the whole --- */

static void add_job(struct pmix_keys *k, const struct pmix_plugin_job *job)
{
    add(k, PMIX_JOBID, job->nspace, PMIX_STRING);
    add(k, PMIX_HOSTNAME, job->nodes[job->node].name, PMIX_STRING);
    add(k, PMIX_TMPDIR, job->directory, PMIX_STRING);
    add(k, PMIX_NSDIR, job->directory, PMIX_STRING);
    add_true(k, PMIX_TDIR_RMCLEAN); /* ddprun removes them */
    if (job->is_oversubscribed)     /* to Open MPI 5, false means the same */
        add_true(k, PMIX_NODE_OVERSUBSCRIBED);
}

int pmix_keys_fill(struct pmix_keys *k, const struct pmix_plugin_job *job, struct co_error *err)
{
    struct ranks r = {.job = job};
    uint32_t world_size = 0;
    for (uint32_t i = 0; i < job->n_nodes; world_size += job->nodes[i++].n_ranks)
        if (i == job->node)
            r.first_rank = world_size;
    int rc = keys_init(k, JOB_KEYS + (size_t)world_size);
    if (rc == 0)
        rc = add_maps(k, job, r.first_rank);
    if (rc == 0) {
        add_sizes(k, job, world_size);
        add_job(k, job);
        rc = add_ranks(k, &r);
    }
    if (rc == 0)
        return 0;
    pmix_keys_fini(k);
    return co_fail(err, rc, "cannot describe the job to libpmix: %s", strerror(-rc));
}
