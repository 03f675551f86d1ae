/* secret_memory.h - memory for tokens and keys: pages of their own that core dumps and forked
 * children leave out. And the way of a secret out of the environment, which /proc shows to every
 * process of the user, and which child processes inherit. */
#ifndef DDP_COMMON_SECRET_MEMORY_H
#define DDP_COMMON_SECRET_MEMORY_H

#include <stddef.h>

/* returns   n zeroed bytes; NULL: out of memory */
void *co_secret_alloc(size_t n);

/* Wipe and free it. p   NULL is fine; n   as it was allocated */
void co_secret_free(void *p, size_t n);

/* Move a variable out of the environment: its bytes are wiped where /proc shows them, and it is
 * unset. First in main(), before another thread or process exists. Without the variable, what was
 * taken before stays.
 *
 * returns   0; -ENOMEM: it is wiped, and lost */
int co_secret_env_take(const char *name);

/* The value that was taken, lent until it is dropped or taken again; NULL: none, or empty. */
const char *co_secret_env_get(void);

/* As if it had been taken, unless one was. returns   0, -ENOMEM */
int co_secret_env_put(const char *value);

void co_secret_env_drop(void); /* wiped and freed */

#endif
