/* test_replay.c - bytes over connections that fail. The connections are a model: what was sent
 * waits on the way, then at the other machine, and is lost on the way when the connection fails. */
#include "tests/support/suite.h"
#include "worker-runtime/tcp/replay.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM = 1 << 20, WINDOW = 50000 };

struct side {
    struct replay replay;
    size_t said, heard;            /* bytes of the streams */
    size_t acknowledged, consumed; /* of what this side sent on this connection */
    size_t given;
    uint8_t line[2 * STREAM]; /* what it sent on this connection */
};

static uint8_t byte_at(size_t i)
{
    return (uint8_t)((i * 31) ^ (i >> 8) ^ (i >> 16));
}

static void give(struct side *s, const uint8_t *bytes, size_t n)
{
    memcpy(s->line + s->given, bytes, n);
    s->given += n;
}

static bool resend_some(struct side *s)
{
    struct iovec v[2];
    const unsigned n_v = replay_rest(&s->replay, v);
    if (n_v == 0)
        return false;
    const size_t n = 1 + (size_t)rand() % v[0].iov_len;
    give(s, v[0].iov_base, n);
    replay_resend(&s->replay, n);
    return true;
}

static void say_some(struct side *s)
{
    static uint8_t bytes[STREAM];
    if (resend_some(s) || s->given - s->acknowledged >= WINDOW)
        return;
    size_t n = (size_t)rand() % 5000;
    n = n < STREAM - s->said ? n : STREAM - s->said;
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(s->said + i);
    const struct iovec v[2] = {{bytes, n / 3}, {bytes + n / 3, n - n / 3}};
    replay_forget(&s->replay, s->given - s->acknowledged);
    const ssize_t may = replay_reserve(&s->replay, n);
    ck_assert_int_eq(may, (ssize_t)n);
    const size_t went = n > 0 ? (size_t)rand() % (n + 1) : 0;
    replay_keep(&s->replay, v, 2, went);
    give(s, bytes, went);
    s->said += went;
}

static void expect_bytes(struct side *s, const uint8_t *bytes, size_t n)
{
    size_t same = 0; /* an assertion costs more than a comparison */
    while (same < n && bytes[same] == byte_at(s->heard + same))
        same++;
    ck_assert_uint_eq(same, n);
    s->heard += n;
}

static void hear_some(struct side *s, struct side *from)
{
    uint8_t bytes[3000];
    const struct iovec v[2] = {{bytes, 1000}, {bytes + 1000, 2000}};
    const size_t early = replay_read(&s->replay, v, 2);
    if (early > 0) {
        expect_bytes(s, bytes, early);
        return;
    }
    const size_t here = from->acknowledged - from->consumed,
                 n = here > 0 ? (size_t)rand() % (here + 1) : 0;
    expect_bytes(s, from->line + from->consumed, n);
    s->replay.received += n;
    from->consumed += n;
}

static void arrive(struct side *s)
{
    const size_t away = s->given - s->acknowledged;
    s->acknowledged += away > 0 ? (size_t)rand() % (away + 1) : 0;
}

/* What has arrived at the machine is read; what is on the way is lost. */
static void settle(struct side *s, struct side *from)
{
    ck_assert_int_eq(
        replay_store(&s->replay, from->line + from->consumed, from->acknowledged - from->consumed),
        0);
}

static void replace(struct side *a, struct side *b)
{
    settle(a, b);
    settle(b, a);
    a->given = a->acknowledged = a->consumed = 0;
    b->given = b->acknowledged = b->consumed = 0;
    ck_assert_int_eq(replay_rewind(&a->replay, b->replay.received), 0);
    ck_assert_int_eq(replay_rewind(&b->replay, a->replay.received), 0);
}

START_TEST(connections_that_fail_lose_and_repeat_nothing)
{
    struct side *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    srand((unsigned)_i);
    while (a->heard < STREAM || b->heard < STREAM) {
        say_some(a);
        say_some(b);
        arrive(a);
        arrive(b);
        hear_some(a, b);
        hear_some(b, a);
        if (rand() % 20 == 0 || a->given > STREAM || b->given > STREAM)
            replace(a, b);
        ck_assert_uint_le(a->replay.ring_bytes, 1 << 17);
    }
    replay_fini(&a->replay);
    replay_fini(&b->replay);
    free(a);
    free(b);
}
END_TEST

START_TEST(a_count_that_cannot_be_is_refused)
{
    struct replay r = {0};
    uint8_t bytes[100] = {0};
    const struct iovec v = {bytes, sizeof bytes};
    ck_assert_int_eq(replay_rewind(&r, 1), -EPROTO);
    ck_assert_int_eq(replay_rewind(&r, 0), 0);
    ck_assert_int_eq(replay_reserve(&r, sizeof bytes), sizeof bytes);
    replay_keep(&r, &v, 1, sizeof bytes);
    replay_forget(&r, 40);
    ck_assert_int_eq(replay_rewind(&r, 59), -EPROTO);
    ck_assert_int_eq(replay_rewind(&r, 101), -EPROTO);
    ck_assert_int_eq(replay_rewind(&r, UINT64_MAX), -EPROTO);
    ck_assert_int_eq(replay_rewind(&r, 60), 0);
    replay_fini(&r);
}
END_TEST

START_TEST(no_more_is_kept_than_the_limit)
{
    struct replay r = {0};
    uint8_t *bytes = calloc(1, REPLAY_MOST);
    const struct iovec v = {bytes, REPLAY_MOST};
    ck_assert_int_eq(replay_reserve(&r, SIZE_MAX / 2), REPLAY_MOST);
    replay_keep(&r, &v, 1, REPLAY_MOST);
    ck_assert_int_eq(replay_reserve(&r, 1), 0);
    replay_forget(&r, REPLAY_MOST); /* nothing has arrived */
    ck_assert_int_eq(replay_reserve(&r, 1), 0);
    replay_forget(&r, REPLAY_MOST + 100); /* nor has the hello */
    ck_assert_int_eq(replay_reserve(&r, 1), 0);
    replay_forget(&r, REPLAY_MOST - 10);
    ck_assert_int_eq(replay_reserve(&r, 100), 10);
    replay_fini(&r);
    free(bytes);
}
END_TEST

TEST_SUITE(replay)
{
    Suite *suite = suite_create("replay");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, connections_that_fail_lose_and_repeat_nothing, 0, 8);
    tcase_add_test(tcase, a_count_that_cannot_be_is_refused);
    tcase_add_test(tcase, no_more_is_kept_than_the_limit);
    suite_add_tcase(suite, tcase);
    return suite;
}
