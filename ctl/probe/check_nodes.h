/* check_nodes.h - the ddpctls that `ddpctl check` starts on the nodes: starts the remote shells, a
 * limited number at a time, and asks all nodes at once. The caller decides what is asked.
 *
 * A node that does not answer in time, or answers wrongly, fails and is asked nothing more. */
#ifndef DDP_CTL_PROBE_CHECK_NODES_H
#define DDP_CTL_PROBE_CHECK_NODES_H

#include "ctl/check/check_wire.h"
#include "launcher/hosts/remote_shell.h"

#include <stddef.h>
#include <stdint.h>

struct check_nodes; /* opaque */
struct co_error;
struct host;

struct check_nodes_opts {
    const struct host *hosts; /* borrowed */
    size_t n;
    bool is_here_only;       /* hosts[0] is this machine, whatever it is called */
    struct remote_shell way; /* what it borrows is also borrowed here */
    const char *program;     /* ddpctl's path, the same on all hosts; borrowed */
    uint64_t last_words_ms;  /* how long a node that has hung up may take to report why; 0: the
                                default */
};

/* Nothing is started yet. returns 0, -ENOMEM */
int check_nodes_open(const struct check_nodes_opts *opts, struct check_nodes **ret,
                     struct co_error *err);
void check_nodes_close(struct check_nodes *c); /* ends what still runs; NULL is fine */

/* What a node is asked next.
 *
 * answer    borrowed; of what was asked before; of check_nodes_reach() first the node's hello; of
 *           check_nodes_ask() first NULL
 * returns   the request, stolen; NULL: nothing more for now. check_nodes_fail() it, and NULL, if
 *           the answer is not as it should be */
typedef json_t *check_next(void *arg, size_t node, const json_t *answer);

/* Start all, and ask each as soon as it has sent hello.
 *
 * answer_ms   the limit for an answer; that for hello is in opts.way */
void check_nodes_reach(struct check_nodes *c, uint64_t answer_ms, check_next *next, void *arg);

/* Ask all that are there. Returns when no request is open any more. */
void check_nodes_ask(struct check_nodes *c, uint64_t answer_ms, check_next *next, void *arg);

void check_nodes_fail(struct check_nodes *c, size_t node, const char *why);

bool check_nodes_is_here(const struct check_nodes *c, size_t node);  /* not by a way */
bool check_nodes_is_up(const struct check_nodes *c, size_t node);    /* it has sent hello */
bool check_nodes_is_there(const struct check_nodes *c, size_t node); /* and has not failed */
uint64_t check_nodes_reach_ms(const struct check_nodes *c, size_t node);
const char *check_nodes_why(const struct check_nodes *c, size_t node); /* "": it did not fail */

#endif
