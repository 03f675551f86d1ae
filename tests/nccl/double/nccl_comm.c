/* nccl_comm.c - communicators of the double, from their making to their end. They are non-blocking,
 * except where a program asks for a blocking one; one without either choice is reported. */
#include "comm.h"

#include "common/hash.h"
#include "double.h"
#include "faults.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

bool comm_check(ncclComm_t comm, const char *call, bool may_be_revoked)
{
    if (comm == NULL || atomic_load(&comm->is_dead)) {
        double_report("%s is called on a communicator that there is not any more", call);
        return false;
    }
    if (!may_be_revoked && atomic_load(&comm->is_revoked)) {
        double_report("%s is called on one that was revoked", call);
        return false;
    }
    return true;
}

ncclResult_t comm_spawn(ncclComm_t comm, void *(*work)(void *arg), void *arg)
{
    pthread_t thread;
    atomic_fetch_add(&comm->n_threads, 1);
    if (pthread_create(&thread, NULL, work, arg) != 0) {
        atomic_fetch_sub(&comm->n_threads, 1);
        return ncclSystemError;
    }
    pthread_detach(thread);
    return ncclInProgress;
}

/* --- making ----------------------------------------------------------------------------------- */

struct making {
    ncclComm_t comm, parent; /* parent: NULL of a new one */
    ncclComm_t *out;         /* where a child is stored, once it is made */
    bool is_split;
    int color, key;
};

static uint64_t id_of_child(const struct ncclComm *parent, uint64_t what, const int *words, int n)
{
    uint64_t hash = co_hash_number(co_hash_number(CO_HASH_START, parent->id), what);
    for (int i = 0; i < n; i++)
        hash = co_hash_number(hash, (uint64_t)words[i]);
    return hash;
}

/* Fill in the members. returns false if it has no members, or was stopped */
static bool find_members(const struct making *m, const struct shared_wait *w)
{
    struct ncclComm *c = m->comm, *p = m->parent;
    struct shared_colors all;
    if (!shared_tell_color(p->shared, p->rank, ++p->n_splits, m->color, m->key, w, &all))
        return false;
    c->rank = c->n = 0;
    for (int r = 0; m->color != NCCL_SPLIT_NOCOLOR && r < p->n; r++) {
        const bool is_before = all.key[r] < m->key || (all.key[r] == m->key && r < p->rank);
        c->n += all.color[r] == m->color;
        c->rank += all.color[r] == m->color && is_before;
    }
    c->id = id_of_child(p, p->n_splits, &m->color, 1);
    return c->n > 0;
}

static void wait_ms(int ms, const struct shared_wait *w)
{
    unsigned n = 0;
    for (int i = 0; i < 20 * ms + 100 && shared_nap(w, &n); i++) {
    }
}

/* returns ncclSuccess, or what went wrong; ncclInProgress: it was stopped */
static ncclResult_t make(const struct making *m)
{
    const struct shared_wait w = {&m->comm->stop, m->parent != NULL ? &m->parent->stop : NULL};
    const unsigned number = fault_count(FAULT_INITS);
    unsigned naps = 0;
    int ms;
    if (fault_is(FAULT_KILL_INIT, number, NULL))
        kill(getpid(), SIGKILL);
    if (fault_is(FAULT_SLOW_INIT, number, &ms))
        wait_ms(ms, &w);
    if (fault_is(FAULT_FAIL_INIT, number, NULL))
        return ncclSystemError;
    if (fault_is(FAULT_USAGE_INIT, number, NULL))
        return ncclInvalidUsage;
    while (fault_is(FAULT_HANG_INIT, number, NULL) && shared_nap(&w, &naps)) {
    }
    if (m->is_split && !find_members(m, &w))
        return atomic_load(&m->parent->stop) ? ncclInProgress : ncclSuccess;
    m->comm->shared = shared_open(m->comm->id, m->comm->n);
    if (m->comm->shared == NULL)
        return ncclSystemError;
    return shared_join(m->comm->shared, m->comm->id, &w) ? ncclSuccess : ncclInProgress;
}

static void *make_by_thread(void *arg)
{
    struct making *m = arg;
    struct ncclComm *c = m->comm;
    const ncclResult_t result = make(m);
    atomic_store(&c->is_ready, result == ncclSuccess);
    atomic_store(&c->state, result);
    if (m->parent != NULL) {
        if (result == ncclSuccess && c->n > 0)
            __atomic_store_n(m->out, c, __ATOMIC_SEQ_CST);
        atomic_store(&m->parent->state, result);
        atomic_fetch_sub(&m->parent->n_threads, 1);
    }
    atomic_fetch_sub(&c->n_threads, 1);
    free(m);
    return NULL;
}

static ncclResult_t begin(struct making m)
{
    struct making *own = malloc(sizeof *own);
    *own = m;
    atomic_store(&m.comm->state, ncclInProgress);
    if (m.parent != NULL) {
        atomic_store(&m.parent->state, ncclInProgress);
        atomic_fetch_add(&m.parent->n_threads, 1);
    }
    const ncclResult_t result = comm_spawn(m.comm, make_by_thread, own);
    const struct shared_wait w = {0};
    for (unsigned n = 0; m.comm->is_blocking && atomic_load(&m.comm->n_threads) > 0;)
        shared_nap(&w, &n);
    return m.comm->is_blocking ? (ncclResult_t)atomic_load(&m.comm->state) : result;
}

/* They stay, reachable for leak checkers, so that the use of one after its end is detected. */
static struct ncclComm *_Atomic all;

static struct ncclComm *new_comm(const ncclConfig_t *config, const char *call)
{
    if (config == NULL || config->blocking == NCCL_CONFIG_UNDEF_INT)
        double_report("%s makes a blocking communicator", call);
    struct ncclComm *c = calloc(1, sizeof *c);
    c->is_blocking = config != NULL && config->blocking == 1;
    cudaGetDevice(&c->device);
    c->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &c->next, c)) {
    }
    return c;
}

/* As NCCL 2.32 has it; NCCL_DOUBLE_NO_TLS: built without. */
DOUBLE_EXPORT ncclResult_t ncclSetEncryption(const void *config);
DOUBLE_EXPORT ncclResult_t ncclSetEncryption(const void *config)
{
    const struct {
        size_t size;
        unsigned magic, version;
        int mode;
        const char *psk;
    } *c = config;
    double_log("ncclSetEncryption");
    if (c->size != sizeof *c || c->magic != 0xcafebeef || c->mode != 1 || strlen(c->psk) < 32) {
        double_report("ncclSetEncryption has a bad configuration");
        return ncclInvalidArgument;
    }
    return getenv("NCCL_DOUBLE_NO_TLS") != NULL ? ncclInvalidUsage : ncclSuccess;
}

DOUBLE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *ret)
{
    double_log("ncclGetUniqueId");
    return getrandom(ret, sizeof *ret, 0) == (ssize_t)sizeof *ret ? ncclSuccess : ncclSystemError;
}

DOUBLE_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *ret, int n, int rank, int n_ids,
                                                    ncclUniqueId *ids, ncclConfig_t *config)
{
    double_log("ncclCommInitRankScalable");
    struct ncclComm *c = new_comm(config, "ncclCommInitRankScalable");
    c->rank = rank;
    c->n = n;
    c->id = co_hash_bytes(CO_HASH_START, ids, (size_t)n_ids * sizeof *ids);
    *ret = c;
    return begin((struct making){.comm = c});
}

DOUBLE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret, int n, ncclUniqueId id, int rank,
                                                  ncclConfig_t *config)
{
    return ncclCommInitRankScalable(ret, n, rank, 1, &id, config);
}

DOUBLE_EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *ret,
                                         ncclConfig_t *config)
{
    double_log("ncclCommSplit");
    if (!comm_check(parent, "ncclCommSplit", false))
        return ncclInvalidUsage;
    *ret = NULL;
    return begin((struct making){.comm = new_comm(config, "ncclCommSplit"),
                                 .parent = parent,
                                 .out = ret,
                                 .is_split = true,
                                 .color = color,
                                 .key = key});
}

DOUBLE_EXPORT ncclResult_t ncclCommShrink(ncclComm_t parent, int *lost, int n_lost, ncclComm_t *ret,
                                          ncclConfig_t *config, int flags)
{
    double_log("ncclCommShrink");
    if (!comm_check(parent, "ncclCommShrink", true))
        return ncclInvalidUsage;
    if (atomic_load(&parent->n_running) > 0 && flags == NCCL_SHRINK_DEFAULT)
        double_report("ncclCommShrink is called while kernels run");
    struct ncclComm *c = new_comm(config, "ncclCommShrink");
    c->rank = parent->rank;
    c->n = parent->n - n_lost;
    for (int i = 0; i < n_lost; i++) {
        if (lost[i] == parent->rank || lost[i] < 0 || lost[i] >= parent->n)
            double_report("ncclCommShrink leaves out rank %d of %d", lost[i], parent->n);
        c->rank -= lost[i] < parent->rank;
    }
    c->id = id_of_child(parent, 0, lost, n_lost);
    *ret = NULL;
    return begin((struct making){.comm = c, .parent = parent, .out = ret});
}

/* Since 2.29.2; the plug-in does not call them, bench/cuda/gpu_questions.c does. The first one
 * makes the id of the child, from which new ranks know it; the others know it by themselves. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
enum { ID_GROWN = 1 << 30 };

DOUBLE_EXPORT ncclResult_t ncclCommGetUniqueId(ncclComm_t parent, ncclUniqueId *ret)
{
    double_log("ncclCommGetUniqueId");
    if (!comm_check(parent, "ncclCommGetUniqueId", false))
        return ncclInvalidUsage;
    const uint64_t id = id_of_child(parent, ID_GROWN, &parent->n, 1);
    memset(ret, 0, sizeof *ret);
    memcpy(ret, &id, sizeof id);
    return ncclSuccess;
}

DOUBLE_EXPORT ncclResult_t ncclCommGrow(ncclComm_t parent, int n, const ncclUniqueId *id, int rank,
                                        ncclComm_t *ret, ncclConfig_t *config)
{
    double_log("ncclCommGrow");
    const bool is_new = parent == NULL;
    if ((is_new && (id == NULL || rank < 0)) || (!is_new && (rank != -1 || n <= parent->n)))
        return ncclInvalidArgument;
    if (!is_new && !comm_check(parent, "ncclCommGrow", false))
        return ncclInvalidUsage;
    struct ncclComm *c = new_comm(config, "ncclCommGrow");
    c->rank = is_new ? rank : parent->rank;
    c->n = n;
    if (is_new)
        memcpy(&c->id, id, sizeof c->id);
    else
        c->id = id_of_child(parent, ID_GROWN, &parent->n, 1);
    *ret = c;
    return begin((struct making){.comm = c});
}
#endif

/* --- its end ---------------------------------------------------------------------------------- */

static void wait_until_idle(struct ncclComm *c)
{
    const struct shared_wait w = {0};
    /* threads first: they begin what runs */
    for (unsigned n = 0; atomic_load(&c->n_threads) > 0 || atomic_load(&c->n_running) > 0;)
        shared_nap(&w, &n);
}

static void hang(void)
{
    for (;;)
        pause();
}

/* It frees what the other call uses. */
static void check_inside(const struct ncclComm *c, const char *call)
{
    if (atomic_load(&c->n_inside) > 0)
        double_report("%s is called beneath one that registers memory, or ends that", call);
}

/* It synchronizes streams, which fails, and the abort after a failed revoke ends the process. */
static void check_context(const char *call)
{
    if (double_has_failed())
        double_report("%s is called after an error of CUDA from which the process cannot recover",
                      call);
}

/* NCCL waits for the end of all graphs that hold the communicator, but not after a revoke. */
static void wait_for_graphs(struct ncclComm *c)
{
    const struct shared_wait w = {0};
    for (unsigned n = 0; atomic_load(&c->n_graphs) > 0;)
        shared_nap(&w, &n);
}

static void bury(struct ncclComm *c)
{
    atomic_store(&c->is_dead, true);
    shared_close(c->shared);
    c->shared = NULL;
}

DOUBLE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t c)
{
    double_log("ncclCommAbort");
    check_context("ncclCommAbort");
    if (!comm_check(c, "ncclCommAbort", true))
        return ncclInvalidArgument;
    check_inside(c, "ncclCommAbort");
    const unsigned number = fault_count(FAULT_ABORTS);
    if (fault_is(FAULT_ABORT_HANG, number, NULL))
        hang();
    if (fault_is(FAULT_ABORT_ERROR, number, NULL))
        return ncclInternalError;
    atomic_store(&c->stop, true);
    atomic_store(&c->is_aborted, true);
    if (!atomic_load(&c->is_revoked))
        wait_for_graphs(c);
    wait_until_idle(c);
    comm_forget_memory(c);
    bury(c);
    return ncclSuccess;
}

static void *revoke_by_thread(void *arg)
{
    struct ncclComm *c = arg;
    const struct shared_wait w = {0};
    for (unsigned n = 0; atomic_load(&c->n_threads) > 1 || atomic_load(&c->n_running) > 0;)
        shared_nap(&w, &n);
    atomic_store(&c->stop, false);
    atomic_store(&c->state, atomic_load(&c->error)); /* of the proxy: it stays */
    atomic_fetch_sub(&c->n_threads, 1);
    return NULL;
}

DOUBLE_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t c, int flags)
{
    double_log("ncclCommRevoke");
    check_context("ncclCommRevoke");
    if (!comm_check(c, "ncclCommRevoke", false) || flags != 0)
        return ncclInvalidArgument;
    if (comm_is_grouped()) /* a query of one of several would wait for all, without end */
        double_report("ncclCommRevoke is called in a group");
    if (atomic_load(&c->state) == ncclInProgress) /* its job is freed, and queried afterwards */
        double_report("ncclCommRevoke is called while a call is in progress");
    const unsigned number = fault_count(FAULT_REVOKES);
    if (fault_is(FAULT_REVOKE_ERROR, number, NULL))
        return ncclInternalError;
    atomic_store(&c->state, ncclInProgress);
    if (fault_is(FAULT_REVOKE_HANG, number, NULL))
        return ncclInProgress;
    atomic_store(&c->is_revoked, true);
    atomic_store(&c->stop, true);
    return comm_spawn(c, revoke_by_thread, c);
}

static void *finish_by_thread(void *arg)
{
    struct ncclComm *c = arg;
    const struct shared_wait w = {&c->stop, NULL};
    unsigned n = 0;
    while (atomic_load(&c->n_running) > 0 && shared_nap(&w, &n)) {
    }
    atomic_store(&c->is_finished, true);
    atomic_store(&c->state, ncclSuccess);
    atomic_fetch_sub(&c->n_threads, 1);
    return NULL;
}

DOUBLE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    double_log("ncclCommFinalize");
    check_context("ncclCommFinalize");
    if (!comm_check(c, "ncclCommFinalize", false))
        return ncclInvalidArgument;
    if (atomic_load(&c->n_graphs) > 0) /* and would hold it forever */
        double_report("ncclCommFinalize is called while a graph holds the communicator");
    check_inside(c, "ncclCommFinalize");
    atomic_store(&c->state, ncclInProgress);
    return comm_spawn(c, finish_by_thread, c);
}

DOUBLE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    double_log("ncclCommDestroy");
    check_context("ncclCommDestroy");
    if (!comm_check(c, "ncclCommDestroy", false))
        return ncclInvalidArgument;
    if (!atomic_load(&c->is_finished))
        double_report("ncclCommDestroy is called before ncclCommFinalize is done");
    if (comm_forget_memory(c) > 0)
        double_report("ncclCommDestroy ends a communicator with registered memory");
    wait_until_idle(c);
    bury(c);
    return ncclSuccess;
}

/* --- questions -------------------------------------------------------------------------------- */

DOUBLE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *ret)
{
    if (!comm_check(c, "ncclCommGetAsyncError", true))
        return ncclInvalidArgument;
    *ret = (ncclResult_t)atomic_load(&c->state);
    return ncclSuccess;
}

DOUBLE_EXPORT ncclResult_t ncclCommCount(const ncclComm_t c, int *ret)
{
    *ret = c->n;
    return comm_check(c, "ncclCommCount", true) ? ncclSuccess : ncclInvalidArgument;
}

DOUBLE_EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "an error of the double";
}

DOUBLE_EXPORT const char *ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return "";
}

DOUBLE_EXPORT ncclResult_t ncclGetVersion(int *ret)
{
    *ret = NCCL_VERSION_CODE;
    return ncclSuccess;
}
