/* What is learnt and what is held out, how well pairs foretell it, and the command line. */
#include "examples/chargpt/text.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/chargpt/bigram.h"
#include "examples/chargpt/chargpt_options.h"
#include "examples/shared/failure.h"
#include "tests/support/suite.h"
#include "tests/support/test_dir.h"

static void write_file(const char *name, const char *text)
{
    FILE *out = fopen(test_dir_path(name), "we");
    ck_assert(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

START_TEST(files_and_directories_are_read_in_order_and_once)
{
    struct failure why = {""};
    struct text t;
    write_file("b", "bb");
    write_file("a", "aaa");
    write_file(".hidden", "h");
    ck_assert_int_eq(mkdir(test_dir_path("deeper"), 0700), 0);
    ck_assert_int_eq(symlink("b", test_dir_path("c")), 0);
    ck_assert_int_eq(link(test_dir_path("a"), test_dir_path("d")), 0);
    const char *paths[] = {test_dir, test_dir_path("b"), test_dir_path(".hidden")};
    ck_assert_msg(text_read(paths, 3, &t, &why) == 0, "%s", why.text);
    ck_assert_uint_eq(t.n, 6);
    ck_assert_uint_eq(t.n_files, 3);
    ck_assert_mem_eq(t.bytes, "aaabbh", 6);
    text_fini(&t);
}
END_TEST

START_TEST(unreadable_files_are_named)
{
    struct failure why = {""};
    struct text t;
    const char *none[] = {test_dir_path("none")}, *device[] = {"/dev/null"};
    ck_assert_int_eq(text_read(none, 1, &t, &why), -1);
    ck_assert_ptr_nonnull(strstr(why.text, "none': No such file"));
    ck_assert_int_eq(text_read(device, 1, &t, &why), -1);
    ck_assert_ptr_nonnull(strstr(why.text, "cannot read '/dev/null': not a file or directory"));
    ck_assert_int_eq(truncate((write_file("huge", ""), test_dir_path("huge")), 1L << 31), 0);
    const char *huge[] = {test_dir_path("huge")};
    ck_assert_int_eq(text_read(huge, 1, &t, &why), -1);
    ck_assert_ptr_nonnull(strstr(why.text, "huge' exceeds the maximum of "));
}
END_TEST

START_TEST(samples_never_touch_the_held_out_part)
{
    enum { BYTES = 10240 * 2 + 5000, LENGTH = 65 };
    static uint8_t bytes[BYTES];
    static bool learnt[BYTES];
    struct text t = {.bytes = bytes, .n = BYTES};
    const size_t n = text_count(&t, LENGTH);
    ck_assert_uint_eq(n, 2 * (9216 - LENGTH + 1) + 5000 - LENGTH + 1);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = text_at(&t, LENGTH, i);
        ck_assert(at >= bytes && at + LENGTH <= bytes + BYTES);
        for (int k = 0; k < LENGTH; k++)
            learnt[at - bytes + k] = true;
    }
    ck_assert_uint_eq(text_count_held_out(&t), 2);
    for (size_t i = 0; i < BYTES; i++)
        ck_assert_int_eq(learnt[i], i / 1024 % 10 != 9);
    ck_assert_ptr_eq(text_held_out(&t, 1), bytes + 10240 + 9216);
    t.n = LENGTH - 1;
    ck_assert_uint_eq(text_count(&t, LENGTH), 0);
}
END_TEST

START_TEST(bigrams_give_the_expected_loss)
{
    enum { BYTES = 10240 * 4 };
    static uint8_t bytes[BYTES];
    struct text t = {.bytes = bytes, .n = BYTES};
    for (int i = 0; i < BYTES; i++) /* after an a comes b, after b one of two */
        bytes[i] = i % 2 == 0 ? 'a' : (i * 2654435761u >> 16 & 1) != 0 ? 'b' : 'c';
    ck_assert(fabs(bigram_held_out(&t) - log(2) / 2) < 0.01);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)((unsigned)i * (unsigned)i * 2654435761u >> 21);
    ck_assert(bigram_held_out(&t) > 5); /* of log(256) = 5.55 */
}
END_TEST

static int parse(struct chargpt_options *o, struct failure *why, const char *const *args)
{
    static char *argv[16]; /* what is parsed points into it */
    argv[0] = (char *)"chargpt";
    int argc = 1;
    for (; args[argc - 1] != NULL; argc++)
        argv[argc] = (char *)args[argc - 1];
    argv[argc] = NULL;
    return chargpt_options_parse(argc, argv, o, why);
}

START_TEST(command_lines_are_accepted_or_refused)
{
    static const struct {
        const char *args[5], *text;
    } bad[] = {
        {{"--layers", "0"}, "invalid value '0' for --layers: expected 1 to 48"},
        {{"--layers", "two"}, "invalid value 'two' for --layers: expected an integer"},
        {{"--lr", "nan"}, "invalid value 'nan' for --lr: expected a number"},
        {{"--lr", "11"}, "invalid value '11' for --lr: expected 0 to 10"},
        {{"--width", "130"}, "--width 130 is not divisible by --heads 4"},
        {{"--resume"}, "--resume and --save-every require --checkpoint DIR"},
        {{"--batch"}, "--batch requires a value"},
        {{"--frobnicate"}, "unknown option '--frobnicate': see --help"},
    };
    struct chargpt_options o;
    struct failure why = {""};
    ck_assert_int_eq(parse(&o, &why, (const char *const[]){NULL}), 0);
    ck_assert_int_eq(o.n_texts, 1);
    ck_assert_str_eq(o.texts[0], "/usr/share/common-licenses");
    ck_assert_int_eq(parse(&o, &why,
                           (const char *const[]){"--steps", "7", "x", "--resume", "--checkpoint",
                                                 "d", "y", NULL}),
                     0);
    ck_assert(o.steps == 7 && o.resume && o.n_texts == 2 && strcmp(o.texts[1], "y") == 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(parse(&o, &why, bad[i].args), -1);
        ck_assert_str_eq(why.text, bad[i].text);
    }
}
END_TEST

TEST_SUITE(text)
{
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    tcase_add_checked_fixture(t, test_dir_make, test_dir_remove);
    tcase_add_test(t, files_and_directories_are_read_in_order_and_once);
    tcase_add_test(t, unreadable_files_are_named);
    tcase_add_test(t, samples_never_touch_the_held_out_part);
    tcase_add_test(t, bigrams_give_the_expected_loss);
    tcase_add_test(t, command_lines_are_accepted_or_refused);
    suite_add_tcase(s, t);
    return s;
}
