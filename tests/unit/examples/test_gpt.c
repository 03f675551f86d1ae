/* The network's gradients are those of its loss; in double, where differences can be taken. */
#include "examples/chargpt/gpt.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/shared/adamw.h"
#include "examples/shared/exponential.h"
#include "examples/shared/failure.h"
#include "tests/support/suite.h"

enum { N = 2, CONTEXT = 7 };
static const struct gpt_shape shape = {.layers = 2, .width = 12, .heads = 3, .context = CONTEXT};

static struct gpt *make(uint8_t *inputs, int *targets)
{
    struct failure why = {""};
    struct gpt *g;
    ck_assert_msg(gpt_create(&shape, N, 5, &g, &why) == 0, "%s", why.text);
    g->grads = calloc(g->n_params, sizeof(real));
    for (size_t i = 0; i < g->n_params; i++) /* larger than for training: slopes of all kinds */
        g->params[i] += (real)0.3 * (real)sin((double)i * 12.9898);
    for (int i = 0; i < N * CONTEXT; i++) {
        inputs[i] = (uint8_t)(i * 41 % 7 + 'a');
        targets[i] = i % 5 == 4 ? -1 : i * 29 % 9 + 'a';
    }
    return g;
}

static void destroy(struct gpt *g)
{
    free(g->grads);
    gpt_destroy(g);
}

START_TEST(gradients_are_the_slopes_of_the_loss)
{
    const double step = 1e-5;
    uint8_t inputs[N * CONTEXT];
    int targets[N * CONTEXT];
    struct gpt *g = make(inputs, targets);
    gpt_forward(g, inputs, targets, N);
    gpt_backward(g, inputs, targets, N, 0.25, NULL);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gpt_tensor *t = &g->tensors[i];
        /* wte: the characters of the text; elsewhere everywhere, in strides */
        const size_t from = i == 0 ? 'a' * shape.width : 0;
        for (size_t k = from; k < t->count && k < from + 997 * 12; k += i == 0 ? 5 : 13) {
            real *p = &g->params[t->first + k], before = *p;
            *p = before + step;
            const double up = gpt_forward(g, inputs, targets, N);
            *p = before - step;
            const double down = gpt_forward(g, inputs, targets, N);
            *p = before;
            const double slope = 0.25 * (up - down) / (2 * step), has = g->grads[t->first + k];
            ck_assert_msg(fabs(slope - has) < 1e-7 + 1e-6 * fabs(slope), "%s[%zu]: %.9g, not %.9g",
                          t->name, k, has, slope);
        }
    }
    destroy(g);
}
END_TEST

START_TEST(attention_does_not_see_later_tokens)
{
    uint8_t inputs[N * CONTEXT];
    int targets[N * CONTEXT];
    struct gpt *g = make(inputs, targets);
    for (int at = 0; at < CONTEXT - 1; at++) {
        int only[N * CONTEXT];
        memset(only, -1, sizeof only);
        only[at] = 'b';
        const double before = gpt_forward(g, inputs, only, 1);
        inputs[at + 1] ^= 1;
        ck_assert(gpt_forward(g, inputs, only, 1) == before);
        inputs[at] ^= 1;
        ck_assert(gpt_forward(g, inputs, only, 1) != before);
    }
    destroy(g);
}
END_TEST

START_TEST(a_batch_is_the_sum_of_its_parts)
{
    uint8_t inputs[N * CONTEXT];
    int targets[N * CONTEXT];
    struct gpt *g = make(inputs, targets);
    const double whole = gpt_forward(g, inputs, targets, N);
    const double parts =
        gpt_forward(g, inputs, targets, 1) + gpt_forward(g, inputs + CONTEXT, targets + CONTEXT, 1);
    ck_assert(fabs(whole - parts) < 1e-12 * fabs(whole));
    destroy(g);
}
END_TEST

START_TEST(tensors_fill_the_parameters_without_gaps)
{
    uint8_t inputs[N * CONTEXT];
    int targets[N * CONTEXT];
    struct gpt *g = make(inputs, targets);
    size_t next = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        ck_assert_uint_eq(g->tensors[i].first, next);
        next += g->tensors[i].count;
    }
    ck_assert_uint_eq(next, g->n_params);
    ck_assert_str_eq(g->tensors[2].name, "h.0.ln_1.weight");
    ck_assert_str_eq(g->tensors[g->n_tensors - 1].name, "ln_f.bias");
    destroy(g);
}
END_TEST

START_TEST(invalid_shapes_are_refused)
{
    const struct gpt_shape bad[] = {{0, 8, 2, 4}, {1, 8, 3, 4}, {1, 8, 0, 4},
                                    {1, 0, 2, 4}, {1, 8, 2, 0}, {GPT_MAX_LAYERS + 1, 8, 2, 4}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct failure why = {""};
        struct gpt *g;
        ck_assert_int_eq(gpt_create(&bad[i], 1, 1, &g, &why), -1);
        ck_assert_str_ne(why.text, "");
    }
}
END_TEST

START_TEST(exponentials_equal_those_of_the_math_library)
{
    for (double x = -60; x < 60; x += 0.0137) {
        ck_assert(fabs((double)exponential((real)x) / exp(x) - 1) < 4e-15 * (1 + fabs(x)));
        ck_assert(fabs((double)hyperbolic_tangent((real)x) - tanh(x)) < 4e-15);
    }
    ck_assert(exponential(0) == 1);
    ck_assert(isfinite((double)exponential(1e300)) && exponential(-1e300) > 0);
}
END_TEST

START_TEST(adamw_steps_follow_the_definition)
{
    struct adamw a;
    real params[] = {1, -2}, grads[] = {0.25, -2};
    ck_assert_int_eq(adamw_init(&a, 2), 0);
    const struct adamw_step first = {.step = 1, .lr = 0.1};
    adamw_step(&a, &first, params, grads, 0, 1, 1);
    adamw_step(&a, &first, params, grads, 1, 1, 0);
    /* the first step goes by lr, against the gradient; what decays shrinks before */
    ck_assert(fabs(params[0] - (1 * (1 - 0.1 * a.decay) - 0.1)) < 1e-7);
    ck_assert(fabs(params[1] - (-2 + 0.1)) < 1e-7);
    ck_assert(fabs(a.mean[0] - 0.1 * 0.25) < 1e-15);
    ck_assert(fabs(a.square[1] - 0.01 * 4) < 1e-15);
    adamw_fini(&a);
}
END_TEST

TEST_SUITE(gpt)
{
    Suite *s = suite_create("gpt");
    TCase *t = tcase_create("network");
    tcase_set_timeout(t, 100);
    tcase_add_test(t, gradients_are_the_slopes_of_the_loss);
    tcase_add_test(t, attention_does_not_see_later_tokens);
    tcase_add_test(t, a_batch_is_the_sum_of_its_parts);
    tcase_add_test(t, tensors_fill_the_parameters_without_gaps);
    tcase_add_test(t, invalid_shapes_are_refused);
    tcase_add_test(t, exponentials_equal_those_of_the_math_library);
    tcase_add_test(t, adamw_steps_follow_the_definition);
    suite_add_tcase(s, t);
    return s;
}
