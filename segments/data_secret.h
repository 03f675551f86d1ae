/* data_secret.h - the secret of a job from which its ranks derive the keys of their connections: as
 * ddprun hands it to them, in a memfd.
 *
 * It has no name in the file system, is sealed against changes, and is open in ddprun and the ranks
 * only; other processes of the same user, and root, can open it through /proc. */
#ifndef DDP_SEGMENTS_DATA_SECRET_H
#define DDP_SEGMENTS_DATA_SECRET_H

#include <stdint.h>

struct co_error;

enum { DATA_SECRET_BYTES = 32 };

/* ret_fd    close-on-exec, the caller's
 * returns   0, -errno */
int data_secret_make(const uint8_t secret[DATA_SECRET_BYTES], int *ret_fd, struct co_error *err);

/* returns   0; -EBADF it is not such a descriptor: a program between ddprun and this process has
 *           closed it, or has used its number for something else; -errno */
int data_secret_read(int fd, uint8_t ret[DATA_SECRET_BYTES], struct co_error *err);

#endif
