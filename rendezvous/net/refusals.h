/* refusals.h - reports of refused connections, at most one a second: each costs a line on a
 * terminal, and a peer can cause as many as it likes. Pure. */
#ifndef DDP_RENDEZVOUS_NET_REFUSALS_H
#define DDP_RENDEZVOUS_NET_REFUSALS_H

#include "common/error.h"

#include <stdint.h>

enum { REFUSALS_EVERY_MS = 1000 };

struct refusals { /* zeroed: none yet */
    uint64_t next_ms;
    unsigned n_unreported;
    char text[CO_ERROR_TEXT_BYTES];
};

/* returns   what to report: the text, with the number of those before it that were not reported;
 *           lent until the next call. NULL: nothing now */
const char *refusals_note(struct refusals *r, uint64_t now_ms, const char *text);

#endif
