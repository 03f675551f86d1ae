/* optional_symbols.h - calls that not every NCCL has that this plug-in runs with: they device.c
 * looks up, and are NULL where they are missing. All others are linked (symbols.txt lists both). */
#ifndef DDP_WORKER_RUNTIME_NCCL_OPTIONAL_SYMBOLS_H
#define DDP_WORKER_RUNTIME_NCCL_OPTIONAL_SYMBOLS_H

#include <nccl.h>

/* name, since */
#define NEWER_CALLS(X)                                                                             \
    X(ncclCommInitRankScalable) /* 2.23 */                                                         \
    X(ncclCommShrink)           /* 2.27 */                                                         \
    X(ncclCommRevoke)           /* 2.28.7 */

struct newer {
#define NEWER_MEMBER(name) __typeof__(&name) name;
    NEWER_CALLS(NEWER_MEMBER)
#undef NEWER_MEMBER
};

#endif
