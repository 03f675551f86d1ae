/* check_wire.h - the messages between `ddpctl check` and the ddpctls that it starts, over the
 * latter's standard input and output: objects of JSON, each on a line of its own after a word that
 * no login prints. Pure.
 *
 *     node: hello {v, from, to}     by which addresses it was reached; "": it does not know
 *     do: time {}                -> time_ns
 *     do: facts {secret, ddprun, timeout_ms}
 *                                -> check_facts.h; from then on its port accepts clients with the
 *                                   secret (check_net.h)
 *     do: reach {peers: [[ADDRESS, PORT], ...], timeout_ms}
 *                                -> reach: a word of check_report.h for each
 *     do: measure {peer: [ADDRESS, PORT], timeout_ms}
 *                                -> rtt_min_ns, rtt_median_ns, forth, back; or why
 *
 * One request at a time. At the end of its input a node exits. */
#ifndef DDP_CTL_CHECK_CHECK_WIRE_H
#define DDP_CTL_CHECK_CHECK_WIRE_H

#include "common/buf.h"

#include <jansson.h>
#include <stdbool.h>

struct co_error;

#define CHECK_WIRE_ARGUMENT "--here" /* after `ddpctl check`: starts it on a node */

enum {
    CHECK_PROTOCOL = 1,
    CHECK_REQUEST_MAX_BYTES = 4096,  /* a pipe takes these at once, however slow its reader is */
    CHECK_LINE_MAX_BYTES = 65536,    /* of an answer */
    CHECK_CHATTER_MAX_BYTES = 65536, /* of other lines, all together */
    CHECK_SECRET_BYTES = 16,
};

struct check_wire { /* one direction; zeroed: empty */
    struct co_buf in;
    size_t n_ignored;
};

/* Take the next object out of the input so far; other lines are left out.
 *
 * ret       owned by the caller
 * returns   1; 0 it is not complete yet
 *           -EPROTO   the word without an object after it
 *           -E2BIG    a line, or the other output, is too long
 *           -ENOMEM */
int check_wire_take(struct check_wire *w, json_t **ret, struct co_error *err);
void check_wire_fini(struct check_wire *w);

/* An object as a line.
 *
 * json      stolen; NULL: memory ran out
 * returns   owned by the caller; NULL if memory runs out */
char *check_wire_print(json_t *json);

#endif
