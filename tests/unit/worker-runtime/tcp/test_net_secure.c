/* test_net_secure.c - two ranks with a key, and what is between them: a proxy that the test moves
 * the bytes through, which looks at them, changes them, and repeats them. */
#include "common/clock.h"
#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/tcp/net_secure.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000, WIRE_BYTES = 4 << 20, OVERHEAD = 20, ANSWER_BYTES = 56 };
_Static_assert(sizeof(struct answer) == ANSWER_BYTES && sizeof(struct hello) == 96, "as they are");

static const uint8_t cookie[NET_COOKIE_BYTES] = "a cookie", key[NET_KEY_BYTES] = "one key",
                     other_key[NET_KEY_BYTES] = "another key";

struct wire { /* one direction */
    uint8_t *bytes;
    size_t n, n_gone;
};

struct ends {
    struct net_member member[2][2]; /* as each rank knows them: rank 0 knows the proxy as rank 1 */
    struct net_links *l[2];
    int proxy, fd[2];    /* listens; its connections to rank 0 and rank 1 */
    struct wire wire[2]; /* of what rank 0 and rank 1 have sent */
    void (*on_bytes)(struct ends *e, int from, size_t first); /* new ones; NULL */
    uint16_t real_port;
};

static int listen_at(struct net_member *m, uint16_t *ret_port)
{
    const uint32_t loopback = htonl(INADDR_LOOPBACK);
    struct co_error err;
    int fd;
    *ret_port = 0;
    m->address.family = AF_INET;
    memcpy(m->address.bytes, &loopback, sizeof loopback);
    ck_assert_int_eq(net_address_listen(&m->address, ret_port, &fd, &err), 0);
    return fd;
}

static struct net_links *make(struct ends *e, unsigned rank, int listener, const uint8_t *with)
{
    struct co_error err;
    struct net_links *l;
    const struct net_links_opts opts = {.rank = rank,
                                        .n = 2,
                                        .member = e->member[rank],
                                        .channel = NET_DATA,
                                        .cookie = cookie,
                                        .key = with,
                                        .listener = listener,
                                        .timeout_ms = DEADLINE_MS};
    ck_assert_int_eq(net_links_create(&opts, &l, &err), 0);
    return l;
}

static void ends_init(struct ends *e, const uint8_t *key_0, const uint8_t *key_1)
{
    *e = (struct ends){.fd = {-1, -1}};
    for (unsigned i = 0; i < 2; i++) {
        e->wire[i].bytes = malloc(WIRE_BYTES);
        for (unsigned k = 0; k < 2; k++)
            e->member[i][k].rank = k;
    }
    const int first = listen_at(&e->member[0][0], &e->member[0][0].port[NET_DATA]);
    const int second = listen_at(&e->member[1][1], &e->real_port);
    e->proxy = listen_at(&e->member[0][1], &e->member[0][1].port[NET_DATA]);
    e->member[1][0] = e->member[0][0];
    e->member[1][1].port[NET_DATA] = e->real_port;
    e->l[0] = make(e, 0, first, key_0);
    e->l[1] = make(e, 1, second, key_1);
}

static void ends_fini(struct ends *e)
{
    for (int i = 0; i < 2; i++) {
        net_links_destroy(e->l[i]);
        free(e->wire[i].bytes);
        if (e->fd[i] >= 0)
            close(e->fd[i]);
    }
    close(e->proxy);
}

static int connect_real(const struct ends *e)
{
    int fd;
    ck_assert_int_eq(
        net_address_connect(&e->member[1][1].address, &e->member[1][1].address, e->real_port, &fd),
        0);
    return fd;
}

/* The proxy takes what has come, and passes it on. */
static void pump(struct ends *e)
{
    struct pollfd p = {.fd = e->proxy, .events = POLLIN};
    if (e->fd[0] < 0 && poll(&p, 1, 0) == 1) {
        e->fd[0] = accept(e->proxy, NULL, NULL);
        e->fd[1] = connect_real(e);
    }
    for (int i = 0; i < 2 && e->fd[0] >= 0; i++) {
        struct wire *w = &e->wire[i];
        const size_t first = w->n;
        const ssize_t n = recv(e->fd[i], w->bytes + w->n, WIRE_BYTES - w->n, MSG_DONTWAIT);
        if (n == 0)
            shutdown(e->fd[!i], SHUT_WR);
        w->n += n > 0 ? (size_t)n : 0;
        if (n > 0 && e->on_bytes != NULL)
            e->on_bytes(e, i, first);
        const ssize_t gone = w->n_gone < w->n ? send(e->fd[!i], w->bytes + w->n_gone,
                                                     w->n - w->n_gone, MSG_DONTWAIT | MSG_NOSIGNAL)
                                              : 0;
        w->n_gone += gone > 0 ? (size_t)gone : 0;
    }
}

static void tick(const uint64_t *deadline_ms)
{
    ck_assert_uint_gt(co_left_ms(*deadline_ms), 0);
    poll(NULL, 0, 1);
}

static int meet(struct ends *e)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    unsigned peer;
    int code;
    while ((code = net_links_reach(e->l[0], 1)) == -EAGAIN) {
        pump(e);
        net_links_take_new(e->l[1], &peer);
        tick(&deadline_ms);
    }
    return code;
}

/* From one rank to the other. returns 0; what the receiver gets instead */
static int transfer(struct ends *e, int from, const uint8_t *bytes, size_t n, uint8_t *got)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    unsigned peer;
    for (size_t sent = 0, come = 0; come < n;) {
        const struct iovec out = {(uint8_t *)bytes + sent, n - sent}, in = {got + come, n - come};
        const ssize_t gone = sent < n ? net_links_send(e->l[from], !from, &out, 1) : 0;
        pump(e);
        net_links_take_new(e->l[1], &peer);
        const ssize_t here = net_links_receive(e->l[!from], from, &in, 1);
        if (here < 0 && here != -EAGAIN)
            return (int)here;
        if (gone <= 0 && here <= 0)
            tick(&deadline_ms);
        sent += gone > 0 ? (size_t)gone : 0;
        come += here > 0 ? (size_t)here : 0;
    }
    return 0;
}

static uint8_t *pattern(size_t n)
{
    uint8_t *bytes = malloc(n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = "gradient"[i % 8];
    return bytes;
}

START_TEST(bytes_arrive_and_are_not_on_the_wire)
{
    enum { BYTES = 1 << 20 };
    struct ends e;
    uint8_t *bytes = pattern(BYTES), *got = calloc(1, BYTES);
    ends_init(&e, key, key);
    ck_assert_int_eq(meet(&e), 0);
    for (int from = 0; from < 2; from++) {
        memset(got, 0, BYTES);
        ck_assert_int_eq(transfer(&e, from, bytes, BYTES, got), 0);
        ck_assert_mem_eq(got, bytes, BYTES);
        ck_assert_uint_gt(e.wire[from].n, BYTES);
        ck_assert_ptr_null(memmem(e.wire[from].bytes, e.wire[from].n, bytes, 8));
    }
    ends_fini(&e);
    free(bytes);
    free(got);
}
END_TEST

START_TEST(equal_bytes_never_look_equal)
{
    enum { BYTES = 200, RECORD = BYTES + OVERHEAD };
    struct ends e;
    uint8_t *bytes = pattern(BYTES), got[BYTES];
    ends_init(&e, key, key);
    ck_assert_int_eq(meet(&e), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(transfer(&e, i % 2, bytes, BYTES, got), 0);
    const uint8_t *a = e.wire[0].bytes + sizeof(struct hello) + 4,
                  *b = e.wire[1].bytes + sizeof(struct answer) + 4;
    ck_assert_uint_eq(e.wire[0].n, sizeof(struct hello) + 2 * RECORD);
    ck_assert_uint_eq(e.wire[1].n, sizeof(struct answer) + 2 * RECORD);
    ck_assert_mem_ne(a, a + RECORD, BYTES);
    ck_assert_mem_ne(b, b + RECORD, BYTES);
    ck_assert_mem_ne(a, b, BYTES);
    ends_fini(&e);
    free(bytes);
}
END_TEST

static size_t flip_at;

static void flip(struct ends *e, int from, size_t first)
{
    if (from == 0 && first <= flip_at && flip_at < e->wire[0].n)
        e->wire[0].bytes[flip_at] ^= 1;
}

static bool is_ended(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&p, 1, DEADLINE_MS) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

START_TEST(a_flipped_bit_ends_the_connection)
{
    enum { BYTES = 100000 };
    static const size_t at[] = {0,
                                1,
                                2,
                                4,
                                5000,
                                RECORDS_MOST_BYTES + 4,
                                RECORDS_MOST_BYTES + OVERHEAD + 3,
                                BYTES + 2 * OVERHEAD - 1};
    struct ends e;
    uint8_t *bytes = pattern(BYTES), *got = calloc(1, BYTES);
    flip_at = sizeof(struct hello) + at[_i];
    ends_init(&e, key, key);
    e.on_bytes = flip;
    ck_assert_int_eq(meet(&e), 0);
    ck_assert_int_eq(transfer(&e, 0, bytes, BYTES, got), -EBADMSG);
    const struct iovec v = {got, BYTES};
    ck_assert_int_eq(net_links_receive(e.l[1], 0, &v, 1), -EBADMSG); /* and nothing follows */
    ck_assert(is_ended(e.fd[1]));
    ends_fini(&e);
    free(bytes);
    free(got);
}
END_TEST

START_TEST(a_repeated_record_ends_the_connection)
{
    enum { BYTES = 200 };
    struct ends e;
    uint8_t *bytes = pattern(BYTES), got[BYTES];
    ends_init(&e, key, key);
    ck_assert_int_eq(meet(&e), 0);
    ck_assert_int_eq(transfer(&e, 0, bytes, BYTES, got), 0);
    e.wire[0].n_gone -= BYTES + OVERHEAD; /* the proxy sends it once more */
    ck_assert_int_eq(transfer(&e, 0, bytes, BYTES, got), -EBADMSG);
    ends_fini(&e);
    free(bytes);
}
END_TEST

START_TEST(what_comes_back_to_its_sender_ends_the_connection)
{
    enum { BYTES = 200, RECORD = BYTES + OVERHEAD };
    struct ends e;
    uint8_t *bytes = pattern(BYTES), got[BYTES];
    ends_init(&e, key, key);
    ck_assert_int_eq(meet(&e), 0);
    ck_assert_int_eq(transfer(&e, 0, bytes, BYTES, got), 0);
    uint8_t *record = e.wire[0].bytes + e.wire[0].n - RECORD;
    if (_i == 1)
        record[3] ^= 0x80; /* as if rank 1 had sealed it */
    memcpy(e.wire[1].bytes + e.wire[1].n, record, RECORD);
    e.wire[1].n += RECORD;
    ck_assert_int_eq(transfer(&e, 1, bytes, BYTES, got), -EBADMSG);
    ends_fini(&e);
    free(bytes);
}
END_TEST

/* All that rank 0 has sent, to a rank 1 that has started again with the same key. */
START_TEST(a_recorded_connection_is_of_no_use_later)
{
    enum { BYTES = 200 };
    struct ends e;
    uint8_t *bytes = pattern(BYTES), got[BYTES];
    const struct iovec v = {got, BYTES};
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    unsigned peer;
    ssize_t n;
    ends_init(&e, key, key);
    ck_assert_int_eq(meet(&e), 0);
    ck_assert_int_eq(transfer(&e, 0, bytes, BYTES, got), 0);
    net_links_destroy(e.l[1]);
    e.l[1] = make(&e, 1, listen_at(&e.member[1][1], &e.real_port), key);
    const int fd = connect_real(&e);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
    ck_assert_int_eq(send(fd, e.wire[0].bytes, e.wire[0].n, 0), (ssize_t)e.wire[0].n);
    while ((n = net_links_receive(e.l[1], 0, &v, 1)) == -EAGAIN) {
        net_links_take_new(e.l[1], &peer);
        tick(&deadline_ms);
    }
    ck_assert_int_eq(n, -EBADMSG);
    close(fd);
    ends_fini(&e);
    free(bytes);
}
END_TEST

START_TEST(ranks_with_different_keys_or_one_key_do_not_connect)
{
    static const struct {
        const uint8_t *of_0, *of_1;
        const char *why;
    } cases[] = {
        {key, other_key, "refused a connection: rank 0 has another key"},
        {key, NULL, "refused a connection: rank 0 encrypts, and this rank does not"},
        {NULL, key, "refused a connection: rank 0 does not encrypt, and this rank does"},
    };
    struct ends e;
    uint8_t got[8];
    ends_init(&e, cases[_i].of_0, cases[_i].of_1);
    int code = meet(&e);
    if (cases[_i].of_0 == NULL) { /* it has connected, and finds the end later */
        ck_assert_int_eq(code, 0);
        const struct iovec v = {got, sizeof got};
        const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
        unsigned peer;
        while ((code = (int)net_links_receive(e.l[0], 1, &v, 1)) == -EAGAIN) {
            pump(&e);
            net_links_take_new(e.l[1], &peer);
            tick(&deadline_ms);
        }
    }
    ck_assert_int_eq(code, -ECONNREFUSED);
    ck_assert_str_eq(e.l[1]->refusal.text, cases[_i].why);
    ends_fini(&e);
}
END_TEST

/* The proxy answers itself: it does not have the key. */
START_TEST(an_answer_without_the_key_is_refused)
{
    struct ends e;
    struct answer answer = {.magic = ANSWER_MAGIC, .suite = CIPHER_CHACHA};
    struct hello hello;
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    int code;
    ends_init(&e, key, key);
    while ((code = net_links_reach(e.l[0], 1)) == -EAGAIN) {
        struct pollfd p = {.fd = e.proxy, .events = POLLIN};
        if (e.fd[0] < 0 && poll(&p, 1, 0) == 1)
            e.fd[0] = accept(e.proxy, NULL, NULL);
        if (e.fd[0] >= 0 && recv(e.fd[0], &hello, sizeof hello, MSG_DONTWAIT) == sizeof hello)
            ck_assert_int_eq(send(e.fd[0], &answer, sizeof answer, 0), sizeof answer);
        tick(&deadline_ms);
    }
    ck_assert_int_eq(code, -EACCES);
    ends_fini(&e);
}
END_TEST

TEST_SUITE(net_secure)
{
    Suite *suite = suite_create("net_secure");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, bytes_arrive_and_are_not_on_the_wire);
    tcase_add_test(tcase, equal_bytes_never_look_equal);
    tcase_add_loop_test(tcase, a_flipped_bit_ends_the_connection, 0, 8);
    tcase_add_test(tcase, a_repeated_record_ends_the_connection);
    tcase_add_loop_test(tcase, what_comes_back_to_its_sender_ends_the_connection, 0, 2);
    tcase_add_test(tcase, a_recorded_connection_is_of_no_use_later);
    tcase_add_loop_test(tcase, ranks_with_different_keys_or_one_key_do_not_connect, 0, 3);
    tcase_add_test(tcase, an_answer_without_the_key_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
