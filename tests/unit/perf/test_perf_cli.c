/* The words of ddp-perf. */
#include "common/error.h"
#include "perf/perf_cli.h"
#include "tests/support/suite.h"
#include "tests/support/words.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Words are parted by blanks. returns as perf_cli_parse() */
static int parse(const char *line, bool launched, enum perf_wish *wish, struct perf_spec *spec,
                 struct co_error *err)
{
    int n;
    char **words = words_split("ddp-perf", line, &n);
    return perf_cli_parse(n, words, launched, wish, spec, err);
}

static struct perf_spec parsed(const char *line)
{
    struct perf_spec spec;
    struct co_error err = {0};
    enum perf_wish wish;
    ck_assert_msg(parse(line, false, &wish, &spec, &err) == 0, "%s", err.text);
    ck_assert_int_eq(wish, PERF_RUN);
    return spec;
}

static void refuses(const char *line, bool launched, const char *text)
{
    struct perf_spec spec;
    struct co_error err = {0};
    enum perf_wish wish;
    ck_assert_msg(parse(line, launched, &wish, &spec, &err) == -EINVAL, "'%s' was taken", line);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' said '%s'", line, err.text);
}

START_TEST(a_collective_alone_is_enough)
{
    struct perf_spec s = parsed("all_reduce");
    ck_assert_int_eq(s.collective, PERF_ALL_REDUCE);
    ck_assert_int_eq(s.dtype, DDP_FLOAT32);
    ck_assert_int_eq(s.op, DDP_SUM);
    ck_assert_int_eq(s.buffer, PERF_SEGMENT);
    ck_assert_uint_eq(s.min_bytes, 4);
    ck_assert_uint_eq(s.max_bytes, 64 << 20);
    ck_assert_uint_eq(s.factor, 4);
    ck_assert_uint_eq(s.n_iterations, 0);
    ck_assert_uint_eq(s.n_ranks, 0);
    ck_assert(s.check && !s.rewrite && !s.json && !s.tune);
}
END_TEST

START_TEST(options_may_precede_or_follow_the_collective)
{
    struct perf_spec s = parsed("-b 8 --json reduce -e1G -f 2 -r1 -d half -o max --ranks 4 -c0");
    ck_assert_int_eq(s.collective, PERF_REDUCE);
    ck_assert_uint_eq(s.min_bytes, 8);
    ck_assert_uint_eq(s.max_bytes, 1 << 30);
    ck_assert_uint_eq(s.factor, 2);
    ck_assert_int_eq(s.root, 1);
    ck_assert_int_eq(s.dtype, DDP_FLOAT16);
    ck_assert_int_eq(s.op, DDP_MAX);
    ck_assert_uint_eq(s.n_ranks, 4);
    ck_assert(s.json && !s.check);
}
END_TEST

START_TEST(names_of_nccl_tests_are_accepted)
{
    struct perf_spec s = parsed("broadcast --minbytes 1K --maxbytes 2K --stepbytes 512 --iters 7 "
                                "--warmup_iters 0 --datatype float --op sum --root 0 --check 1");
    ck_assert_uint_eq(s.step_bytes, 512);
    ck_assert_uint_eq(s.n_iterations, 7);
    ck_assert_uint_eq(s.n_warmups, 0);
    ck_assert_int_eq(s.dtype, DDP_FLOAT32);
}
END_TEST

START_TEST(a_least_size_above_the_default_raises_the_largest)
{
    struct perf_spec s = parsed("all_reduce -b 1G");
    ck_assert_uint_eq(s.max_bytes, 1 << 30);
    refuses("all_reduce -b 1G -e 1M", false, "--maxbytes is less than --minbytes");
}
END_TEST

START_TEST(invalid_arguments_are_refused_with_the_reason)
{
    refuses("", false, "no collective given");
    refuses("all_reduced", false, "unknown collective 'all_reduced'");
    refuses("all_reduce broadcast", false,
            "unexpected argument 'broadcast'; usage: ddp-perf COLLECTIVE [OPTION]...");
    refuses("all_reduce -d float31", false,
            "invalid value 'float31' for -d: expected one of float32|");
    refuses("all_reduce -o xor", false, "invalid value 'xor' for -o: expected one of sum|");
    refuses("all_reduce -o band", false, "--op band requires an integer type");
    refuses("all_reduce --buffer shared", false, "expected one of segment|plain");
    refuses("all_reduce -b 0", false, "expected a ");
    refuses("all_reduce -e 2T", false, "expected a ");
    refuses("all_reduce -f 1", false, "expected a ");
    refuses("all_reduce -n 0", false, "expected a ");
    refuses("all_reduce -c 2", false, "expected a ");
    refuses("all_reduce -f 2 -i 8", false, "cannot be used together");
    refuses("reduce --ranks 2 -r 2", false,
            "invalid value '2' for --root: expected one of 2 ranks");
    refuses("all_reduce --ranks 1025", false, "expected a ");
}
END_TEST

START_TEST(ranks_are_not_started_under_a_launcher)
{
    refuses("all_reduce --ranks 2", true, "cannot be used under a launcher");
    refuses("--tune", false, "--tune requires --ranks N");
    refuses("--tune --ranks 1", false, "--tune requires --ranks N");
    refuses("--tune --ranks 2 all_reduce", false,
            "--tune and a collective cannot be used together");
    ck_assert(parsed("--tune --ranks 3").tune);
    refuses("--tune --ranks 3", true, "--ranks cannot be used under a launcher");
    refuses("--tune all_reduce", true, "--tune and a collective cannot be used together");
}
END_TEST

START_TEST(help_and_version_override_later_arguments)
{
    struct perf_spec spec;
    struct co_error err = {0};
    enum perf_wish wish;
    ck_assert_int_eq(parse("--help -b nonsense", true, &wish, &spec, &err), 0);
    ck_assert_int_eq(wish, PERF_HELP);
    ck_assert_int_eq(parse("all_reduce -V", true, &wish, &spec, &err), 0);
    ck_assert_int_eq(wish, PERF_VERSION);
}
END_TEST

TEST_SUITE(perf_cli)
{
    Suite *suite = suite_create("perf_cli");
    TCase *tc = tcase_create("words");
    tcase_add_test(tc, a_collective_alone_is_enough);
    tcase_add_test(tc, options_may_precede_or_follow_the_collective);
    tcase_add_test(tc, names_of_nccl_tests_are_accepted);
    tcase_add_test(tc, a_least_size_above_the_default_raises_the_largest);
    tcase_add_test(tc, invalid_arguments_are_refused_with_the_reason);
    tcase_add_test(tc, ranks_are_not_started_under_a_launcher);
    tcase_add_test(tc, help_and_version_override_later_arguments);
    suite_add_tcase(suite, tc);
    return suite;
}
