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
        {{"file"}, "unexpected argument 'file': see --help"},
        {{"--epochs"}, "--epochs requires a value"},
        {{"--epochs", "two"}, "invalid value 'two' for --epochs: expected an integer"},
        {{"--epochs", "2x"}, "invalid value '2x' for --epochs: expected an integer"},
        {{"--epochs", ""}, "invalid value '' for --epochs: expected an integer"},
        {{"--epochs", "0"}, "invalid value '0' for --epochs: expected 1 to 1000000"},
        {{"--batch", "-4"}, "invalid value '-4' for --batch: expected 1 to 65536"},
        {{"--batch", "99999999999999999999"},
         "invalid value '99999999999999999999' for --batch: expected 1 to 65536"},
        {{"--steps", "0"}, "invalid value '0' for --steps: expected 1 to 9223372036854775807"},
        {{"--draw", "9"}, "invalid value '9' for --draw: expected 10 to 1000000"},
        {{"--lr", "fast"}, "invalid value 'fast' for --lr: expected a number"},
        {{"--lr", "nan"}, "invalid value 'nan' for --lr: expected a number"},
        {{"--lr", "-1"}, "invalid value '-1' for --lr: expected 0 or more and less than 1e+06"},
        {{"--momentum", "1"},
         "invalid value '1' for --momentum: expected 0 or more and less than 1"},
        {{"--model", "resnet"}, "invalid value 'resnet' for --model: expected convnet or linear"},
        {{"--amp", "O4"}, "invalid value 'O4' for --amp: expected one of O0, O1, O2, O3"},
        {{"--amp", "2"}, "invalid value '2' for --amp: expected one of O0, O1, O2, O3"},
        {{"--amp-type", "half"},
         "invalid value 'half' for --amp-type: expected float16 or bfloat16"},
        {{"--device", "gpu"}, "invalid value 'gpu' for --device: expected one of cpu, cuda, auto"},
        {{"--device", "auto", "--pipeline"}, "--device cannot be used with --pipeline"},
        {{"--graph"},
         "--graph requires --device cuda or auto, and cannot be used with --accumulate or --zero1"},
        {{"--device", "cuda", "--graph", "--accumulate", "2"},
         "--graph requires --device cuda or auto, and cannot be used with --accumulate or --zero1"},
        {{"--device", "cuda", "--graph", "--zero1"},
         "--graph requires --device cuda or auto, and cannot be used with --accumulate or --zero1"},
        {{"--zero1", "--amp", "O2"}, "--zero1 requires --amp O0"},
        {{"--pipeline", "--sync-bn"},
         "--pipeline cannot be used with --amp, --zero1, --accumulate or --sync-bn"},
        {{"--pipeline", "--model", "linear"}, "--pipeline cannot be used with --model linear"},
        {{"--norm", "layer"}, "invalid value 'layer' for --norm: expected batch or none"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct mnist_options opts;
        struct failure why = {""};
        ck_assert_int_eq(parse(cases[i].words, &opts, &why), -1);
        ck_assert_str_eq(why.text, cases[i].error);
    }
}
END_TEST

START_TEST(without_options_the_defaults_hold)
{
    struct mnist_options o;
    struct failure why = {""};

    ck_assert_int_eq(parse((const char *const[]){NULL}, &o, &why), 0);
    ck_assert_str_eq(o.data, "mnist-data");
    ck_assert(o.batch == 100 && o.kind == CONVNET_CONV && o.batch_norm && !o.help);
    ck_assert(o.steps == 0 && o.loss_file == NULL && o.checkpoint == NULL);
}
END_TEST

START_TEST(options_are_accepted_in_both_spellings)
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

START_TEST(gpus_take_16_bit_floats_or_a_divided_optimizer)
{
    struct mnist_options o;
    struct failure why = {""};
    const char *const half[] = {"--device", "cuda", "--graph", "--amp", "O2", NULL};
    const char *const zero[] = {"--device", "cuda", "--accumulate", "2", "--zero1", NULL};

    ck_assert_int_eq(parse(half, &o, &why), 0);
    ck_assert(o.device == MNIST_CUDA && o.graph && o.amp == 2);
    ck_assert_int_eq(parse(zero, &o, &why), 0);
    ck_assert(o.device == MNIST_CUDA && o.zero1);
}
END_TEST

TEST_SUITE(mnist_options)
{
    Suite *suite = suite_create("mnist_options");
    TCase *tests = tcase_create("mnist_options");

    tcase_add_test(tests, bad_command_lines_are_refused_with_the_reason);
    tcase_add_test(tests, without_options_the_defaults_hold);
    tcase_add_test(tests, options_are_accepted_in_both_spellings);
    tcase_add_test(tests, gpus_take_16_bit_floats_or_a_divided_optimizer);
    suite_add_tcase(suite, tests);
    return suite;
}
