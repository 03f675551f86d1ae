/* test_digits.c - drawn digits are the same everywhere, and worth learning. */
#include "examples/mnist/digits.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>
#include <zlib.h>

enum { PIXELS = DIGITS_SIDE * DIGITS_SIDE };

START_TEST(a_seed_and_an_index_decide_the_image)
{
    uint8_t a[PIXELS], b[PIXELS], c[PIXELS];
    uint8_t digit = digits_draw(1, 17, a);

    digits_draw(1, 18, c); /* whatever was drawn in between */
    ck_assert_uint_eq(digits_draw(1, 17, b), digit);
    ck_assert_mem_eq(a, b, PIXELS);
    ck_assert_mem_ne(a, c, PIXELS);
    digits_draw(2, 17, c);
    ck_assert_mem_ne(a, c, PIXELS);
}
END_TEST

/* Drawn once and written down here: another machine, compiler or version draws the same. */
START_TEST(the_images_never_change)
{
    uint8_t pixels[PIXELS + 1];
    uLong sum = crc32(0, NULL, 0);

    for (uint64_t i = 0; i < 500; i++) {
        pixels[PIXELS] = digits_draw(1, i, pixels);
        sum = crc32(sum, pixels, sizeof(pixels));
    }
    ck_assert_uint_eq(sum, 0x35f85065);
}
END_TEST

START_TEST(every_digit_is_about_equally_frequent)
{
    int seen[10] = {0};
    uint8_t pixels[PIXELS];

    for (uint64_t i = 0; i < 2000; i++) {
        uint8_t digit = digits_draw(3, i, pixels);
        ck_assert_uint_lt(digit, 10);
        seen[digit]++;
    }
    for (int digit = 0; digit < 10; digit++)
        ck_assert(seen[digit] > 140 && seen[digit] < 260);
}
END_TEST

START_TEST(every_image_has_ink_and_more_paper)
{
    uint8_t pixels[PIXELS];

    for (uint64_t i = 0; i < 500; i++) {
        int dark = 0, n_ink = 0;
        digits_draw(4, i, pixels);
        for (int p = 0; p < PIXELS; p++) {
            dark = pixels[p] > dark ? pixels[p] : dark;
            n_ink += pixels[p] > 128;
        }
        ck_assert(dark > 128 && n_ink > 8 && n_ink < PIXELS / 2);
    }
}
END_TEST

TEST_SUITE(digits)
{
    Suite *suite = suite_create("digits");
    TCase *tests = tcase_create("digits");

    tcase_add_test(tests, a_seed_and_an_index_decide_the_image);
    tcase_add_test(tests, the_images_never_change);
    tcase_add_test(tests, every_digit_is_about_equally_frequent);
    tcase_add_test(tests, every_image_has_ink_and_more_paper);
    suite_add_tcase(suite, tests);
    return suite;
}
