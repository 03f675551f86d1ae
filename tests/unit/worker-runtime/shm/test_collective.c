#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <stdint.h>
#include <sys/mman.h>

/* --- a grid: sizes of the world, lengths, types, operations, kinds of memory ------------------ */

enum memory { SHARED, PLAIN, MIXED, SHARED_IN, N_MEMORIES };

/* Lengths in bytes around every switch of algorithm: the note, one shot (16 KiB over all ranks), a
 * buffer of a mailbox (128 KiB), reading by system call (256 KiB), a piece of the direct way (512
 * KiB a rank). */
static const size_t lengths[] = {0,    8,    88,    96,    104,    1000,   2040,   4096,   8184,
                                 8192, 8200, 16384, 16392, 131072, 131080, 400008, 1048584};
static const size_t few_lengths[] = {0, 16, 96, 1000, 16392, 140000}; /* where ranks are many */

struct area { /* memory for a buffer, of both kinds */
    uint8_t *shared, *plain;
};

enum { AREA_BYTES = 1200 * 1024, LONG_BYTES = 3 << 20, SUMS_BYTES = LONG_BYTES + 4096 };

static uint8_t *new_sums(void)
{
    uint8_t *p = mmap(NULL, (size_t)2 * SUMS_BYTES, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    return p;
}

static struct area new_area(struct ddp_group *g, int rank, size_t bytes)
{
    struct area a;
    void *p;
    RANK_CHECK(rank, ddp_alloc(g, bytes, &p) == DDP_OK, "ddp_alloc");
    a.shared = p;
    a.plain = aligned_alloc(64, (bytes + 63) / 64 * 64);
    RANK_CHECK(rank, a.plain != NULL, "aligned_alloc");
    return a;
}

static uint8_t *pick(const struct area *a, enum memory kind, int rank, bool is_in)
{
    bool shared =
        kind == SHARED || (kind == MIXED && rank % 2 == 0) || (kind == SHARED_IN && is_in);
    return (shared ? a->shared : a->plain) + 8 * (rank % 3); /* and not all aligned alike */
}

struct grid {
    struct ddp_group *g;
    struct area in, out;
    int rank, n;
    uint32_t salt;
    unsigned n_tries;
    uint8_t *sums; /* two areas that the ranks share: see work_out() */
};

/* What takes longest, the sum of all ranks' inputs by the reference, is worked out by one rank for
 * all of them: before it makes the call, so before anybody can return from it. Areas take turns, as
 * no rank is more than one call ahead. */
static void work_out(struct grid *t, const struct exchange *x)
{
    t->n_tries++;
    if (!call_is_reduction(x->kind) || t->salt / 7 % (unsigned)t->n != (unsigned)t->rank)
        return;
    const size_t count = exchange_in_count(x, x->rank), bytes = count * ddp_dtype_size(x->dtype);
    uint8_t *sums = values_reduced(x->dtype, x->op, x->salt, x->n, count);
    RANK_CHECK(t->rank, bytes <= SUMS_BYTES, "%zu bytes", bytes);
    memcpy(t->sums + t->n_tries % 2 * SUMS_BYTES, sums, bytes);
    free(sums);
}

static void expect(const struct grid *t, const struct exchange *x, enum memory kind, bool in_place,
                   const uint8_t *out)
{
    const size_t size = ddp_dtype_size(x->dtype), bytes = exchange_out_count(x) * size;
    const uint8_t *sums = t->sums + t->n_tries % 2 * SUMS_BYTES;
    uint8_t *copied = call_is_reduction(x->kind) ? NULL : exchange_expected(x);
    const uint8_t *expected =
        copied != NULL ? copied : sums + exchange_first(x, x->rank, x->rank) * size;
    RANK_CHECK(x->rank, memcmp(out, expected, bytes) == 0,
               "%s%s of type %s, op %d, count %zu, root %d, memory %d, in place %d",
               call_kind_name(x->kind), x->has_counts ? "_v" : "", call_dtype_name(x->dtype), x->op,
               x->count, x->root, kind, in_place);
    free(copied);
}

static void try_exchange(struct grid *t, struct exchange *x, enum memory kind, bool in_place)
{
    enum { GUARD = 8 };
    const size_t size = ddp_dtype_size(x->dtype);
    size_t in_at = 0, out_at = 0;
    x->n = t->n;
    x->rank = t->rank;
    x->salt = ++t->salt;
    x->root = (int)(x->salt % (unsigned)t->n);
    exchange_init(x);
    if (in_place)
        exchange_in_place(x, &in_at, &out_at);
    uint8_t *out = pick(&t->out, kind, t->rank, false) + out_at * size;
    uint8_t *in = in_place ? out - out_at * size + in_at * size : pick(&t->in, kind, t->rank, true);
    const size_t in_bytes = exchange_in_count(x, x->rank) * size;
    uint8_t *end = out + exchange_out_count(x) * size;
    if (!in_place)
        memset(end, 0xa5, GUARD);
    exchange_fill(x, in);
    uint8_t *before = malloc(in_bytes + 1);
    memcpy(before, in, in_bytes);
    work_out(t, x);
    int rc = exchange_call(x, t->g, in, out);
    RANK_CHECK(t->rank, rc == DDP_OK, "%s", call_kind_name(x->kind));
    expect(t, x, kind, in_place, out);
    RANK_CHECK(t->rank, in_place || memcmp(in, before, in_bytes) == 0, "the input changed");
    for (int i = 0; !in_place && i < GUARD; i++)
        RANK_CHECK(t->rank, end[i] == 0xa5, "%s wrote behind the end", call_kind_name(x->kind));
    free(before);
}

/* Every kind and form, kind of memory, in place and not; types and operations take turns. */
static void try_kinds(struct grid *t, size_t bytes)
{
    for (int kind = CALL_ALL_REDUCE; kind <= CALL_ALL_TO_ALL; kind++) {
        for (int variant = 0; variant < 4 * N_MEMORIES; variant++) {
            struct exchange x = {.kind = (enum call_kind)kind,
                                 .has_counts = variant / 2 % 2 == 1,
                                 .dtype = (enum ddp_dtype)(t->salt % REDUCE_N_DTYPES),
                                 .op = (enum ddp_op)(t->salt / 3 % (DDP_PROD + 1))};
            const bool in_place = variant % 2 == 1;
            x.count = bytes / ddp_dtype_size(x.dtype);
            if (exchange_deals(&x) || exchange_collects(&x))
                x.count /= (size_t)t->n;
            if (exchange_has_form(x.kind, x.has_counts) &&
                !(in_place && x.has_counts && x.kind == CALL_ALL_TO_ALL))
                try_exchange(t, &x, (enum memory)(variant / 4), in_place);
            else
                t->salt++;
        }
    }
}

/* Every type with every operation. */
static void try_sums(struct grid *t)
{
    static const size_t counts[] = {1, 33, 3001};
    for (int dtype = 0; dtype < REDUCE_N_DTYPES; dtype++)
        for (int op = 0; op < REDUCE_N_OPS; op++)
            for (int i = 0; i < 3; i++) {
                struct exchange x = {.kind = CALL_ALL_REDUCE,
                                     .dtype = (enum ddp_dtype)dtype,
                                     .op = (enum ddp_op)op,
                                     .count = counts[i]};
                if (reduce_is_defined(x.dtype, x.op))
                    try_exchange(t, &x, (enum memory)(op % N_MEMORIES), i % 2 == 1);
            }
}

struct plan { /* of a grid */
    int n;
    bool with_cma;
    uint8_t *sums;
};

static int run_grid(int rank, void *arg)
{
    const struct plan *plan = arg;
    setenv("DDP_TUNING", "ranks 32: cma=256K", 1); /* so that this test also uses CMA */
    struct grid t = {.g = rank_init(rank, 60000), .rank = rank, .n = plan->n, .sums = plan->sums};
    const bool many = t.n > 5;
    const size_t *list = many ? few_lengths : lengths;
    const size_t n_lengths =
        many ? sizeof few_lengths / sizeof *list : sizeof lengths / sizeof *list;
    t.in = new_area(t.g, rank, 2 * AREA_BYTES); /* with counts, up to twice as many elements */
    t.out = new_area(t.g, rank, 2 * AREA_BYTES);
    RANK_CHECK(rank, ddp_rank(t.g) == rank && ddp_world_size(t.g) == t.n, "who am I");
    for (size_t l = 0; l < n_lengths; l++) {
        try_kinds(&t, list[l]);
        RANK_CHECK(rank, ddp_barrier(t.g) == DDP_OK, "barrier");
    }
    try_sums(&t);
    ddp_finalize(t.g);
    return 0;
}

START_TEST(every_collective_gives_the_reference_bits)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 32};
    struct plan plan = {.n = sizes[_i], .sums = new_sums()};
    struct ranks r;
    ranks_start(&r, plan.n, run_grid, &plan);
    ranks_expect_success(&r);
    munmap(plan.sums, (size_t)2 * SUMS_BYTES);
}
END_TEST

/* Long enough that ordinary memory is read across processes, where the system allows it, and staged
 * where DDP_CMA=0 forbids it. */
static int run_long(int rank, void *arg)
{
    const struct plan *plan = arg;
    setenv("DDP_CMA", plan->with_cma ? "1" : "0", 1);
    setenv("DDP_TUNING", "ranks 3: cma=256K cma_sum=256K", 1);
    struct grid t = {.g = rank_init(rank, 60000), .rank = rank, .n = 3, .sums = plan->sums};
    t.in = new_area(t.g, rank, 2 * LONG_BYTES);
    t.out = new_area(t.g, rank, 2 * LONG_BYTES);
    for (int kind = CALL_ALL_REDUCE; kind <= CALL_ALL_TO_ALL; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct exchange x = {.kind = (enum call_kind)kind, .op = DDP_AVG};
            x.count = LONG_BYTES / 4;
            if (exchange_deals(&x) || exchange_collects(&x))
                x.count /= 3;
            try_exchange(&t, &x, in_place ? MIXED : PLAIN, in_place);
        }
    ddp_finalize(t.g);
    return 0;
}

START_TEST(long_plain_memory_gives_the_same_with_and_without_system_calls)
{
    struct plan plan = {.with_cma = _i == 1, .sums = new_sums()};
    struct ranks r;
    ranks_start(&r, 3, run_long, &plan);
    ranks_expect_success(&r);
    munmap(plan.sums, (size_t)2 * SUMS_BYTES);
}
END_TEST

/* Calls of all kinds and sizes one after the other, without a pause: notes and buffers change hands
 * as fast as they can. */
static int run_mixture(int rank, void *arg)
{
    enum { N = 3000, MOST = 40000 };
    uint32_t seed = *(uint32_t *)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    int n = ddp_world_size(g);
    struct area in = new_area(g, rank, MOST * 4 + 64), out = new_area(g, rank, MOST * 16 + 64);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t dice = value_mix(seed + i);
        size_t count = dice % 16 == 0 ? dice % MOST : dice % 8 == 1 ? dice % 4000 : dice % 40;
        enum memory kind = (enum memory)(dice >> 8) % N_MEMORIES;
        int root = (int)((dice >> 12) % (unsigned)n);
        float *a = (float *)pick(&in, kind, rank, true),
              *b = (float *)pick(&out, kind, rank, false);
        for (size_t k = 0; k < count; k++)
            a[k] = (float)((i + (uint32_t)rank * 7 + k) % 1000);
        int rc = DDP_OK;
        double sum = 0; /* of the last element, over all ranks: whole numbers, so exact */
        for (int r = 0; r < n && count > 0; r++)
            sum += (double)((i + (uint32_t)r * 7 + count - 1) % 1000);
        const double from_root = (double)((i + (uint32_t)root * 7 + count - 1) % 1000);
        switch ((dice >> 20) % 4) {
        case 0:
            rc = ddp_all_reduce(g, a, b, count, DDP_FLOAT32, DDP_SUM, NULL);
            RANK_CHECK(rank, rc == 0 && (count == 0 || b[count - 1] == sum), "%u", i);
            break;
        case 1:
            rc = ddp_reduce(g, a, b, count, DDP_FLOAT32, DDP_SUM, root, NULL);
            RANK_CHECK(rank, rc == 0 && (rank != root || count == 0 || b[count - 1] == sum), "%u",
                       i);
            break;
        case 2:
            rc = ddp_broadcast(g, a, b, count, DDP_FLOAT32, root, NULL);
            RANK_CHECK(rank, rc == 0 && (count == 0 || b[count - 1] == from_root), "%u", i);
            break;
        default:
            rc = ddp_all_gather(g, a, b, count, DDP_FLOAT32, NULL);
            RANK_CHECK(rank,
                       rc == 0 && (count == 0 || b[(size_t)(root + 1) * count - 1] == from_root),
                       "%u", i);
        }
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_long_mixture_of_calls_keeps_its_data_separate)
{
    uint32_t seed = (uint32_t)getpid();
    printf("seed %u\n", seed);
    struct ranks r;
    ranks_start(&r, 3, run_mixture, &seed);
    ranks_expect_success(&r);
}
END_TEST

/* --- calls that differ ------------------------------------------------------------------------ */

struct difference {
    struct what {
        char kind; /* a, r, b, g, B: the collectives; in order of the list below */
        size_t count;
        enum ddp_dtype dtype;
        enum ddp_op op;
        int root;
    } others, odd; /* what rank 1 calls, and what all others call */
    const char *others_text, *odd_text;
};

static const struct difference differences[] = {
    {{'a', 100, DDP_FLOAT32, DDP_SUM, 0},
     {'b', 100, DDP_FLOAT32, DDP_SUM, 0},
     "ddp_all_reduce(float32, sum, 100)",
     "ddp_broadcast(float32, 100, root 0)"},
    {{'a', 100, DDP_FLOAT32, DDP_SUM, 0},
     {'a', 101, DDP_FLOAT32, DDP_SUM, 0},
     "ddp_all_reduce(float32, sum, 100)",
     "ddp_all_reduce(float32, sum, 101)"},
    {{'a', 100000, DDP_FLOAT32, DDP_SUM, 0},
     {'a', 5, DDP_FLOAT32, DDP_SUM, 0},
     "ddp_all_reduce(float32, sum, 100000)",
     "ddp_all_reduce(float32, sum, 5)"},
    {{'a', 100, DDP_FLOAT32, DDP_SUM, 0},
     {'a', 100, DDP_INT32, DDP_SUM, 0},
     "ddp_all_reduce(float32, sum, 100)",
     "ddp_all_reduce(int32, sum, 100)"},
    {{'a', 1, DDP_FLOAT64, DDP_AVG, 0},
     {'a', 1, DDP_FLOAT64, DDP_MAX, 0},
     "ddp_all_reduce(float64, avg, 1)",
     "ddp_all_reduce(float64, max, 1)"},
    {{'r', 8, DDP_FLOAT32, DDP_MIN, 0},
     {'r', 8, DDP_FLOAT32, DDP_MIN, 2},
     "ddp_reduce(float32, min, 8, root 0)",
     "ddp_reduce(float32, min, 8, root 2)"},
    {{'g', 9000, DDP_INT64, DDP_SUM, 0},
     {'B', 0, DDP_FLOAT32, DDP_SUM, 0},
     "ddp_all_gather(int64, 9000)",
     "ddp_barrier()"},
};

static int call(struct ddp_group *g, const struct what *w, void *in, void *out)
{
    switch (w->kind) {
    case 'a':
        return ddp_all_reduce(g, in, out, w->count, w->dtype, w->op, NULL);
    case 'r':
        return ddp_reduce(g, in, out, w->count, w->dtype, w->op, w->root, NULL);
    case 'b':
        return ddp_broadcast(g, in, out, w->count, w->dtype, w->root, NULL);
    case 'g':
        return ddp_all_gather(g, in, out, w->count, w->dtype, NULL);
    default:
        return ddp_barrier(g);
    }
}

static int run_difference(int rank, void *arg)
{
    const struct difference *d = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct area in = new_area(g, rank, AREA_BYTES), out = new_area(g, rank, AREA_BYTES);
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    int rc = call(g, rank == 1 ? &d->odd : &d->others, in.shared, out.shared);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    static const char next[] = "make the same calls in the same order on all ranks";
    char low[384], high[384]; /* the first rank that finds it compares ranks 1 and 0, or 2 and 1 */
    snprintf(low, sizeof low, "rank 1 called %s as call #2 where rank 0 called %s; %s", d->odd_text,
             d->others_text, next);
    snprintf(high, sizeof high, "rank 2 called %s as call #2 where rank 1 called %s; %s",
             d->others_text, d->odd_text, next);
    RANK_CHECK(rank, strcmp(ddp_last_error(), low) == 0 || strcmp(ddp_last_error(), high) == 0,
               "expected: %s", low);
    char first[1024];
    snprintf(first, sizeof first, "%s", ddp_last_error());
    RANK_CHECK(rank, ddp_barrier(g) == DDP_EMISMATCH, "a broken group works on");
    RANK_CHECK(rank, strcmp(first, ddp_last_error()) == 0, "not the same again: %s", first);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_mismatch_of_calls_names_both_sides)
{
    struct ranks r;
    ranks_start(&r, 3, run_difference, (void *)&differences[_i]);
    ranks_expect_success(&r);
}
END_TEST

/* --- deaths, departures, lateness ------------------------------------------------------------- */

struct loop {
    size_t count;
    enum memory kind;
    int report; /* a pipe: a byte per rank once it is in the midst of the loop */
};

static int run_until_broken(int rank, void *arg)
{
    struct loop *loop = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct area in = new_area(g, rank, loop->count * 4 + 64),
                out = new_area(g, rank, loop->count * 4 + 64);
    float *a = (float *)pick(&in, loop->kind, rank, true),
          *b = (float *)pick(&out, loop->kind, rank, false);
    for (unsigned i = 0;; i++) {
        int rc = ddp_all_reduce(g, a, b, loop->count, DDP_FLOAT32, DDP_SUM, NULL);
        if (rc == DDP_OK) {
            if (i == 20)
                RANK_CHECK(rank, write(loop->report, "x", 1) == 1, "report");
            continue;
        }
        RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
        RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 died") != NULL, "who died");
        RANK_CHECK(rank, strstr(ddp_last_error(), "ddp_all_reduce(float32, sum") != NULL,
                   "in what");
        RANK_CHECK(rank, ddp_barrier(g) == DDP_EPEER, "a broken group works on");
        break;
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_that_is_killed_inside_a_collective_is_named_by_all_others)
{
    static const struct loop loops[] = {
        {1, PLAIN, 0}, {1000, PLAIN, 0}, {1000000, PLAIN, 0}, {1000000, SHARED, 0}};
    struct loop loop = loops[_i];
    struct ranks r;
    int ends[2];
    char bytes[3];
    ck_assert_int_eq(pipe(ends), 0);
    loop.report = ends[1];
    ranks_start(&r, 3, run_until_broken, &loop);
    close(ends[1]); /* the ranks' alone: their end is the end of the file */
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(read(ends[0], &bytes[i], 1), 1);
    kill(r.pid[1], SIGKILL);
    ranks_wait(&r);
    ck_assert(WIFSIGNALED(r.status[1]));
    ck_assert_int_eq(r.status[0], 0);
    ck_assert_int_eq(r.status[2], 0);
    close(ends[0]);
}
END_TEST

static int run_leaver(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float x = 1;
    RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK, "first");
    if (rank != 1) {
        int rc = ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL);
        RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
        RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 left") != NULL, "who left");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_that_leaves_early_is_named_by_ranks_that_need_it)
{
    struct ranks r;
    ranks_start(&r, 4, run_leaver, NULL);
    ranks_expect_success(&r);
}
END_TEST

struct lateness {
    int gate[2], report[2]; /* pipes */
};

static int run_late(int rank, void *arg)
{
    struct lateness *late = arg;
    struct ddp_group *g = rank_init(rank, 300);
    char byte;
    if (rank == 1)
        RANK_CHECK(rank, read(late->gate[0], &byte, 1) == 1, "gate");
    int rc = ddp_barrier(g);
    RANK_CHECK(rank, rc == DDP_ETIMEOUT, "got %s", ddp_strerror(rc));
    if (rank == 1)
        RANK_CHECK(rank, strstr(ddp_last_error(), "timed out waiting for rank 1") != NULL, "text");
    else
        RANK_CHECK(rank, strstr(ddp_last_error(), "for rank 1") != NULL, "text");
    RANK_CHECK(rank, rank == 1 || write(late->report[1], "x", 1) == 1, "report");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_that_does_not_call_in_time_is_named)
{
    struct lateness late;
    struct ranks r;
    char bytes[2];
    ck_assert(pipe(late.gate) == 0 && pipe(late.report) == 0);
    ranks_start(&r, 3, run_late, &late);
    close(late.report[1]); /* the ranks' alone: their end is the end of the file */
    ck_assert_int_eq(read(late.report[0], &bytes[0], 1), 1);
    ck_assert_int_eq(read(late.report[0], &bytes[1], 1), 1);
    ck_assert_int_eq(write(late.gate[1], "x", 1), 1);
    ranks_expect_success(&r);
}
END_TEST

/* --- arguments, a world of 1, fork ------------------------------------------------------------ */

static int run_arguments(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    float x[4] = {1, 2, 3, 4};
    const size_t counts[2] = {1, 1}, huge[2] = {1, SIZE_MAX / 4};
    struct {
        int rc;
        const char *text;
    } bad[] = {
        {ddp_all_reduce(g, NULL, x, 4, DDP_FLOAT32, DDP_SUM, NULL), "in is NULL"},
        {ddp_all_reduce(g, x, NULL, 4, DDP_FLOAT32, DDP_SUM, NULL), "out is NULL"},
        {ddp_all_reduce(g, x, x, 4, (enum ddp_dtype)10, DDP_SUM, NULL),
         "invalid value 10 for dtype"},
        {ddp_all_reduce(g, x, x, 4, DDP_FLOAT32, (enum ddp_op) - 1, NULL),
         "invalid value -1 for op"},
        {ddp_all_reduce(g, x, x, SIZE_MAX / 2, DDP_FLOAT32, DDP_SUM, NULL), "more than memory"},
        {ddp_all_reduce(g, (char *)x + 1, x, 1, DDP_FLOAT32, DDP_SUM, NULL), "not aligned"},
        {ddp_all_reduce(NULL, x, x, 1, DDP_FLOAT32, DDP_SUM, NULL), "the group is NULL"},
        {ddp_reduce(g, x, x, 4, DDP_FLOAT32, DDP_SUM, 2, NULL), "root is 2, not 0 to 1"},
        {ddp_broadcast(g, x, x, 4, DDP_FLOAT32, -1, NULL), "root is -1"},
        {ddp_broadcast(g, x, NULL, 4, DDP_FLOAT32, 0, NULL), "out is NULL"},
        {ddp_all_reduce(g, x, x, 1, DDP_FLOAT32, DDP_BOR, NULL), "of integers only"},
        {ddp_all_to_all(g, x, x, SIZE_MAX / 4, DDP_FLOAT32, NULL), "more than memory"},
        {ddp_all_gather_v(g, x, x, NULL, DDP_FLOAT32, NULL), "counts is NULL"},
        {ddp_all_to_all_v(g, x, NULL, x, counts, DDP_FLOAT32, NULL), "counts is NULL"},
        {ddp_all_to_all_v(g, x, counts, x, counts, DDP_FLOAT32, NULL), "out must not be in"},
        {ddp_scatter_v(g, x, x, huge, DDP_FLOAT32, 0, NULL), "for rank 1 are more than memory"},
        {ddp_gather(g, x, NULL, 1, DDP_FLOAT32, ddp_rank(g), NULL), "out is NULL"},
        {ddp_all_gather(g, x, x, PTRDIFF_MAX / 4, DDP_FLOAT32, NULL), "more than memory"},
        {ddp_alloc(g, 1, NULL), "ret_ptr is NULL"},
        {ddp_init(NULL, NULL), "ret_world is NULL"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        RANK_CHECK(rank, bad[i].rc == DDP_EINVAL, "case %zu", i);
    RANK_CHECK(rank, ddp_reduce(g, x, x, 4, DDP_FLOAT32, DDP_SUM, 7, NULL) == DDP_EINVAL, "root");
    RANK_CHECK(rank,
               strstr(ddp_last_error(), "ddp_reduce: invalid value 7 for root: expected 0 to 1") !=
                   NULL,
               "text");
    void *p = x;
    RANK_CHECK(rank, ddp_alloc(g, (size_t)1 << 40, &p) == DDP_ENOMEM && p == x, "ddp_alloc");
    struct ddp_group *again;
    RANK_CHECK(rank, ddp_init(NULL, &again) == DDP_ESYSTEM, "a second group");
    RANK_CHECK(rank, strstr(ddp_last_error(), "has already joined the job") != NULL, "text");
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "nothing of this broke the group");
    ddp_free(g, NULL);
    ddp_finalize(g);
    ddp_finalize(NULL);
    return 0;
}

START_TEST(bad_arguments_are_named_and_break_nothing)
{
    struct ranks r;
    ranks_start(&r, 2, run_arguments, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_alone(int rank, void *arg)
{
    (void)arg;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    struct ddp_group *g = rank_init(rank, 0);
    void *p;
    RANK_CHECK(rank, ddp_world_size(g) == 1 && ddp_rank(g) == 0 && ddp_local_rank(g) == 0, "who");
    RANK_CHECK(rank, ddp_local_world_size(g) == 1 && ddp_n_nodes(g) == 1 && ddp_node_rank(g) == 0,
               "where");
    RANK_CHECK(rank, ddp_generation(g) == 0, "generation");
    RANK_CHECK(rank, ddp_alloc(g, 4000, &p) == DDP_OK && (uintptr_t)p % 64 == 0, "ddp_alloc");
    double *a = p, b[500] = {0};
    for (int i = 0; i < 500; i++)
        a[i] = i / 3.0;
    RANK_CHECK(rank, ddp_all_reduce(g, a, b, 500, DDP_FLOAT64, DDP_AVG, NULL) == DDP_OK, "avg");
    RANK_CHECK(rank, memcmp(a, b, sizeof b) == 0, "the average of one value is that value");
    RANK_CHECK(rank, ddp_broadcast(g, a, a, 500, DDP_FLOAT64, 0, NULL) == DDP_OK, "broadcast");
    RANK_CHECK(rank, ddp_reduce(g, a, b, 500, DDP_FLOAT64, DDP_MIN, 0, NULL) == DDP_OK, "reduce");
    RANK_CHECK(rank, ddp_all_gather(g, a, b, 500, DDP_FLOAT64, NULL) == DDP_OK, "all_gather");
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    ddp_free(g, p);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_world_of_one_needs_nothing)
{
    struct ranks r;
    ranks_start(&r, 1, run_alone, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_forking(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    void *p;
    RANK_CHECK(rank, ddp_alloc(g, 4096, &p) == DDP_OK, "ddp_alloc");
    float *x = p;
    x[0] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        bool refused = ddp_all_reduce(g, x, x, 1, DDP_FLOAT32, DDP_SUM, NULL) == DDP_EINVAL &&
                       ddp_alloc(g, 1, &p) == DDP_EINVAL && x[0] == 1;
        ddp_free(g, p);
        ddp_finalize(g);
        _exit(refused ? 0 : 1);
    }
    int status;
    RANK_CHECK(rank, waitpid(pid, &status, 0) == pid && status == 0, "the child: %#x", status);
    RANK_CHECK(rank, ddp_all_reduce(g, x, x, 1, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK, "parent");
    RANK_CHECK(rank, x[0] == 2, "%g", (double)x[0]);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_forked_child_is_not_a_rank_and_does_no_harm)
{
    struct ranks r;
    ranks_start(&r, 2, run_forking, NULL);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(every_status_has_its_name)
{
    ck_assert_str_eq(ddp_strerror(DDP_OK), "DDP_OK");
    ck_assert_str_eq(ddp_strerror(DDP_RETRY), "DDP_RETRY");
    ck_assert_str_eq(ddp_strerror(DDP_EPEER), "DDP_EPEER");
    ck_assert_str_eq(ddp_strerror(DDP_EUNSUPPORTED), "DDP_EUNSUPPORTED");
    ck_assert_str_eq(ddp_strerror(-99), "DDP_E?");
    ck_assert_str_eq(ddp_last_error(), "");
}
END_TEST

TEST_SUITE(collective)
{
    Suite *suite = suite_create("collective");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, every_collective_gives_the_reference_bits, 0, 12);
    tcase_add_loop_test(tcase, long_plain_memory_gives_the_same_with_and_without_system_calls, 0,
                        2);
    tcase_add_test(tcase, a_long_mixture_of_calls_keeps_its_data_separate);
    tcase_add_loop_test(tcase, a_mismatch_of_calls_names_both_sides, 0,
                        sizeof differences / sizeof *differences);
    tcase_add_loop_test(tcase, a_rank_that_is_killed_inside_a_collective_is_named_by_all_others, 0,
                        4);
    tcase_add_test(tcase, a_rank_that_leaves_early_is_named_by_ranks_that_need_it);
    tcase_add_test(tcase, a_rank_that_does_not_call_in_time_is_named);
    tcase_add_test(tcase, bad_arguments_are_named_and_break_nothing);
    tcase_add_test(tcase, a_world_of_one_needs_nothing);
    tcase_add_test(tcase, a_forked_child_is_not_a_rank_and_does_no_harm);
    tcase_add_test(tcase, every_status_has_its_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
