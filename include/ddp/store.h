/* store.h - the job's key-value store: small values that ranks exchange outside collectives.
 *
 * It is the store that PyTorch's processes use, at MASTER_ADDR and MASTER_PORT. A world
 * of 1 has none. Keys are 1 .. 4096 bytes of text and share no name with torch's: they travel with
 * the prefix "ddp/". Values are any bytes, at most 8 MiB. Every call is one or two round trips. */
#ifndef DDP_STORE_H
#define DDP_STORE_H

#include <ddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* returns of all: 0; DDP_EINVAL key or value out of bounds; DDP_EUNSUPPORTED the job has no store;
 * DDP_EENV MASTER_PORT is not a port; DDP_ETIMEOUT; DDP_ESYSTEM the store cannot be reached or went
 * away */
int ddp_store_set(struct ddp_group *g, const char *key, const void *value, size_t len);

/* Wait until the key exists, at most timeout_ms, and copy its value.
 *
 * buf, size   where to; a value longer than size gives DDP_EINVAL
 * ret_len     its length */
int ddp_store_get(struct ddp_group *g, const char *key, void *buf, size_t size, size_t *ret_len,
                  uint64_t timeout_ms);

/* Add to a counter; one that does not exist starts from 0.
 * ret_value   what it is now; NULL allowed */
int ddp_store_add(struct ddp_group *g, const char *key, int64_t delta, int64_t *ret_value);

/* Where the store of this generation is: a program that has its own client of TCPStore's protocol
 * connects there. MASTER_ADDR and MASTER_PORT are those of the process's start; if nodes left since
 * then, the store may be elsewhere.
 *
 * host, size   where to; 256 bytes are always enough
 * ret_port     written only on success, as the host
 * cost         no communication
 * returns      0; DDP_EINVAL a NULL, or `size` is too small; DDP_EUNSUPPORTED the job has no store,
 *              or one that libddp reaches through PMI; DDP_EENV MASTER_PORT is not a port */
int ddp_store_address(struct ddp_group *g, char *host, size_t size, int *ret_port);

/* Wait until the key exists. */
int ddp_store_wait(struct ddp_group *g, const char *key, uint64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
