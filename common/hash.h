/* hash.h - digests that two sides compare: FNV-1a of 64 bits, by Fowler, Noll and Vo.
 *
 *     uint64_t digest = co_hash_bytes(CO_HASH_START, name, strlen(name));
 *     digest = co_hash_word(digest, size);
 *
 * Ranks and nodes of one version compare them. No digest outlives a job, except that of a
 * checkpoint. They are not cryptographic: an attacker can make two inputs with the same digest. */
#ifndef DDP_COMMON_HASH_H
#define DDP_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

#define CO_HASH_START UINT64_C(0xcbf29ce484222325)

/* One step. FNV-1a takes a byte at a time; with whole words it is quicker, and a word's high bits
 * stay in the high bits. */
static inline uint64_t co_hash_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

/* As co_hash_word(), and the high bits come down: for the digest of a few numbers. */
static inline uint64_t co_hash_number(uint64_t hash, uint64_t number)
{
    hash = co_hash_word(hash, number);
    return hash ^ hash >> 29;
}

static inline uint64_t co_hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i++)
        hash = co_hash_word(hash, b[i]);
    return hash;
}

/* To begin with instead of CO_HASH_START, so that a peer cannot choose names that collide. Where
 * the kernel has no random bytes yet, a time and an address. */
uint64_t co_hash_seed(void);

#endif
