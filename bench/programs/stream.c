/* stream.c - how fast all cores together copy memory of the kind that ddp_alloc() returns: the
 * upper bound for an all-reduce, which has to read and write as much.
 *
 *     stream BYTES REPEATS
 *
 * One thread is bound to each processor that this program may run on and copies BYTES from one
 * array to another, as STREAM's "copy" does. Each thread writes its source before each timing, like
 * the programs that are compared with this one; that does not count. The time is from the start of
 * the first thread to the end of the last one.
 *
 * Prints a line for each kind of store: its name, then the fastest and the median rate in GB/s,
 * which counts both the bytes read and the bytes written. `streaming` stores bypass the caches, on
 * processors that have them. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MAX_THREADS 1024
#define MAX_BYTES   ((size_t)1 << 32)

typedef void copy_fn(uint64_t *to, const uint64_t *from, size_t count);

struct worker {
    int cpu;
    uint64_t *from, *to;
    double begun_s, ended_s;
    pthread_t thread;
};

static struct {
    size_t bytes;
    int repeats;
    int n_workers;
    struct worker worker[MAX_THREADS];
    double *gbps; /* `repeats` rates, written by worker 0 */
    copy_fn *copy;
    atomic_uint arrived;
} bench;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void copy_plainly(uint64_t *to, const uint64_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = from[i];
        __asm__ volatile(""
                         :
                         :
                         : "memory"); /* keeps the loop: libc's memcpy() chooses its own stores */
    }
}

#if defined(__x86_64__)
__attribute__((target("avx"))) static void copy_vectors(uint64_t *to, const uint64_t *from,
                                                        size_t count)
{
    for (size_t i = 0; i < count; i += 4)
        _mm256_store_si256((__m256i *)(to + i), _mm256_load_si256((const __m256i *)(from + i)));
}

__attribute__((target("avx"))) static void copy_streaming(uint64_t *to, const uint64_t *from,
                                                          size_t count)
{
    for (size_t i = 0; i < count; i += 4)
        _mm256_stream_si256((__m256i *)(to + i), _mm256_load_si256((const __m256i *)(from + i)));
    _mm_sfence();
}
#endif

/* Wait until all workers have called this function `times` times. */
static void meet(unsigned times)
{
    atomic_fetch_add(&bench.arrived, 1);
    while (atomic_load(&bench.arrived) < times * (unsigned)bench.n_workers) {
    }
}

/* The rate of the last repeat, in GB/s. */
static double rate(void)
{
    double begun_s = bench.worker[0].begun_s, ended_s = bench.worker[0].ended_s;

    for (int i = 1; i < bench.n_workers; i++) {
        const struct worker *w = &bench.worker[i];
        begun_s = w->begun_s < begun_s ? w->begun_s : begun_s;
        ended_s = w->ended_s > ended_s ? w->ended_s : ended_s;
    }
    return 2e-9 * (double)bench.bytes * bench.n_workers / (ended_s - begun_s);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    const size_t count = bench.bytes / sizeof *w->to;
    cpu_set_t cpu;
    unsigned met = 0;

    CPU_ZERO(&cpu);
    CPU_SET(w->cpu, &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    memset(w->to, 1, bench.bytes);
    for (int r = -1; r < bench.repeats; r++) { /* the first is for warm-up */
        memset(w->from, r, bench.bytes);
        meet(++met);
        w->begun_s = now_s();
        bench.copy(w->to, w->from, count);
        w->ended_s = now_s();
        meet(++met);
        if (w == &bench.worker[0] && r >= 0)
            bench.gbps[r] = rate();
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run(const char *name, copy_fn *copy)
{
    bench.copy = copy;
    atomic_store(&bench.arrived, 0);
    for (int i = 0; i < bench.n_workers; i++)
        if (pthread_create(&bench.worker[i].thread, NULL, work, &bench.worker[i]) != 0)
            return -1; /* the others wait for this thread: the program has to end */
    for (int i = 0; i < bench.n_workers; i++)
        pthread_join(bench.worker[i].thread, NULL);
    qsort(bench.gbps, (size_t)bench.repeats, sizeof *bench.gbps, compare);
    printf("%s %.2f %.2f\n", name, bench.gbps[bench.repeats - 1], bench.gbps[bench.repeats / 2]);
    return 0;
}

/* The kind of memory that libddp's user segments use. */
static void *map_shared(size_t bytes)
{
    int fd = memfd_create("stream", MFD_CLOEXEC);
    void *p = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static int find_workers(void)
{
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && bench.n_workers < MAX_THREADS; cpu++) {
        struct worker *w = &bench.worker[bench.n_workers];
        if (!CPU_ISSET(cpu, &cpus))
            continue;
        *w = (struct worker){
            .cpu = cpu, .from = map_shared(bench.bytes), .to = map_shared(bench.bytes)};
        if (w->from == NULL || w->to == NULL)
            return -1;
        bench.n_workers++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const long long bytes = argc == 3 ? atoll(argv[1]) : 0;

    bench.bytes = (size_t)bytes;
    bench.repeats = argc == 3 ? atoi(argv[2]) : 0;
    if (bytes < 4096 || bytes % 4096 != 0 || bench.bytes > MAX_BYTES || bench.repeats < 1 ||
        bench.repeats > 1000) {
        fputs("usage: stream BYTES REPEATS\n", stderr);
        return 2;
    }
    bench.gbps = calloc((size_t)bench.repeats, sizeof *bench.gbps);
    if (bench.gbps == NULL || find_workers() != 0 || run("scalar", copy_plainly) != 0)
        return 1;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx") &&
        (run("vector", copy_vectors) != 0 || run("streaming", copy_streaming) != 0))
        return 1;
#endif
    return 0;
}
