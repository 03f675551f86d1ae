/* test_records.c - a stream of bytes goes through records unchanged, in whatever pieces it is sent,
 * arrives, and is taken; and what an attacker makes of it is found. */
#include "tests/support/chance.h"
#include "tests/support/suite.h"
#include "worker-runtime/cipher/records.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WIRE_BYTES = 1 << 20, STREAM_BYTES = 600000, OVERHEAD = 20 };

static const uint8_t key[CIPHER_KEY_BYTES] = "a key of thirty-two bytes .....";

struct ends {
    struct records_out out;
    struct records_in in;
    struct cipher *seals, *opens;
    uint8_t *wire;
    size_t n_wire, n_read;
};

static void ends_init(struct ends *e)
{
    *e = (struct ends){.wire = malloc(WIRE_BYTES)};
    ck_assert_int_eq(cipher_create(CIPHER_CHACHA, key, &e->seals), 0);
    ck_assert_int_eq(cipher_create(CIPHER_CHACHA, key, &e->opens), 0);
}

static void ends_fini(struct ends *e)
{
    records_out_fini(&e->out);
    records_in_fini(&e->in);
    cipher_destroy(e->seals);
    cipher_destroy(e->opens);
    free(e->wire);
}

/* returns how many of the bytes are on the wire */
static size_t send_all(struct ends *e, const struct iovec *v, unsigned n_v)
{
    ck_assert_int_eq(records_seal(&e->out, e->seals, true, v, n_v), 0);
    const struct iovec rest = records_rest(&e->out);
    ck_assert_uint_le(e->n_wire + rest.iov_len, WIRE_BYTES);
    memcpy(e->wire + e->n_wire, rest.iov_base, rest.iov_len);
    e->n_wire += rest.iov_len;
    return records_went(&e->out, rest.iov_len);
}

/* returns as records_open(); most bytes arrive at a time */
static ssize_t receive(struct ends *e, const struct iovec *v, unsigned n_v, size_t most)
{
    struct iovec space;
    ssize_t n;
    while ((n = records_open(&e->in, e->opens, NULL, v, n_v)) == -EAGAIN && e->n_read < e->n_wire) {
        ck_assert_int_eq(records_space(&e->in, &space), 0);
        size_t come = e->n_wire - e->n_read;
        come = come < most ? come : most;
        come = come < space.iov_len ? come : space.iov_len;
        memcpy(space.iov_base, e->wire + e->n_read, come);
        records_came(&e->in, come);
        e->n_read += come;
    }
    return n;
}

static size_t draw_size(struct chance *c)
{
    const size_t most[] = {20, 200, RECORDS_SMALL_BYTES + 2, 2 * RECORDS_MOST_BYTES};
    return 1 + chance_draw(c, most[chance_draw(c, 4)]);
}

/* Two pieces, the first of which may be empty. */
static void draw_pieces(struct chance *c, uint8_t *at, size_t left, struct iovec v[2])
{
    const size_t wanted = draw_size(c), n = wanted < left ? wanted : left;
    const size_t first = chance_draw(c, 3) == 0 ? 0 : chance_draw(c, n);
    v[0] = (struct iovec){at, first};
    v[1] = (struct iovec){at + first, n - first};
}

START_TEST(a_stream_arrives_in_whatever_pieces)
{
    struct chance c = chance_from((uint64_t)_i + 1);
    uint8_t *sent = malloc(STREAM_BYTES), *got = calloc(1, STREAM_BYTES);
    struct ends e;
    struct iovec v[2];
    size_t n_sent = 0, n_got = 0;
    ends_init(&e);
    for (size_t i = 0; i < STREAM_BYTES; i++)
        sent[i] = (uint8_t)chance_draw(&c, 256);
    while (n_got < STREAM_BYTES) {
        if (n_sent < STREAM_BYTES && chance_draw(&c, 2) == 0 && e.n_wire < WIRE_BYTES / 2) {
            draw_pieces(&c, sent + n_sent, STREAM_BYTES - n_sent, v);
            n_sent += send_all(&e, v, 2);
        }
        draw_pieces(&c, got + n_got, STREAM_BYTES - n_got, v);
        const bool is_one = v[0].iov_len == 0;
        const ssize_t n = receive(&e, is_one ? v + 1 : v, is_one ? 1 : 2, draw_size(&c));
        ck_assert(n > 0 || n == -EAGAIN);
        n_got += n > 0 ? (size_t)n : 0;
        ck_assert_uint_le(n_got, n_sent);
        if (e.n_read == e.n_wire)
            e.n_read = e.n_wire = 0;
    }
    ck_assert_mem_eq(sent, got, STREAM_BYTES);
    ends_fini(&e);
    free(sent);
    free(got);
}
END_TEST

START_TEST(few_bytes_are_one_record_and_large_pieces_have_their_own)
{
    static uint8_t bytes[RECORDS_MOST_BYTES + 1000];
    struct ends e;
    ends_init(&e);
    struct iovec v[2] = {{bytes, 56}, {bytes, 100}};
    ck_assert_uint_eq(send_all(&e, v, 2), 156);
    ck_assert_uint_eq(e.n_wire, 156 + OVERHEAD);
    e.n_wire = 0;
    v[1].iov_len = sizeof bytes;
    ck_assert_uint_eq(send_all(&e, v, 2), RECORDS_MOST_BYTES); /* the rest goes next */
    ck_assert_uint_eq(e.n_wire, RECORDS_MOST_BYTES + 2 * OVERHEAD);
    ends_fini(&e);
}
END_TEST

START_TEST(what_was_sealed_counts_once_all_of_it_has_gone)
{
    struct ends e;
    uint8_t bytes[100] = {0};
    const struct iovec v = {bytes, sizeof bytes};
    ends_init(&e);
    ck_assert_int_eq(records_seal(&e.out, e.seals, true, &v, 1), 0);
    ck_assert_uint_eq(records_went(&e.out, 119), 0);
    ck_assert(records_is_pending(&e.out));
    ck_assert_uint_eq(records_rest(&e.out).iov_len, 1);
    ck_assert_uint_eq(records_went(&e.out, 1), 100);
    ck_assert(!records_is_pending(&e.out));
    ends_fini(&e);
}
END_TEST

/* --- attackers -------------------------------------------------------------------------------- */

static ssize_t receive_any(struct ends *e)
{
    uint8_t got[256];
    const struct iovec v = {got, sizeof got};
    ssize_t n;
    while ((n = receive(e, &v, 1, SIZE_MAX)) > 0) {
    }
    return n;
}

/* Two records of 100 equal bytes. */
static void send_two(struct ends *e)
{
    uint8_t bytes[100];
    const struct iovec v = {bytes, sizeof bytes};
    memset(bytes, 'g', sizeof bytes);
    ends_init(e);
    send_all(e, &v, 1);
    send_all(e, &v, 1);
}

START_TEST(a_changed_byte_a_repeated_record_and_a_wrong_order_are_found)
{
    enum { RECORD = 120 };
    struct ends e;
    uint8_t record[RECORD];
    send_two(&e);
    ck_assert_int_eq(receive_any(&e), -EAGAIN); /* all is well */
    ck_assert_mem_ne(e.wire + 4, e.wire + RECORD + 4, 100);
    ends_fini(&e);
    for (size_t i = 0; i < 2 * RECORD; i++) {
        send_two(&e);
        e.wire[i] ^= 0x10;
        const ssize_t n = receive_any(&e); /* a greater length may wait for what never comes */
        ck_assert(n == -EBADMSG || (i % RECORD < 4 && n == -EAGAIN));
        ends_fini(&e);
    }
    send_two(&e);
    memcpy(e.wire + RECORD, e.wire, RECORD);
    ck_assert_int_eq(receive_any(&e), -EBADMSG);
    ends_fini(&e);
    send_two(&e);
    memcpy(record, e.wire, RECORD);
    memcpy(e.wire, e.wire + RECORD, RECORD);
    memcpy(e.wire + RECORD, record, RECORD);
    ck_assert_int_eq(receive_any(&e), -EBADMSG);
    ends_fini(&e);
    send_two(&e);
    e.n_read = RECORD; /* the first one is left out */
    ck_assert_int_eq(receive_any(&e), -EBADMSG);
    ends_fini(&e);
}
END_TEST

START_TEST(a_record_that_is_cut_off_waits_and_gives_nothing)
{
    struct ends e;
    for (size_t n = 0; n < 120; n++) {
        send_two(&e);
        e.n_wire = n;
        ck_assert_int_eq(receive_any(&e), -EAGAIN);
        ends_fini(&e);
    }
}
END_TEST

START_TEST(a_record_of_this_side_that_comes_back_is_found)
{
    struct ends e;
    uint8_t got[256];
    const struct iovec v = {got, sizeof got};
    send_two(&e);
    memcpy(e.in.bytes = malloc(120), e.wire, 120);
    e.in.room = e.in.n = 120;
    ck_assert_int_eq(records_open(&e.in, NULL, e.opens, &v, 1), -EBADMSG); /* no such connection */
    ends_fini(&e);
}
END_TEST

START_TEST(lengths_beyond_the_bounds_are_refused_before_their_bytes_come)
{
    const uint32_t bad[] = {0,          0x80000000, RECORDS_MOST_BYTES + 1,
                            0x7fffffff, 0xffffffff, 0x40000001};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ends e;
        ends_init(&e);
        memcpy(e.wire, &bad[i], sizeof bad[i]);
        e.n_wire = sizeof bad[i];
        uint8_t got[256];
        const struct iovec v = {got, sizeof got};
        struct iovec space;
        ck_assert_int_eq(records_space(&e.in, &space), 0);
        memcpy(space.iov_base, e.wire, e.n_wire);
        records_came(&e.in, e.n_wire);
        ck_assert_int_eq(records_open(&e.in, e.opens, e.opens, &v, 1), -EBADMSG);
        ends_fini(&e);
    }
}
END_TEST

TEST_SUITE(records)
{
    Suite *suite = suite_create("records");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, a_stream_arrives_in_whatever_pieces, 0, 8);
    tcase_add_test(tcase, few_bytes_are_one_record_and_large_pieces_have_their_own);
    tcase_add_test(tcase, what_was_sealed_counts_once_all_of_it_has_gone);
    tcase_add_test(tcase, a_changed_byte_a_repeated_record_and_a_wrong_order_are_found);
    tcase_add_test(tcase, a_record_that_is_cut_off_waits_and_gives_nothing);
    tcase_add_test(tcase, a_record_of_this_side_that_comes_back_is_found);
    tcase_add_test(tcase, lengths_beyond_the_bounds_are_refused_before_their_bytes_come);
    suite_add_tcase(suite, tcase);
    return suite;
}
