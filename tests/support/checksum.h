/* checksum.h - two checksums of a run of indices, by which a test compares a million of them with
 * torch's: a weighted sum, and zlib's crc32 of the 64-bit little-endian array. */
#ifndef DDP_TESTS_SUPPORT_CHECKSUM_H
#define DDP_TESTS_SUPPORT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

struct checksum {
    uint64_t weighted; /* sum of (i + 1) * index[i], mod 2^64 */
    uint32_t crc;
    uint64_t n;
};

static inline uint32_t checksum_crc_byte(uint32_t crc, uint8_t byte)
{
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t x = i;
            for (int bit = 0; bit < 8; bit++)
                x = (x >> 1) ^ (-(x & 1u) & 0xedb88320u);
            table[i] = x;
        }
    return (crc >> 8) ^ table[(crc ^ byte) & 0xff];
}

static inline void checksum_add(struct checksum *c, int64_t index)
{
    c->weighted += ++c->n * (uint64_t)index;
    uint32_t crc = ~c->crc;
    for (int byte = 0; byte < 8; byte++)
        crc = checksum_crc_byte(crc, (uint8_t)((uint64_t)index >> (8 * byte)));
    c->crc = ~crc;
}

#endif
