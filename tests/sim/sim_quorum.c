/* sim_quorum - the processes of a job, each with a council, on virtual time.
 *
 * Councils, voters and proposers are the real ones. Each process has its own clock, which runs up
 * to 6% too fast or too slow. Messages are late, lost, and repeated; links are cut one way or both
 * ways; processes are stopped and continued, leave, and are killed for good, of which others learn
 * by chance. A process with a roster begins generations at random; those without one offer to vote
 * to the process that coordinates. Schedules are drawn from seeds. Checked at every step:
 *   - at most one process is the coordinator, each by its own clock, and at most one renews leases
 *   - a generation follows the last one: no two rosters begin one from the same
 *   - while the node of a process has no lease, no other process coordinates
 *   - in a part of the schedules hosts are reported as silent at any time, rightly or wrongly
 *   - each council has a deadline while it waits for something
 * and at the end, when links are whole again: if enough voters live, one of them leads, and all
 * voters obey it; and where no other process can take over, its node needs no lease.
 *
 * Where of two voters one takes over alone (limits.quorum.alone), the same holds as long as the
 * network is whole and one fault comes at a time. With cuts a job has to be found to run twice, and
 * to be one again at the end.
 *
 * Where the first process, which was killed, is started again and begins the job once more, two
 * generations never run at a time; but they must be found to do so where the network is cut, the
 * minimum is at most half of the nodes, and a lost coordinator is replaced nevertheless
 * (endpoint=once).
 *
 * Variants, each with a rule left out, must be found to break this. */
#include "quorum_world.h"

#include "common/clock.h"

enum {
    TICK_MS = 10,
    END_MS = 75000,
    MUTANT_RUNS = 3000, /* a mutant has to be found within */
    ALONE_RUNS = 300,   /* usually */
};

static const char *const mutant_names[] = {
    [NO_MUTANT] = "none",
    [NOT_RESERVED] = "no lease, and the voter obeys others",
    [ANSWERED_EARLY] = "the lease is reported before it is set",
    [NOT_STORED] = "no lease before the list is stored",
    [FREED_EARLY] = "a silent host frees its voters before its lease is over",
    [REPLACED_EARLY] = "a candidate replaces a coordinator that claims again within its lease",
    [DOES_NOT_WAIT] = "alone: the first of two does not ask whether the other one took over",
    [NOT_AGREED] = "alone: the first of two does not know that the other one may take over",
    [NOT_ANSWERED] = "alone: an answer of the other one does not count",
};

/* --- faults --- */

static void draw_fault(struct world *w)
{
    const uint32_t i = (uint32_t)world_draw(w, w->n), k = (uint32_t)world_draw(w, w->n);
    struct process *p = &w->processes[i];
    switch (world_draw(w, 8)) {
    case 0:
        world_kill(w, p);
        break;
    case 1:
        world_leave(w, p);
        break;
    case 2:
        p->stopped_until_ms = w->now_ms + world_draw(w, 10000);
        break;
    case 3:
        w->is_cut[i][k] = i != k && !w->is_cut[i][k];
        break;
    case 4: /* a set of processes from the others */
        world_part(w, i);
        break;
    default:
        world_mend(w);
        break;
    }
}

/* All that run vote, or five of them do, and have the newest record. */
static bool is_whole(const struct world *w)
{
    const struct process *leader = world_find_leader(w);
    const uint32_t n_up = world_n_up(w);
    if (leader == NULL || leader->has_left)
        return false;
    const struct quorum_record *r = &leader->council.proposer.newest;
    bool well = r->settled &&
                r->voters.n == (n_up < QUORUM_MAX_VOTERS ? n_up : (uint32_t)QUORUM_MAX_VOTERS);
    for (uint32_t i = 0; well && i < w->n; i++) {
        const struct process *p = &w->processes[i];
        if (!p->is_up)
            continue;
        const bool votes = quorum_list_has(&r->voters, p->council.id);
        well = world_is_awake(w, p) && !p->has_left &&
               (!votes || (p->council.voter.record.settled &&
                           quorum_record_compare(&p->council.voter.record, r) == 0));
    }
    return well;
}

static void draw_one_fault(struct world *w)
{
    struct process *p = &w->processes[world_draw(w, w->n)];
    if (!is_whole(w))
        return;
    switch (world_draw(w, 4)) {
    case 0:
        world_kill(w, p);
        break;
    case 1:
        world_leave(w, p);
        break;
    default:
        p->stopped_until_ms = w->now_ms + world_draw(w, 10000);
        break;
    }
}

/* The first process is killed once, and started again at any time. */
static void draw_beginning(struct world *w)
{
    const uint32_t last = (uint32_t)world_draw(w, w->n);
    struct process *founder = &w->processes[0];
    switch (world_draw(w, 4)) {
    case 0:
        if (w->n_begun == 0 && w->n_decisions > 1)
            world_kill(w, founder);
        break;
    case 1:
        world_part(w, last);
        break;
    case 2:
        world_mend(w);
        break;
    default:
        if (w->n_begun == 0)
            world_begin_again(w);
        break;
    }
}

static void draw_faults(struct world *w)
{
    if (world_draw(w, 200) != 0)
        return;
    if (w->kind == ALONE_WHOLE)
        draw_one_fault(w);
    else if (w->kind == BEGUN_AGAIN)
        draw_beginning(w);
    else
        draw_fault(w);
}

/* --- what must hold --- */

static void check_leaders(const struct world *w)
{
    uint32_t n_leads = 0, n_certain = 0, n_unleased = 0, n_leased = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *p = &w->processes[i];
        n_leads += world_leads(w, p);
        n_unleased += p->is_up && p->lacks_lease;
        n_leased += world_leads(w, p) && !p->lacks_lease;
        n_certain += p->is_up && p->has_roster && world_clock_ms(w, p) < p->certain_until_ms;
        world_check(w,
                    !world_is_awake(w, p) || p->council.is_over ||
                        !quorum_list_has(&p->council.voter.record.voters, p->council.id) ||
                        council_deadline_ms(&p->council) != CO_NEVER_MS || !p->council.stands,
                    "a council waits for nothing");
    }
    if (w->kind == ALONE_CUT || w->kind == BEGUN_AGAIN)
        return;
    world_check(w, n_unleased <= 1, "the nodes of two processes have no lease");
    world_check(w, n_unleased == 0 || n_leased == 0,
                "a process coordinates while the node of another one has no lease");
    world_check(w, n_leads <= 1, "two processes are the coordinator");
    world_check(w, n_certain <= 1, "two processes renew leases");
}

static bool is_alone(const struct world *w)
{
    return w->kind == ALONE_WHOLE || w->kind == ALONE_CUT;
}

static bool is_small(const struct quorum_list *l, uint64_t id)
{
    return l->n <= 2 && quorum_list_has(l, id);
}

/* One of these processes may continue alone. */
static bool has_small(const struct quorum_set *up, const struct quorum_record *r)
{
    bool has = false;
    for (uint32_t i = 0; i < up->n; i++)
        has |= is_small(&r->voters, up->ids[i]) && (r->settled || is_small(&r->before, up->ids[i]));
    return has;
}

/* The newest record that a process which lives has stored decides whether enough voters live. A
 * council that does not stand takes over only from one that has resigned. */
static void check_end(const struct world *w)
{
    struct quorum_record newest = {0};
    const struct process *leader = world_find_leader(w);
    struct quorum_set up = {0};
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *p = &w->processes[i];
        if (!p->is_up)
            continue;
        quorum_set_add(&up, i + 1);
        if (quorum_record_compare(&p->council.voter.record, &newest) > 0)
            newest = p->council.voter.record;
    }
    const bool may = is_alone(w) && has_small(&up, &newest);
    const bool could =
        (quorum_carries_record(&up, &newest) || may) && w->processes[w->n - 1].council.stands;
    world_check(w, leader != NULL || !could, "no process leads, although it could");
    world_check(w,
                leader == NULL || is_alone(w) || leader->council.proposer.newest.voters.n > 2 ||
                    leader->lacks_lease,
                "no other process can take over, and the node still needs a lease");
    for (uint32_t i = 0; i < w->n && leader != NULL; i++) {
        const struct process *p = &w->processes[i];
        world_check(w,
                    !p->is_up || p == leader ||
                        !quorum_list_has(&leader->council.proposer.newest.voters, i + 1) ||
                        p->council.voter.record.term.owner == leader->council.id,
                    "a voter does not follow the coordinator");
        world_check(w, p == leader || !p->is_up || !p->has_roster, "a roster was not dropped");
    }
}

/* A job runs with a coordinator that has begun a generation, and enough nodes. That two do so is
 * documented only where the minimum is at most half, and a lost coordinator is replaced. */
static void check_jobs(const struct world *w)
{
    bool runs_first = false, runs_again = false;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *p = &w->processes[i];
        if (!world_leads(w, p) || p->knows.n_nodes == 0 || p->is_committing ||
            world_n_reached(w, p) < w->min_nodes)
            continue;
        runs_first |= p->council.job == w->job;
        runs_again |= p->council.job != w->job;
    }
    const bool is_documented = w->stands && 2 * w->min_nodes <= w->n;
    world.is_split |= runs_first && runs_again;
    world_check(w, is_documented || !runs_first || !runs_again, "the job runs twice");
}

/* --- a schedule --- */

static void end_faults(struct world *w)
{
    world_mend(w);
    w->loses_one_in = 0;
    for (uint32_t i = 0; i < w->n; i++)
        w->processes[i].stopped_until_ms = 0;
}

static void run_one(uint64_t seed, enum kind kind, enum mutant mutant)
{
    struct world *w = &world;
    world_init(w, seed, kind, mutant);
    for (; w->now_ms < END_MS && w->broken == NULL; w->now_ms += TICK_MS) {
        if (w->now_ms < FAULTS_END_MS)
            draw_faults(w);
        if (w->now_ms == FAULTS_END_MS)
            end_faults(w);
        world_deliver(w);
        for (uint32_t i = 0; i < w->n; i++)
            if (world_is_awake(w, &w->processes[i]))
                world_live_on(w, &w->processes[i]);
        check_leaders(w);
        if (kind == BEGUN_AGAIN)
            check_jobs(w);
    }
    if (w->broken == NULL && kind != BEGUN_AGAIN)
        check_end(w);
    totals.n_decisions += w->n_decisions - 1;
    totals.n_split += w->is_split;
}

static void run(uint64_t seed)
{
    run_one(seed, MAJORITY, NO_MUTANT);
}

static void run_whole(uint64_t seed)
{
    run_one(seed, ALONE_WHOLE, NO_MUTANT);
}

static void run_cut(uint64_t seed)
{
    run_one(seed, ALONE_CUT, NO_MUTANT);
}

static void run_again(uint64_t seed)
{
    run_one(seed, BEGUN_AGAIN, NO_MUTANT);
}

/* --- what is to be found --- */

/* A simulator that finds nothing proves something only if it can find. */
static bool find_mutant(enum mutant mutant)
{
    const enum kind kind = mutant < DOES_NOT_WAIT ? MAJORITY : ALONE_WHOLE;
    uint64_t seed = 0;
    do
        run_one(++seed, kind, mutant);
    while (world.broken == NULL && seed < MUTANT_RUNS);
    if (world.broken == NULL)
        fprintf(stderr, "%s: not found in %d schedules\n", mutant_names[mutant], MUTANT_RUNS);
    else
        printf("%s: found by seed %" PRIu64 ": %s\n", mutant_names[mutant], seed, world.broken);
    return world.broken != NULL;
}

static void print_totals(const char *what, uint64_t n)
{
    printf("%s: %" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " coordinators, %" PRIu64
           " generations, %" PRIu64 " news of voters; %" PRIu64 " processes killed, %" PRIu64
           " of them noticed at once; %" PRIu64 " left, %" PRIu64 " of them coordinators; %" PRIu64
           " times a node needed no lease; %" PRIu64 " hosts reported as silent\n",
           what, n, n, totals.n_leaders, totals.n_decisions, totals.n_changes, totals.n_killed,
           totals.n_early, totals.n_left, totals.n_hand_overs, totals.n_unleased, totals.n_silent);
}

static bool find_alone(void)
{
    totals = (struct totals){0};
    print_totals("alone, one fault at a time", schedules_run(ALONE_RUNS, run_whole));
    totals = (struct totals){0};
    print_totals("alone, with cuts", schedules_run(ALONE_RUNS, run_cut));
    printf("%" PRIu64 " of these jobs ran twice, and were one at the end; %" PRIu64
           " rosters were given up for that\n",
           totals.n_split, totals.n_merged);
    if (totals.n_split == 0)
        fprintf(stderr, "alone, with cuts: no job was found that ran twice\n");
    return totals.n_split > 0;
}

static bool find_second_beginning(void)
{
    totals = (struct totals){0};
    const uint64_t n = schedules_run(ALONE_RUNS, run_again);
    printf("begun again: %" PRIu64 " schedules, %" PRIu64 " coordinators, %" PRIu64
           " generations; %" PRIu64 " jobs ran twice, all as documented; %" PRIu64
           " processes changed to the second one\n",
           n, totals.n_leaders, totals.n_decisions, totals.n_split, totals.n_moved);
    if (totals.n_split == 0)
        fprintf(stderr, "begun again: no job was found that ran twice\n");
    return totals.n_split > 0;
}

/* SIM_KIND: with SIM_SEED, the kind of the schedule that is replayed. */
int main(void)
{
    const char *kind = getenv("SIM_KIND");
    if (schedules_are_told() && kind != NULL) {
        run_one(strtoull(getenv("SIM_SEED"), NULL, 10), (enum kind)atoi(kind), NO_MUTANT);
        return 0;
    }
    const uint64_t n = schedules_run(500, run);
    bool well = true;
    if (n > 0)
        print_totals("majority", n);
    for (int m = NO_MUTANT + 1; n > 0 && m < N_MUTANTS; m++)
        well &= find_mutant((enum mutant)m);
    if (n > 0) {
        well &= find_alone();
        well &= find_second_beginning();
    }
    return well ? 0 : 1;
}
