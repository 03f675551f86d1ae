/* launch_wire.h - what a ddprun that starts others sends to each of them, and how they answer.
 * Pure.
 *
 * The launching ddprun holds the standard input of the other one, over ssh or directly: its launch
 * channel. First the node reports that it is up, by a line on its standard output, after any output
 * of its login:
 *
 *     ddprun-launch 1 FROM      FROM: the address of the launching ddprun; "-": it is
 *     not known
 *
 * A host that has no ddprun may ask for one before (payload.h), for its kind of machine; its bytes
 * follow, and nothing else until the host reports that it is up:
 *
 *     ddprun-launch wants MACHINE
 *
 * Then the launching ddprun sends an order: records, each a letter and a text followed by a NUL;
 * the last record ends the order. Words, variables and the token take this way and not ssh's
 * command line, which a shell would read, others could see, and which is short. A second line
 * confirms the order, and all that follows on standard output is the ranks':
 *
 *     ddprun-launch ready
 *
 * After that the launching ddprun passes signals on, and reports when the ranks of all nodes have
 * saved what their nodes announced (--on-term). When its input ends, a node knows that the
 * launching ddprun is gone. */
#ifndef DDP_LAUNCHER_REMOTE_LAUNCH_WIRE_H
#define DDP_LAUNCHER_REMOTE_LAUNCH_WIRE_H

#include "common/buf.h"

#include <stdint.h>
#include <sys/types.h>

struct co_error;

#define LAUNCH_PROTOCOL 1

enum {
    LAUNCH_ORDER_MAX_BYTES = 8 << 20, /* of an order */
    LAUNCH_SIGNAL_BYTES = 8,          /* of a record that comes later */
    LAUNCH_FROM_BYTES = 64,
    LAUNCH_CHATTER_MAX_BYTES = 65536, /* before a line of ours */
    LAUNCH_ORDER_MAX_WORDS = 65536,   /* arguments, and variables */
};

/* --- lines of the node --- */

enum launch_line { LAUNCH_UP, LAUNCH_READY, LAUNCH_WANTS };

/* Look for a line in what the node has written so far.
 *
 * ret_used   with 1: the bytes up to the line's end; what follows is not ours
 * from       LAUNCH_FROM_BYTES; with LAUNCH_UP: the address, "" for none; with LAUNCH_WANTS: the
 *            kind of machine
 * returns    1; 0 it has not arrived yet
 *            -EPROTO   another protocol, or an address that is not numeric, or a machine that is
 *                      not letters and digits
 *            -E2BIG    LAUNCH_CHATTER_MAX_BYTES, and no such line */
int launch_find_line(enum launch_line which, const uint8_t *bytes, size_t len, size_t *ret_used,
                     char *from, struct co_error *err);

/* The line, with its newline. returns its length, as snprintf() */
int launch_print_line(enum launch_line which, const char *from, char *to, size_t n);

/* --- the order --- */

/* Texts are borrowed: from the caller that fills it, or from the bytes that it was read from. */
struct launch_order {
    const char *dir;   /* where to go first; absolute */
    const char *token; /* hexadecimal digits */
    const char *name;  /* the node's */
    const char *run_id;
    const char *nodes; /* as of --nnodes */
    const char *host;  /* of the rendezvous endpoint; "": the launching ddprun's address */
    uint16_t port;     /* not 0 */
    uint32_t n_ranks;  /* 0: the node finds out itself */
    char **argv;       /* NULL-terminated */
    char **env;        /* NAME=VALUE to be set; NULL-terminated */
    size_t n_argv, n_env;
};

/* Append it. returns 0, -ENOMEM */
int launch_put_order(const struct launch_order *order, struct co_buf *to);

/* Is the order whole?
 *
 * returns   its length; 0 it is not complete
 *           -E2BIG   it is longer than is allowed */
ssize_t launch_order_len(const uint8_t *bytes, size_t len);

/* Read a whole order, whose texts are in these bytes.
 *
 * ret       launch_order_fini() it; the lists are owned, their texts are not
 * returns   0, -EPROTO (not an order; a part that is missing, twice or malformed), -ENOMEM */
int launch_take_order(char *bytes, size_t len, struct launch_order *ret, struct co_error *err);
void launch_order_fini(struct launch_order *order);

/* --- signals --- */

enum {
    LAUNCH_SIGNAL_MAX = 64,
    LAUNCH_ALL_SAVED, /* no signal: the ranks of all nodes have saved their state */
};

/* Append one, or LAUNCH_ALL_SAVED. returns 0, -ENOMEM */
int launch_put_signal(int sig, struct co_buf *to);

/* Take the next one off the front.
 *
 * returns   its number, or LAUNCH_ALL_SAVED; 0 it is not whole; -EPROTO: not a signal */
int launch_take_signal(struct co_buf *from);

#endif
