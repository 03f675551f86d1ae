/* cipher.h - one direction of an encrypted connection: its key, and the number of the next record.
 *
 * No socket, no clock, no random numbers. A record is authenticated and encrypted by AES-256-GCM,
 * or by ChaCha20-Poly1305 where the CPU has no instructions for AES. The nonce is the number of the
 * record, which the other side counts as well and which never travels: a record that is changed,
 * repeated, left out, moved, or from another connection or direction does not open. After every
 * CIPHER_RENEW_EVERY records the key is replaced by one that is derived from it.
 * docs/design/lanes.md has the derivations, and why no nonce is used twice. */
#ifndef DDP_WORKER_RUNTIME_CIPHER_CIPHER_H
#define DDP_WORKER_RUNTIME_CIPHER_CIPHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cipher; /* opaque */

enum { CIPHER_KEY_BYTES = 32, CIPHER_TAG_BYTES = 16, CIPHER_PROOF_BYTES = 16 };

#define CIPHER_RENEW_EVERY (UINT64_C(1) << 20) /* records */

enum cipher_suite { CIPHER_AES = 1, CIPHER_CHACHA = 2 }; /* bits of a set */

/* Those that this machine can use, as a set. 0: libsodium does not work here */
unsigned cipher_suites(void);

/* The one of a set that two ranks use; 0: none that is known */
unsigned cipher_choose(unsigned suites);

/* Another key or a proof, from a key, for one purpose.
 *
 * label     the purpose; no two have the same
 * n_ret     16 to 64 */
void cipher_derive(const uint8_t key[CIPHER_KEY_BYTES], const char *label, const void *context,
                   size_t n_context, uint8_t *ret, size_t n_ret);

/* A key from bytes that an attacker cannot guess. */
void cipher_digest(const void *bytes, size_t n, uint8_t ret[CIPHER_KEY_BYTES]);

/* suite     one of cipher_suites()
 * returns   0, -ENOMEM, -EINVAL */
int cipher_create(unsigned suite, const uint8_t key[CIPHER_KEY_BYTES], struct cipher **ret);
void cipher_destroy(struct cipher *c); /* wipes the key; NULL is fine */

/* Seal the next record.
 *
 * header    authenticated with it, and not encrypted
 * ret       n + CIPHER_TAG_BYTES; may begin where `plain` does */
void cipher_seal(struct cipher *c, const void *header, size_t n_header, const void *plain, size_t n,
                 uint8_t *ret);

/* Open the next record.
 *
 * n         of `sealed`, CIPHER_TAG_BYTES at least
 * ret       n - CIPHER_TAG_BYTES; may begin where `sealed` does. Without meaning after a failure
 * returns   whether it is what the other side sealed; if not, nothing that follows opens either */
bool cipher_open(struct cipher *c, const void *header, size_t n_header, const uint8_t *sealed,
                 size_t n, uint8_t *ret);

/* For tests: as if so many records had been sealed or opened. */
void cipher_skip_to(struct cipher *c, uint64_t number);

void cipher_wipe(void *bytes, size_t n);

#endif
