/* pmix_hello.h - what each node of a job brings to the rounds of a generation. Pure.
 *
 * To the first one, before PMIx can begin, a line of text. The ranks are those of each program, in
 * their order on the node:
 *
 *     ddp-pmix 1 NODE-NAME LIBRARY SECRET MACHINE RANKS[:RANKS]...
 *
 * To a later one:
 *
 *     F BYTES    without the blank: what its ranks bring to a fence
 *     G RANK     without the blank: this rank of the node will never enter one */
#ifndef DDP_RENDEZVOUS_PMIX_PMIX_HELLO_H
#define DDP_RENDEZVOUS_PMIX_PMIX_HELLO_H

#include "pmix_names.h"

#include <stdbool.h>
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

enum { PMIX_PART_FENCE = 'F', PMIX_PART_GONE = 'G', PMIX_PART_GONE_BYTES = 12 };

struct pmix_part {
    bool is_gone;
    uint32_t rank;        /* if so; up to INT32_MAX */
    const uint8_t *bytes; /* else: within what was read */
    size_t len;
};

/* returns   its length; the text ends with a NUL that does not count */
int pmix_part_print_gone(uint32_t rank, char text[PMIX_PART_GONE_BYTES]);

/* Any bytes. returns 0; -EPROTO: they are not such a part */
int pmix_part_read(const uint8_t *bytes, size_t len, struct pmix_part *ret);

#endif
