/* Data sets of files, and loaders that read them ahead. */
#include "tests/support/test_dir.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/data/data_format.h"

#include <check.h>
#include <ddp/loader.h>
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *write_file(const char *name, const void *head, size_t n_head, const void *data,
                              size_t n_data)
{
    const char *path = test_dir_path(name);
    FILE *out = fopen(path, "we");
    ck_assert(out != NULL && fwrite(head, 1, n_head, out) == n_head &&
              fwrite(data, 1, n_data, out) == n_data && fclose(out) == 0);
    return path;
}

/* --- data sets -------------------------------------------------------------------------------- */

START_TEST(idx_files_are_read_in_the_machines_order)
{
    static const uint8_t bytes_head[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
    static const uint8_t bytes[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint8_t wide_head[] = {0, 0, 0xe, 1, 0, 0, 0, 2};
    static const uint8_t int_head[] = {0, 0, 0xc, 2, 0, 0, 0, 1, 0, 0, 0, 2};
    const double numbers[] = {-1.5, 1e300};
    uint64_t wide[2];
    const uint32_t ints[] = {htobe32(7), htobe32((uint32_t)-2)};
    struct ddp_dataset *d;
    size_t shape[DDP_DATASET_MAX_DIMS];
    uint8_t out[8];
    ck_assert_int_eq(ddp_idx_open(write_file("b", bytes_head, 16, bytes, 12), &d), 0);
    ck_assert(ddp_dataset_count(d) == 3 && ddp_dataset_sample_bytes(d) == 4);
    ck_assert(ddp_dataset_shape(d, shape) == 2 && shape[0] == 2 && shape[1] == 2);
    ck_assert_int_eq(ddp_dataset_dtype(d), DDP_UINT8);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){2, 0}, 2, out), 0);
    ck_assert_mem_eq(out, ((const uint8_t[]){9, 10, 11, 12, 1, 2, 3, 4}), 8);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){3}, 1, out), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "has 3 samples: there is no sample 3"));
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){-1}, 1, out), DDP_EINVAL);
    ddp_dataset_close(d);

    memcpy(wide, numbers, sizeof wide);
    wide[0] = htobe64(wide[0]);
    wide[1] = htobe64(wide[1]);
    double number;
    ck_assert_int_eq(ddp_idx_open(write_file("w", wide_head, 8, wide, 16), &d), 0);
    ck_assert_uint_eq(ddp_dataset_shape(d, shape), 0);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){1}, 1, &number), 0);
    ck_assert(number == 1e300);
    ddp_dataset_close(d);

    int32_t pair[2];
    ck_assert_int_eq(ddp_idx_open(write_file("i", int_head, 12, ints, 8), &d), 0);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){0}, 1, pair), 0);
    ck_assert(pair[0] == 7 && pair[1] == -2);
    ddp_dataset_close(d);
    ddp_dataset_close(NULL);
}
END_TEST

static const char *write_tokens(const char *name, uint32_t magic, uint32_t version, uint32_t n,
                                unsigned n_there)
{
    uint32_t head[256] = {htole32(magic), htole32(version), htole32(n)};
    uint16_t tokens[1000];
    for (unsigned i = 0; i < n_there; i++)
        tokens[i] = htole16((uint16_t)(i * 7));
    return write_file(name, head, sizeof head, tokens, n_there * 2);
}

START_TEST(tokens_are_read_in_blocks_plus_the_next_token)
{
    const char *path = write_tokens("t", 20240520, 1, 100, 100);
    struct ddp_dataset *d;
    int32_t out[2][11];
    ck_assert_int_eq(ddp_tokens_open(path, &(struct ddp_tokens_opts){.block = 10}, &d), 0);
    ck_assert_int_eq(ddp_dataset_count(d), 9); /* no token follows the tenth block */
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){8, 3}, 2, out), 0);
    for (int i = 0; i < 11; i++)
        ck_assert(out[0][i] == (80 + i) * 7 && out[1][i] == (30 + i) * 7);
    ddp_dataset_close(d);
    ck_assert_int_eq(
        ddp_tokens_open(path, &(struct ddp_tokens_opts){.block = 10, .stride = 1, .vocab = 600},
                        &d),
        0);
    ck_assert_int_eq(ddp_dataset_count(d), 90);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){89}, 1, out), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "sample 89 has token 623"));
    ddp_dataset_close(d);
}
END_TEST

START_TEST(wide_tokens_are_read)
{
    const uint32_t head[256] = {htole32(20240801), htole32(7), htole32(4)};
    const uint32_t tokens[] = {htole32(1), htole32(128000), htole32(3), htole32(0x80000000u)};
    const char *path = write_file("t", head, sizeof head, tokens, sizeof tokens);
    struct ddp_dataset *d;
    int32_t out[2];
    ck_assert_int_eq(ddp_tokens_open(path, &(struct ddp_tokens_opts){.block = 1}, &d), 0);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){0}, 1, out), 0);
    ck_assert(out[0] == 1 && out[1] == 128000);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){2}, 1, out), DDP_EINVAL);
    ddp_dataset_close(d);
}
END_TEST

static void refuse_idx(const uint8_t *head, size_t n, size_t n_data, const char *part)
{
    static const uint8_t zeros[64];
    struct ddp_dataset *d;
    ck_assert_int_eq(ddp_idx_open(write_file("bad", head, n, zeros, n_data), &d), DDP_EINVAL);
    ck_assert_msg(strstr(ddp_last_error(), part) != NULL, "%s", ddp_last_error());
}

START_TEST(damaged_and_hostile_files_are_refused_with_the_reason)
{
    static const uint8_t ones[] = {0, 0, 8, 3, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255};
    struct ddp_dataset *d;
    refuse_idx((const uint8_t[]){0, 0, 8}, 3, 0, "not an IDX file");
    refuse_idx((const uint8_t[]){1, 0, 8, 1, 0, 0, 0, 1}, 8, 1, "not an IDX file");
    refuse_idx((const uint8_t[]){0x1f, 0x8b, 8, 1, 0}, 5, 9, "gunzip");
    refuse_idx((const uint8_t[]){0, 0, 0xb, 1, 0, 0, 0, 1}, 8, 2, "type 0x0b");
    refuse_idx((const uint8_t[]){0, 0, 8, 0}, 4, 0, "0 dimensions");
    refuse_idx((const uint8_t[]){0, 0, 8, 8}, 4, 60, "8 dimensions");
    refuse_idx((const uint8_t[]){0, 0, 8, 2, 0, 0, 0, 1}, 8, 0, "8 of 12 bytes of the header");
    refuse_idx((const uint8_t[]){0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0}, 12, 0, "dimension 1 is 0");
    refuse_idx(ones, 16, 10, "exceeds 1073741824 bytes");
    refuse_idx((const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 4}, 8, 3, "truncated: 3 of 4");
    refuse_idx((const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 4}, 8, 5, "longer than the 4");
    ck_assert_int_eq(ddp_idx_open(test_dir_path("none"), &d), DDP_EINVAL);
    ck_assert_int_eq(ddp_idx_open(test_dir, &d), DDP_EINVAL);

    struct ddp_tokens_opts o = {.block = 10};
#define REFUSED(magic, version, n, n_there, part)                                                  \
    ck_assert_int_eq(ddp_tokens_open(write_tokens("bad", magic, version, n, n_there), &o, &d),     \
                     DDP_EINVAL);                                                                  \
    ck_assert_msg(strstr(ddp_last_error(), part) != NULL, "%s", ddp_last_error())
    REFUSED(20240521, 1, 100, 100, "starts with 20240521, version 1");
    REFUSED(20240520, 2, 100, 100, "starts with 20240520, version 2");
    REFUSED(20240520, 1, 101, 100, "truncated: 200 of 202");
    REFUSED(20240520, 1, UINT32_MAX, 100, "truncated");
    REFUSED(20240520, 1, 99, 100, "longer than the 198");
    REFUSED(20240520, 1, 10, 10, "too few for a block of 10");
    REFUSED(20240801, 7, 100, 100, "truncated: 200 of 400");
    o.block = 0;
    REFUSED(20240520, 1, 100, 100, "invalid value 0 for block");
    o = (struct ddp_tokens_opts){.block = 1, .stride = -1};
    REFUSED(20240520, 1, 100, 100, "invalid value -1 for stride");
    o = (struct ddp_tokens_opts){.block = INT64_MAX};
    REFUSED(20240520, 1, 100, 100, "for block");
    ck_assert_int_eq(ddp_tokens_open(write_file("short", "x", 1, "", 0),
                                     &(struct ddp_tokens_opts){.block = 1}, &d),
                     DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "1 of 1024 bytes of the header"));
}
END_TEST

START_TEST(a_file_that_shrinks_is_an_error)
{
    const char *path = write_tokens("t", 20240520, 1, 100, 100);
    struct ddp_dataset *d;
    int32_t out[11];
    ck_assert_int_eq(ddp_tokens_open(path, &(struct ddp_tokens_opts){.block = 10}, &d), 0);
    ck_assert_int_eq(truncate(path, 1050), 0);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){0}, 1, out), 0 /* 26 bytes are left */);
    ck_assert_int_eq(ddp_dataset_read(d, (const int64_t[]){1}, 1, out), DDP_ESYSTEM);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "was truncated after it was opened"));
    ddp_dataset_close(d);
}
END_TEST

/* --- loaders ---------------------------------------------------------------------------------- */

enum { N = 90, BATCH = 4 }; /* samples of write_tokens() with block 10 and stride 1 */

static struct ddp_dataset *open_tokens(void)
{
    struct ddp_dataset *d;
    const struct ddp_tokens_opts opts = {.block = 10, .stride = 1};
    ck_assert_int_eq(ddp_tokens_open(write_tokens("t", 20240520, 1, 100, 100), &opts, &d), 0);
    return d;
}

static struct ddp_sampler *make_sampler(struct world *w)
{
    struct ddp_sampler *s;
    *w = (struct world){.group = {.world = w, .world_size = 2, .rank = 1}};
    const struct ddp_sampler_opts opts = {.n = N, .seed = 3, .shuffle = true};
    ck_assert_int_eq(ddp_sampler_create(&w->group, &opts, &s), 0);
    return s;
}

static struct ddp_loader *make_loader(struct ddp_sampler *s, struct ddp_dataset *d, unsigned depth)
{
    struct ddp_loader *l;
    struct ddp_loader_opts opts = {
        .datasets = {d, d}, .n_datasets = 2, .batch = BATCH, .depth = depth};
    ck_assert_msg(ddp_loader_create(s, &opts, &l) == 0, "%s", ddp_last_error());
    return l;
}

/* The batch is that of a sampler without a loader, and its data are the file's. */
static void expect_batch(const struct ddp_batch *b, struct ddp_sampler *same)
{
    const int64_t *index;
    ck_assert_uint_eq(b->n, ddp_sampler_next(same, BATCH, &index));
    for (size_t i = 0; i < b->n; i++) {
        ck_assert_int_eq(b->index[i], index[i]);
        for (int k = 0; k < 11; k++) {
            ck_assert_int_eq(((int32_t *)b->data[0])[i * 11 + k], (index[i] + k) * 7);
            ck_assert_int_eq(((int32_t *)b->data[1])[i * 11 + k], (index[i] + k) * 7);
        }
    }
}

START_TEST(batches_follow_the_sampler_with_any_read_ahead)
{
    static const unsigned depths[] = {0, 1, 7, 64};
    struct world w, x;
    struct ddp_dataset *d = open_tokens();
    struct ddp_sampler *s = make_sampler(&w), *same = make_sampler(&x);
    struct ddp_loader *l = make_loader(s, d, depths[_i]);
    while (ddp_sampler_next_epoch(s, 3)) {
        struct ddp_batch b;
        ddp_sampler_next_epoch(same, 3);
        do {
            ck_assert_int_eq(ddp_loader_consumed(l), ddp_sampler_consumed(same));
            ck_assert_int_eq(ddp_loader_next(l, &b), 0);
            expect_batch(&b, same);
        } while (b.n > 0);
        ck_assert_int_eq(ddp_loader_consumed(l), N);
    }
    ddp_loader_destroy(l);
    ddp_sampler_destroy(s);
    ddp_sampler_destroy(same);
    ddp_dataset_close(d);
}
END_TEST

START_TEST(a_loader_continues_where_the_sampler_is_set)
{
    struct world w, x;
    struct ddp_batch b;
    struct ddp_dataset *d = open_tokens();
    struct ddp_sampler *s = make_sampler(&w), *same = make_sampler(&x);
    struct ddp_loader *l = make_loader(s, d, 5);
    ddp_sampler_set_epoch(s, 0);
    ck_assert_int_eq(ddp_loader_next(l, &b), 0); /* and five more are read */
    ck_assert_int_eq(ddp_loader_consumed(l), 2 * BATCH);
    ck_assert_int_eq(ddp_sampler_resume(s, 4, 30), 0);
    ck_assert_int_eq(ddp_sampler_resume(same, 4, 30), 0);
    ddp_loader_reset(l);
    ck_assert_int_eq(ddp_loader_consumed(l), 30);
    do {
        ck_assert_int_eq(ddp_loader_next(l, &b), 0);
        expect_batch(&b, same);
    } while (b.n > 0);
    group_destroy_children(&w.group); /* as ddp_finalize() does: the loader before its sampler */
    ck_assert_ptr_null(w.group.children);
    ddp_sampler_destroy(same);
    ddp_dataset_close(d);
}
END_TEST

START_TEST(a_read_error_is_returned_with_its_batch)
{
    struct world w;
    struct ddp_batch b;
    struct ddp_dataset *d = open_tokens();
    struct ddp_sampler *s = make_sampler(&w);
    struct ddp_loader *l = make_loader(s, d, 1);
    ddp_sampler_set_epoch(s, 0);
    ck_assert_int_eq(ddp_loader_next(l, &b), 0);
    ck_assert_int_eq(truncate(test_dir_path("t"), 1024), 0);
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) /* one more may have been read before */
        rc = ddp_loader_next(l, &b);
    ck_assert_int_eq(rc, DDP_ESYSTEM);
    ck_assert_int_eq(ddp_loader_next(l, &b), DDP_ESYSTEM);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "was truncated after it was opened"));
    ddp_loader_destroy(l);
    ddp_sampler_destroy(s);
    ddp_dataset_close(d);
}
END_TEST

START_TEST(a_batch_larger_than_the_epoch_is_all_of_it)
{
    struct world w;
    struct ddp_batch b;
    struct ddp_loader *l;
    struct ddp_dataset *d = open_tokens();
    struct ddp_sampler *s = make_sampler(&w);
    const struct ddp_loader_opts opts = {.datasets = {d}, .n_datasets = 1, .batch = SIZE_MAX};
    ck_assert_int_eq(ddp_loader_create(s, &opts, &l), 0);
    ddp_sampler_set_epoch(s, 0);
    ck_assert(ddp_loader_next(l, &b) == 0 && b.n == N / 2);
    ck_assert(ddp_loader_next(l, &b) == 0 && b.n == 0);
    ddp_loader_destroy(l);
    ddp_sampler_destroy(s);
    ddp_dataset_close(d);
}
END_TEST

/* The child cannot use its copy of the loader, and its exit waits for no other process. */
static void use_in_child(struct ddp_group *g, struct ddp_loader *l)
{
    struct ddp_batch b;
    const bool is_refused = ddp_loader_next(l, &b) == DDP_EINVAL;
    ddp_loader_reset(l);
    ddp_finalize(g);
    _exit(is_refused ? 0 : 1);
}

static int run_forked(int rank, void *arg)
{
    struct ddp_batch b;
    struct ddp_sampler *s;
    struct ddp_dataset *d = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    const struct ddp_sampler_opts opts = {.n = N};
    RANK_CHECK(rank, ddp_sampler_create(g, &opts, &s) == 0, "sampler");
    struct ddp_loader *l = make_loader(s, d, 1);
    ddp_sampler_set_epoch(s, 0);
    RANK_CHECK(rank, ddp_loader_next(l, &b) == 0 && b.n == BATCH, "a batch");
    const pid_t pid = fork();
    if (pid == 0)
        use_in_child(g, l);
    const uint64_t end_ms = co_deadline_ms(60000);
    int status = -1;
    while (waitpid(pid, &status, WNOHANG) == 0 && co_left_ms(end_ms) > 0)
        usleep(1000); /* between two looks */
    if (status == -1)
        kill(pid, SIGKILL);
    RANK_CHECK(rank, status == 0, "the child ended with %x", (unsigned)status);
    RANK_CHECK(rank, ddp_loader_next(l, &b) == 0 && b.n == BATCH, "another batch");
    ddp_finalize(g);
    ddp_dataset_close(d);
    return 0;
}

START_TEST(a_forked_child_has_no_loader_and_ends)
{
    struct ranks r;
    struct ddp_dataset *d = open_tokens();
    ranks_start(&r, 2, run_forked, d);
    ranks_expect_success(&r);
    ddp_dataset_close(d);
}
END_TEST

START_TEST(loaders_without_data_are_refused)
{
    struct world w;
    struct ddp_loader *l = NULL;
    struct ddp_dataset *d = open_tokens();
    struct ddp_sampler *s = make_sampler(&w);
    const struct ddp_loader_opts good = {.datasets = {d}, .n_datasets = 1, .batch = 1};
    struct ddp_loader_opts o[] = {good, good, good, good, good};
    o[0].n_datasets = 0;
    o[1].n_datasets = DDP_LOADER_MAX_DATASETS + 1;
    o[2].datasets[0] = NULL;
    o[3].batch = 0;
    o[4].depth = 65;
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(ddp_loader_create(s, &o[i], &l), DDP_EINVAL);
    ddp_sampler_destroy(s);
    ck_assert_int_eq(ddp_sampler_create(&w.group, &(struct ddp_sampler_opts){.n = N + 1}, &s), 0);
    ck_assert_int_eq(ddp_loader_create(s, &good, &l), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "has 90 samples, the sampler 91"));
    ck_assert_ptr_null(l);
    ddp_loader_destroy(NULL);
    ddp_sampler_destroy(s);
    ddp_dataset_close(d);
}
END_TEST

TEST_SUITE(loader)
{
    Suite *s = suite_create("loader");
    TCase *t = tcase_create("data sets");
    tcase_add_checked_fixture(t, test_dir_make, test_dir_remove);
    tcase_add_test(t, idx_files_are_read_in_the_machines_order);
    tcase_add_test(t, tokens_are_read_in_blocks_plus_the_next_token);
    tcase_add_test(t, wide_tokens_are_read);
    tcase_add_test(t, damaged_and_hostile_files_are_refused_with_the_reason);
    tcase_add_test(t, a_file_that_shrinks_is_an_error);
    suite_add_tcase(s, t);
    t = tcase_create("loaders");
    tcase_add_checked_fixture(t, test_dir_make, test_dir_remove);
    tcase_set_timeout(t, 150);
    tcase_add_loop_test(t, batches_follow_the_sampler_with_any_read_ahead, 0, 4);
    tcase_add_test(t, a_loader_continues_where_the_sampler_is_set);
    tcase_add_test(t, a_read_error_is_returned_with_its_batch);
    tcase_add_test(t, a_batch_larger_than_the_epoch_is_all_of_it);
    tcase_add_test(t, a_forked_child_has_no_loader_and_ends);
    tcase_add_test(t, loaders_without_data_are_refused);
    suite_add_tcase(s, t);
    return s;
}
