#include "hold.h"

#include "common/clock.h"
#include "segments/control.h"
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>
#include <time.h>

enum { LOOK_MS = 1 };

static bool is_over(const struct ddp_group *g)
{
    return g->control != NULL && control_abort_get(g->control).cause != CONTROL_OK;
}

/* Only in a replay, so nobody needs to be woken. */
static void nap(void)
{
    const struct timespec t = {.tv_nsec = LOOK_MS * 1000000};
    nanosleep(&t, NULL);
}

int hold_here(struct ddp_group *g)
{
    if (g->world != g || g->line == NULL || !rank_status_holds(&g->line->progress))
        return 0;
    struct rank_status_page *page = &g->line->progress;
    const uint64_t deadline_ms = co_deadline_ms(g->timeout_ms);
    /* Once one rank is through, each of the others has completed its last step, too, and done what
     * it does behind it: whoever ends from here on takes nothing along. */
    int rc = ddp_barrier(g);
    if (rc != 0)
        return rc;
    rank_status_set_held(page, true);
    while (rank_status_holds(page) && !is_over(g) && co_left_ms(deadline_ms) != 0)
        nap();
    rank_status_set_held(page, false);
    return is_over(g) ? rt_fail(rt_broken(), "the generation is over") : 0;
}
