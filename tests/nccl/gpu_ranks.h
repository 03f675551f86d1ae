/* gpu_ranks.h - ranks of a test with memory of "GPUs", over the double (double/double.h), and the
 * report of what broke its rules. */
#ifndef DDP_TESTS_NCCL_GPU_RANKS_H
#define DDP_TESTS_NCCL_GPU_RANKS_H

#include "tests/unit/worker-runtime/ranks.h"

#include <cuda_runtime_api.h>
#include <ddp/device.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define GPU_CHECK(rank, call)                                                                      \
    do {                                                                                           \
        const cudaError_t result_ = (call);                                                        \
        RANK_CHECK(rank, result_ == cudaSuccess, "%s", cudaGetErrorString(result_));               \
    } while (0)

static char gpu_dir[PATH_MAX];    /* for communicators of the double; the test's own */
static char gpu_report[PATH_MAX]; /* what broke its rules */

static inline void gpu_set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(gpu_dir, sizeof gpu_dir, "%s/nccl-double-XXXXXX", tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(gpu_dir));
    snprintf(gpu_report, sizeof gpu_report, "%.*s/report", (int)sizeof gpu_report - 8, gpu_dir);
    setenv("NCCL_DOUBLE_DIR", gpu_dir, 1);
    setenv("NCCL_DOUBLE_REPORT", gpu_report, 1);
    unsetenv("NCCL_DOUBLE_FAULTS");
}

static inline void gpu_tear_down(void)
{
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", gpu_dir);
    ck_assert_int_eq(system(command), 0);
}

/* The first line of the report; "" without one. */
static inline const char *gpu_first_report(void)
{
    static char line[1024];
    FILE *f = fopen(gpu_report, "r");
    line[0] = '\0';
    if (f != NULL && fgets(line, sizeof line, f) == NULL)
        line[0] = '\0';
    if (f != NULL)
        fclose(f);
    return line;
}

static inline void gpu_expect_no_report(void)
{
    ck_assert_str_eq(gpu_first_report(), "");
}

/* All ranks exit with 0 and have broken no rule. */
static inline void gpu_expect_ranks(int n, rank_fn *fn, void *arg)
{
    struct ranks r;
    ranks_start(&r, n, fn, arg);
    ranks_expect_success(&r);
    gpu_expect_no_report();
}

/* All ranks exit with 0 and have broken a rule, which the first line reports. */
static inline void gpu_expect_report(int n, rank_fn *fn, void *arg, const char *what)
{
    struct ranks r;
    ranks_start(&r, n, fn, arg);
    ranks_expect_success(&r);
    ck_assert_msg(strstr(gpu_first_report(), what) != NULL, "%s", gpu_first_report());
}

/* Rank 1 of n dies, and the others detect it; each status is that of waitpid(). */
static inline void gpu_expect_death(int n, rank_fn *fn, void *arg, int dead, int other)
{
    struct ranks r;
    ranks_start(&r, n, fn, arg);
    ranks_wait(&r);
    for (int i = 0; i < r.n; i++)
        ck_assert_msg(r.status[i] == (i == 1 ? dead : other), "rank %d ended with status %#x", i,
                      r.status[i]);
    gpu_expect_no_report();
}

/* Join, and take the GPU of the rank's number. */
static inline struct ddp_group *gpu_rank_init(int rank)
{
    int index = -1;
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, ddp_device(g, &index) == 0 && index == rank, "GPU %d", index);
    return g;
}

/* In a world of 1 there may be no communicator, and no rank to wait for. */
static inline void gpu_wait(int rank, struct ddp_group *g, cudaStream_t stream)
{
    if (ddp_world_size(g) > 1)
        RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    else
        GPU_CHECK(rank, cudaStreamSynchronize(stream));
}

/* Aborted work does end, if not at once; a stream that CUDA itself has lost stays lost. */
static inline bool gpu_becomes_idle(cudaStream_t stream)
{
    const uint64_t deadline_ms = co_deadline_ms(60000);
    cudaError_t state;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady && co_left_ms(deadline_ms) != 0)
        usleep(500); /* between two looks */
    return state == cudaSuccess || state == cudaErrorLaunchFailure;
}

/* What a stream has captured, to be launched. */
static inline cudaGraphExec_t gpu_end_capture(int rank, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GPU_CHECK(rank, cudaStreamEndCapture(stream, &graph));
    GPU_CHECK(rank, cudaGraphInstantiate(&exec, graph, 0));
    GPU_CHECK(rank, cudaGraphDestroy(graph)); /* what was made of it is enough */
    return exec;
}

/* Memory of the GPU with the same bytes, put there by the stream. */
static inline void *gpu_copy_of(int rank, const void *bytes, size_t n, cudaStream_t stream)
{
    void *at;
    GPU_CHECK(rank, cudaMalloc(&at, n));
    GPU_CHECK(rank, cudaMemcpyAsync(at, bytes, n, cudaMemcpyHostToDevice, stream));
    return at;
}

#endif
