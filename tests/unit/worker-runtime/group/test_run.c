#include "tests/unit/worker-runtime/ranks.h"

#include <check.h>
#include <ddp/ddp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct call {
    int result; /* of the function */
    int n_calls, rank, world_size;
};

static int record(struct ddp_group *world, void *arg)
{
    struct call *c = arg;
    c->n_calls++;
    c->rank = ddp_rank(world);
    c->world_size = ddp_world_size(world);
    return c->result;
}

START_TEST(without_an_environment_the_world_has_1_rank)
{
    struct call c = {.result = 0};
    ck_assert_int_eq(ddp_run(record, &c), 0);
    ck_assert_int_eq(c.n_calls, 1);
    ck_assert_int_eq(c.rank, 0);
    ck_assert_int_eq(c.world_size, 1);
}
END_TEST

START_TEST(a_negative_result_is_passed_on)
{
    struct call c = {.result = DDP_EUNSUPPORTED};
    ck_assert_int_eq(ddp_run(record, &c), DDP_EUNSUPPORTED);
    ck_assert_int_eq(c.n_calls, 1);
}
END_TEST

START_TEST(a_positive_result_is_refused)
{
    struct call c = {.result = DDP_RETRY};
    ck_assert_int_eq(ddp_run(record, &c), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "returned 1"));
    ck_assert_int_eq(c.n_calls, 1);
}
END_TEST

static int make_a_mistake(struct ddp_group *world, void *arg)
{
    (void)arg;
    return ddp_model_create(world, NULL, 0, NULL, NULL);
}

START_TEST(the_text_of_a_failure_outlives_the_group)
{
    ck_assert_int_eq(ddp_run(make_a_mistake, NULL), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "ddp_model_create"));
}
END_TEST

/* The error does not depend on whether a generation can follow: it also occurs without ddprun. */
static int add_after_a_model(struct ddp_group *world, void *arg)
{
    float param[4] = {0}, state = 0;
    struct ddp_tensor tensor = {.name = "t", .param = param, .count = 4, .dtype = DDP_FLOAT32};
    struct ddp_model *model;
    int *found = arg;
    int rc = ddp_state_add(world, "before", &state, sizeof state);
    if (rc == 0)
        rc = ddp_model_create(world, &tensor, 1, NULL, &model);
    if (rc == 0)
        *found = ddp_state_add(world, "after", &state, sizeof state);
    return rc;
}

START_TEST(state_added_after_a_model_is_refused_on_all_ranks)
{
    int found = 0;
    struct ddp_group *world;
    ck_assert_int_eq(ddp_run(add_after_a_model, &found), 0);
    ck_assert_int_eq(found, DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "'after' was added too late"));
    found = 0;
    ck_assert_int_eq(ddp_init(NULL, &world), 0);
    ck_assert_int_eq(add_after_a_model(world, &found), 0);
    ck_assert_int_eq(found, DDP_EINVAL);
    ddp_finalize(world);
}
END_TEST

START_TEST(a_missing_function_is_refused)
{
    ck_assert_int_eq(ddp_run(NULL, NULL), DDP_EINVAL);
}
END_TEST

START_TEST(an_inconsistent_environment_is_an_error)
{
    struct call c = {0};
    setenv("RANK", "2", 1);
    setenv("WORLD_SIZE", "2", 1);
    ck_assert_int_eq(ddp_run(record, &c), DDP_EENV);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "RANK"));
    ck_assert_int_eq(c.n_calls, 0);
}
END_TEST

static int finalize_and_succeed(struct ddp_group *world, void *arg)
{
    (void)arg;
    ddp_finalize(world);
    return ddp_barrier(world);
}

START_TEST(a_function_that_finalizes_its_world_fails)
{
    ck_assert_int_eq(ddp_run(finalize_and_succeed, NULL), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "ddp_run: the function called ddp_finalize()"));
}
END_TEST

START_TEST(a_status_that_no_call_has_returned_is_named)
{
    struct call c = {.result = -42};
    ck_assert_int_eq(ddp_run(record, &c), -42);
    ck_assert_str_eq(ddp_last_error(), "ddp_run: the function returned -42");
    c.result = DDP_EUNSUPPORTED;
    ck_assert_int_eq(ddp_run(record, &c), DDP_EUNSUPPORTED);
    ck_assert_str_eq(ddp_last_error(), "ddp_run: the function returned -8 (DDP_EUNSUPPORTED); the "
                                       "last call that failed: ddp_run: the function returned -42");
}
END_TEST

/* --- a failure of the program ----------------------------------------------------------------- */

static int lose_hope(struct ddp_group *world, void *arg)
{
    (void)world;
    return ddp_fail(arg);
}

static const char *const failures[][2] = {
    {"the loss is not a number", "the loss is not a number"},
    {"\"a\\b\"\tc\n", "\\\"a\\\\b\\\"\\u0009c\\u000a"},
    {"\xc3\xa4 \xff \xc3", "\xc3\xa4 ? ?"},
    {NULL, "the program failed"},
};

START_TEST(the_launcher_finds_the_text_of_a_failure)
{
    char path[] = "/tmp/test_run_XXXXXX", text[256] = "", start[256];
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    ck_assert_int_eq(ddp_run(lose_hope, (void *)(uintptr_t)failures[_i][0]), DDP_EPROGRAM);
    ck_assert_str_eq(ddp_last_error(),
                     failures[_i][0] != NULL ? failures[_i][0] : "the program failed");
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    snprintf(start, sizeof start,
             "{\"message\": {\"message\": \"%s\", \"extraInfo\": {\"timestamp\": \"",
             failures[_i][1]);
    ck_assert_int_eq(strncmp(text, start, strlen(start)), 0);
    close(fd);
    unlink(path);
}
END_TEST

START_TEST(a_long_text_is_cut_and_a_missing_file_changes_nothing)
{
    static char text[10000];
    char path[] = "/tmp/test_run_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    memset(text, 'x', sizeof text - 1);
    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    ck_assert_int_eq(ddp_fail(text), DDP_EPROGRAM);
    ck_assert_int_gt(lseek(fd, 0, SEEK_END), 4000);
    ck_assert_int_lt(lseek(fd, 0, SEEK_END), 4200);
    close(fd);
    unlink(path);
    setenv("TORCHELASTIC_ERROR_FILE", "/nonexistent/file", 1);
    ck_assert_int_eq(ddp_fail("a"), DDP_EPROGRAM);
    unsetenv("TORCHELASTIC_ERROR_FILE");
    ck_assert_int_eq(ddp_fail("b"), DDP_EPROGRAM);
    ck_assert_str_eq(ddp_last_error(), "b");
}
END_TEST

TEST_SUITE(run)
{
    Suite *s = suite_create("run");
    TCase *t = tcase_create("run");
    tcase_add_test(t, without_an_environment_the_world_has_1_rank);
    tcase_add_test(t, a_negative_result_is_passed_on);
    tcase_add_test(t, a_positive_result_is_refused);
    tcase_add_test(t, the_text_of_a_failure_outlives_the_group);
    tcase_add_test(t, state_added_after_a_model_is_refused_on_all_ranks);
    tcase_add_test(t, a_missing_function_is_refused);
    tcase_add_test(t, an_inconsistent_environment_is_an_error);
    tcase_add_test(t, a_function_that_finalizes_its_world_fails);
    tcase_add_test(t, a_status_that_no_call_has_returned_is_named);
    tcase_add_loop_test(t, the_launcher_finds_the_text_of_a_failure, 0,
                        sizeof failures / sizeof *failures);
    tcase_add_test(t, a_long_text_is_cut_and_a_missing_file_changes_nothing);
    suite_add_tcase(s, t);
    return s;
}
