/* test_convnet.c - gradients against finite differences, in double. */
#include "examples/mnist/convnet.h"

#include <check.h>
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/mnist/digits.h"
#include "examples/shared/random.h"
#include "tests/support/suite.h"

enum { BATCH = 3, IMAGES = 6 };

static uint8_t pixels[IMAGES * CONVNET_PIXELS], labels[IMAGES];
static const struct convnet_images images = {pixels, labels};
static const int64_t order[BATCH] = {4, 0, 2};

static void draw_images(void)
{
    for (int i = 0; i < IMAGES; i++)
        labels[i] = digits_draw(5, (uint64_t)i, pixels + i * CONVNET_PIXELS);
}

static struct convnet *make(enum convnet_kind kind, bool batch_norm)
{
    struct convnet_opts opts = {
        .kind = kind, .batch_norm = batch_norm, .max_batch = IMAGES, .seed = 3};
    struct convnet *net;

    ck_assert_int_eq(convnet_create(&opts, &net), 0);
    for (size_t i = 0; i < net->n_tensors; i++) {
        net->tensors[i].grad = calloc(net->tensors[i].count, sizeof(real));
        ck_assert_ptr_nonnull(net->tensors[i].grad);
    }
    return net;
}

static void destroy(struct convnet *net)
{
    for (size_t i = 0; i < net->n_tensors; i++)
        free(net->tensors[i].grad);
    convnet_destroy(net);
}

/* Move gammas and betas away from 1 and 0, where a forgotten factor would not be seen. */
static void stir(struct convnet *net)
{
    struct random rng = {8};

    for (size_t i = 0; i < net->n_tensors; i++)
        for (size_t j = 0; j < net->tensors[i].count; j++)
            ((real *)net->tensors[i].param)[j] += random_uniform(&rng, -0.05, 0.05);
}

/* The slope of the loss along one parameter. */
static double slope(struct convnet *net, real *param)
{
    const double step = 1e-6, before = *param;

    *param = before + step;
    double above = convnet_forward(net, &images, order, BATCH);
    *param = before - step;
    double below = convnet_forward(net, &images, order, BATCH);
    *param = before;
    return (above - below) / (2 * step);
}

static void check_gradients(enum convnet_kind kind, bool batch_norm)
{
    struct convnet *net = make(kind, batch_norm);
    struct random rng = {21};

    stir(net);
    convnet_forward(net, &images, order, BATCH);
    convnet_backward(net, NULL);
    for (size_t i = 0; i < net->n_tensors; i++) {
        struct ddp_tensor *t = &net->tensors[i];
        for (int k = 0; k < 12; k++) {
            size_t j = random_bits(&rng) % t->count;
            double want = slope(net, (real *)t->param + j), got = ((real *)t->grad)[j];
            ck_assert_msg(fabs(got - want) < 1e-7 + 1e-5 * fabs(want),
                          "%s[%zu]: gradient %.10g, slope %.10g", t->name, j, got, want);
        }
    }
    destroy(net);
}

START_TEST(gradients_are_slopes_with_batch_norm)
{
    check_gradients(CONVNET_CONV, true);
}
END_TEST

START_TEST(gradients_are_slopes_without_norm)
{
    check_gradients(CONVNET_CONV, false);
}
END_TEST

START_TEST(gradients_are_slopes_of_the_linear_classifier)
{
    check_gradients(CONVNET_LINEAR, false);
}
END_TEST

START_TEST(the_gradient_of_a_batch_is_the_mean_of_its_images)
{
    struct convnet *net = make(CONVNET_CONV, false), *one = make(CONVNET_CONV, false);
    double loss = convnet_forward(net, &images, order, BATCH), sum = 0;

    convnet_backward(net, NULL);
    for (int k = 0; k < BATCH; k++) {
        sum += convnet_forward(one, &images, &order[k], 1) / BATCH;
        convnet_backward(one, NULL);
        for (size_t i = 0; i < net->n_tensors; i++)
            for (size_t j = 0; j < net->tensors[i].count; j++)
                ((real *)net->tensors[i].grad)[j] -= ((real *)one->tensors[i].grad)[j] / BATCH;
    }
    ck_assert_double_eq_tol(loss, sum, 1e-12);
    for (size_t i = 0; i < net->n_tensors; i++)
        for (size_t j = 0; j < net->tensors[i].count; j++)
            ck_assert_double_eq_tol(((real *)net->tensors[i].grad)[j], 0, 1e-12);
    destroy(net);
    destroy(one);
}
END_TEST

/* In testing, the output for an image must not depend on the other images of its batch. */
START_TEST(testing_looks_at_each_image_alone)
{
    struct convnet *net = make(CONVNET_CONV, true);
    size_t n_right = 0;

    for (int i = 0; i < 20; i++)
        convnet_forward(net, &images, order, BATCH); /* gives the running averages something */
    for (size_t i = 0; i < IMAGES; i++)
        n_right += convnet_count_right(net, &images, i, 1);
    ck_assert_uint_eq(convnet_count_right(net, &images, 0, IMAGES), n_right);
    ck_assert_uint_eq(convnet_count_right(net, &images, 0, 0), 0);
    destroy(net);
}
END_TEST

/* A pipeline computes its forward pass a second time before it goes back. */
START_TEST(running_averages_follow_each_batch_once)
{
    struct convnet *whole = make(CONVNET_CONV, true), *parts = make(CONVNET_CONV, true);
    real *between = calloc(BATCH * convnet_cut_count(parts), sizeof(real));
    const double loss = convnet_forward(whole, &images, order, BATCH);

    ck_assert_ptr_nonnull(between);
    for (int again = 0; again < 2; again++) {
        convnet_part_forward(parts, 0, &images, order, BATCH, NULL, between, again);
        ck_assert_double_eq_tol(
            convnet_part_forward(parts, 1, &images, order, BATCH, between, NULL, again), loss,
            1e-12);
    }
    ck_assert_uint_gt(whole->n_stats, 0);
    for (size_t i = 0; i < whole->n_stats; i++)
        for (size_t j = 0; j < whole->stats[i].count; j++)
            ck_assert_double_eq_tol(parts->stats[i].values[j], whole->stats[i].values[j], 1e-12);
    free(between);
    destroy(whole);
    destroy(parts);
}
END_TEST

START_TEST(plain_descent_learns_a_handful_of_images)
{
    static const int64_t all[IMAGES] = {0, 1, 2, 3, 4, 5};
    struct convnet *net = make(CONVNET_CONV, true);

    for (int step = 0; step < 150; step++) {
        convnet_forward(net, &images, all, IMAGES);
        convnet_backward(net, NULL);
        for (size_t i = 0; i < net->n_tensors; i++)
            for (size_t j = 0; j < net->tensors[i].count; j++)
                ((real *)net->tensors[i].param)[j] -= 0.02 * ((real *)net->tensors[i].grad)[j];
    }
    ck_assert_double_lt(convnet_forward(net, &images, all, IMAGES), 0.05);
    ck_assert_uint_eq(convnet_count_right(net, &images, 0, IMAGES), IMAGES);
    destroy(net);
}
END_TEST

START_TEST(a_seed_decides_the_first_weights)
{
    struct convnet_opts opts = {.batch_norm = true, .max_batch = 1, .seed = 1};
    struct convnet *a, *b, *c;

    ck_assert_int_eq(convnet_create(&opts, &a), 0);
    ck_assert_int_eq(convnet_create(&opts, &b), 0);
    opts.seed = 2;
    ck_assert_int_eq(convnet_create(&opts, &c), 0);
    ck_assert_uint_eq(a->n_tensors, 10);
    for (size_t i = 0; i < a->n_tensors; i++)
        ck_assert_mem_eq(a->tensors[i].param, b->tensors[i].param,
                         a->tensors[i].count * sizeof(real));
    ck_assert_mem_ne(a->tensors[0].param, c->tensors[0].param, a->tensors[0].count * sizeof(real));
    convnet_destroy(a);
    convnet_destroy(b);
    convnet_destroy(c);
}
END_TEST

/* Number the elements as they lie, and look where they go. */
START_TEST(tensors_are_copied_in_the_order_of_pytorch)
{
    struct convnet *net = make(CONVNET_CONV, true);
    static real copy[12800 * 2];
    size_t shape[4];

    for (size_t i = 0; i < net->n_tensors; i++)
        for (size_t j = 0; j < net->tensors[i].count; j++)
            ((real *)net->tensors[i].param)[j] = (real)j;
    for (size_t i = 0; i < net->n_tensors; i++) {
        size_t n_dims = convnet_copy_tensor(net, i, copy, shape);
        if (strcmp(net->tensors[i].name, "layer2.0.weight") == 0) {
            /* [o][c][y][x] is at ((y * 5 + x) * 16 + c) * 32 + o */
            ck_assert(n_dims == 4 && shape[0] == 32 && shape[1] == 16);
            ck_assert(shape[2] == 5 && shape[3] == 5);
            ck_assert_double_eq(copy[((7 * 16 + 3) * 5 + 4) * 5 + 1],
                                ((4 * 5 + 1) * 16 + 3) * 32 + 7);
        } else if (strcmp(net->tensors[i].name, "fc.weight") == 0) {
            /* [o][c, y, x] is at ((y * 7 + x) * 32 + c) * 10 + o */
            ck_assert(n_dims == 2 && shape[0] == 10 && shape[1] == 1568);
            ck_assert_double_eq(copy[6 * 1568 + 21 * 49 + 3 * 7 + 5],
                                ((3 * 7 + 5) * 32 + 21) * 10 + 6);
        } else if (n_dims == 1) {
            ck_assert_uint_eq(shape[0], net->tensors[i].count);
            ck_assert_double_eq(copy[shape[0] - 1], (double)(shape[0] - 1));
        }
    }
    destroy(net);
}
END_TEST

/* ddp_model_ready() takes each gradient once; ddp_model_sync() reports a gradient that was passed
 * twice. */
START_TEST(backward_reports_each_gradient_once)
{
    static const char *const from_a_launcher[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", NULL};
    struct ddp_group *g;
    struct ddp_model *m;

    for (int i = 0; from_a_launcher[i] != NULL; i++)
        unsetenv(from_a_launcher[i]);
    ck_assert_int_eq(ddp_init(NULL, &g), 0);
    for (int norm = 0; norm < 2; norm++) {
        struct convnet_opts opts = {.batch_norm = norm, .max_batch = BATCH, .seed = 1};
        struct convnet *net;
        ck_assert_int_eq(convnet_create(&opts, &net), 0);
        ck_assert_int_eq(ddp_model_create(g, net->tensors, net->n_tensors, NULL, &m), 0);
        for (int step = 0; step < 2; step++) {
            convnet_forward(net, &images, order, BATCH);
            convnet_backward(net, m);
            ck_assert_int_eq(ddp_model_ready(m, 0), DDP_EINVAL); /* already passed */
            ck_assert_int_eq(ddp_model_sync(m), DDP_EINVAL);
            ddp_model_sync(m);
        }
        ddp_model_destroy(m);
        convnet_destroy(net);
    }
    ddp_finalize(g);
}
END_TEST

TEST_SUITE(convnet)
{
    Suite *suite = suite_create("convnet");
    TCase *tests = tcase_create("convnet");

    tcase_set_timeout(tests, 100);
    tcase_add_unchecked_fixture(tests, draw_images, NULL);
    tcase_add_test(tests, gradients_are_slopes_with_batch_norm);
    tcase_add_test(tests, gradients_are_slopes_without_norm);
    tcase_add_test(tests, gradients_are_slopes_of_the_linear_classifier);
    tcase_add_test(tests, the_gradient_of_a_batch_is_the_mean_of_its_images);
    tcase_add_test(tests, testing_looks_at_each_image_alone);
    tcase_add_test(tests, running_averages_follow_each_batch_once);
    tcase_add_test(tests, plain_descent_learns_a_handful_of_images);
    tcase_add_test(tests, a_seed_decides_the_first_weights);
    tcase_add_test(tests, tensors_are_copied_in_the_order_of_pytorch);
    tcase_add_test(tests, backward_reports_each_gradient_once);
    suite_add_tcase(suite, tests);
    return suite;
}
