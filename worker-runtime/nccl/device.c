/* device.c - the process's device, and the end of its communicators.
 *
 * device_break() is where every failure ends. It finds out which cause the job knows, or reports
 * its own (job_tell()); then, with the mutex held, break_all() marks all communicators broken and
 * ends their kernels together: revoke_those() where NCCL can revoke, abort_those() else.
 * comm_state.c has the states, life_step() takes a step and notes what cannot be ended. */
#include "device.h"

#include "common/clock.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    /* from an error that NCCL reports until it is known that a peer died. The kernel closes the
     * sockets of a process first, then frees its GPU memory, and reports its end last */
    CAUSE_MS = 1000,
    CAUSE_NETWORK_MS = 5000,
    SETTLE_MS = 100, /* for calls in progress when the job breaks: those that wait for no peer */
};

/* --- the device ------------------------------------------------------------------------------- */

static int gpu_find(const struct device_opts *opts, int *ret, struct co_error *err)
{
    int n = 0;
    const cudaError_t result = cudaGetDeviceCount(&n);
    if (result != cudaSuccess)
        cudaGetLastError(); /* reported below */
    if (result == cudaErrorInsufficientDriver)
        return co_fail(err, -ENOTSUP,
                       "cannot load the CUDA driver (libcuda.so.1), or it is older than this CUDA "
                       "runtime: only the CPU back end is available; check with nvidia-smi");
    if (result == cudaErrorNoDevice || (result == cudaSuccess && n == 0))
        return co_fail(err, -ENOTSUP,
                       "this process sees no GPU: only the CPU back end is available; check "
                       "CUDA_VISIBLE_DEVICES");
    if (nccl_map_cuda("cannot count the GPUs", result, err) != 0)
        return -ENOTSUP;
    /* of several a rank takes that of its number on the node; of one, which is its own as a rule
       (CUDA_VISIBLE_DEVICES), that one */
    *ret = n == 1 ? 0 : opts->local_rank;
    if (*ret >= n)
        return co_fail(err, -ENOTSUP,
                       "this process sees %d GPUs and is local rank %d: give each rank its own GPU "
                       "with CUDA_VISIBLE_DEVICES, or start fewer ranks per node",
                       n, opts->local_rank);
    char what[64];
    snprintf(what, sizeof what, "cannot use GPU %d", *ret);
    return nccl_map_cuda(what, cudaSetDevice(*ret), err) != 0 ? -ENOTSUP : 0;
}

int device_open(const struct device_opts *opts, struct device **ret, struct co_error *err)
{
    int index = 0;
    int code = gpu_find(opts, &index, err);
    if (code != 0)
        return code;
    struct device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    d->index = index;
    d->abort_timeout_ms = opts->abort_timeout_ms;
#define LOOK_UP(name) d->newer.name = (__typeof__(d->newer.name))dlsym(RTLD_DEFAULT, #name);
    NEWER_CALLS(LOOK_UP) /* NCCL is loaded already: the plug-in is linked against it */
#undef LOOK_UP
    pthread_mutex_init(&d->mutex, NULL);
    *ret = d;
    return 0;
}

int device_check(struct device *d, struct co_error *err)
{
    pthread_mutex_lock(&d->mutex);
    const bool is_lost = d->is_lost;
    pthread_mutex_unlock(&d->mutex);
    return is_lost ? co_fail(err, -EOWNERDEAD, "%s", d->why.text) : 0;
}

/* NCCL has one key for the life of a process, and keeps it. It refuses where its build or the
 * system lacks TLS, and never continues in the clear. */
int device_encrypt(struct device *d, const char *key, struct co_error *err)
{
    enum { NCCL_PSK = 1 };
    struct nccl_encryption config = {
        .size = sizeof config, .magic = 0xcafebeef, .mode = NCCL_PSK, .psk = key};
    int version = 0, code = 0;
    ncclGetVersion(&version);
    config.version = (unsigned)version;
    pthread_mutex_lock(&d->mutex);
    if (!d->encrypts && d->newer.ncclSetEncryption == NULL)
        code = co_fail(err, -ENOTSUP,
                       "NCCL %d.%d.%d cannot encrypt, as " DDP_ENV_ENCRYPT "=1 requires: use NCCL "
                       "2.32 or later, built with TLS",
                       version / 10000, version / 100 % 100, version % 100);
    else if (!d->encrypts && d->has_made)
        code = co_fail(err, -ENOTSUP,
                       "NCCL cannot encrypt from now on: this process has a communicator that "
                       "does not");
    else if (!d->encrypts && d->newer.ncclSetEncryption((const void *)&config) != ncclSuccess)
        code = co_fail(err, -ENOTSUP,
                       "NCCL %d.%d.%d refuses to encrypt, as " DDP_ENV_ENCRYPT "=1 requires: it "
                       "needs a build with TLS, and OpenSSL 3",
                       version / 10000, version / 100 % 100, version % 100);
    d->encrypts |= code == 0;
    pthread_mutex_unlock(&d->mutex);
    return code;
}

/* --- ending several at once ------------------------------------------------------------------- */

enum { LEAVE_MS = 1000 }; /* for a hand to come back whose own deadline has passed */

struct batch {
    size_t n;
    struct {
        struct device_group *group;
        ncclComm_t comm;
        struct helper_call *hand; /* owned; of a revoke. NULL: out of memory */
    } at[];
};

static bool is_taken(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

static void life_step(struct device_group *g, enum comm_event e)
{
    struct device *d = g->device;
    comm_state_step(&g->life, e);
    if (g->life.state == COMM_GONE)
        g->comm = NULL;
    if (g->life.state != COMM_STUCK || d->is_lost)
        return;
    d->is_lost = true;
    co_fail(&d->why, -EOWNERDEAD,
            "NCCL cannot abort a communicator of %d ranks on GPU %d: this process must be replaced",
            g->n, d->index);
}

void device_wait_unused(struct device_group *g, uint64_t deadline_ms)
{
    struct nap nap = {0};
    while (atomic_load(&g->n_calls) > 0 && !g->is_out) {
        if (co_left_ms(deadline_ms) == 0)
            g->is_out = true;
        nap_take(&nap);
    }
}

enum comm_event device_wait_rest(ncclComm_t comm, const char *what, uint64_t deadline_ms)
{
    struct nap nap = {0};
    for (;;) {
        struct co_error err;
        const int code = nccl_map_ask(comm, what, &err);
        if (code != 0)
            return code > 0 ? COMM_DONE : COMM_FAILED;
        if (co_left_ms(deadline_ms) == 0)
            return COMM_LATE;
        nap_take(&nap);
    }
}

/* Those whose turn it is. returns NULL: none, or out of memory for a list, and then they have
 * failed */
static struct batch *batch_gather(struct device *d, enum comm_state wanted)
{
    size_t n = 0;
    for (struct device_group *g = d->first; g != NULL; g = g->next) {
        /* none: there is nothing to call; held by a hand, or without CUDA: nothing can be called */
        const bool cannot = g->is_out || (d->has_no_context && g->comm != NULL);
        if (g->life.state == wanted && (g->comm == NULL || cannot))
            life_step(g, cannot ? COMM_LATE : COMM_DONE);
        n += g->life.state == wanted;
    }
    struct batch *b = n > 0 ? calloc(1, sizeof *b + n * sizeof b->at[0]) : NULL;
    for (struct device_group *g = d->first; n > 0 && g != NULL; g = g->next) {
        if (g->life.state != wanted)
            continue;
        if (b == NULL) {
            life_step(g, COMM_FAILED);
            continue;
        }
        b->at[b->n].group = g;
        b->at[b->n++].comm = g->comm;
    }
    return b;
}

struct revoking { /* for a hand */
    const struct newer *newer;
    ncclComm_t comm;
    uint64_t deadline_ms;
};

/* It is done once NCCL reports so. returns enum comm_event */
static int revoke_one(const void *arg)
{
    const struct revoking *r = arg;
    if (!is_taken(r->newer->ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT)))
        return COMM_FAILED;
    return device_wait_rest(r->comm, "ncclCommRevoke", r->deadline_ms);
}

/* With the mutex held. A revoke frees nothing, and so need not wait for calls without the mutex: it
 * may be what ends them. */
static void revoke_those(struct device *d)
{
    const uint64_t deadline_ms = co_deadline_ms(d->abort_timeout_ms);
    co_autofree struct batch *b = batch_gather(d, COMM_REVOKING);
    for (size_t i = 0; b != NULL && i < b->n; i++) {
        const struct revoking r = {&d->newer, b->at[i].comm, deadline_ms};
        b->at[i].hand = helper_call_start(d->index, revoke_one, &r, sizeof r);
    }
    for (size_t i = 0; b != NULL && i < b->n; i++) {
        struct device_group *g = b->at[i].group;
        const int left_ms = co_left_ms(deadline_ms);
        int e = COMM_FAILED;
        const uint64_t most_ms = left_ms < 0 ? CO_NEVER_MS : (uint64_t)left_ms + LEAVE_MS;
        if (b->at[i].hand != NULL && helper_call_wait(b->at[i].hand, most_ms, &e) != 0) {
            g->is_out = true;
            e = COMM_LATE;
        }
        helper_call_leave(b->at[i].hand);
        life_step(g, (enum comm_event)e);
    }
}

/* All are made to end before any is waited for: what one frees may wait for another's kernel. */
static int abort_all(const void *arg)
{
    const struct batch *b = arg;
    ncclResult_t result = ncclGroupStart();
    for (size_t i = 0; i < b->n && is_taken(result); i++)
        result = ncclCommAbort(b->at[i].comm);
    const ncclResult_t end = ncclGroupEnd();
    result = is_taken(result) ? end : result;
    return is_taken(result) ? ncclSuccess : result;
}

/* With the mutex held. */
static void abort_those(struct device *d)
{
    const uint64_t deadline_ms = co_deadline_ms(d->abort_timeout_ms);
    for (struct device_group *g = d->first; g != NULL; g = g->next)
        if (g->life.state == COMM_ABORTING)
            device_wait_unused(g, deadline_ms);
    co_autofree struct batch *b = batch_gather(d, COMM_ABORTING);
    int result = ncclSuccess;
    if (b == NULL)
        return;
    const int code = helper_call_run(d->index, abort_all, b, sizeof *b + b->n * sizeof b->at[0],
                                     d->abort_timeout_ms, &result);
    for (size_t i = 0; i < b->n; i++) {
        struct device_group *g = b->at[i].group;
        enum comm_event e = code == -ETIMEDOUT                   ? COMM_LATE
                            : code != 0 || result != ncclSuccess ? COMM_FAILED
                                                                 : COMM_DONE;
        g->is_out |= e == COMM_LATE;
        life_step(g, e);
    }
}

/* What cannot be revoked is aborted then. */
static void end_all_due(struct device *d)
{
    revoke_those(d);
    abort_those(d);
}

void device_step(struct device_group *g, enum comm_event e)
{
    pthread_mutex_lock(&g->device->mutex);
    life_step(g, e);
    end_all_due(g->device);
    pthread_mutex_unlock(&g->device->mutex);
}

/* --- breaking --------------------------------------------------------------------------------- */

/* NCCL's own networks see a peer's death as soon as any other part: then the dead rank is the
 * reason, and this rank is intact. returns 0: no reason is known; else the job's code */
static int find_cause(struct device_group *g, bool is_of_network, struct co_error *why)
{
    const uint64_t deadline_ms = co_deadline_ms(is_of_network ? CAUSE_NETWORK_MS : CAUSE_MS);
    struct nap nap = {0};
    for (;;) {
        const int code = g->job.look(g->job.arg, why);
        if (code != 0 || co_left_ms(deadline_ms) == 0)
            return code;
        nap_take(&nap);
    }
}

/* Report it to the peers. What only this process or its program can have caused needs no search for
 * another cause. returns what calls of this rank return from now on */
static int job_tell(struct device_group *g, int code, struct co_error *why)
{
    struct co_error cause;
    const bool is_same_for_all = code == -ETIMEDOUT || code == -ENOTSUP;
    const bool is_own = code == -ENODEV || code == -ENOTSUP;
    const int known = is_own ? 0 : find_cause(g, code == -EREMOTEIO, &cause);
    if (known == 0 && g->job.tell(g->job.arg, is_same_for_all ? code : -ECONNRESET, why->text))
        return is_same_for_all ? code : -EOWNERDEAD;
    code = known != 0 ? known : g->job.look(g->job.arg, &cause);
    *why = cause;
    return code;
}

/* With the mutex held: which of those that work can be revoked. NCCL's revoke frees the job of a
 * call in progress and keeps its address, which the next query uses; and one that has an error can
 * be revoked, but not shrunk. Both are aborted. */
static void find_revocable(struct device *d)
{
    const uint64_t deadline_ms = co_deadline_ms(SETTLE_MS);
    for (struct device_group *x = d->first; x != NULL; x = x->next)
        if (x->life.state == COMM_READY && x->life.can_revoke && x->comm != NULL)
            x->life.can_revoke =
                device_wait_rest(x->comm, "a communicator", deadline_ms) == COMM_DONE;
}

/* With the mutex held: all of them, but those that another thread is making or ending. */
static void break_all(struct device_group *g, enum comm_event e, const struct co_error *why)
{
    find_revocable(g->device);
    for (struct device_group *x = g->device->first; x != NULL; x = x->next) {
        if (x->is_broken)
            continue;
        x->is_broken = true;
        x->why = *why;
        if (x != g && x->life.state == COMM_READY)
            life_step(x, COMM_BROKEN);
    }
    if (g->life.state != COMM_REVOKED || !graph_holds_any(g->holds)) /* else group_end() waits */
        life_step(g, e);
    end_all_due(g->device);
}

/* With the mutex held. */
static void note_context(struct device *d)
{
    d->has_no_context = true;
    if (d->is_lost)
        return;
    d->is_lost = true;
    co_fail(&d->why, -EOWNERDEAD, "this process cannot use GPU %d any more and must be replaced",
            d->index);
}

int device_break(struct device_group *g, enum comm_event e, int code, struct co_error *why)
{
    struct device *d = g->device;
    const bool has_no_context = e == COMM_FAILED && code == -ENODEV;
    if (code == -ENOTSUP && !(g->is_new && g->life.state == COMM_MAKING))
        code = -EIO; /* it worked before: another process may not have that error */
    if (e != COMM_BROKEN)
        code = job_tell(g, code, why);
    why->code = code;
    pthread_mutex_lock(&d->mutex);
    if (has_no_context)
        note_context(d);
    break_all(g, e, why);
    if (d->is_lost) {
        co_fail_in(why, "%s", d->why.text);
        why->code = code = -EOWNERDEAD;
    }
    pthread_mutex_unlock(&d->mutex);
    return code;
}
