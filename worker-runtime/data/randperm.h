/* randperm.h - the permutation that torch.randperm(n) draws on the CPU, number for number.
 *
 * Pure. torch has two algorithms: one 32-bit draw per entry below RANDPERM_WIDE_FROM entries, one
 * 64-bit draw from there on. Both take their draws from an mt19937 of their own. */
#ifndef DDP_WORKER_RUNTIME_DATA_RANDPERM_H
#define DDP_WORKER_RUNTIME_DATA_RANDPERM_H

#include <stdint.h>

#define RANDPERM_WIDE_FROM 214748364u /* (2^32 - 1) / 20, rounded down */

/* Fill perm with the numbers 0 .. n - 1 in the order of torch.randperm(n) after manual_seed(seed).
 *
 * perm   n entries of 32 bits (torch's have 64: half the memory and cache misses)
 * seed   torch's seed as two's complement; its engine uses the low 32 bits alone */
void randperm_fill(uint32_t *perm, uint32_t n, uint64_t seed);

/* The two algorithms by name, whatever n is. Separate so that tests reach the wide one without
 * filling a gigabyte; all other code calls randperm_fill(). */
void randperm_fill_narrow(uint32_t *perm, uint32_t n, uint64_t seed);
void randperm_fill_wide(uint32_t *perm, uint32_t n, uint64_t seed);

#endif
