/* good_client.h - an honest client beside the hostile ones: it checks each answer, and how long it had to
 * wait for it. Runs in a thread of its own, until it is stopped. */
#ifndef DDP_TESTS_HOSTILE_GOOD_CLIENT_H
#define DDP_TESTS_HOSTILE_GOOD_CLIENT_H

#include <stdint.h>

struct good_client; /* opaque */

/* returns   NULL: no connection; errno says why */
struct good_client *good_client_start(uint16_t port, uint64_t seed);

struct good_result {
    uint64_t n_requests;
    double max_ms;       /* the longest that one answer took */
    const char *trouble; /* what was wrong with an answer; NULL: nothing */
};

struct good_result good_client_stop(struct good_client *g);

#endif
