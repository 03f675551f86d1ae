/* What libpmix asks of its host, in threads of its own.
 *
 * Nothing is decided here: an upcall records what a rank did, wakes ddprun's loop, and returns the
 * answer. Answers are given by the return value, because a callback must not be called from within
 * an upcall, and may be NULL; only a fence and an abort are answered later, by end_fence() and
 * answer_aborts(). An upcall about another namespace, which may be one that is over, changes
 * nothing. */
#include "pmix_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* The signatures are libpmix's; most arguments do not matter here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* libpmix passes no argument of its host's to most upcalls; there is one server in a process. */
static struct pmix_plugin_server *server;

static void wake(struct pmix_plugin_server *s)
{
    eventfd_write(s->event_fd, 1);
}

static bool is_of_job(const struct pmix_plugin_server *s, const pmix_proc_t *p)
{
    return s->has_job && strncmp(p->nspace, s->nspace, PMIX_MAX_NSLEN) == 0;
}

/* The lock is held. returns NULL: it is not a rank of this node and generation */
static struct pmix_plugin_rank *find_rank(struct pmix_plugin_server *s, const pmix_proc_t *p)
{
    return is_of_job(s, p) && p->rank >= s->first_rank && p->rank - s->first_rank < s->n_local
               ? &s->ranks[p->rank - s->first_rank]
               : NULL;
}

static void set_state(const pmix_proc_t *p, enum pmix_plugin_state state)
{
    pthread_mutex_lock(&server->lock);
    struct pmix_plugin_rank *rank = find_rank(server, p);
    if (rank != NULL)
        rank->state = state;
    pthread_mutex_unlock(&server->lock);
    wake(server);
}

static pmix_status_t on_connected(const pmix_proc_t *p, void *object, pmix_info_t info[], size_t n,
                                  pmix_op_cbfunc_t done, void *arg)
{
    set_state(p, PMIX_PLUGIN_INSIDE);
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *p, void *object, pmix_op_cbfunc_t done,
                                  void *arg)
{
    set_state(p, PMIX_PLUGIN_FINALIZED);
    return PMIX_OPERATION_SUCCEEDED;
}

/* The lock is held. A second call of a rank, from another thread, does not wait. returns whether
 * this one does; without memory it does not */
static bool hold_abort(struct pmix_plugin_server *s, struct pmix_plugin_rank *rank,
                       pmix_op_cbfunc_t done, void *arg)
{
    if (rank == NULL || rank->has_aborted || s->answers_aborts || done == NULL)
        return false;
    struct pmix_priv_abort *a = calloc(1, sizeof *a);
    if (a == NULL)
        return false;
    *a = (struct pmix_priv_abort){.on_done = done, .arg = arg, .next = s->aborts};
    s->aborts = a;
    return true;
}

/* Whichever ranks it is to end: the failure of one rank ends all. */
static pmix_status_t on_abort(const pmix_proc_t *p, void *object, int status, const char text[],
                              pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t done, void *arg)
{
    pthread_mutex_lock(&server->lock);
    struct pmix_plugin_rank *rank = find_rank(server, p);
    const bool is_held = hold_abort(server, rank, done, arg);
    if (rank != NULL && !rank->has_aborted) {
        rank->has_aborted = true;
        rank->exit_code = status;
    }
    pthread_mutex_unlock(&server->lock);
    wake(server);
    return is_held ? PMIX_SUCCESS : PMIX_OPERATION_SUCCEEDED;
}

/* --- fences --- */

/* Open MPI's fences are over all ranks of the job. */
static bool is_over_all(const struct pmix_plugin_server *s, const pmix_proc_t procs[], size_t n)
{
    return n == 1 && procs[0].rank == PMIX_RANK_WILDCARD && is_of_job(s, &procs[0]);
}

/* The lock is held. Takes f. */
static pmix_status_t add_fence(struct pmix_plugin_server *s, struct pmix_priv_fence *f)
{
    struct pmix_priv_fence **end = &s->fences;
    if (s->n_fences == PMIX_PLUGIN_MAX_FENCES)
        return PMIX_ERR_OUT_OF_RESOURCE;
    while (*end != NULL)
        end = &(*end)->next;
    f->lent.id = ++s->last_fence;
    *end = f;
    s->n_fences++;
    return PMIX_SUCCESS;
}

static void note_refused(struct pmix_plugin_server *s, struct pmix_plugin_rank *rank,
                         enum pmix_plugin_refused what)
{
    if (rank != NULL)
        rank->refused |= what;
    else if (s->has_job && s->n_local > 0)
        s->ranks[0].refused |= what; /* which one is not known */
}

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t n_procs, const pmix_info_t info[],
                              size_t n_info, char *data, size_t n_data, pmix_modex_cbfunc_t on_done,
                              void *arg)
{
    struct pmix_priv_fence *f = calloc(1, sizeof *f);
    pmix_status_t status = f != NULL ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
    if (f != NULL)
        *f = (struct pmix_priv_fence){.lent = {.bytes = (uint8_t *)data, .len = n_data},
                                      .bytes = (uint8_t *)data,
                                      .on_done = on_done,
                                      .arg = arg};
    pthread_mutex_lock(&server->lock);
    if (status == PMIX_SUCCESS && n_procs > 0 && is_over_all(server, procs, n_procs)) {
        status = add_fence(server, f);
    } else if (status == PMIX_SUCCESS) {
        status = PMIX_ERR_NOT_SUPPORTED;
        note_refused(server, n_procs > 0 ? find_rank(server, &procs[0]) : NULL, PMIX_PLUGIN_FENCE);
    }
    pthread_mutex_unlock(&server->lock);
    if (status != PMIX_SUCCESS) {
        free(data);
        free(f);
    }
    wake(server);
    return status;
}

/* --- what is refused --- */

static pmix_status_t refuse(const pmix_proc_t *p, enum pmix_plugin_refused what)
{
    pthread_mutex_lock(&server->lock);
    note_refused(server, p != NULL ? find_rank(server, p) : NULL, what);
    pthread_mutex_unlock(&server->lock);
    wake(server);
    return PMIX_ERR_NOT_SUPPORTED;
}

/* The rank that asks is not known; the one that is asked for is another node's. */
static pmix_status_t on_modex(const pmix_proc_t *p, const pmix_info_t info[], size_t n,
                              pmix_modex_cbfunc_t done, void *arg)
{
    return refuse(NULL, PMIX_PLUGIN_MODEX);
}

static pmix_status_t on_publish(const pmix_proc_t *p, const pmix_info_t info[], size_t n,
                                pmix_op_cbfunc_t done, void *arg)
{
    return refuse(p, PMIX_PLUGIN_PUBLISH);
}

static pmix_status_t on_lookup(const pmix_proc_t *p, char **keys, const pmix_info_t info[],
                               size_t n, pmix_lookup_cbfunc_t done, void *arg)
{
    return refuse(p, PMIX_PLUGIN_PUBLISH);
}

static pmix_status_t on_unpublish(const pmix_proc_t *p, char **keys, const pmix_info_t info[],
                                  size_t n, pmix_op_cbfunc_t done, void *arg)
{
    return refuse(p, PMIX_PLUGIN_PUBLISH);
}

static pmix_status_t on_spawn(const pmix_proc_t *p, const pmix_info_t info[], size_t n,
                              const pmix_app_t apps[], size_t n_apps, pmix_spawn_cbfunc_t done,
                              void *arg)
{
    return refuse(p, PMIX_PLUGIN_SPAWN);
}

static pmix_status_t on_connect(const pmix_proc_t procs[], size_t n, const pmix_info_t info[],
                                size_t n_info, pmix_op_cbfunc_t done, void *arg)
{
    return refuse(n > 0 ? &procs[0] : NULL, PMIX_PLUGIN_CONNECT);
}

/* --- events: ddprun ends all ranks of a failed job itself, so there is nothing to forward --- */

static pmix_status_t on_register(pmix_status_t *codes, size_t n, const pmix_info_t info[],
                                 size_t n_info, pmix_op_cbfunc_t done, void *arg)
{
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_deregister(pmix_status_t *codes, size_t n, pmix_op_cbfunc_t done, void *arg)
{
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_notify(pmix_status_t code, const pmix_proc_t *source,
                               pmix_data_range_t range, pmix_info_t info[], size_t n,
                               pmix_op_cbfunc_t done, void *arg)
{
    return PMIX_OPERATION_SUCCEEDED;
}

/* `group` stays NULL: then a rank that asks for one gets an error, while with an upcall that
 * refuses it, libpmix 4.2.2 lets it wait for good. A newer libpmix copies as many bytes as its own
 * module has: what follows ours is zero. */
static union {
    pmix_server_module_t module;
    char room[sizeof(pmix_server_module_t) + 512];
} upcalls = {.module = {.client_connected2 = on_connected,
                        .client_finalized = on_finalized,
                        .abort = on_abort,
                        .fence_nb = on_fence,
                        .direct_modex = on_modex,
                        .publish = on_publish,
                        .lookup = on_lookup,
                        .unpublish = on_unpublish,
                        .spawn = on_spawn,
                        .connect = on_connect,
                        .disconnect = on_connect,
                        .register_events = on_register,
                        .deregister_events = on_deregister,
                        .notify_event = on_notify}};

pmix_server_module_t *pmix_upcalls_module(struct pmix_plugin_server *s)
{
    server = s;
    return &upcalls.module;
}
