/* test_mnist_options.c - command lines good and bad. */
#include "examples/mnist/mnist_options.h"

#include <check.h>

#include "examples/shared/failure.h"
#include "tests/support/suite.h"

enum { MAX_WORDS = 8 };

static int parse(const char *const *words, struct mnist_options *opts, struct failure *why)
{
    char *argv[MAX_WORDS + 2] = {(char *)"mnist"};
    int argc = 1;

    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)words[argc - 1];
    return mnist_options_parse(argc, argv, opts, why);
}

START_TEST(bad_command_lines_are_refused_with_the_reason)
{
    static const struct {
        const char *words[MAX_WORDS], *error;
    } cases[] = {
        {{"--bogus"}, "unknown option '--bogus': see --help"},
        {{"--epoch=3", "-x"}, "unknown option '-x': see --help"},
        {{"file"}, "'file' is not an option: see --help"},
        {{"--epochs"}, "--epochs needs a value"},
        {{"--epochs", "two"}, "--epochs 'two' is not a whole number"},
        {{"--epochs", "2x"}, "--epochs '2x' is not a whole number"},
        {{"--epochs", ""}, "--epochs '' is not a whole number"},
        {{"--epochs", "0"}, "--epochs 0 is not within 1 .. 1000000"},
        {{"--batch", "-4"}, "--batch -4 is not within 1 .. 65536"},
        {{"--batch", "99999999999999999999"},
         "--batch 99999999999999999999 is not within 1 .. 65536"},
        {{"--steps", "0"}, "--steps 0 is not within 1 .. 9223372036854775807"},
        {{"--draw", "9"}, "--draw 9 is not within 10 .. 1000000"},
        {{"--lr", "fast"}, "--lr 'fast' is not a number"},
        {{"--lr", "nan"}, "--lr 'nan' is not a number"},
        {{"--lr", "-1"}, "--lr -1 is not at least 0 and below 1e+06"},
        {{"--momentum", "1"}, "--momentum 1 is not at least 0 and below 1"},
        {{"--model", "resnet"}, "--model 'resnet' is neither convnet nor linear"},
        {{"--amp", "O4"}, "--amp 'O4' is none of O0, O1, O2, O3"},
        {{"--amp", "2"}, "--amp '2' is none of O0, O1, O2, O3"},
        {{"--amp-type", "half"}, "--amp-type 'half' is neither float16 nor bfloat16"},
        {{"--device", "gpu"}, "--device 'gpu' is none of cpu, cuda, auto"},
        {{"--device", "auto", "--zero1"}, "--device goes without --amp, --zero1, --pipeline"},
        {{"--graph"}, "--graph goes with --device cuda or auto, without --accumulate"},
        {{"--device", "cuda", "--graph", "--accumulate", "2"},
         "--graph goes with --device cuda or auto, without --accumulate"},
        {{"--zero1", "--amp", "O2"}, "--zero1 is for --amp O0"},
        {{"--pipeline", "--sync-bn"},
         "--pipeline goes without --amp, --zero1, --accumulate, --sync-bn"},
        {{"--pipeline", "--model", "linear"}, "--pipeline cannot cut a linear classifier"},
        {{"--norm", "layer"}, "--norm 'layer' is neither batch nor none"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct mnist_options opts;
        struct failure why = {""};
        ck_assert_int_eq(parse(cases[i].words, &opts, &why), -1);
        ck_assert_str_eq(why.text, cases[i].error);
    }
}
END_TEST

START_TEST(nothing_said_means_the_defaults)
{
    struct mnist_options o;
    struct failure why = {""};

    ck_assert_int_eq(parse((const char *const[]){NULL}, &o, &why), 0);
    ck_assert_str_eq(o.data, "mnist-data");
    ck_assert(o.batch == 100 && o.kind == CONVNET_CONV && o.batch_norm && !o.help);
    ck_assert(o.steps == 0 && o.loss_file == NULL && o.checkpoint == NULL);
}
END_TEST

START_TEST(options_are_taken_in_both_spellings)
{
    struct mnist_options o;
    struct failure why = {""};
    const char *const words[] = {"--data", "here",           "--lr=0.5", "--norm",
                                 "none",   "--model=linear", "--help",   NULL};

    ck_assert_int_eq(parse(words, &o, &why), 0);
    ck_assert_str_eq(o.data, "here");
    ck_assert_double_eq(o.lr, 0.5);
    ck_assert(o.kind == CONVNET_LINEAR && !o.batch_norm && o.help);
}
END_TEST

TEST_SUITE(mnist_options)
{
    Suite *suite = suite_create("mnist_options");
    TCase *tests = tcase_create("mnist_options");

    tcase_add_test(tests, bad_command_lines_are_refused_with_the_reason);
    tcase_add_test(tests, nothing_said_means_the_defaults);
    tcase_add_test(tests, options_are_taken_in_both_spellings);
    suite_add_tcase(suite, tests);
    return suite;
}
