/* test_cipher.c - records that open at the other end, and everything else that does not. */
#include "tests/support/suite.h"
#include "worker-runtime/cipher/cipher.h"

#include <check.h>
#include <errno.h>
#include <sodium.h>
#include <stdint.h>
#include <string.h>

enum { PLAIN_BYTES = 100, SEALED_BYTES = PLAIN_BYTES + CIPHER_TAG_BYTES };

static const uint8_t key[CIPHER_KEY_BYTES] = "a key of thirty-two bytes .....",
                     other_key[CIPHER_KEY_BYTES] = "a key of thirty-two bytes ....!";
static const uint32_t header = 7;

struct pair {
    struct cipher *out, *in;
    uint8_t plain[PLAIN_BYTES], sealed[SEALED_BYTES], got[PLAIN_BYTES];
};

static void open_pair(struct pair *p, unsigned suite)
{
    *p = (struct pair){0};
    memset(p->plain, 'p', sizeof p->plain);
    ck_assert_int_eq(cipher_create(suite, key, &p->out), 0);
    ck_assert_int_eq(cipher_create(suite, key, &p->in), 0);
}

static void close_pair(struct pair *p)
{
    cipher_destroy(p->out);
    cipher_destroy(p->in);
}

static void seal(struct pair *p)
{
    cipher_seal(p->out, &header, sizeof header, p->plain, sizeof p->plain, p->sealed);
}

static bool opens(struct pair *p, const uint8_t *sealed)
{
    memset(p->got, 0, sizeof p->got);
    return cipher_open(p->in, &header, sizeof header, sealed, SEALED_BYTES, p->got);
}

/* A machine without instructions for AES tests the other one only. */
static unsigned suite_of(int i)
{
    const unsigned suite = i == 0 ? CIPHER_CHACHA : CIPHER_AES;
    return cipher_suites() & suite;
}

START_TEST(a_record_opens_at_the_other_end_once_and_in_order)
{
    struct pair p;
    uint8_t first[SEALED_BYTES];
    if (suite_of(_i) == 0)
        return;
    open_pair(&p, suite_of(_i));
    seal(&p);
    memcpy(first, p.sealed, sizeof first);
    ck_assert(opens(&p, first));
    ck_assert_mem_eq(p.got, p.plain, sizeof p.got);
    seal(&p);
    ck_assert_mem_ne(first, p.sealed, sizeof first); /* equal bytes are sealed differently */
    ck_assert(!opens(&p, first));                    /* repeated */
    ck_assert(!opens(&p, p.sealed));                 /* nothing opens after a failure */
    close_pair(&p);
    open_pair(&p, suite_of(_i));
    seal(&p);
    seal(&p);
    ck_assert(!opens(&p, p.sealed)); /* the first one is left out */
    close_pair(&p);
}
END_TEST

START_TEST(a_flipped_bit_anywhere_is_found)
{
    struct pair p;
    if (suite_of(_i) == 0)
        return;
    for (size_t bit = 0; bit < 8 * SEALED_BYTES; bit += 7) {
        open_pair(&p, suite_of(_i));
        seal(&p);
        p.sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(!opens(&p, p.sealed));
        close_pair(&p);
    }
}
END_TEST

START_TEST(another_header_another_key_or_too_few_bytes_do_not_open)
{
    struct pair p;
    const uint32_t other_header = 8;
    if (suite_of(_i) == 0)
        return;
    open_pair(&p, suite_of(_i));
    seal(&p);
    ck_assert(!cipher_open(p.in, &other_header, sizeof header, p.sealed, SEALED_BYTES, p.got));
    close_pair(&p);
    open_pair(&p, suite_of(_i));
    cipher_destroy(p.in);
    ck_assert_int_eq(cipher_create(suite_of(_i), other_key, &p.in), 0);
    seal(&p);
    ck_assert(!opens(&p, p.sealed));
    close_pair(&p);
    open_pair(&p, suite_of(_i));
    seal(&p);
    for (size_t n = 0; n < CIPHER_TAG_BYTES; n++)
        ck_assert(!cipher_open(p.in, &header, sizeof header, p.sealed, n, p.got));
    ck_assert(!cipher_open(p.in, &header, sizeof header, p.sealed, SEALED_BYTES - 1, p.got));
    close_pair(&p);
}
END_TEST

START_TEST(a_record_may_be_sealed_and_opened_in_its_place)
{
    struct pair p;
    if (suite_of(_i) == 0)
        return;
    open_pair(&p, suite_of(_i));
    memcpy(p.sealed, p.plain, sizeof p.plain);
    cipher_seal(p.out, &header, sizeof header, p.sealed, sizeof p.plain, p.sealed);
    ck_assert(cipher_open(p.in, &header, sizeof header, p.sealed, SEALED_BYTES, p.sealed));
    ck_assert_mem_eq(p.sealed, p.plain, sizeof p.plain);
    close_pair(&p);
}
END_TEST

/* As docs/design/lanes.md has it, by libsodium alone. */
static bool opens_by_the_page(unsigned suite, const struct pair *p, const uint8_t *under,
                              uint64_t number)
{
    uint8_t nonce[12] = {0}, got[PLAIN_BYTES];
    memcpy(nonce + 4, &number, sizeof number); /* little endian, as this machine */
    if (suite == CIPHER_AES)
        return crypto_aead_aes256gcm_decrypt(got, NULL, NULL, p->sealed, SEALED_BYTES,
                                             (const uint8_t *)&header, sizeof header, nonce,
                                             under) == 0;
    return crypto_aead_chacha20poly1305_ietf_decrypt(got, NULL, NULL, p->sealed, SEALED_BYTES,
                                                     (const uint8_t *)&header, sizeof header, nonce,
                                                     under) == 0;
}

START_TEST(the_key_is_renewed_at_the_same_record_on_both_sides)
{
    struct pair p;
    uint8_t next[CIPHER_KEY_BYTES];
    const unsigned suite = suite_of(_i);
    if (suite == 0)
        return;
    open_pair(&p, suite);
    crypto_generichash(next, sizeof next, (const uint8_t *)"ddp next key 1", 15, key, sizeof key);
    cipher_skip_to(p.out, CIPHER_RENEW_EVERY - 1);
    cipher_skip_to(p.in, CIPHER_RENEW_EVERY - 1);
    for (uint64_t n = CIPHER_RENEW_EVERY - 1; n < CIPHER_RENEW_EVERY + 2; n++) {
        const bool is_old = n < CIPHER_RENEW_EVERY;
        seal(&p);
        ck_assert(opens(&p, p.sealed));
        ck_assert(opens_by_the_page(suite, &p, is_old ? key : next, n));
        ck_assert(!opens_by_the_page(suite, &p, is_old ? next : key, n));
    }
    cipher_skip_to(p.out, 5 * CIPHER_RENEW_EVERY + 3);
    cipher_skip_to(p.in, 5 * CIPHER_RENEW_EVERY + 3);
    seal(&p);
    ck_assert(opens(&p, p.sealed));
    close_pair(&p);
}
END_TEST

START_TEST(keys_for_different_purposes_and_contexts_differ)
{
    uint8_t a[CIPHER_KEY_BYTES], b[CIPHER_KEY_BYTES];
    cipher_derive(key, "one", "context", 7, a, sizeof a);
    cipher_derive(key, "one", "context", 7, b, sizeof b);
    ck_assert_mem_eq(a, b, sizeof a);
    cipher_derive(key, "two", "context", 7, b, sizeof b);
    ck_assert_mem_ne(a, b, sizeof a);
    cipher_derive(key, "one", "contexT", 7, b, sizeof b);
    ck_assert_mem_ne(a, b, sizeof a);
    cipher_derive(other_key, "one", "context", 7, b, sizeof b);
    ck_assert_mem_ne(a, b, sizeof a);
    cipher_derive(key, "onec", "ontext", 6, b, sizeof b); /* the label ends with a NUL */
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

START_TEST(unknown_suites_are_refused)
{
    struct cipher *c;
    ck_assert_uint_ne(cipher_suites() & CIPHER_CHACHA, 0);
    ck_assert_uint_eq(cipher_choose(CIPHER_AES | CIPHER_CHACHA), CIPHER_AES);
    ck_assert_uint_eq(cipher_choose(CIPHER_CHACHA | 8), CIPHER_CHACHA);
    ck_assert_uint_eq(cipher_choose(8), 0);
    ck_assert_int_eq(cipher_create(0, key, &c), -EINVAL);
    ck_assert_int_eq(cipher_create(CIPHER_AES | CIPHER_CHACHA, key, &c), -EINVAL);
    ck_assert_int_eq(cipher_create(8, key, &c), -EINVAL);
}
END_TEST

TEST_SUITE(cipher)
{
    Suite *suite = suite_create("cipher");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, a_record_opens_at_the_other_end_once_and_in_order, 0, 2);
    tcase_add_loop_test(tcase, a_flipped_bit_anywhere_is_found, 0, 2);
    tcase_add_loop_test(tcase, another_header_another_key_or_too_few_bytes_do_not_open, 0, 2);
    tcase_add_loop_test(tcase, a_record_may_be_sealed_and_opened_in_its_place, 0, 2);
    tcase_add_loop_test(tcase, the_key_is_renewed_at_the_same_record_on_both_sides, 0, 2);
    tcase_add_test(tcase, keys_for_different_purposes_and_contexts_differ);
    tcase_add_test(tcase, unknown_suites_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
