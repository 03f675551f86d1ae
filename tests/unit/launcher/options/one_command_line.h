/* one_command_line.h - a command line under test: the job that it describes, or the error. Its host
 * environment is a test double (tests/support/fake_host_env.h). */
#ifndef DDP_TESTS_UNIT_LAUNCHER_OPTIONS_ONE_COMMAND_LINE_H
#define DDP_TESTS_UNIT_LAUNCHER_OPTIONS_ONE_COMMAND_LINE_H

#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/options/cli.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"

#include <check.h>

/* The cases of those files of test_cli that have no main(), with the fixture below. */
TCase *cli_table_cases(void);
TCase *cli_help_cases(void);
TCase *cli_end_cases(void);
TCase *cli_output_cases(void);

static struct fake_host_env fake;
static struct host_env world;
static struct job_spec spec;
static struct co_error err;
static enum cli_wish wish;

static inline void set_up(void)
{
    fake = fake_host_env_usual;
    world = fake_host_env_make(&fake);
}

static inline void tear_down(void)
{
    job_spec_fini(&spec);
}

static inline int parse(const char *const *words)
{
    return cli_words_parse(words, &world, &wish, &spec, &err);
}

#define PARSE(...) parse((const char *[]){__VA_ARGS__, NULL})

/* Parse what has to be right. */
#define JOB(...)                                                                                   \
    do {                                                                                           \
        int job_rc = PARSE(__VA_ARGS__);                                                           \
        ck_assert_msg(job_rc == 0, "%s", err.text);                                                \
        ck_assert_int_eq(wish, CLI_RUN);                                                           \
    } while (0)

#define WITH_ENV(...)                                                                              \
    fake.env = (const char *[])                                                                    \
    {                                                                                              \
        "PATH=/usr/bin", __VA_ARGS__, NULL                                                         \
    }

#endif
