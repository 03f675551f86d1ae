/* The table that selects the fastest algorithm. */
#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/shm/cpu_tuning.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct cpu_tunings parsed(const char *text)
{
    struct cpu_tunings t;
    struct co_error err = {0};
    ck_assert_msg(cpu_tuning_parse(text, strlen(text), &t, &err) == 0, "%s", err.text);
    return t;
}

static void refuses(const char *text, const char *why)
{
    struct cpu_tunings t;
    struct co_error err = {0};
    ck_assert_msg(cpu_tuning_parse(text, strlen(text), &t, &err) == -EINVAL, "'%s' was taken",
                  text);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' said '%s'", text, err.text);
}

START_TEST(a_row_changes_only_what_it_specifies)
{
    const struct cpu_tunings t =
        parsed("ranks 2: one_shot=32K piece=64K cma=never cma_sum=8M\nranks 8: cma=1M\n");
    ck_assert_uint_eq(t.n_rows, 2);
    const struct cpu_tuning *two = cpu_tuning_for(&t, 2);
    ck_assert_uint_eq(two->one_shot_bytes, 32 << 10);
    ck_assert_uint_eq(two->piece_bytes, 64 << 10);
    ck_assert_uint_eq(two->cma_bytes, CPU_TUNING_NEVER);
    ck_assert_uint_eq(two->cma_sum_bytes, 8 << 20);
    const struct cpu_tuning *eight = cpu_tuning_for(&t, 8);
    const struct cpu_tuning *usual = cpu_tuning_for(&cpu_tunings_default, 8);
    ck_assert_uint_eq(eight->cma_bytes, 1 << 20);
    ck_assert_uint_eq(eight->one_shot_bytes, usual->one_shot_bytes);
    ck_assert_uint_eq(eight->piece_bytes, usual->piece_bytes);
}
END_TEST

START_TEST(a_group_uses_the_first_row_for_its_size)
{
    const struct cpu_tunings t = parsed("ranks 2: one_shot=1K; ranks 4: one_shot=2K");
    ck_assert_uint_eq(cpu_tuning_for(&t, 1)->one_shot_bytes, 1024);
    ck_assert_uint_eq(cpu_tuning_for(&t, 2)->one_shot_bytes, 1024);
    ck_assert_uint_eq(cpu_tuning_for(&t, 3)->one_shot_bytes, 2048);
    ck_assert_uint_eq(cpu_tuning_for(&t, 1000)->one_shot_bytes, 2048);
}
END_TEST

START_TEST(a_network_has_numbers_and_needs_no_rows)
{
    const struct cpu_tunings t = parsed("\t network: latency_ns=20000 byte_ps=8000\n");
    const struct cost_network usual = COST_NETWORK_DEFAULT;
    ck_assert_uint_eq(t.network.latency_ns, 20000);
    ck_assert_uint_eq(t.network.byte_ps, 8000);
    ck_assert_uint_eq(t.network.message_ns, usual.message_ns);
    ck_assert_uint_eq(t.network.sum_ps, usual.sum_ps);
    ck_assert_uint_eq(t.n_rows, cpu_tunings_default.n_rows);
    const struct cpu_tunings both = parsed("ranks 2: cma=1M; network: sum_ps=1; ranks 4:");
    ck_assert_uint_eq(both.n_rows, 2);
    ck_assert_uint_eq(both.network.sum_ps, 1);
}
END_TEST

START_TEST(comments_blanks_and_empty_rows_do_no_harm)
{
    const struct cpu_tunings t = parsed("# a machine; with a semicolon\n\n ;;\t\r\n"
                                        "  ranks 16:one_shot=4K # what for\r\n# ranks 17: x\n");
    ck_assert_uint_eq(t.n_rows, 1);
    ck_assert_uint_eq(t.row[0].n_ranks, 16);
    ck_assert_uint_eq(t.row[0].tuning.one_shot_bytes, 4096);
}
END_TEST

START_TEST(an_invalid_table_is_refused_with_its_line)
{
    refuses("", "no row");
    refuses("# nothing", "no row");
    refuses(
        "ranks 2: one_shot=1K\nrank 3:",
        "line 2: invalid row: expected it to start with 'ranks N:' or 'network:', not 'rank 3'");
    refuses(
        "ranks",
        "line 1: invalid row: expected it to start with 'ranks N:' or 'network:', not 'ranks '");
    refuses(
        "ranks 2",
        "line 1: invalid row: expected it to start with 'ranks N:' or 'network:', not 'ranks 2'");
    refuses("ranks 2 : cma=1M", "line 1: invalid row: expected it to start with 'ranks N:' or");
    refuses("ranks 2 3: cma=1M", "line 1: invalid row: expected it to start with 'ranks N:' or");
    refuses(": cma=1M", "line 1: invalid row: expected it to start with 'ranks N:' or");
    refuses("ranks :", "line 1: invalid row: expected it to start with 'ranks N:' or");
    refuses("ranks 0:", "line 1: invalid value '0' for ranks");
    refuses("ranks 1025:", "invalid value");
    refuses("ranks 4:\nranks 4:",
            "line 2: invalid value '4' for ranks: expected a number from 5 to 1024");
    refuses("ranks two:", "invalid value 'two' for");
    refuses("ranks 2: one_shot", "'one_shot' is not KEY=SIZE");
    refuses("ranks 2: onehot=1K", "invalid key 'onehot': expected one_shot, piece, cma or cma_sum");
    refuses("ranks 2: cma=1K cma=2K", "duplicate key cma");
    refuses("ranks 2: one_shot=never", "invalid value 'never' for");
    refuses("ranks 2: one_shot=-1", "invalid value '-1' for");
    refuses("ranks 2: piece=1K", "invalid value '1K' for piece: expected a size from 4K to 128K");
    refuses("ranks 2: piece=129K", "invalid value");
    refuses("ranks 2: cma=2T", "invalid value");
    refuses("network: latency_ns=1; network: sum_ps=1", "line 1: duplicate row 'network'");
    refuses("network: sum_ps=1 sum_ps=1", "duplicate key sum_ps");
    refuses("network: sum_ps", "'sum_ps' is not KEY=NUMBER");
    refuses("network: cma=1M",
            "invalid key 'cma': expected latency_ns, message_ns, byte_ps or sum_ps");
    refuses("network: byte_ps=1000001",
            "invalid value '1000001' for byte_ps: expected a number from 0 to 1000000");
    refuses("network: latency_ns=-1", "invalid value '-1' for latency_ns");
    refuses("network 2: sum_ps=1", "expected it to start with 'ranks N:' or 'network:'");
    refuses("network", "expected it to start with 'ranks N:' or 'network:'");
    refuses("ranks 2: cma=111111111111111111111111111111111111111111111111111111111111111111111",
            "a word exceeds 63 characters");
}
END_TEST

START_TEST(rows_and_bytes_are_bounded)
{
    char text[CPU_TUNING_MAX_ROWS * 16 + 64] = "";
    for (int n = 1; n <= CPU_TUNING_MAX_ROWS + 1; n++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "ranks %d:\n", n);
    refuses(text, "line 33: more than 32 rows");
    char *long_text = calloc(1, CPU_TUNING_MAX_TEXT + 2);
    memset(long_text, ' ', CPU_TUNING_MAX_TEXT + 1);
    refuses(long_text, "more than 65536 bytes");
    free(long_text);
}
END_TEST

START_TEST(bytes_of_nul_are_refused)
{
    struct cpu_tunings t;
    struct co_error err = {0};
    ck_assert_int_eq(cpu_tuning_parse("ranks 2:\0", 9, &t, &err), -EINVAL);
    ck_assert_int_eq(cpu_tuning_parse("ra\0ks 2:", 8, &t, &err), -EINVAL);
}
END_TEST

START_TEST(a_failure_leaves_the_table_alone)
{
    struct cpu_tunings t = cpu_tunings_default;
    ck_assert_int_lt(cpu_tuning_parse("ranks 2: cma=1K x", 17, &t, NULL), 0);
    ck_assert_uint_eq(cpu_tuning_digest(&t), cpu_tuning_digest(&cpu_tunings_default));
}
END_TEST

START_TEST(each_number_is_in_the_digest)
{
    static const char *const texts[] = {"ranks 2:",
                                        "ranks 3:",
                                        "ranks 2: one_shot=1K",
                                        "ranks 2: piece=8K",
                                        "ranks 2: cma=1K",
                                        "ranks 2: cma_sum=1K",
                                        "ranks 2:; ranks 3:",
                                        "ranks 2:; network: latency_ns=1",
                                        "ranks 2:; network: message_ns=1",
                                        "ranks 2:; network: byte_ps=1",
                                        "ranks 2:; network: sum_ps=1"};
    enum { N = sizeof texts / sizeof *texts };
    for (int i = 0; i < N; i++) {
        const struct cpu_tunings a = parsed(texts[i]);
        for (int j = 0; j < N; j++) {
            const struct cpu_tunings b = parsed(texts[j]);
            ck_assert_int_eq(cpu_tuning_digest(&a) == cpu_tuning_digest(&b), i == j);
        }
    }
}
END_TEST

START_TEST(the_variable_holds_a_table_or_the_path_of_one)
{
    struct cpu_tunings t;
    struct co_error err = {0};
    char path[] = "/tmp/ddp-tuning-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "ranks 2: one_shot=1K\n", 21), 21);
    ck_assert_int_eq(cpu_tuning_read(path, &t, &err), 0);
    ck_assert_uint_eq(t.row[0].tuning.one_shot_bytes, 1024);
    ck_assert_int_eq(cpu_tuning_read("ranks 2: one_shot=2K", &t, &err), 0);
    ck_assert_uint_eq(t.row[0].tuning.one_shot_bytes, 2048);
    ck_assert_int_eq(cpu_tuning_read(NULL, &t, &err), 0);
    ck_assert_uint_eq(cpu_tuning_digest(&t), cpu_tuning_digest(&cpu_tunings_default));
    ck_assert_int_eq(cpu_tuning_read("", &t, &err), 0);

    ck_assert_int_eq(write(fd, "ranks 1:", 8), 8);
    ck_assert_int_eq(cpu_tuning_read(path, &t, &err), -ENOEXEC);
    char expected[200];
    snprintf(
        expected, sizeof expected,
        "DDP_TUNING: '%s': line 2: invalid value '1' for ranks: expected a number from 3 to 1024",
        path);
    ck_assert_str_eq(err.text, expected);
    close(fd);
    unlink(path);
    ck_assert_int_eq(cpu_tuning_read(path, &t, &err), -ENOEXEC);
    ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
    ck_assert_int_eq(cpu_tuning_read("/", &t, &err), -ENOEXEC);
}
END_TEST

TEST_SUITE(cpu_tuning)
{
    Suite *suite = suite_create("cpu_tuning");
    TCase *tc = tcase_create("tables");
    tcase_add_test(tc, a_row_changes_only_what_it_specifies);
    tcase_add_test(tc, a_group_uses_the_first_row_for_its_size);
    tcase_add_test(tc, a_network_has_numbers_and_needs_no_rows);
    tcase_add_test(tc, comments_blanks_and_empty_rows_do_no_harm);
    tcase_add_test(tc, an_invalid_table_is_refused_with_its_line);
    tcase_add_test(tc, rows_and_bytes_are_bounded);
    tcase_add_test(tc, bytes_of_nul_are_refused);
    tcase_add_test(tc, a_failure_leaves_the_table_alone);
    tcase_add_test(tc, each_number_is_in_the_digest);
    tcase_add_test(tc, the_variable_holds_a_table_or_the_path_of_one);
    suite_add_tcase(suite, tc);
    return suite;
}
