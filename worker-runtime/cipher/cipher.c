/* cipher.c - records, by libsodium. */
#include "cipher.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { NONCE_BYTES = 12 };
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == NONCE_BYTES &&
                   crypto_aead_chacha20poly1305_ietf_NPUBBYTES == NONCE_BYTES,
               "both take the same nonces");
_Static_assert(crypto_aead_aes256gcm_KEYBYTES == CIPHER_KEY_BYTES &&
                   crypto_aead_chacha20poly1305_ietf_KEYBYTES == CIPHER_KEY_BYTES,
               "and keys");
_Static_assert(crypto_aead_aes256gcm_ABYTES == CIPHER_TAG_BYTES &&
                   crypto_aead_chacha20poly1305_ietf_ABYTES == CIPHER_TAG_BYTES,
               "and tags");

struct cipher {
    crypto_aead_aes256gcm_state aes; /* of AES: the key, expanded */
    unsigned suite;
    bool has_failed;
    uint64_t number; /* of the next record */
    uint8_t key[CIPHER_KEY_BYTES];
};

unsigned cipher_suites(void)
{
    if (sodium_init() < 0)
        return 0;
    return CIPHER_CHACHA | (crypto_aead_aes256gcm_is_available() ? CIPHER_AES : 0u);
}

unsigned cipher_choose(unsigned suites)
{
    return (suites & CIPHER_AES) != 0 ? CIPHER_AES : suites & CIPHER_CHACHA;
}

void cipher_derive(const uint8_t key[CIPHER_KEY_BYTES], const char *label, const void *context,
                   size_t n_context, uint8_t *ret, size_t n_ret)
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, key, CIPHER_KEY_BYTES, n_ret);
    crypto_generichash_update(&hash, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&hash, context, n_context);
    crypto_generichash_final(&hash, ret, n_ret);
    sodium_memzero(&hash, sizeof hash);
}

void cipher_digest(const void *bytes, size_t n, uint8_t ret[CIPHER_KEY_BYTES])
{
    static const char label[] = "ddp key file 1";
    crypto_generichash(ret, CIPHER_KEY_BYTES, bytes, n, (const uint8_t *)label, sizeof label - 1);
}

static void expand(struct cipher *c)
{
    if (c->suite == CIPHER_AES)
        crypto_aead_aes256gcm_beforenm(&c->aes, c->key);
}

int cipher_create(unsigned suite, const uint8_t key[CIPHER_KEY_BYTES], struct cipher **ret)
{
    if ((suite != CIPHER_AES && suite != CIPHER_CHACHA) || (cipher_suites() & suite) == 0)
        return -EINVAL;
    struct cipher *c = aligned_alloc(64, (sizeof *c + 63) / 64 * 64);
    if (c == NULL)
        return -ENOMEM;
    *c = (struct cipher){.suite = suite};
    memcpy(c->key, key, sizeof c->key);
    expand(c);
    *ret = c;
    return 0;
}

void cipher_destroy(struct cipher *c)
{
    if (c != NULL)
        sodium_memzero(c, sizeof *c);
    free(c);
}

/* The limits of AES-GCM are far away with so few records under one key; and a key that is found
 * later does not open what was sent under those before it. */
static void renew(struct cipher *c)
{
    uint8_t next[CIPHER_KEY_BYTES];
    cipher_derive(c->key, "ddp next key 1", NULL, 0, next, sizeof next);
    memcpy(c->key, next, sizeof c->key);
    sodium_memzero(next, sizeof next);
    expand(c);
}

static void take_nonce(struct cipher *c, uint8_t ret[NONCE_BYTES])
{
    if (c->number != 0 && c->number % CIPHER_RENEW_EVERY == 0)
        renew(c);
    memset(ret, 0, NONCE_BYTES);
    for (unsigned i = 0; i < sizeof c->number; i++)
        ret[4 + i] = (uint8_t)(c->number >> 8 * i);
    c->number++;
}

void cipher_seal(struct cipher *c, const void *header, size_t n_header, const void *plain, size_t n,
                 uint8_t *ret)
{
    uint8_t nonce[NONCE_BYTES];
    take_nonce(c, nonce);
    if (c->suite == CIPHER_AES)
        crypto_aead_aes256gcm_encrypt_afternm(ret, NULL, plain, n, header, n_header, NULL, nonce,
                                              &c->aes);
    else
        crypto_aead_chacha20poly1305_ietf_encrypt(ret, NULL, plain, n, header, n_header, NULL,
                                                  nonce, c->key);
}

bool cipher_open(struct cipher *c, const void *header, size_t n_header, const uint8_t *sealed,
                 size_t n, uint8_t *ret)
{
    uint8_t nonce[NONCE_BYTES];
    int code;
    if (c->has_failed || n < CIPHER_TAG_BYTES)
        return false;
    take_nonce(c, nonce);
    if (c->suite == CIPHER_AES)
        code = crypto_aead_aes256gcm_decrypt_afternm(ret, NULL, NULL, sealed, n, header, n_header,
                                                     nonce, &c->aes);
    else
        code = crypto_aead_chacha20poly1305_ietf_decrypt(ret, NULL, NULL, sealed, n, header,
                                                         n_header, nonce, c->key);
    c->has_failed = code != 0;
    return code == 0;
}

void cipher_skip_to(struct cipher *c, uint64_t number)
{
    while (c->number < number) {
        const uint64_t end = (c->number / CIPHER_RENEW_EVERY + 1) * CIPHER_RENEW_EVERY;
        if (c->number != 0 && c->number % CIPHER_RENEW_EVERY == 0)
            renew(c);
        c->number = end < number ? end : number;
    }
}

void cipher_wipe(void *bytes, size_t n)
{
    sodium_memzero(bytes, n);
}
