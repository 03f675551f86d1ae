/* test_gpu_layers.c - what the kernels for GPUs compute is what the layers compute: the text of the
 * kernels, compiled for this processor, thread by thread. In double. */
#include "examples/gpu/gpu_layers.h"

#include <check.h>

#include "examples/shared/random.h"
#include "tests/support/suite.h"

enum { N = 5, SIDE = 6, C_IN = 3, C_OUT = 4, PIXELS = SIDE * SIDE, CLASSES = 10, PARTS = 3 };
enum { N_X = N * PIXELS * C_IN, N_Y = N * PIXELS * C_OUT, N_OUT = N_Y / 4 };
enum { ROWS = LAYERS_TAPS * C_IN, N_WEIGHTS = ROWS * C_OUT };

static const struct gpu_shape shape = {N, SIDE, C_IN, C_OUT};
static real x[N_X], y[N_Y], weight[N_WEIGHTS], bias[C_OUT], d_y[N_Y], cols[PIXELS * ROWS];

#define DO(name, n, ...)                                                                           \
    do {                                                                                           \
        const struct gpu_##name k_ = {__VA_ARGS__};                                                \
        for (unsigned i_ = 0; i_ < (unsigned)(n); i_++)                                            \
            gpu_##name##_at(&k_, i_);                                                              \
    } while (0)

static void draw(real *to, size_t n, uint64_t seed)
{
    struct random rng = {seed};

    for (size_t i = 0; i < n; i++)
        to[i] = random_uniform(&rng, -1, 1);
}

static void draw_all(void)
{
    draw(x, N_X, 1);
    draw(y, N_Y, 2);
    draw(weight, N_WEIGHTS, 3);
    draw(bias, C_OUT, 4);
    draw(d_y, N_Y, 5);
}

static void expect(const real *got, const real *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_double_eq_tol(got[i], want[i], 1e-12);
}

START_TEST(a_convolution_equals_the_product_with_its_columns)
{
    real want[N_Y];

    for (int image = 0; image < N; image++) {
        layers_im2col(x + image * PIXELS * C_IN, SIDE, SIDE, C_IN, cols);
        for (int p = 0; p < PIXELS; p++)
            for (int o = 0; o < C_OUT; o++) {
                real sum = bias[o];
                for (int w = 0; w < ROWS; w++)
                    sum += cols[p * ROWS + w] * weight[w * C_OUT + o];
                want[(image * PIXELS + p) * C_OUT + o] = sum;
            }
    }
    DO(conv, N_Y, .s = shape, .x = x, .weight = weight, .bias = bias, .y = y);
    expect(y, want, N_Y);
}
END_TEST

START_TEST(its_gradients_equal_those_of_the_columns)
{
    static real d_x[N_X], want_x[N_X], d_cols[PIXELS * ROWS], got[N_WEIGHTS + C_OUT];
    static real want[N_WEIGHTS + C_OUT];
    static double part[PARTS * (N_WEIGHTS + C_OUT)];

    for (int image = 0; image < N; image++) {
        const real *d = d_y + image * PIXELS * C_OUT;
        layers_im2col(x + image * PIXELS * C_IN, SIDE, SIDE, C_IN, cols);
        for (int p = 0; p < PIXELS; p++)
            for (int w = 0; w < ROWS; w++) {
                d_cols[p * ROWS + w] = 0;
                for (int o = 0; o < C_OUT; o++) {
                    d_cols[p * ROWS + w] += d[p * C_OUT + o] * weight[w * C_OUT + o];
                    want[w * C_OUT + o] += cols[p * ROWS + w] * d[p * C_OUT + o];
                    want[N_WEIGHTS + o] += w == 0 ? d[p * C_OUT + o] : 0;
                }
            }
        layers_col2im(d_cols, SIDE, SIDE, C_IN, want_x + image * PIXELS * C_IN);
    }
    DO(conv_dx, N_X, .s = shape, .d_y = d_y, .weight = weight, .d_x = d_x);
    expect(d_x, want_x, N_X);
    DO(conv_dw, PARTS * (N_WEIGHTS + C_OUT), .s = shape, .x = x, .d_y = d_y, .parts = PARTS,
       .part = part);
    DO(sum, N_WEIGHTS + C_OUT, .part = part, .parts = PARTS, .columns = N_WEIGHTS + C_OUT,
       .factor = 1, .out = got, .rest = got + N_WEIGHTS, .split = N_WEIGHTS);
    expect(got, want, N_WEIGHTS + C_OUT);
}
END_TEST

START_TEST(moments_of_many_images_equal_those_of_the_layers)
{
    double part[PARTS * C_OUT], mean[C_OUT], var[C_OUT], want_mean[C_OUT] = {0},
                                                         want_m2[C_OUT] = {0};
    struct layers_moments m = {.mean = want_mean, .m2 = want_m2};

    for (int image = 0; image < N; image++)
        layers_moments_add(&m, y + image * PIXELS * C_OUT, PIXELS, C_OUT);
    DO(moments, PARTS * C_OUT, .s = shape, .y = y, .parts = PARTS, .part = part);
    DO(sum, C_OUT, .part = part, .parts = PARTS, .columns = C_OUT, .factor = 1 / m.n, .wide = mean);
    DO(moments, PARTS * C_OUT, .s = shape, .y = y, .mean = mean, .parts = PARTS, .part = part);
    DO(sum, C_OUT, .part = part, .parts = PARTS, .columns = C_OUT, .factor = 1, .wide = var);
    expect(mean, want_mean, C_OUT);
    expect(var, want_m2, C_OUT);
}
END_TEST

/* Some of the four are equal, some are below 0: which one is picked matters. */
START_TEST(pooling_picks_the_same_pixel_as_the_layers)
{
    real scale[C_OUT], shift[C_OUT], slope[C_OUT], d[C_OUT], center[C_OUT], d_out[N_OUT];
    real out[N_OUT], want_out[N_OUT], want_pick[N_OUT], got[N_Y], want[N_Y];
    uint8_t pick[N_OUT];
    double part[PARTS * 2 * C_OUT], sums[2 * C_OUT];
    real want_sums[2 * C_OUT] = {0};
    real *const each[] = {scale, shift, slope, d, center};

    for (int i = 0; i < 5; i++)
        draw(each[i], C_OUT, 20 + (uint64_t)i);
    draw(d_out, N_OUT, 30);
    for (int i = 0; i < N_Y; i++)
        y[i] = round(2 * y[i]); /* many equals */
    for (int image = 0; image < N; image++) {
        const size_t at = (size_t)image * PIXELS / 4 * C_OUT;
        layers_pool(y + 4 * at, SIDE, SIDE, C_OUT, scale, shift, want_out + at, want_pick + at);
        layers_pool_sums(d_out + at, want_pick + at, y + 4 * at, center, SIDE, SIDE, C_OUT,
                         want_sums, want_sums + C_OUT);
        layers_pool_backward(d_out + at, want_pick + at, y + 4 * at,
                             (struct layers_affine){scale, slope, d, center}, SIDE, SIDE, C_OUT,
                             want + 4 * at);
    }
    DO(pool, N_OUT, .s = shape, .y = y, .scale = scale, .shift = shift, .out = out, .pick = pick);
    expect(out, want_out, N_OUT);
    for (int i = 0; i < N_OUT; i++)
        ck_assert_int_eq(pick[i], (int)want_pick[i]);
    DO(pool_sums, PARTS * C_OUT, .s = shape, .d_out = d_out, .y = y, .center = center, .pick = pick,
       .parts = PARTS, .part = part);
    DO(sum, 2 * C_OUT, .part = part, .parts = PARTS, .columns = 2 * C_OUT, .factor = 1,
       .wide = sums);
    expect(sums, want_sums, 2 * C_OUT);
    DO(pool_back, N_OUT, .s = shape, .d_out = d_out, .y = y, .pick = pick, .a = scale,
       .slope = slope, .d = d, .center = center, .d_y = got);
    expect(got, want, N_Y);
}
END_TEST

START_TEST(the_loss_and_its_gradient_equal_those_of_the_layers)
{
    real logits[N * CLASSES], got[N * CLASSES], want[N * CLASSES];
    double loss[N], mean;
    const uint8_t labels[N] = {3, 0, 9, 9, 1};

    draw(logits, N * CLASSES, 9);
    logits[4] = 800; /* exp() of it is infinite */
    const double want_mean = layers_softmax_loss(logits, labels, N, CLASSES, want);
    DO(loss, N, .n = N, .classes = CLASSES, .scale = 1, .logits = logits, .labels = labels,
       .d_logits = got, .loss = loss);
    DO(sum, 1, .part = loss, .parts = N, .columns = 1, .factor = 1.0 / N, .wide = &mean);
    expect(got, want, N * CLASSES);
    ck_assert_double_eq_tol(mean, want_mean, 1e-9);
}
END_TEST

TEST_SUITE(gpu_layers)
{
    Suite *s = suite_create("gpu_layers");
    TCase *t = tcase_create("gpu_layers");
    tcase_add_checked_fixture(t, draw_all, NULL);
    tcase_add_test(t, a_convolution_equals_the_product_with_its_columns);
    tcase_add_test(t, its_gradients_equal_those_of_the_columns);
    tcase_add_test(t, moments_of_many_images_equal_those_of_the_layers);
    tcase_add_test(t, pooling_picks_the_same_pixel_as_the_layers);
    tcase_add_test(t, the_loss_and_its_gradient_equal_those_of_the_layers);
    suite_add_tcase(s, t);
    return s;
}
