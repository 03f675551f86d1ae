/* The key of a job, from the environment and a home directory made for the test. */
#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/membership/secret.h"
#include "rendezvous/channel/seal.h"
#include "segments/data_secret.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

static char home[64];
static struct job_spec spec;
static struct job_world *const w = &spec.world;
static struct seal_key key;
static struct co_error err;
static char *line;

static void set_up(void)
{
    snprintf(home, sizeof home, "/tmp/ddp-secret-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("DDP_TOKEN");
    w->endpoint_host = strdup("node1");
    w->endpoint_port = 29400;
    ck_assert_int_eq(seal_key_init(&key, TOKEN, strlen(TOKEN), &err), 0);
}

static void tear_down(void)
{
    free(line);
    job_spec_fini(&spec);
    ck_assert_int_eq(rmdir(home), 0);
}

START_TEST(the_key_comes_from_the_variable_which_is_wiped)
{
    char *entry = strdup("DDP_TOKEN=" TOKEN); /* as in the block that /proc shows */
    putenv(entry);
    ck_assert_int_eq(secret_find(w, &line, &err), 0);
    ck_assert_ptr_null(line);
    ck_assert_mem_eq(w->key->secret, key.secret, sizeof key.secret);
    ck_assert_ptr_null(getenv("DDP_TOKEN"));
    ck_assert_str_eq(entry, "DDP_TOKEN=");
    ck_assert_int_eq(memcmp(entry + 10, (char[sizeof TOKEN]){0}, sizeof TOKEN), 0);
    free(entry);
}
END_TEST

START_TEST(without_a_token_the_job_is_open_with_a_warning)
{
    ck_assert_int_eq(secret_find(w, &line, &err), 0);
    ck_assert_ptr_null(w->key);
    ck_assert_ptr_nonnull(line);
    ck_assert(
        strstr(line,
               "this job is not authenticated: any user who can reach node1 port 29400 can join") ==
        line);
    ck_assert_ptr_nonnull(strstr(line, "~/.config/ddprun/token or DDP_TOKEN"));
}
END_TEST

START_TEST(on_the_loopback_interface_a_missing_token_causes_no_warning)
{
    free(w->endpoint_host);
    w->endpoint_host = strdup("localhost");
    ck_assert_int_eq(secret_find(w, &line, &err), 0);
    ck_assert_ptr_null(w->key);
    ck_assert_ptr_null(line);
}
END_TEST

START_TEST(a_job_that_requires_a_token_does_not_start_without_one)
{
    w->require_token = true;
    ck_assert_int_eq(secret_find(w, &line, &err), -EACCES);
    ck_assert_int_eq(err.code, -EACCES);
    ck_assert(strstr(err.text, "--require-token: no token: create one") == err.text);
    ck_assert_ptr_null(line);
    setenv("DDP_TOKEN", TOKEN, 1);
    ck_assert_int_eq(secret_find(w, &line, &err), 0);
    ck_assert_ptr_nonnull(w->key);
}
END_TEST

START_TEST(an_invalid_token_is_an_error)
{
    setenv("DDP_TOKEN", "short", 1);
    ck_assert_int_eq(secret_find(w, &line, &err), -EACCES);
    w->token_file = strdup("/nonexistent/token");
    ck_assert_int_eq(secret_find(w, &line, &err), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/token"));
    ck_assert_ptr_null(w->key);
}
END_TEST

START_TEST(encryption_needs_a_token_if_there_are_several_nodes)
{
    struct job_spec job = {.encrypt = true};
    ck_assert_int_eq(secret_check_encryption(&job, &line, &err), 0); /* one node */
    job.world.has_others = true;
    ck_assert_int_eq(secret_check_encryption(&job, &line, &err), -EACCES);
    ck_assert(strstr(err.text, "--encrypt requires a token: ") == err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "use --token-file token"));
    job.encrypt = false;
    ck_assert_int_eq(secret_check_encryption(&job, &line, &err), 0);
    setenv("DDP_TOKEN", TOKEN, 1);
    ck_assert_int_eq(secret_find(w, &line, &err), 0);
    job.encrypt = true;
    job.world.key = w->key;
    ck_assert_int_eq(secret_check_encryption(&job, &line, &err), 0);
    ck_assert_ptr_null(line);
    job.is_python = true;
    ck_assert_int_eq(secret_check_encryption(&job, &line, &err), 0);
    ck_assert_ptr_nonnull(strstr(line, "what ranks send by torch's gloo or nccl is not encrypted"));
}
END_TEST

START_TEST(each_job_has_its_own_secret_for_ranks)
{
    uint8_t of[3][DATA_SECRET_BYTES];
    static const char *const run_ids[] = {"job7", "job8", "job7"};
    setenv("DDP_TOKEN", TOKEN, 1);
    ck_assert_int_eq(secret_find(w, &line, &err), 0);
    for (int i = 0; i < 3; i++) {
        int fd;
        ck_assert_int_eq(secret_share(w, run_ids[i], &fd, &err), 0);
        ck_assert_int_eq(data_secret_read(fd, of[i], &err), 0);
        close(fd);
    }
    ck_assert_mem_eq(of[0], of[2], DATA_SECRET_BYTES);
    ck_assert_mem_ne(of[0], of[1], DATA_SECRET_BYTES);
}
END_TEST

TEST_SUITE(secret)
{
    Suite *suite = suite_create("secret");
    TCase *c = tcase_create("secret");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_key_comes_from_the_variable_which_is_wiped);
    tcase_add_test(c, without_a_token_the_job_is_open_with_a_warning);
    tcase_add_test(c, on_the_loopback_interface_a_missing_token_causes_no_warning);
    tcase_add_test(c, a_job_that_requires_a_token_does_not_start_without_one);
    tcase_add_test(c, an_invalid_token_is_an_error);
    tcase_add_test(c, encryption_needs_a_token_if_there_are_several_nodes);
    tcase_add_test(c, each_job_has_its_own_secret_for_ranks);
    suite_add_tcase(suite, c);
    return suite;
}
