/* sim_nodes - nodes of one job (tests/support/nodes.h): ddpruns that are started, killed,
 * signaled, cut off; ranks that fail, exit with 0, ignore signals; spawners that die or are slow.
 * In half of them ranks survive when others end.
 *
 * Each schedule is drawn from a seed. Checked after each event:
 *   - no two nodes run ranks of different generations, nor two ranks of one number; a node that is
 *     cut off does so for a lease at most, unless the job is over
 *   - what a node runs is what its member was given
 * and at the end, without further faults: every ddprun has ended and nothing runs; all that
 * received a verdict have the same exit status, and those that a signal stopped died of it. */
#include "schedules.h"

#include "tests/support/nodes.h"

#include "rendezvous/membership/lease.h"
#include "tests/support/chance.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_EVENTS = 40, MAX_GAP_MS = 3000, END_MS = 400000 };

#define EXIT_STATUS(code) ((code) << 8)

struct node {
    bool exists, is_cut;
    uint64_t cut_ms;
    int signal; /* the first that requests a stop; 0: none */
};

static uint64_t seed;
static struct chance chance;
static struct nodes *w;
static bool recovers;
static struct node nodes[NODES_MAX];

static uint64_t draw(uint64_t below)
{
    return chance_draw(&chance, below);
}

static void check(bool holds, int node, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms, n%d: %s\n", seed, nodes_now_ms(w), node,
            what);
    exit(1);
}

/* --- What must always hold --- */

/* In a generation. */
static bool runs(int node)
{
    return nodes[node].exists && nodes_look(w, node).n_running > 0 &&
           !nodes_look(w, node).is_parked;
}

/* Ranks of a node that others have given up, or will. */
static bool is_apart(int node)
{
    return nodes[node].is_cut;
}

static void check_pair(int a, int b)
{
    struct nodes_view one = nodes_look(w, a), other = nodes_look(w, b);
    if (is_apart(a) || is_apart(b))
        return;
    check(one.generation == other.generation, a, "two generations run at a time");
    check(one.world_size == other.world_size, a, "two worlds in a generation");
    check(one.first_rank + one.n_local <= other.first_rank ||
              other.first_rank + other.n_local <= one.first_rank,
          a, "a rank's number is there twice");
}

static void check_all(void)
{
    for (int i = 0; i < NODES_MAX; i++) {
        if (!runs(i))
            continue;
        struct nodes_view v = nodes_look(w, i);
        check(v.first_rank + v.n_local <= v.world_size, i, "a rank outside of the world");
        check(v.n_running <= (int)v.n_local, i, "more ranks run than have numbers");
        check(member_get_place(v.member)->generation == v.generation, i,
              "ranks of a generation that the node does not belong to");
        check(!nodes[i].is_cut || nodes_now_ms(w) - nodes[i].cut_ms <= LEASE_MS ||
                  roster_get_state(nodes_roster(w)) == ROSTER_CLOSED,
              i, "ranks outlive the lease");
        for (int j = 0; j < i; j++)
            if (runs(j))
                check_pair(j, i);
    }
}

/* In small steps, so that nothing that holds only for a moment is missed. */
static void advance(uint64_t ms)
{
    while (ms > 0) {
        uint64_t step_ms = 1 + draw(100);
        if (step_ms > ms)
            step_ms = ms;
        nodes_advance(w, step_ms);
        check_all();
        ms -= step_ms;
    }
}

/* --- What happens --- */

static void start_node(int i)
{
    nodes[i] = (struct node){.exists = true};
    nodes_slow_spawner(w, i, draw(3) == 0 ? draw(3000) : 0);
    nodes_start(w, i, false);
    if (draw(6) == 0)
        nodes_keep_ranks(w, i);
    if (draw(20) == 0)
        nodes_fail_starts(w, i, EACCES);
}

static void signal_node(int i)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
    int sig = signals[draw(3)];
    if (nodes[i].signal == 0 && sig != SIGUSR1)
        nodes[i].signal = sig;
    nodes_signal(w, i, sig);
}

static void end_some_rank(int i)
{
    int rank = (int)draw(NODES_LOCAL);
    const uint64_t how = draw(9);
    if (how == 0)
        nodes_exit_witness(w, i, rank, EXIT_STATUS(1), 1 - rank, SIGKILL);
    else if (how < 3)
        nodes_exit_consequence(w, i, rank, EXIT_STATUS(1));
    else if (how == 3)
        nodes_abort_rank(w, i, rank, EXIT_STATUS(77));
    else
        nodes_exit_rank(w, i, rank, draw(3) > 0 ? 0 : draw(2) == 0 ? EXIT_STATUS(3) : SIGSEGV);
}

static void part_some_rank(int i)
{
    nodes_part_rank(w, i, (int)draw(NODES_LOCAL));
}

static bool is_up(int i)
{
    return nodes[i].exists && !nodes_look(w, i).ended;
}

static void disturb(int i)
{
    uint64_t what = draw(16);
    if (!nodes[i].exists) {
        start_node(i);
    } else if (!is_up(i)) {
        if (what < 4)
            start_node(i);
    } else if (what < 7) {
        if (nodes_look(w, i).n_running == (int)nodes_look(w, i).n_local)
            end_some_rank(i);
    } else if (what == 7) {
        signal_node(i);
    } else if (what == 8) {
        nodes[i].exists = false;
        nodes_kill(w, i);
    } else if (what == 9 && !nodes[i].is_cut) {
        nodes[i].is_cut = true;
        nodes[i].cut_ms = nodes_now_ms(w);
        nodes_cut(w, i);
    } else if (what == 10 && draw(4) == 0) {
        nodes_lose_spawner(w, i);
    } else if (what == 11 && recovers) {
        part_some_rank(i);
    } else if (what > 12) {
        nodes_save(w, i);
    }
    check_all();
}

/* --- The end --- */

/* All that run exit with 0 from now on. */
static void calm_down(void)
{
    for (uint64_t until_ms = nodes_now_ms(w) + END_MS; nodes_now_ms(w) < until_ms;) {
        bool some_up = false;
        for (int i = 0; i < NODES_MAX; i++) {
            some_up |= is_up(i);
            for (int rank = 0; rank < NODES_LOCAL && runs(i); rank++)
                nodes_exit_rank(w, i, rank, 0);
        }
        if (!some_up)
            return;
        advance(1000);
    }
}

static void check_end(void)
{
    int verdict = -1;
    for (int i = 0; i < NODES_MAX; i++) {
        if (!nodes[i].exists)
            continue;
        struct nodes_view v = nodes_look(w, i);
        check(v.ended, i, "it does not end");
        check(v.n_running == 0, i, "ranks outlive their ddprun");
        const struct member_end *end = member_get_end(v.member);
        if (end->by_roster && (end->took_part || end->outcome != MESSAGE_WELL)) {
            check(verdict < 0 || v.exit_code == verdict, i, "not everybody says the same");
            verdict = v.exit_code;
        }
        check(v.die_of == 0 || v.die_of == nodes[i].signal, i, "dies of a signal that never came");
    }
}

static void run(uint64_t of_seed)
{
    seed = of_seed;
    chance = chance_from(seed);
    uint32_t min = 1 + (uint32_t)draw(2);
    struct message_terms terms = {.min_nodes = min,
                                  .max_nodes = min + (uint32_t)draw(3),
                                  .window_ms = draw(2) * 1000,
                                  .start_timeout_ms = 20000,
                                  .rejoin_timeout_ms = 20000,
                                  .max_restarts = (uint32_t)draw(4),
                                  .admit_at = draw(3) == 0 ? MESSAGE_ADMIT_AT_CHECKPOINT
                                                           : MESSAGE_ADMIT_NOW};
    w = nodes_create(&terms);
    nodes_await_cause(w, draw(3) * 2000);
    recovers = draw(2) == 0;
    if (recovers && draw(2) == 0)
        nodes_shrink(w);
    else if (recovers)
        nodes_recover(w);
    for (int i = 0; i < NODES_MAX; i++)
        nodes[i] = (struct node){0};
    for (int i = 0; i < N_EVENTS; i++) {
        disturb((int)draw(NODES_MAX));
        advance(draw(MAX_GAP_MS));
    }
    calm_down();
    check_end();
    nodes_destroy(w);
}

int main(void)
{
    const uint64_t n = schedules_run(1000, run);
    if (n > 0)
        printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 "\n", n, n);
    return 0;
}
