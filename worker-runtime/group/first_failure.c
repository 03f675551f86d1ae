#include "first_failure.h"

#include <ddp/error.h>

enum { WELL, OF_ANOTHER, UNTOLD, OWN, BY_SIGNAL };

static int weight_of(const struct rank_end *e)
{
    if (e->signal != 0)
        return BY_SIGNAL;
    if (e->order == 0)
        return e->exit_status != 0 ? UNTOLD : WELL;
    if (e->status == 0)
        return WELL;
    return e->status == DDP_EPEER ? OF_ANOTHER : OWN;
}

int first_failure_find(const struct rank_end *of, int n)
{
    int first = -1, most = WELL;
    for (int r = 0; r < n; r++) {
        const int weight = weight_of(&of[r]);
        if (weight > most || (weight == most && weight != WELL && of[r].order < of[first].order)) {
            first = r;
            most = weight;
        }
    }
    return first;
}
