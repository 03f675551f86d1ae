/* nccl_faults.c - a library for LD_PRELOAD in a rank: injects faults into calls of a real NCCL, and
 * logs when they were made. bench/gpu uses it; over the mock of tests/nccl/double it does the same.
 *
 *   GPU_FAULTS=r1g0:kill@5;revoke_error    rank 1 of generation 0, as it was started, dies in its
 *                                          5th all-reduce; every ncclCommRevoke() fails
 *   GPU_LOG=FILE                           a line for each event: see gpu_log.h
 *
 *   kill@K          SIGKILL before the K-th ncclAllReduce(), when the peers wait for it
 *   kill_launch@K   the same before the K-th cudaGraphLaunch()
 *   kill_init@K     before the K-th communicator is made
 *   sleep@K         the thread never returns from the K-th ncclAllReduce()
 *   netcut@K        before the K-th ncclAllReduce(): shuts down the TCP connections that this
 *                   process has opened since its first communicator
 *   revoke_error    ncclCommRevoke() fails; nothing is called
 *
 * The real functions are those of libnccl.so.2 and libcudart.so.13 as the loader finds them. */
#include "gpu_log.h"

#include <arpa/inet.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { WAIT_US = 50000, MOST_FDS = 4096 };

#define EXPORT __attribute__((visibility("default")))

static atomic_uint n_reduces, n_launches, n_inits;
static bool was_open[MOST_FDS]; /* before the first communicator */

/* --- which --- */

static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : 0;
}

/* Whether the fault is due in the n-th call of its kind; one without @ always is. */
static bool is_due(const char *name, unsigned n)
{
    const char *at = getenv("GPU_FAULTS");
    while (at != NULL && *at != '\0') {
        const size_t len = strcspn(at, ";");
        int rank = -1, generation = -1, skip = 0;
        unsigned k = 0;
        char found[32];
        if (sscanf(at, "r%dg%d:%n", &rank, &generation, &skip) < 2 || skip == 0)
            rank = skip = 0;
        const int n_read = sscanf(at + skip, "%31[a-z_]@%u", found, &k);
        const bool is_own =
            skip == 0 || (rank == number_of("RANK") && generation == number_of("DDP_GENERATION"));
        if (is_own && n_read > 0 && strcmp(found, name) == 0 && (n_read == 1 || k == n))
            return true;
        at += len + (at[len] == ';');
    }
    return false;
}

static void *real(const char *name)
{
    static void *_Atomic nccl;
    if (atomic_load(&nccl) == NULL)
        atomic_store(&nccl, dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL));
    return atomic_load(&nccl) != NULL ? dlsym(atomic_load(&nccl), name) : NULL;
}

#define REAL(name) __typeof__(&name) real_##name = (__typeof__(&name))real(#name)

/* --- faults --- */

/* Peers are in their kernels by then. */
static void die(const char *name, unsigned n)
{
    if (!is_due(name, n))
        return;
    usleep(WAIT_US);
    gpu_log("kill", (long)n);
    kill(getpid(), SIGKILL);
}

static void note_open(void)
{
    for (int fd = 0; fd < MOST_FDS; fd++) {
        int type;
        socklen_t size = sizeof type;
        was_open[fd] = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
    }
}

static void cut_network(unsigned n)
{
    long n_cut = 0;
    if (!is_due("netcut", n))
        return;
    usleep(WAIT_US);
    for (int fd = 0; fd < MOST_FDS; fd++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        if (!was_open[fd] && getpeername(fd, (struct sockaddr *)&peer, &size) == 0 &&
            peer.sin_family == AF_INET)
            n_cut += shutdown(fd, SHUT_RDWR) == 0;
    }
    gpu_log("netcut", n_cut);
}

/* --- the calls --- */

EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t dtype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    REAL(ncclAllReduce);
    const unsigned n = atomic_fetch_add(&n_reduces, 1) + 1;
    die("kill", n);
    cut_network(n);
    if (is_due("sleep", n))
        gpu_log("sleep", (long)n);
    while (is_due("sleep", n))
        pause();
    return real_ncclAllReduce(in, out, count, dtype, op, comm, stream);
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret, int n, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    REAL(ncclCommInitRankConfig);
    const unsigned number = atomic_fetch_add(&n_inits, 1) + 1;
    if (number == 1)
        note_open();
    die("kill_init", number);
    gpu_log("init", n);
    return real_ncclCommInitRankConfig(ret, n, id, rank, config);
}

EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *lost, int n_lost, ncclComm_t *ret,
                                   ncclConfig_t *config, int flags)
{
    REAL(ncclCommShrink);
    if (real_ncclCommShrink == NULL)
        return ncclInvalidUsage;
    gpu_log("shrink", n_lost);
    return real_ncclCommShrink(comm, lost, n_lost, ret, config, flags);
}

EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    REAL(ncclCommRevoke);
    gpu_log("revoke", 0);
    if (real_ncclCommRevoke == NULL || is_due("revoke_error", 0))
        return ncclInvalidUsage;
    return real_ncclCommRevoke(comm, flags);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    REAL(ncclCommAbort);
    gpu_log("abort", 0);
    const ncclResult_t result = real_ncclCommAbort(comm);
    gpu_log("aborted", (long)result);
    return result;
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    static void *_Atomic cudart;
    if (atomic_load(&cudart) == NULL)
        atomic_store(&cudart, dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL));
    __typeof__(&cudaGraphLaunch) real_launch =
        (__typeof__(&cudaGraphLaunch))dlsym(atomic_load(&cudart), "cudaGraphLaunch");
    die("kill_launch", atomic_fetch_add(&n_launches, 1) + 1);
    return real_launch(graph, stream);
}
