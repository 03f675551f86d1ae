/* check_facts.h - the facts that a node reports to `ddpctl check` about itself, as JSON and as a
 * struct. Pure.
 *
 * What comes from a node is untrusted: numbers and texts are bounded, and texts hold nothing that a
 * terminal would obey. What a node does not report is unknown, and is not made up. */
#ifndef DDP_CTL_CHECK_CHECK_FACTS_H
#define DDP_CTL_CHECK_CHECK_FACTS_H

#include <jansson.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    CHECK_TEXT_BYTES = 200, /* of reasons; longer ones are cut */
    CHECK_NAME_BYTES = 256,
    CHECK_SHORT_BYTES = 40, /* versions, names of interfaces */
    CHECK_ADDRESSES_MAX = 32,
    CHECK_GPUS_MAX = 64,
};

#define CHECK_UNLIMITED UINT64_MAX       /* RLIM_INFINITY */
#define CHECK_UNKNOWN   (UINT64_MAX - 1) /* it could not be read */

/* Where a name, or an address, leads to. */
enum check_name {
    CHECK_NAME_OWN,      /* to addresses of this machine */
    CHECK_NAME_LOOPBACK, /* to those that only this machine knows */
    CHECK_NAME_FOREIGN,  /* to another machine */
    CHECK_NAME_NONE,     /* to nothing */
    CHECK_NAME_LATE,     /* there was no answer in time */
    CHECK_NAME_SKIPPED,  /* there was nothing to look up */
    CHECK_N_NAMES,
};

struct check_address {
    char interface[CHECK_SHORT_BYTES];
    char text[INET6_ADDRSTRLEN]; /* figures, without a zone */
};

struct check_gpu {
    char name[CHECK_SHORT_BYTES];
    uint64_t ecc_errors; /* uncorrected ones since the driver was loaded; CHECK_UNKNOWN: no ECC */
};

struct check_facts {
    char host[CHECK_NAME_BYTES];       /* its own name */
    char version[CHECK_SHORT_BYTES];   /* of its ddprun; "": not found */
    char no_version[CHECK_TEXT_BYTES]; /* why not */

    uint64_t nofile, nofile_hard;   /* open files */
    uint64_t memlock;               /* bytes */
    uint64_t somaxconn;             /* connections that may wait to be taken */
    uint64_t n_rdma;                /* InfiniBand devices and similar ones */
    uint64_t shm_bytes, shm_free;   /* of /dev/shm; CHECK_UNKNOWN: not there */
    char no_shm[CHECK_TEXT_BYTES];  /* why nothing can be written there; "": it can */
    uint64_t first_port, last_port; /* from which the kernel assigns a port when a program asks for
                                       any */
    uint64_t port;                  /* where it listens now; 0: nowhere */
    char no_port[CHECK_TEXT_BYTES]; /* why not */

    struct check_address addresses[CHECK_ADDRESSES_MAX]; /* without loopback */
    size_t n_addresses;
    enum check_name forward;           /* of `host` */
    char forward_to[CHECK_TEXT_BYTES]; /* addresses, or why not */
    enum check_name reverse;           /* of its address */
    char reverse_to[CHECK_TEXT_BYTES]; /* the name, or why not */

    char token_id[CHECK_SHORT_BYTES]; /* distinguishes tokens; "": no token */
    char no_token[CHECK_TEXT_BYTES];  /* why a token that exists cannot be used; else "" */

    uint64_t n_gpus; /* that the driver has */
    char driver[CHECK_SHORT_BYTES];
    struct check_gpu gpus[CHECK_GPUS_MAX];
    size_t n_described;                 /* of gpus */
    char gpu_trouble[CHECK_TEXT_BYTES]; /* of nvidia-smi; "": none, or it is not there */
    char nccl[CHECK_SHORT_BYTES];       /* its version; "": it is not there */
};

/* returns   an object, owned by the caller; NULL without memory */
json_t *check_facts_to_json(const struct check_facts *facts);

/* Read them. Missing members are unknown; the others must have the right type.
 *
 * returns   0; -EPROTO: not an object of facts, or a member is invalid */
int check_facts_from_json(const json_t *json, struct check_facts *ret, struct co_error *err);

#endif
