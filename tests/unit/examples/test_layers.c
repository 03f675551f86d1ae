/* test_layers.c - the layers against their definitions. In double. */
#include "examples/mnist/layers.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "examples/shared/random.h"
#include "tests/support/suite.h"

enum { MAX = 28 * 28 * 25 * 16 };

static real a[MAX], b[MAX], c[MAX], d[MAX];

static void draw(real *to, size_t n, uint64_t seed)
{
    struct random rng = {seed};

    for (size_t i = 0; i < n; i++)
        to[i] = random_uniform(&rng, -1, 1);
}

START_TEST(im2col_gives_each_pixel_its_neighbors_and_zero_outside)
{
    const int h = 6, w = 4, n_channels = 3;

    draw(a, (size_t)(h * w * n_channels), 1);
    layers_im2col(a, (size_t)h, (size_t)w, (size_t)n_channels, b);
    const real *at = b;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int ky = y - 2; ky <= y + 2; ky++)
                for (int kx = x - 2; kx <= x + 2; kx++)
                    for (int ch = 0; ch < n_channels; ch++, at++) {
                        bool inside = ky >= 0 && ky < h && kx >= 0 && kx < w;
                        ck_assert(*at == (inside ? a[(ky * w + kx) * n_channels + ch] : 0));
                    }
}
END_TEST

/* <im2col(x), r> = <x, col2im(r)> for all x and r: the one is the other's gradient. */
START_TEST(col2im_is_the_transpose_of_im2col)
{
    static const size_t shapes[][3] = {{28, 28, 1}, {14, 14, 16}, {2, 2, 1}, {1, 1, 2}, {3, 7, 5}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        const size_t *s = shapes[i], n_x = s[0] * s[1] * s[2], n_cols = n_x * LAYERS_TAPS;
        double left = 0, right = 0;
        draw(a, n_x, 1);
        draw(c, n_cols, 2);
        layers_im2col(a, s[0], s[1], s[2], b);
        layers_col2im(c, s[0], s[1], s[2], d);
        for (size_t k = 0; k < n_cols; k++)
            left += b[k] * c[k];
        for (size_t k = 0; k < n_x; k++)
            right += a[k] * d[k];
        ck_assert_double_eq_tol(left, right, 1e-9);
    }
}
END_TEST

START_TEST(moments_of_images_merge_to_the_moments_of_the_batch)
{
    enum { IMAGES = 5, PIXELS = 30, CHANNELS = 3 };
    double mean[CHANNELS] = {0}, m2[CHANNELS] = {0};
    struct layers_moments m = {.mean = mean, .m2 = m2};

    draw(a, IMAGES * PIXELS * CHANNELS, 1);
    for (int i = 0; i < IMAGES * PIXELS * CHANNELS; i++)
        a[i] += 1000; /* far from 0: a sum of squares would lose half of the digits */
    for (int i = 0; i < IMAGES; i++)
        layers_moments_add(&m, a + i * PIXELS * CHANNELS, PIXELS, CHANNELS);
    ck_assert_double_eq(m.n, IMAGES * PIXELS);
    for (int ch = 0; ch < CHANNELS; ch++) {
        double want_mean = 0, want_m2 = 0;
        for (int i = 0; i < IMAGES * PIXELS; i++)
            want_mean += a[i * CHANNELS + ch] / (IMAGES * PIXELS);
        for (int i = 0; i < IMAGES * PIXELS; i++)
            want_m2 += pow(a[i * CHANNELS + ch] - want_mean, 2);
        ck_assert_double_eq_tol(mean[ch], want_mean, 1e-10);
        ck_assert_double_eq_tol(m2[ch], want_m2, 1e-8);
    }
}
END_TEST

START_TEST(pooling_picks_the_largest_above_zero_and_the_first_of_equals)
{
    /* one channel; 2 x 8 pixels, so four windows */
    const real y[] = {1, 4, -1, -2, 5, 5, 2, 3, /**/ 3, 2, -3, -4, 5, 5, 7, 1};
    const real one = 1, zero = 0;
    real out[4];
    real pick[4];

    layers_pool(y, 2, 8, 1, &one, &zero, out, pick);
    ck_assert(out[0] == 4 && pick[0] == 1);
    ck_assert(out[1] == 0 && pick[1] == 4);
    ck_assert(out[2] == 5 && pick[2] == 0);
    ck_assert(out[3] == 7 && pick[3] == 2);
}
END_TEST

START_TEST(pooling_scales_and_shifts_each_channel)
{
    const real y[] = {1, 1, 2, 2, 3, 3, 4, 4}; /* 2 x 2 pixels, two channels */
    const real scale[] = {10, -1}, shift[] = {0.5, 3};
    real out[2];
    real pick[2];

    layers_pool(y, 2, 2, 2, scale, shift, out, pick);
    ck_assert(out[0] == 40.5 && pick[0] == 3);
    ck_assert(out[1] == 2 && pick[1] == 0);
}
END_TEST

START_TEST(pool_backward_sends_the_gradient_to_the_picked_pixel)
{
    const real y[] = {1, 4, -1, -2, /**/ 3, 2, -3, -4};
    const real d_out[] = {10, 20}, one = 1, zero = 0;
    real out[2], d_y[8], sum_dz = 0, sum_dz_y = 0;
    const real want[8] = {0, 10};
    real pick[2];

    layers_pool(y, 2, 4, 1, &one, &zero, out, pick);
    layers_pool_backward(d_out, pick, y, (struct layers_affine){&one, &zero, &zero, &zero}, 2, 4, 1,
                         d_y);
    ck_assert(memcmp(d_y, want, sizeof(want)) == 0);
    layers_pool_sums(d_out, pick, y, &one, 2, 4, 1, &sum_dz, &sum_dz_y);
    ck_assert(sum_dz == 10 && sum_dz_y == 30); /* 10 * (4 - 1) */
}
END_TEST

START_TEST(pool_backward_applies_the_affine_map_everywhere)
{
    const real y[] = {1, 4, 3, 2}, d_out = 10, slope = 100, offset = 7, mean = 2, two = 2;
    const real want[4] = {-93, 227, 107, 7}; /* 100 * (y - 2) + 7, and 2 * 10 at the picked one */
    const real pick = 1;
    real d_y[4];

    layers_pool_backward(&d_out, &pick, y, (struct layers_affine){&two, &slope, &offset, &mean}, 2,
                         2, 1, d_y);
    ck_assert(memcmp(d_y, want, sizeof(want)) == 0);
}
END_TEST

START_TEST(equal_logits_lose_the_logarithm_of_the_classes)
{
    const real logits[8] = {3, 3, 3, 3, -1, -1, -1, -1};
    const uint8_t labels[2] = {0, 3};
    real d_logits[8];

    ck_assert_double_eq_tol(layers_softmax_loss(logits, labels, 2, 4, d_logits), log(4), 1e-12);
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq_tol(d_logits[i], (i == 0 || i == 7 ? -0.75 : 0.25) / 2, 1e-12);
}
END_TEST

START_TEST(huge_logits_do_not_overflow)
{
    const real logits[2] = {1e6, -1e6};
    const uint8_t right = 0, wrong = 1;
    real d_logits[2];

    ck_assert_double_eq_tol(layers_softmax_loss(logits, &right, 1, 2, d_logits), 0, 1e-12);
    ck_assert_double_eq_tol(layers_softmax_loss(logits, &wrong, 1, 2, d_logits), 2e6, 1e-6);
    ck_assert_double_eq_tol(d_logits[0], 1, 1e-12);
    ck_assert_double_eq_tol(d_logits[1], -1, 1e-12);
}
END_TEST

TEST_SUITE(layers)
{
    Suite *suite = suite_create("layers");
    TCase *tests = tcase_create("layers");

    tcase_add_test(tests, im2col_gives_each_pixel_its_neighbors_and_zero_outside);
    tcase_add_test(tests, col2im_is_the_transpose_of_im2col);
    tcase_add_test(tests, moments_of_images_merge_to_the_moments_of_the_batch);
    tcase_add_test(tests, pooling_picks_the_largest_above_zero_and_the_first_of_equals);
    tcase_add_test(tests, pooling_scales_and_shifts_each_channel);
    tcase_add_test(tests, pool_backward_sends_the_gradient_to_the_picked_pixel);
    tcase_add_test(tests, pool_backward_applies_the_affine_map_everywhere);
    tcase_add_test(tests, equal_logits_lose_the_logarithm_of_the_classes);
    tcase_add_test(tests, huge_logits_do_not_overflow);
    suite_add_tcase(suite, tests);
    return suite;
}
