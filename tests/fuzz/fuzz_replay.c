/* Any bytes as the events of an earlier run: a history is refused, or all that may be asked of it
 * has an answer within its bounds. */
#include "launcher/reporting/replay.h"
#include "launcher/reporting/replay_read.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_LOCAL = 3, N_ASKED = 50 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_actions(const struct replay_action *action, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        require(action[i].type <= REPLAY_AWAIT);
        require(action[i].type != REPLAY_KILL ||
                (action[i].rank < N_LOCAL && action[i].status != 0));
        require(action[i].type != REPLAY_SIGNAL || action[i].sig > 0);
    }
}

static void repeat(struct replay *r)
{
    static struct replay_action actions[REPLAY_MAX_DEEDS];
    static const bool all[N_LOCAL] = {true, true, true};
    const uint32_t n = replay_n_generations(r);
    require(n >= 1 && n <= REPLAY_MAX_GENERATIONS);
    for (uint32_t i = 0; i < n && i < N_ASKED; i++) {
        struct replay_shape shape;
        uint64_t steps = 0;
        require(replay_get(r, i, &shape) && shape.line > 0);
        require(replay_find_hold(r, i, &steps) || i + 1 == n);
        require(steps <= REPLAY_MAX_STEPS);
        for (uint32_t node = 0; node < 2; node++) {
            const struct replay_view view = {.generation = i,
                                             .node = node,
                                             .first_rank = node * N_LOCAL,
                                             .n_local = N_LOCAL,
                                             .held = all,
                                             .runs = all};
            check_actions(actions, replay_look(r, &view, actions));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct replay *r = NULL;
    FILE *in = size > 0 ? fmemopen((void *)data, size, "r") : NULL;
    if (in == NULL)
        return 0;
    if (replay_read(in, "input", &r, NULL) == 0)
        repeat(r);
    replay_destroy(r);
    fclose(in);
    return 0;
}
