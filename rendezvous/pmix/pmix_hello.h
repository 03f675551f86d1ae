/* pmix_hello.h - what each node of a job brings to the first round of a generation, before PMIx can
 * begin: a line of text. Pure.
 *
 *     ddp-pmix 1 NODE-NAME LIBRARY SECRET MACHINE RANKS[:RANKS]...
 *
 * The ranks are those of each program, in their order on the node. */
#ifndef DDP_RENDEZVOUS_PMIX_PMIX_HELLO_H
#define DDP_RENDEZVOUS_PMIX_PMIX_HELLO_H

#include "pmix_names.h"

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    PMIX_HELLO_BYTES = 1024, /* a line is shorter */
    PMIX_HELLO_PROGRAMS = 32,
    PMIX_HELLO_SECRET_BYTES = 33,
    PMIX_HELLO_MAX_RANKS = 1 << 20 /* of a node */
};

struct pmix_hello {
    char name[PMIX_NAMES_NODE_BYTES];       /* of pmix_names_node() */
    char library[PMIX_NAMES_VERSION_BYTES]; /* libpmix's version: "4.2.2" */
    char secret[PMIX_HELLO_SECRET_BYTES];   /* lower-case hexadecimal digits */
    uint64_t machine;                       /* a digest, equal for nodes that share CPUs */
    uint32_t n_ranks;                       /* 1 or more: the sum of `ranks` */
    uint32_t n_programs;
    uint32_t ranks[PMIX_HELLO_PROGRAMS]; /* each 1 or more */
};

/* returns   its length; -ENOSPC: it does not fit */
int pmix_hello_print(const struct pmix_hello *h, char text[PMIX_HELLO_BYTES]);

/* Any bytes. returns 0; -EPROTO: they are not such a line */
int pmix_hello_read(const uint8_t *bytes, size_t len, struct pmix_hello *ret, struct co_error *err);

#endif
