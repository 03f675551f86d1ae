/* The sizes at which torch.randperm() changes its algorithm, against torch 2.11's own output. Takes
 * a gigabyte and half a minute, so it is run by hand: meson test --suite soak. */
#include "tests/support/checksum.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/data/randperm.h"
#include <check.h>
#include <stdlib.h>

static const struct vector {
    uint32_t n, head[8];
    uint64_t weighted;
    uint32_t crc;
} vectors[] = {
    /* all with seed 42 */
    {RANDPERM_WIDE_FROM - 1,
     {105399001, 199900638, 3068019, 143601337, 137413004, 127521970, 208986699, 201220015},
     6947994106474264481u,
     0x82a86a12},
    {RANDPERM_WIDE_FROM,
     {85514504, 93417259, 199404010, 60269803, 87481865, 115296688, 108395808, 23093201},
     16780056653061104777u,
     0xbd75af48},
    {RANDPERM_WIDE_FROM + 1,
     {85514504, 93417259, 199404010, 60269803, 87481865, 115296688, 108395808, 23093201},
     16791174010433021237u,
     0x2b23726b},
};

START_TEST(permutations_around_the_threshold_equal_those_of_torch)
{
    const struct vector *v = &vectors[_i];
    uint32_t *perm = malloc(v->n * sizeof(*perm));
    ck_assert_ptr_nonnull(perm);
    randperm_fill(perm, v->n, 42);
    struct checksum sum = {0};
    for (uint32_t i = 0; i < v->n; i++)
        checksum_add(&sum, perm[i]);
    ck_assert_mem_eq(perm, v->head, sizeof(v->head));
    ck_assert_uint_eq(sum.weighted, v->weighted);
    ck_assert_uint_eq(sum.crc, v->crc);
    free(perm);
}
END_TEST

TEST_SUITE(randperm_soak)
{
    Suite *s = suite_create("randperm, large");
    TCase *t = tcase_create("torch");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, permutations_around_the_threshold_equal_those_of_torch, 0,
                        sizeof(vectors) / sizeof(vectors[0]));
    suite_add_tcase(s, t);
    return s;
}
