/* leash.h - the end of a leash (leash_wire.h) at the node: a ddprun that another one has started,
 * before it is one like any other.
 *
 * Takes standard input over: the ranks' is /dev/null from then on. */
#ifndef DDP_LAUNCHER_LEASH_H
#define DDP_LAUNCHER_LEASH_H

#include "launcher/hosts/cli_seat.h"
#include "leash_wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct job_world;

struct leash {
    int fd;      /* owned; what else comes; close-on-exec */
    char *bytes; /* owned; the order's */
    size_t n_bytes;
    struct leash_order order;
    struct cli_seat seat; /* as the order says it */
    char *endpoint;       /* owned */
    char n_ranks[16];
};

/* Is ddprun to be started by a leash? argv is as main() got it. */
bool leash_is_asked_for(int argc, char *const *argv);
extern const char leash_word[]; /* the argument that asks for it */

/* Is ddprun to say whether it suits a starter? leash_terms() is the answer then. */
bool leash_is_asked_for_terms(int argc, char *const *argv);

/* What two ddpruns have to agree on for one to start the other: versions of the program, of leashes
 * and of the channel to the roster. */
const char *leash_terms(void);

/* The same of a ddprun that is not started, by the bytes of its program: lent from them.
 *
 * returns   NULL: it is none */
const char *leash_terms_in(const uint8_t *bytes, size_t len);

/* Say that we are here, wait for the order, and do what it says about the folder and the
 * environment. The wait ends with the order, or with the starter.
 *
 * null_fd   /dev/null
 * returns   0; leash_close() it
 *           -EPIPE    the starter went away; nothing is to be said
 *           -EPROTO, -E2BIG, -ENOMEM, -errno: the order, the folder, the variables; err says it */
int leash_open(int null_fd, struct leash *ret, struct co_error *err);
void leash_close(struct leash *l); /* a zeroed one is fine */

/* The secret that came with the order becomes the key.
 *
 * returns   0, -EPROTO (no digits), -ENOMEM, -ENOSYS */
int leash_make_key(struct leash *l, struct job_world *w, struct co_error *err);

/* The command line is understood: what is written from now on is the ranks'. */
void leash_say_ready(void);

#endif
