/* sim_membership_all - every state that a roster and three members can reach.
 *
 * Roster and members are the real ones. The search is breadth first. From the beginning of a job it
 * tries each thing that could happen next: the message at the head of any connection is delivered;
 * a connection is reset or becomes silent; a ddprun is killed, leaves, or starts late; the ranks of
 * a node fail, succeed, or stop; the time advances to the next deadline of any of them. A budget
 * for each kind of fault bounds how often it happens. Another budget bounds how often the time
 * advances although a message could be delivered. States are compared by a hash of everything that
 * decides what can follow, with times and generations relative to the present ones.
 *
 * The search continues from each state only once. So the promises of docs/design/membership.md hold
 * for every schedule within the budgets, of any length. Each state is checked as in
 * sim_membership.c, and for something that can happen next, unless all has ended.
 *
 * If ranks survive the end of a generation (config.recovers), their steps are counted. The ranks of
 * a generation rendezvous, and continue from the highest step that one of them has completed. When
 * all have reached the end of a step, the nodes complete it one after the other: if the generation
 * breaks meanwhile, some have completed the step and others have not. Two more checks: no step is
 * completed in a generation after ranks have joined a later one; and where ranks rendezvous, no
 * rank that lives has completed more steps than they have now. So no step is lost or counted twice.
 *
 * If the job continues without ranks that die (config.drops), some may also die between
 * generations. One more check: a node is assigned as many ranks as it has, or one more for each
 * rank that died too late to be reported.
 *
 * If nodes check their health (config.checks), a check succeeds, or finds a node unhealthy (SICK),
 * while its ranks do not run. Two more checks: the roster gives places only to nodes that it knows
 * to be fit; and no node starts ranks without a check that succeeded after its last ranks ended.
 *
 * The roster may be lost, and another one take over (MOVE): before, between and after the moments
 * at which the record of a generation is written and confirmed. Two more checks: ranks are not
 * killed because of that alone; and ranks that rendezvous and have completed as many steps have
 * completed them in the same generations, so that they have the same state.
 *
 * small_world.h is a state, small_acts.h has what can happen in it, small_orders.h what roster and
 * members answer, small_promises.h the checks. This file has the search, and where it begins. */
#include "small_acts.h"
#include "small_promises.h"
#include "small_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEPTH = 1000, MAX_STATES = 60000000 };

struct found { /* a state, by how it is reached */
    uint32_t parent;
    struct act act;
};

static struct search {
    struct found *states;
    size_t n, cap;
    uint64_t *hashes; /* of states; 0: free */
    size_t n_cells;
    uint64_t n_steps;
    struct world root, parent, here;
    uint32_t parent_is; /* which state `parent` is */
} search;

static void *grow(void *old, size_t bytes)
{
    void *bigger = realloc(old, bytes);
    if (bigger == NULL) {
        fprintf(stderr, "no memory for so many states\n");
        exit(1);
    }
    return bigger;
}

static bool remember(struct search *s, uint64_t hash)
{
    size_t i = hash & (s->n_cells - 1);
    for (; s->hashes[i] != 0; i = (i + 1) & (s->n_cells - 1))
        if (s->hashes[i] == hash)
            return false;
    s->hashes[i] = hash;
    return true;
}

static void rehash(struct search *s)
{
    uint64_t *old = s->hashes;
    size_t n_old = s->n_cells;
    s->n_cells = n_old == 0 ? 1 << 16 : 2 * n_old;
    s->hashes = calloc(s->n_cells, sizeof *s->hashes);
    if (s->hashes == NULL)
        grow(NULL, SIZE_MAX / 2);
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != 0)
            remember(s, old[i]);
    free(old);
}

static void push(struct search *s, uint64_t hash, uint32_t parent, struct act act)
{
    if (2 * s->n >= s->n_cells)
        rehash(s);
    if (!remember(s, hash | 1))
        return;
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 1 << 16 : 2 * s->cap;
        s->states = grow(s->states, s->cap * sizeof *s->states);
    }
    s->states[s->n++] = (struct found){parent, act};
}

/* The acts that lead to a state, first to last. returns how many */
static int find_path(const struct search *s, uint32_t state, struct act *path)
{
    int n = 0;
    for (uint32_t at = state; at != 0; at = s->states[at].parent)
        n++;
    for (uint32_t at = state, i = (uint32_t)n; at != 0; at = s->states[at].parent)
        path[--i] = s->states[at].act;
    return n;
}

/* Children follow each other, so what was made for one is there for the next. */
static void rebuild(struct search *s, uint32_t state, struct world *to)
{
    static struct act path[MAX_DEPTH];
    uint32_t parent = s->states[state].parent;
    if (state == 0) {
        world_copy(to, &s->root);
        return;
    }
    if (s->parent_is != parent) {
        int n = find_path(s, parent, path);
        world_copy(&s->parent, &s->root);
        for (int i = 0; i < n; i++)
            act_do(&s->parent, path[i]);
        s->parent_is = parent;
    }
    world_copy(to, &s->parent);
    act_do(to, s->states[state].act);
}

static const char *const act_names[] = {
    [START] = "starts",
    [CONNECT] = "connects",
    [DELIVER] = "delivers",
    [OPEN] = "opens the store",
    [FINISH] = "ends well",
    [RID] = "has stopped",
    [KEEP] = "keeps its ranks",
    [SAVE] = "saves",
    [BREAK] = "hears that others are gone",
    [SEE] = "sees that its rank has failed",
    [CHECK] = "is found healthy",
    [MEET] = "meets the others",
    [STEP] = "completes a step",
    [HEAL] = "is heard again",
};

static const char *const fault_names[] = {
    [KILL] = "is killed",
    [RESET] = "is reset",
    [FAIL] = "fails",
    [LEAVE] = "leaves",
    [RENEW] = "asks for a restart",
    [SILENCE] = "is silent",
    [SICK] = "is found unhealthy",
};

static void print_act(const struct act *a)
{
    if (a->type == TICK)
        fprintf(stderr, "time goes on\n");
    else if (a->type == WRITE)
        fprintf(stderr, "the record is written\n");
    else if (a->type == CONFIRM)
        fprintf(stderr, "the roster hears that the record is written\n");
    else if (a->type == FAULT && a->detail == MOVE)
        fprintf(stderr, "the roster is lost, and another one takes over\n");
    else
        fprintf(stderr, "node%d %s%s\n", a->node,
                a->type == FAULT ? fault_names[a->detail] : act_names[a->type],
                a->type != DELIVER       ? ""
                : a->detail == TO_ROSTER ? " to the roster"
                                         : " what the roster says");
}

static void print_world(const struct world *w)
{
    fprintf(stderr, "    %" PRIu64 " ms, %s, generation %d: %s\n", w->now_ms,
            roster_state_name(roster_get_state(w->roster)), (int)roster_generation(w->roster),
            roster_change(w->roster));
    for (int i = 0; i < N_NODES; i++) {
        const struct node *n = &w->nodes[i];
        if (n->member != NULL)
            fprintf(stderr, "        node%d %s%s, generation %" PRIu32 "\n", i,
                    member_state_name(member_get_state(n->member)), n->runs ? ", runs" : "",
                    n->generation);
    }
}

static void report(struct search *s, uint32_t state, struct act last)
{
    static struct act path[MAX_DEPTH];
    int n = find_path(s, state, path);
    const char *what = promise_broken();
    path[n++] = last;
    world_copy(&s->here, &s->root);
    for (int i = 0; i < n; i++) {
        act_do(&s->here, path[i]);
        print_act(&path[i]);
        print_world(&s->here);
    }
    fprintf(stderr, "%s: %s\n", s->root.config->name, what);
    exit(1);
}

/* Find everything that can happen next. */
static void expand(struct search *s, uint32_t state)
{
    static struct world next;
    struct acts acts;
    rebuild(s, state, &s->here);
    acts_list(&s->here, &acts);
    promise(acts.n > 0 || acts_are_over(&s->here), "nothing can happen any more");
    if (promise_broken() != NULL)
        report(s, s->states[state].parent, s->states[state].act);
    for (int i = 0; i < acts.n; i++) {
        world_copy(&next, &s->here);
        act_do(&next, acts.items[i]);
        s->n_steps++;
        if (promise_broken() != NULL)
            report(s, state, acts.items[i]);
        push(s, world_digest(&next), state, acts.items[i]);
    }
}

/* returns whether the search has continued from every state */
static bool explore(const struct config *config, size_t max_states)
{
    struct search *s = &search;
    clock_t began = clock();
    *s = (struct search){.parent_is = UINT32_MAX};
    world_init(&s->root, config);
    push(s, world_digest(&s->root), 0, (struct act){0});
    size_t at = 0;
    for (; at < s->n && s->n <= max_states; at++)
        expand(s, (uint32_t)at);
    static struct act path[MAX_DEPTH];
    printf("%-34s %9zu states, %10" PRIu64 " steps, depth %3d, %5.1f s%s\n", config->name, s->n,
           s->n_steps, find_path(s, (uint32_t)at - 1, path),
           (double)(clock() - began) / CLOCKS_PER_SEC, at < s->n ? ", NOT ALL" : "");
    fflush(stdout);
    bool is_all = at == s->n;
    free(s->states);
    free(s->hashes);
    world_fini(&s->root);
    world_fini(&s->parent);
    world_fini(&s->here);
    return is_all;
}

/* A few are for every day; all of them take ten minutes and two gigabytes. */
#define NOW        MESSAGE_ADMIT_NOW
#define SAVE_FIRST MESSAGE_ADMIT_AT_CHECKPOINT
#define CHECKS     false, false, 0, false, true
/* clang-format off */
static const struct config configs[] = {
    /* name                              daily  min max restarts     leases faults */
    {"2:3, nothing wrong",               true,  2, 3, 0, NOW,        false, {0}},
    {"2:3, a kill",                      true,  2, 3, 0, NOW,        false, {[KILL] = 1}},
    {"1:2, a kill",                      true,  1, 2, 0, NOW,        false, {[KILL] = 1}},
    {"1:2, a failure",                   true,  1, 2, 0, NOW,        false, {[FAIL] = 1}},
    {"1:2, a failure, of libddp",        true,  1, 2, 0, NOW,        false, {[FAIL] = 1}, true},
    {"2:3 at a checkpoint",              true,  2, 3, 0, SAVE_FIRST, false, {0}},
    {"1:2, a kill, in place",            true,  1, 2, 0, NOW,        false, {[KILL] = 1}, false, true, 2},
    {"1:2, a failure, in place",         true,  1, 2, 1, NOW,        false, {[FAIL] = 1}, false, true, 1},
    {"1:2, a failure, shrinking",        true,  1, 2, 1, NOW,        false, {[FAIL] = 1}, false, true, 1, true},
    {"1:2, a restart that is asked for", true,  1, 2, 0, NOW,        false, {[RENEW] = 1}},
    {"1:2, a restart, in place",         true,  1, 2, 0, NOW,        false, {[RENEW] = 1}, false, true, 1},
    {"1, a takeover",                    true,  1, 1, 0, NOW,        false, {[MOVE] = 1}},
    {"1:2 with leases",                  true,  1, 2, 0, NOW,        true,  {0}},
    {"3 with leases",                    true,  3, 3, 0, NOW,        true,  {0}},
    {"2, an unhealthy node",             true,  2, 2, 0, NOW,        false, {[SICK] = 1}, CHECKS},

    {"1:2, a kill, a failure",           false, 1, 2, 0, NOW,        false, {[KILL] = 1, [FAIL] = 1}},
    {"2:3, a reset",                     false, 2, 3, 0, NOW,        false, {[RESET] = 1}},
    {"2:3, two resets",                  false, 2, 3, 0, NOW,        false, {[RESET] = 2}},
    {"2:3, two kills",                   false, 2, 3, 0, NOW,        false, {[KILL] = 2}},
    {"2:3, a leave",                     false, 2, 3, 0, NOW,        false, {[LEAVE] = 1}},
    {"2:3, a failure",                   false, 2, 3, 0, NOW,        false, {[FAIL] = 1}},
    {"3, a failure, of libddp",          false, 3, 3, 0, NOW,        false, {[FAIL] = 1}, true},
    {"1:2, a failure, of libddp, a reset", false, 1, 2, 0, NOW,      false, {[RESET] = 1, [FAIL] = 1}, true},
    {"2:3, a kill, a failure",           false, 2, 3, 0, NOW,        false, {[KILL] = 1, [FAIL] = 1}},
    {"2:3 at a checkpoint, a kill",      false, 2, 3, 0, SAVE_FIRST, false, {[KILL] = 1}},
    {"3, a failure, a restart",          false, 3, 3, 1, NOW,        false, {[FAIL] = 1}},
    {"3, a kill, a failure, a restart",  false, 3, 3, 1, NOW,        false, {[KILL] = 1, [FAIL] = 1}},
    {"2:3, a restart that is asked for", false, 2, 3, 0, NOW,        false, {[RENEW] = 1}},
    {"1:2, a restart, a kill",           false, 1, 2, 0, NOW,        false, {[RENEW] = 1, [KILL] = 1}},
    {"1:2, a restart, a failure",        false, 1, 2, 0, NOW,        false, {[RENEW] = 1, [FAIL] = 1}},
    {"1:2, a restart, a reset",          false, 1, 2, 0, NOW,        false, {[RENEW] = 1, [RESET] = 1}},
    {"2:3, in place",                    false, 2, 3, 0, NOW,        false, {0}, false, true, 2},
    {"2:3, a kill, in place",            false, 2, 3, 0, NOW,        false, {[KILL] = 1}, false, true, 1},
    {"1:2, a failure, in place, 2 steps", false, 1, 2, 1, NOW,       false, {[FAIL] = 1}, false, true, 2},
    {"3, a failure, in place",           false, 3, 3, 1, NOW,        false, {[FAIL] = 1}, false, true, 1},
    {"3, a failure, shrinking",          false, 3, 3, 1, NOW,        false, {[FAIL] = 1}, false, true, 1, true},
    {"1:2, two failures, shrinking",     false, 1, 2, 2, NOW,        false, {[FAIL] = 2}, false, true, 2, true},
    {"1:2, a kill, a failure, shrinking", false, 1, 2, 1, NOW,       false, {[KILL] = 1, [FAIL] = 1}, false, true, 1, true},
    {"1:2, a kill, a failure, in place", false, 1, 2, 1, NOW,        false, {[KILL] = 1, [FAIL] = 1}, false, true, 2},
    {"1:2, a takeover",                  false, 1, 2, 0, NOW,        false, {[MOVE] = 1}},
    {"1:2, a takeover, in place",        false, 1, 2, 0, NOW,        false, {[MOVE] = 1}, false, true, 1},
    {"1:2, a leave, in place",           false, 1, 2, 0, NOW,        false, {[LEAVE] = 1}, false, true, 2},
    {"1:2, a reset, in place",           false, 1, 2, 0, NOW,        false, {[RESET] = 1}, false, true, 2},
    {"1:2 with leases, in place",        false, 1, 2, 0, NOW,        true,  {0}, false, true, 1},
    {"2:3 with leases",                  false, 2, 3, 0, NOW,        true,  {0}},
    {"3 with leases, a slow message",    false, 3, 3, 0, NOW,        true,  {[SLOW] = 1}},
    {"1:2 with leases, a slow message",  false, 1, 2, 0, NOW,        true,  {[SLOW] = 1}},
    {"1:2 with leases, a kill",          false, 1, 2, 0, NOW,        true,  {[KILL] = 1}},
    {"1:2 with leases, a silence",       false, 1, 2, 0, NOW,        true,  {[SILENCE] = 1}},
    {"1:2, an unhealthy node",           false, 1, 2, 0, NOW,        false, {[SICK] = 1}, CHECKS},
    {"2:3, an unhealthy node",           false, 2, 3, 0, NOW,        false, {[SICK] = 1}, CHECKS},
    {"1:2, an unhealthy node, a kill",   false, 1, 2, 0, NOW,        false, {[SICK] = 1, [KILL] = 1}, CHECKS},
    {"1, an unhealthy node, a failure",  false, 1, 1, 1, NOW,        false, {[SICK] = 1, [FAIL] = 1}, CHECKS},
    {"1, a late check",                  false, 1, 1, 0, NOW,        false, {[SLOW] = 1}, CHECKS},
    {"1, an unhealthy node, a takeover", false, 1, 1, 0, NOW,        false, {[SICK] = 1, [MOVE] = 1}, CHECKS},
    {"1:2 at a checkpoint, an unhealthy node", false, 1, 2, 0, SAVE_FIRST, false, {[SICK] = 1}, CHECKS},
};
/* clang-format on */

/* SIM_STATES=N: of each no more than that, those that are come to first. SIM_ONLY=NAME: no
 * other. */
int main(int argc, char **argv)
{
    const char *most = getenv("SIM_STATES");
    const char *only = getenv("SIM_ONLY");
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    bool is_all = true;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        if (only != NULL ? strcmp(only, configs[i].name) == 0 : all || configs[i].is_quick)
            is_all &= explore(&configs[i], most != NULL ? strtoull(most, NULL, 10) : MAX_STATES);
    return is_all || most != NULL ? 0 : 1;
}
