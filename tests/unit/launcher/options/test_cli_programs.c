/* Several programs on one command line. */
#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/options/cli.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static struct host_env world;
static struct job_spec spec;
static struct co_error err;

static void set_up(void)
{
    world = fake_host_env_make(&fake_host_env_usual);
}

static void tear_down(void)
{
    job_spec_fini(&spec);
}

static int parse(const char *const *words)
{
    enum cli_wish wish;
    return cli_words_parse(words, &world, &wish, &spec, &err);
}

#define PARSE(...) parse((const char *[]){__VA_ARGS__, NULL})
#define JOB(...)   ck_assert_msg(PARSE(__VA_ARGS__) == 0, "%s", err.text)
#define REFUSED(code, message, ...)                                                                \
    do {                                                                                           \
        ck_assert_int_eq(PARSE(__VA_ARGS__), code);                                                \
        ck_assert_str_eq(err.text, message);                                                       \
    } while (0)

/* Words with blanks between. */
static const char *join(char *const *words)
{
    static char text[1000];
    text[0] = '\0';
    for (; *words != NULL; words++) {
        strcat(text, text[0] != '\0' ? " " : "");
        strcat(text, *words);
    }
    return text;
}

START_TEST(each_program_has_consecutive_ranks)
{
    JOB("ddprun", "-n", "2", "./program", "-a", ":", "-n", "3", "train.py", "b", ":", "true");
    ck_assert_int_eq(spec.n_local, 6);
    ck_assert_str_eq(join(job_spec_program(&spec, 0).argv), "./program -a");
    ck_assert_str_eq(join(job_spec_program(&spec, 1).argv), "./program -a");
    for (int rank = 2; rank < 5; rank++) {
        ck_assert_str_eq(job_spec_program(&spec, rank).path, "/usr/bin/python3");
        ck_assert_str_eq(join(job_spec_program(&spec, rank).argv),
                         "/usr/bin/python3 -u train.py b");
        ck_assert_str_eq(job_spec_program(&spec, rank).shown, "train.py");
    }
    ck_assert_str_eq(job_spec_program(&spec, 5).path, "/usr/bin/true");
    ck_assert_str_eq(join(job_spec_words(&spec)),
                     "./program -a : /usr/bin/python3 -u train.py b : true");
    ck_assert_int_eq(mpmd_end(spec.more, 0), 2);
    ck_assert_int_eq(mpmd_end(spec.more, 4), 5);
    ck_assert_int_eq(mpmd_end(spec.more, 5), INT_MAX);
}
END_TEST

START_TEST(one_program_works_as_before)
{
    JOB("ddprun", "-n", "2", "true", "a:b", "::", "");
    ck_assert_ptr_null(spec.more);
    ck_assert_str_eq(join(job_spec_words(&spec)), "true a:b :: ");
    ck_assert_int_eq(mpmd_end(spec.more, 0), INT_MAX);
    JOB("torchrun", "--no-python", "true", ":", "x"); /* it knows nothing of this */
    ck_assert_ptr_null(spec.more);
    ck_assert_str_eq(join(job_spec_words(&spec)), "true : x");
}
END_TEST

START_TEST(options_of_a_program_can_be_given_for_each)
{
    JOB("ddprun", "-m", "a.b", "{rank}", ":", "--templates=yes", "-m", "c.d", "{rank}", ":",
        "--no-python", "-p2", "./tool.py", "{rank}", ":", "--templates", "no", "true", "{rank}");
    ck_assert_int_eq(spec.n_local, 5);
    ck_assert(!job_spec_program(&spec, 0).has_templates);
    ck_assert(job_spec_program(&spec, 1).has_templates);
    ck_assert_str_eq(job_spec_program(&spec, 1).shown, "c.d");
    ck_assert_str_eq(job_spec_program(&spec, 2).path, "./tool.py");
    ck_assert(job_spec_program(&spec, 3).fills_braces);
    ck_assert(!job_spec_program(&spec, 4).fills_braces);
}
END_TEST

START_TEST(invalid_command_lines_are_refused)
{
    REFUSED(-EINVAL, "--label after ':' applies to all programs; give it before the first program",
            "ddprun", "true", ":", "--label", "true");
    REFUSED(-EINVAL, "no program given; try --help", "ddprun", "true", ":");
    REFUSED(-EINVAL, "no program given; try --help", "ddprun", ":", "true");
    REFUSED(-EINVAL, "no program given; try --help", "ddprun", "true", ":", ":", "true");
    REFUSED(-ENOENT, "no program 'nothing' in PATH; give its path, or add its directory to PATH",
            "ddprun", "true", ":", "nothing");
    REFUSED(-EINVAL, "--help and --version are allowed before the first program only", "ddprun",
            "true", ":", "--help");
    REFUSED(-EINVAL,
            "several programs separated by ':' are supported on one node only; use one program, or "
            "start them as separate jobs",
            "ddprun", "-N2", "--rdzv-endpoint", "a", "--rdzv-id", "b", "true", ":", "true");
    REFUSED(-EINVAL, "too many ranks on this node: at most 1024 are allowed", "ddprun", "-n1000",
            "true", ":", "-n", "25", "true");
    REFUSED(-EINVAL, "invalid value '0' for -n: expected a number from 1 to 1024", "ddprun", "true",
            ":", "-n", "0", "true");
    const char *words[2 * JOB_PROGRAMS_MAX + 3] = {"ddprun", "true"};
    for (int i = 0; i < JOB_PROGRAMS_MAX; i++) {
        words[2 + 2 * i] = ":";
        words[3 + 2 * i] = "true";
    }
    ck_assert_int_eq(parse(words), -EINVAL);
    ck_assert_str_eq(err.text, "too many programs: at most 32 are allowed");
    words[2 * JOB_PROGRAMS_MAX] = NULL;
    ck_assert_int_eq(parse(words), 0);
    ck_assert_int_eq(spec.n_local, JOB_PROGRAMS_MAX);
}
END_TEST

TEST_SUITE(cli_programs)
{
    Suite *suite = suite_create("cli_programs");
    TCase *c = tcase_create("cli_programs");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, each_program_has_consecutive_ranks);
    tcase_add_test(c, one_program_works_as_before);
    tcase_add_test(c, options_of_a_program_can_be_given_for_each);
    tcase_add_test(c, invalid_command_lines_are_refused);
    suite_add_tcase(suite, c);
    return suite;
}
