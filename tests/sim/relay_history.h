/* relay_history.h - what clients of a store asked and were answered, and whether one order explains
 * it.
 *
 * An operation takes effect at one moment between its beginning and its end; those of one client in
 * the order in which it asked. Each name is checked by itself: a history of several is linearizable
 * if that of each name is. The search tries each order that is possible, and remembers where it has
 * been. */
#ifndef DDP_TESTS_SIM_RELAY_HISTORY_H
#define DDP_TESTS_SIM_RELAY_HISTORY_H

#include <stddef.h>
#include <stdint.h>

enum {
    HISTORY_OPERATIONS = 1024,
    HISTORY_CLIENTS = 64, /* incarnations that have asked for one name */
    HISTORY_QUEUE = 64,
};

enum history_kind {
    HISTORY_SET,         /* a -> */
    HISTORY_GET,         /* -> value, 0: missing */
    HISTORY_COMPARE_SET, /* a: expected, 0: empty; b -> what COMPARE_SET answers */
    HISTORY_DELETE,      /* -> 1: it was there */
    HISTORY_CHECK,       /* -> 1: it is there */
    HISTORY_WAIT,        /* ends only when it is there */
    HISTORY_ADD,         /* a -> sum */
    HISTORY_PUSH,        /* a -> */
    HISTORY_POP,         /* -> item, 0: empty */
};

#define HISTORY_PENDING UINT64_MAX

struct history_operation {
    enum history_kind kind;
    int name;
    uint32_t client; /* an incarnation: another number after each connection */
    int64_t a, b, result;
    uint64_t begin, end; /* end: HISTORY_PENDING, if the client does not know that it was done */
};

struct history {
    struct history_operation operations[HISTORY_OPERATIONS]; /* those of a client in its order */
    int n;
};

enum history_answer {
    HISTORY_HAS_ORDER,
    HISTORY_HAS_NONE,
    HISTORY_TOO_LONG, /* the search was stopped: too many operations without an end */
};

/* Is there an order for this name? Operations without an end may have been done or not. */
enum history_answer history_search(const struct history *h, int name);

#endif
