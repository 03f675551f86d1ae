/* Files of tensors: written, read back, and refused. Those of Python are in tests/interop. */
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/files/whole_file.h"

#include "tests/support/cases.h"
#include "tests/support/test_dir.h"

#include <check.h>
#include <ddp/safetensors.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned n_files(void)
{
    unsigned n = 0;
    DIR *d = opendir(test_dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

START_TEST(written_tensors_are_read_back)
{
    static const float w[] = {1, 2, 3, 4, 5, 6};
    static const int64_t step = -7;
    static const uint16_t half[] = {0x3c00};
    const struct ddp_safetensors_tensor tensors[] = {
        {.name = "w", .dtype = DDP_FLOAT32, .n_dims = 2, .shape = {2, 3}, .data = w},
        {.name = "step", .dtype = DDP_INT64, .data = &step},
        {.name = "nothing", .dtype = DDP_UINT8, .n_dims = 2, .shape = {0, 4}},
        {.name = "\"q\\uote\"\n\x01 \xc3\xa9 \xf0\x9f\x98\x80",
         .dtype = DDP_BFLOAT16,
         .n_dims = 1,
         .shape = {1},
         .data = half},
    };
    const struct ddp_safetensors_text texts[] = {{"format", "pt"}, {"a \"key\"", "two\nlines"}};
    struct ddp_safetensors *f;
    const char *path = test_dir_path("file");
    ck_assert_msg(ddp_safetensors_write(path, tensors, 4, texts, 2) == 0, "%s", ddp_last_error());
    ck_assert_uint_eq(n_files(), 1);
    ck_assert_msg(ddp_safetensors_open(path, &f) == 0, "%s", ddp_last_error());
    ck_assert_uint_eq(ddp_safetensors_count(f), 4);
    for (size_t i = 0; i < 4; i++) {
        const struct ddp_safetensors_tensor *t = ddp_safetensors_find(f, tensors[i].name);
        ck_assert_ptr_nonnull(t);
        ck_assert_str_eq(t->name, tensors[i].name);
        ck_assert_int_eq(t->dtype, tensors[i].dtype);
        ck_assert_uint_eq(t->n_dims, tensors[i].n_dims);
        ck_assert_mem_eq(t->shape, tensors[i].shape, sizeof t->shape);
        if (t->bytes > 0)
            ck_assert_mem_eq(t->data, tensors[i].data, t->bytes);
    }
    ck_assert_uint_eq(ddp_safetensors_find(f, "w")->bytes, sizeof w);
    ck_assert_uint_eq((uintptr_t)ddp_safetensors_get(f, 0)->data % 8, 0);
    ck_assert_str_eq(ddp_safetensors_get(f, 0)->type, "F32");
    ck_assert_ptr_null(ddp_safetensors_get(f, 4));
    ck_assert_ptr_null(ddp_safetensors_find(f, "v"));
    ck_assert_str_eq(ddp_safetensors_text(f, "a \"key\""), "two\nlines");
    ck_assert_ptr_null(ddp_safetensors_text(f, "key"));
    ddp_safetensors_close(f);
    ddp_safetensors_close(NULL);
}
END_TEST

START_TEST(all_types_have_their_sizes)
{
    static const size_t sizes[] = {4, 8, 4, 8, 2, 2, 1, 1, 4, 8}; /* by enum ddp_dtype */
    static const uint64_t bytes[3] = {1, 2, 3};
    for (int dtype = 0; dtype < 10; dtype++) {
        struct ddp_safetensors_tensor t = {
            .name = "t", .dtype = dtype, .n_dims = 1, .shape = {3}, .data = bytes};
        struct ddp_safetensors *f;
        ck_assert_int_eq(ddp_safetensors_write(test_dir_path("file"), &t, 1, NULL, 0), 0);
        ck_assert_int_eq(ddp_safetensors_open(test_dir_path("file"), &f), 0);
        ck_assert_int_eq(ddp_safetensors_get(f, 0)->dtype, dtype);
        ck_assert_uint_eq(ddp_safetensors_get(f, 0)->bytes, 3 * sizes[dtype]);
        ddp_safetensors_close(f);
    }
}
END_TEST

/* tests/data/safetensors/bad/CASE/{input,error} */
static void check_bad(const char *path)
{
    char input[1400], expected[256], text[1700];
    struct ddp_safetensors *f = NULL;
    snprintf(input, sizeof input, "%s/input", path);
    cases_read_line(path, "error", expected, sizeof expected);
    snprintf(text, sizeof text, "'%s': %s", input, expected);
    ck_assert_msg(ddp_safetensors_open(input, &f) == DDP_EINVAL, "%s is accepted", path);
    ck_assert_str_eq(ddp_last_error(), text);
}

START_TEST(damaged_and_hostile_files_are_refused_with_the_reason)
{
    ck_assert_int_ge(cases_each("safetensors/bad", check_bad), 30);
}
END_TEST

START_TEST(anything_but_a_regular_file_is_refused)
{
    struct ddp_safetensors *f;
    ck_assert_int_eq(ddp_safetensors_open(test_dir_path("none"), &f), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "No such file"));
    ck_assert_int_eq(ddp_safetensors_open(test_dir, &f), DDP_EINVAL);
    ck_assert_int_eq(mkfifo(test_dir_path("pipe"), 0600), 0);
    ck_assert_int_eq(ddp_safetensors_open(test_dir_path("pipe"), &f),
                     DDP_EINVAL); /* nor waited for */
    ck_assert_int_eq(ddp_safetensors_open(NULL, &f), DDP_EINVAL);
}
END_TEST

static void refuse(const struct ddp_safetensors_tensor *t, size_t n, const char *part)
{
    ck_assert_int_eq(ddp_safetensors_write(test_dir_path("file"), t, n, NULL, 0), DDP_EINVAL);
    ck_assert_msg(strstr(ddp_last_error(), part) != NULL, "%s", ddp_last_error());
    ck_assert_uint_eq(n_files(), 0);
}

START_TEST(tensors_that_no_file_can_hold_are_refused)
{
    char long_name[DDP_SAFETENSORS_MAX_NAME + 2];
    const struct ddp_safetensors_tensor good = {.name = "a", .dtype = DDP_FLOAT32, .data = &good};
    struct ddp_safetensors_tensor t = good, twice[] = {good, good};
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    t.name = long_name;
    refuse(&t, 1, "longer than 1024 bytes");
    t.name = "\xff";
    refuse(&t, 1, "is not valid UTF-8");
    t.name = "";
    refuse(&t, 1, "invalid tensor name '': it is empty");
    t.name = "__metadata__";
    refuse(&t, 1, "invalid tensor name '__metadata__': it is reserved");
    t = good;
    t.dtype = -1;
    refuse(&t, 1, "invalid value -1 for dtype");
    t = good;
    t.n_dims = 9;
    refuse(&t, 1, "9 dimensions");
    t = good;
    t.n_dims = 2;
    t.shape[0] = t.shape[1] = SIZE_MAX / 2;
    refuse(&t, 1, "exceed the address space");
    t = good;
    t.data = NULL;
    refuse(&t, 1, "has data NULL");
    refuse(twice, 2, "duplicate tensor name 'a'");
}
END_TEST

START_TEST(a_write_that_fails_leaves_the_old_file)
{
    const struct ddp_safetensors_tensor t = {.name = "a", .dtype = DDP_FLOAT32, .data = &t};
    struct stat before, after;
    const char *path = test_dir_path("kept");
    ck_assert_int_eq(ddp_safetensors_write(path, &t, 1, NULL, 0), 0);
    ck_assert_int_eq(stat(path, &before), 0);
    const struct ddp_safetensors_tensor bad = {.name = "a", .dtype = 99};
    ck_assert_int_eq(ddp_safetensors_write(path, &bad, 1, NULL, 0), DDP_EINVAL);
    ck_assert_int_eq(ddp_safetensors_write(test_dir_path("no/such"), &t, 1, NULL, 0), DDP_ESYSTEM);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_uint_eq(n_files(), 1);
}
END_TEST

START_TEST(digests_do_not_depend_on_pieces)
{
    uint8_t bytes[100];
    struct whole_digest whole, cut;
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    whole_digest_init(&whole);
    whole_digest_add(&whole, bytes, sizeof bytes);
    for (unsigned step = 1; step < 30; step++) {
        whole_digest_init(&cut);
        for (unsigned at = 0; at < sizeof bytes; at += step)
            whole_digest_add(&cut, bytes + at, sizeof bytes - at < step ? sizeof bytes - at : step);
        ck_assert_uint_eq(whole_digest_end(&whole), whole_digest_end(&cut));
    }
    bytes[99] ^= 1;
    whole_digest_init(&cut);
    whole_digest_add(&cut, bytes, sizeof bytes);
    ck_assert_uint_ne(whole_digest_end(&whole), whole_digest_end(&cut));
}
END_TEST

TEST_SUITE(safetensors)
{
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("files");
    tcase_add_checked_fixture(t, test_dir_make, test_dir_remove);
    tcase_add_test(t, written_tensors_are_read_back);
    tcase_add_test(t, all_types_have_their_sizes);
    tcase_add_test(t, damaged_and_hostile_files_are_refused_with_the_reason);
    tcase_add_test(t, anything_but_a_regular_file_is_refused);
    tcase_add_test(t, tensors_that_no_file_can_hold_are_refused);
    tcase_add_test(t, a_write_that_fails_leaves_the_old_file);
    suite_add_tcase(s, t);
    t = tcase_create("helpers");
    tcase_add_test(t, digests_do_not_depend_on_pieces);
    suite_add_tcase(s, t);
    return s;
}
