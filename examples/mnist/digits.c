/* digits.c - strokes to pixels.
 *
 * No function of libm but sqrt(), which is exact everywhere: others differ in the last bit between
 * C libraries, and the images are to be the same on every machine. */
#include "digits.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "../shared/random.h"

/* The shapes: quadratic Bezier curves, from `from` past `by` to `to`, in a box from 0 (left, top)
 * to 100. */
struct point {
    double x, y;
};
struct curve {
    struct point from, by, to;
};

enum { MAX_CURVES = 8, PIECES = 6 }; /* a curve is drawn as so many straight pieces */

static const struct shape {
    int n;
    struct curve curves[MAX_CURVES];
} shapes[10] = {
    {4, /* 0 */
     {{{50, 2}, {14, 2}, {14, 50}},
      {{14, 50}, {14, 98}, {50, 98}},
      {{50, 98}, {86, 98}, {86, 50}},
      {{86, 50}, {86, 2}, {50, 2}}}},
    {2, /* 1 */
     {{{30, 24}, {46, 16}, {54, 2}}, {{54, 2}, {54, 50}, {52, 98}}}},
    {4, /* 2 */
     {{{16, 26}, {20, 2}, {50, 2}},
      {{50, 2}, {84, 4}, {80, 32}},
      {{80, 32}, {74, 56}, {14, 97}},
      {{14, 97}, {50, 94}, {88, 96}}}},
    {4, /* 3 */
     {{{18, 10}, {48, -4}, {72, 10}},
      {{72, 10}, {92, 40}, {42, 47}},
      {{42, 47}, {92, 46}, {82, 78}},
      {{82, 78}, {62, 108}, {14, 88}}}},
    {3, /* 4 */
     {{{58, 2}, {36, 40}, {12, 66}},
      {{12, 66}, {50, 64}, {90, 66}},
      {{66, 34}, {66, 66}, {64, 98}}}},
    {4, /* 5 */
     {{{82, 4}, {50, 4}, {26, 4}},
      {{26, 4}, {24, 24}, {20, 46}},
      {{20, 46}, {76, 30}, {84, 68}},
      {{84, 68}, {76, 106}, {14, 92}}}},
    {4, /* 6 */
     {{{70, 2}, {20, 20}, {16, 68}},
      {{16, 68}, {18, 98}, {50, 98}},
      {{50, 98}, {86, 96}, {82, 68}},
      {{82, 68}, {50, 36}, {16, 70}}}},
    {3, /* 7 */
     {{{14, 6}, {50, 4}, {86, 6}}, {{86, 6}, {56, 46}, {42, 98}}, {{30, 50}, {50, 48}, {70, 48}}}},
    {6, /* 8 */
     {{{50, 48}, {16, 36}, {26, 14}},
      {{26, 14}, {50, -10}, {74, 14}},
      {{74, 14}, {84, 36}, {50, 48}},
      {{50, 48}, {6, 64}, {18, 86}},
      {{18, 86}, {50, 110}, {82, 86}},
      {{82, 86}, {94, 62}, {50, 48}}}},
    {4, /* 9 */
     {{{82, 30}, {76, 2}, {48, 2}},
      {{48, 2}, {14, 6}, {18, 34}},
      {{18, 34}, {48, 66}, {82, 30}},
      {{82, 30}, {84, 70}, {56, 98}}}},
};

/* From the box to the image, for one image. */
struct pose {
    double xx, xy, yx, yy; /* x' = xx x + xy y, y' = yx x + yy y, about the middle of the box */
    double x, y;           /* where the middle goes */
};

static struct pose draw_pose(struct random *rng)
{
    const double scale =
        random_uniform(rng, 0.135, 0.205); /* 100 units: 13.5 .. 20.5 pixels high */
    const double width = random_uniform(rng, 0.62, 1.0);
    const double slant = random_normal(rng) * 0.22;
    /* Half the angle's tangent gives its sine and cosine without libm: +-0.12 is about 14 degrees.
     */
    const double half = random_uniform(rng, -0.12, 0.12);
    const double cosine = (1 - half * half) / (1 + half * half);
    const double sine = 2 * half / (1 + half * half);

    return (struct pose){
        .xx = scale * width * cosine,
        .xy = scale * (-slant * cosine - sine),
        .yx = scale * width * sine,
        .yy = scale * (cosine - slant * sine),
        .x = DIGITS_SIDE / 2.0 + random_uniform(rng, -3, 3),
        .y = DIGITS_SIDE / 2.0 + random_uniform(rng, -3, 3),
    };
}

static struct point place(const struct pose *pose, struct point p)
{
    double x = p.x - 50, y = p.y - 50;

    return (struct point){pose->xx * x + pose->xy * y + pose->x,
                          pose->yx * x + pose->yy * y + pose->y};
}

/* A pen: ink as a function of the distance from its path. */
struct pen {
    double radius, soft; /* full ink within radius - soft, none beyond radius + soft */
    double ink;          /* 0 .. 1 */
};

static int clamp(double v)
{
    return v < 0 ? 0 : v > DIGITS_SIDE - 1 ? DIGITS_SIDE - 1 : (int)v;
}

/* Draw a straight piece; where strokes cross, the darker one stays. */
static void draw_piece(double *image, struct point a, struct point b, const struct pen *pen)
{
    const double reach = pen->radius + pen->soft;
    const int x0 = clamp((a.x < b.x ? a.x : b.x) - reach),
              x1 = clamp((a.x > b.x ? a.x : b.x) + reach);
    const int y0 = clamp((a.y < b.y ? a.y : b.y) - reach),
              y1 = clamp((a.y > b.y ? a.y : b.y) + reach);
    const double dx = b.x - a.x, dy = b.y - a.y, len2 = dx * dx + dy * dy;

    for (int y = y0; y <= y1; y++) {
        for (int x = x0; x <= x1; x++) {
            double px = x + 0.5 - a.x, py = y + 0.5 - a.y;
            double along = len2 > 0 ? (px * dx + py * dy) / len2 : 0;
            along = along < 0 ? 0 : along > 1 ? 1 : along;
            double ox = px - along * dx, oy = py - along * dy;
            double ink = (reach - sqrt(ox * ox + oy * oy)) / (2 * pen->soft);
            ink = (ink < 0 ? 0 : ink > 1 ? 1 : ink) * pen->ink;
            double *at = &image[y * DIGITS_SIDE + x];
            *at = ink > *at ? ink : *at;
        }
    }
}

static void draw_curve(double *image, const struct curve *c, const struct pen *pen)
{
    struct point last = c->from;

    for (int i = 1; i <= PIECES; i++) {
        double t = (double)i / PIECES, s = 1 - t;
        struct point next = {s * s * c->from.x + 2 * s * t * c->by.x + t * t * c->to.x,
                             s * s * c->from.y + 2 * s * t * c->by.y + t * t * c->to.y};
        draw_piece(image, last, next, pen);
        last = next;
    }
}

/* Move a point a little. A joint of two curves moves as one: the same point of the shape is moved
 * by the same amount, which the point itself and the image's salt decide. */
static struct point bend(struct point p, uint64_t salt)
{
    struct random own = {salt ^ ((uint64_t)(int64_t)p.x * 1009 + (uint64_t)(int64_t)p.y)};

    p.x += random_normal(&own) * 4.5;
    p.y += random_normal(&own) * 4.5;
    return p;
}

static void draw_shape(double *image, const struct shape *shape, struct random *rng)
{
    const struct pose pose = draw_pose(rng);
    const struct pen pen = {.radius = random_uniform(rng, 0.65, 1.6),
                            .soft = random_uniform(rng, 0.5, 0.9),
                            .ink = random_uniform(rng, 0.6, 1)};
    const uint64_t salt = random_bits(rng);

    for (int i = 0; i < shape->n; i++) {
        const struct curve *c = &shape->curves[i];
        struct curve placed = {place(&pose, bend(c->from, salt)), place(&pose, bend(c->by, salt)),
                               place(&pose, bend(c->to, salt))};
        draw_curve(image, &placed, &pen);
    }
}

/* Short stray strokes near the border of the image: what a careless hand, or the next digit,
 * leaves. */
static void draw_strays(double *image, struct random *rng)
{
    const int n = (int)(random_bits(rng) % 3);

    for (int i = 0; i < n; i++) {
        struct pen pen = {.radius = random_uniform(rng, 0.4, 1.1),
                          .soft = 0.6,
                          .ink = random_uniform(rng, 0.3, 0.9)};
        double side = random_uniform(rng, 0, DIGITS_SIDE), edge = random_uniform(rng, 0, 4);
        struct point a = {side, edge};
        if (random_bits(rng) & 1)
            a.y = DIGITS_SIDE - edge;
        if (random_bits(rng) & 1)
            a = (struct point){a.y, a.x};
        struct point b = {a.x + random_uniform(rng, -5, 5), a.y + random_uniform(rng, -5, 5)};
        draw_piece(image, a, b, &pen);
    }
}

uint8_t digits_draw(uint64_t seed, uint64_t index, uint8_t *pixels)
{
    struct random mixer = {seed};
    struct random rng = {random_bits(&mixer) + index * 0xd1342543de82ef95u};
    double image[DIGITS_SIDE * DIGITS_SIDE] = {0};
    const uint8_t digit = (uint8_t)(random_bits(&rng) % 10);
    const double noise = random_uniform(&rng, 0.02, 0.14);

    draw_shape(image, &shapes[digit], &rng);
    draw_strays(image, &rng);
    for (int i = 0; i < DIGITS_SIDE * DIGITS_SIDE; i++) {
        double v = image[i] + random_normal(&rng) * noise;
        v = v < 0 ? 0 : v > 1 ? 1 : v;
        pixels[i] = (uint8_t)(v * 255 + 0.5);
    }
    return digit;
}
