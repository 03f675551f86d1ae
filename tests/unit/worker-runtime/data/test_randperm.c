/* The expected numbers are torch 2.11's own; those of the wide algorithm at small sizes come from
 * its description run over numpy's mt19937, since torch uses it only where it takes gigabytes. */
#include "tests/support/checksum.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/data/randperm.h"
#include <check.h>
#include <stdlib.h>

typedef void (*fill_fn)(uint32_t *perm, uint32_t n, uint64_t seed);

struct vector {
    fill_fn fill;
    uint32_t n;
    uint64_t seed;
    uint32_t head[8]; /* fewer where n is smaller */
    uint64_t weighted;
    uint32_t crc;
};

static const struct vector vectors[] = {
    {randperm_fill, 1, 0, {0}, 0, 0x6522df69},
    {randperm_fill, 10, 0, {4, 1, 7, 5, 3, 9, 0, 8}, 254, 0x7042cf3f},
    {randperm_fill, 10, 1, {5, 6, 1, 2, 0, 8, 9, 3}, 266, 0x4d4ce0c0},
    {randperm_fill, 10, 42, {2, 6, 1, 8, 4, 5, 0, 9}, 268, 0x7e0ff881},
    {randperm_fill, 1000, 0, {44, 37, 675, 775, 947, 209, 719, 500}, 252167352, 0x458fa90f},
    {randperm_fill, 1000, 42, {542, 618, 816, 68, 94, 215, 60, 585}, 251382058, 0x1a5344c0},
    {randperm_fill,
     60000,
     0,
     {36044, 10678, 57327, 55074, 21567, 15479, 9481, 43095},
     53971558475953,
     0xb049686d},
    {randperm_fill,
     60000,
     1,
     {35845, 27522, 33254, 23645, 11299, 16178, 58355, 27002},
     54053341573727,
     0x0e67764d},
    {randperm_fill,
     60000,
     42,
     {37542, 43087, 2992, 25810, 39634, 6425, 55768, 11034},
     53968154258704,
     0x32509dac},
    {randperm_fill,
     1000003,
     0,
     {128973, 243148, 711864, 93763, 851555, 855752, 262453, 933062},
     250002006930984799,
     0xb338940e},
    {randperm_fill,
     1000003,
     42,
     {632718, 119226, 282795, 846417, 893173, 754036, 226339, 462183},
     249949546053473376,
     0x99af797f},
    {randperm_fill_wide, 1, 0, {0}, 0, 0x6522df69},
    {randperm_fill_wide, 10, 0, {8, 2, 6, 3, 5, 1, 0, 9}, 248, 0x1432ce5f},
    {randperm_fill_wide, 10, 42, {6, 0, 5, 8, 7, 2, 3, 1}, 250, 0xd0ce8e45},
    {randperm_fill_wide, 1000, 42, {997, 960, 650, 359, 869, 926, 186, 544}, 250894843, 0xaf087314},
    {randperm_fill_wide,
     60000,
     7,
     {23215, 53199, 22908, 4500, 59485, 805, 58018, 16957},
     53972561310946,
     0xfde8dbe0},
};

static uint32_t *filled(fill_fn fill, uint32_t n, uint64_t seed)
{
    uint32_t *perm = malloc(((size_t)n + 1) * sizeof(*perm));
    ck_assert_ptr_nonnull(perm);
    perm[n] = 0x5ca1ab1e; /* a guard after the end */
    fill(perm, n, seed);
    ck_assert_uint_eq(perm[n], 0x5ca1ab1e);
    return perm;
}

START_TEST(permutations_equal_those_of_torch)
{
    const struct vector *v = &vectors[_i];
    uint32_t *perm = filled(v->fill, v->n, v->seed);
    struct checksum sum = {0};
    for (uint32_t i = 0; i < v->n; i++) {
        checksum_add(&sum, perm[i]);
        if (i < 8)
            ck_assert_uint_eq(perm[i], v->head[i]);
    }
    ck_assert_uint_eq(sum.weighted, v->weighted);
    ck_assert_uint_eq(sum.crc, v->crc);
    free(perm);
}
END_TEST

START_TEST(only_the_low_half_of_a_seed_counts)
{
    uint32_t *a = filled(randperm_fill, 100, 42);
    uint32_t *b = filled(randperm_fill, 100, 42 + (UINT64_C(7) << 32));
    uint32_t *minus_one = filled(randperm_fill, 100, (uint64_t)-1);
    uint32_t *low_ones = filled(randperm_fill, 100, UINT32_MAX);
    ck_assert_mem_eq(a, b, 100 * sizeof(*a));
    ck_assert_mem_eq(minus_one, low_ones, 100 * sizeof(*a));
    ck_assert_mem_ne(a, minus_one, 100 * sizeof(*a));
    free(a);
    free(b);
    free(minus_one);
    free(low_ones);
}
END_TEST

START_TEST(no_entries_are_written_for_an_empty_permutation)
{
    free(filled(randperm_fill_narrow, 0, 1));
    free(filled(randperm_fill_wide, 0, 1));
}
END_TEST

TEST_SUITE(randperm)
{
    Suite *s = suite_create("randperm");
    TCase *t = tcase_create("torch");
    tcase_add_loop_test(t, permutations_equal_those_of_torch, 0,
                        sizeof(vectors) / sizeof(vectors[0]));
    tcase_add_test(t, only_the_low_half_of_a_seed_counts);
    tcase_add_test(t, no_entries_are_written_for_an_empty_permutation);
    suite_add_tcase(s, t);
    return s;
}
