/* good_client.h - an honest client next to the hostile ones: it checks each reply and how long it
 * waited for it. Runs in a thread of its own until it is stopped. */
#ifndef DDP_TESTS_SUPPORT_HOSTILE_GOOD_CLIENT_H
#define DDP_TESTS_SUPPORT_HOSTILE_GOOD_CLIENT_H

#include <stdint.h>
#include <sys/types.h>

struct good_client; /* opaque */

/* server_pid   0, or the server's process: its processor time is read then
 * returns      NULL: no connection; errno has the reason */
struct good_client *good_client_start(uint16_t port, uint64_t seed, pid_t server_pid);

struct good_result {
    uint64_t n_requests;
    double max_ms; /* the longest that one answer took */
    double
        max_busy_ms; /* the most that the server worked meanwhile: what of a wait is its own doing,
                            however busy the machine is with other things */
    const char *trouble; /* what was wrong with an answer; NULL: nothing */
};

struct good_result good_client_stop(struct good_client *g);

#endif
