/* test_collective_soak.c - more elements than 2^31, for which there is too little time in the quick
 * suite: in place, across processes, and staged. Two ranks take 4.3 GiB of memory together. */
#include "tests/unit/worker-runtime/ranks.h"

#include <stdint.h>

static const size_t COUNT = ((size_t)1 << 31) + 5;

static uint8_t value(int rank, size_t i)
{
    return (uint8_t)(i * 2654435761u >> 13 ^ (unsigned)rank * 77u);
}

static uint8_t *buffer(int rank, struct ddp_group *g, bool shared)
{
    void *p = NULL;
    if (shared)
        RANK_CHECK(rank, ddp_alloc(g, COUNT, &p) == DDP_OK, "ddp_alloc");
    else
        p = malloc(COUNT);
    RANK_CHECK(rank, p != NULL, "malloc");
    return p;
}

static int run_huge(int rank, void *arg)
{
    const int way = *(int *)arg;
    setenv("DDP_SEGMENT_BYTES", "3G", 1);
    setenv("DDP_CMA", way == 1 ? "1" : "0", 1);
    struct ddp_group *g = rank_init(rank, 300000);
    uint8_t *x = buffer(rank, g, way == 0);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = value(rank, i);
    RANK_CHECK(rank, ddp_all_reduce(g, x, x, COUNT, DDP_UINT8, DDP_SUM, NULL) == DDP_OK, "sum");
    for (size_t i = 0; i < COUNT; i++)
        RANK_CHECK(rank, x[i] == (uint8_t)(value(0, i) + value(1, i)), "element %zu", i);
    memset(x, rank + 1, COUNT);
    RANK_CHECK(rank, ddp_broadcast(g, x, x, COUNT, DDP_UINT8, 1, NULL) == DDP_OK, "broadcast");
    RANK_CHECK(rank, x[0] == 2 && x[COUNT - 1] == 2 && x[COUNT / 2] == 2, "from rank 1");
    ddp_finalize(g);
    return 0;
}

START_TEST(counts_have_no_limit_of_31_bits)
{
    int way = _i;
    struct ranks r;
    ranks_start(&r, 2, run_huge, &way);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(collective_soak)
{
    Suite *suite = suite_create("collective_soak");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, counts_have_no_limit_of_31_bits, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
