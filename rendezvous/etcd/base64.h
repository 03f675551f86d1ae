/* base64.h - bytes as etcd's JSON has them: the alphabet of RFC 4648, padded. Pure. */
#ifndef DDP_RENDEZVOUS_ETCD_BASE64_H
#define DDP_RENDEZVOUS_ETCD_BASE64_H

#include <stddef.h>

#define BASE64_BYTES(n) (((n) + 2) / 3 * 4 + 1) /* of n bytes, with the NUL */

/* text   BASE64_BYTES(n) */
void base64_encode(const void *bytes, size_t n, char *text);

/* bytes     max of them
 * returns   how many there are, or -1: it is no base64, or has more */
long base64_decode(const char *text, void *bytes, size_t max);

#endif
