/* test_sgd.c - steps worked out by hand. In double. */
#include "examples/mnist/sgd.h"
#include "tests/support/suite.h"

#include <check.h>

START_TEST(without_momentum_a_step_follows_the_gradient)
{
    real param[2] = {1, 2}, grad[2] = {10, -20};
    struct ddp_tensor t = {.param = param, .grad = grad, .count = 2};
    struct sgd s;

    ck_assert_int_eq(sgd_init(&s, 0.5, 0, &t, 1), 0);
    sgd_step(&s, &t, 1);
    ck_assert(param[0] == -4 && param[1] == 12);
    sgd_step(&s, &t, 1);
    ck_assert(param[0] == -9 && param[1] == 22);
    sgd_fini(&s);
}
END_TEST

START_TEST(momentum_keeps_half_of_the_last_step)
{
    real a = 0, b = 0, grad_a = 8, grad_b = -4;
    struct ddp_tensor t[2] = {{.param = &a, .grad = &grad_a, .count = 1},
                              {.param = &b, .grad = &grad_b, .count = 1}};
    struct sgd s;

    ck_assert_int_eq(sgd_init(&s, 1, 0.5, t, 2), 0);
    sgd_step(&s, t, 2);
    ck_assert(a == -8 && b == 4);
    grad_a = 0;
    sgd_step(&s, t, 2);
    ck_assert(a == -12 && b == 4 + 6);
    sgd_fini(&s);
}
END_TEST

TEST_SUITE(sgd)
{
    Suite *suite = suite_create("sgd");
    TCase *tests = tcase_create("sgd");

    tcase_add_test(tests, without_momentum_a_step_follows_the_gradient);
    tcase_add_test(tests, momentum_keeps_half_of_the_last_step);
    suite_add_tcase(suite, tests);
    return suite;
}
