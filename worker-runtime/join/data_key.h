/* data_key.h - the key by which ranks on several nodes encrypt what they send each other.
 *
 * ddprun --encrypt gives its ranks a secret of the job in a descriptor, a sealed memfd
 * (data_secret.h). A program that is started in another way reads one from a file. The key of a
 * generation is derived from the secret and the generation's number. */
#ifndef DDP_WORKER_RUNTIME_JOIN_DATA_KEY_H
#define DDP_WORKER_RUNTIME_JOIN_DATA_KEY_H

#include "env.h"
#include "worker-runtime/cipher/cipher.h"

/* Of a key file: hexadecimal digits, and blanks and line ends after them. */
enum { DATA_KEY_LEAST_DIGITS = 64, DATA_KEY_MOST_DIGITS = 4096 };

/* The keys of a process that encrypts. */
struct data_keys {
    uint8_t generation[CIPHER_KEY_BYTES];   /* of this generation, for libddp's connections */
    char library[2 * CIPHER_KEY_BYTES + 1]; /* of the job, in hexadecimal digits (core/process.h) */
};

/* Find them, according to DDP_ENCRYPT, DDP_ENCRYPT_FD and DDP_ENCRYPT_KEY_FILE.
 *
 * ret_has   whether connections are to be encrypted; then `ret` is filled
 * returns   0; -ENOEXEC a variable has another value, or no secret was given; -EACCES the file
 *           belongs to another user, or others can read it; -EINVAL what is in it; -ENOSYS, -errno
 */
int data_key_find(env_get_fn *get, void *arg, uint32_t generation, struct data_keys *ret,
                  bool *ret_has, struct co_error *err);

#endif
