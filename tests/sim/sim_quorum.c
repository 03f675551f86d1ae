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
 * Variants, each with a rule about that lease left out, must be found to break this. */
#include "schedules.h"

#include "rendezvous/quorum/council.h"

#include "common/clock.h"
#include "tests/support/chance.h"

#include <string.h>

enum {
    MAX_PROCESSES = 6,
    MAX_MAILS = 512,
    MAX_DECISIONS = 4096,
    TICK_MS = 10,
    OFFER_MS = 1000,
    FAULTS_END_MS = 60000,
    END_MS = 75000,
    DRIFT_PERCENT = 6,
    HOST_MIN_MS = 300,    /* a host that does not answer for so long ... */
    HOST_MAX_MS = 1000,   /* ... up to so long is silent */
    LEASE_LATE_MS = 2000, /* so long the node takes to set a lease */
    MUTANT_RUNS = 3000,   /* a mutant has to be found within */
};

enum mutant { NO_MUTANT, NOT_RESERVED, ANSWERED_EARLY, NOT_STORED, FREED_EARLY, N_MUTANTS };
static const char *const mutant_names[] = {
    [NO_MUTANT] = "none",
    [NOT_RESERVED] = "no lease, and the voter obeys others",
    [ANSWERED_EARLY] = "the lease is reported before it is set",
    [NOT_STORED] = "no lease before the list is stored",
    [FREED_EARLY] = "a silent host frees its voters before its lease is over",
};

struct mail {
    uint64_t at_ms;
    uint32_t from, to;
    struct ballot ballot;
};

struct process {
    bool is_up, has_left;
    struct council council;
    uint64_t rate_percent, offset_ms; /* of its clock */
    uint64_t stopped_until_ms;        /* real time, as below */
    uint64_t offers_at_ms;

    bool has_roster; /* what its orders have come to: */
    uint64_t certain_until_ms;
    bool lacks_lease;            /* its node; the process itself may be stopped */
    uint64_t lease_due_ms;       /* when the council is obeyed about it; CO_NEVER_MS */
    struct elector_record knows; /* n_nodes 0: no generation yet */
    bool is_committing;
};

static struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    uint32_t n;
    struct process processes[MAX_PROCESSES];
    bool is_cut[MAX_PROCESSES][MAX_PROCESSES]; /* from, to */
    struct mail mails[MAX_MAILS];
    uint32_t n_mails;
    uint32_t decided[MAX_DECISIONS]; /* marks of generations, in order */
    uint32_t n_decisions, n_marks;
    uint64_t loses_one_in;
    uint64_t host_ms; /* 0: no host is reported as silent */
    enum mutant mutant;
    const char *broken; /* a mutant */
} world;

static struct totals {
    uint64_t n_leaders, n_decisions, n_killed, n_left, n_hand_overs, n_changes, n_early, n_unleased,
        n_silent;
} totals;

static uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

static void check(const struct world *w, bool holds, const char *what)
{
    if (holds)
        return;
    if (w->mutant != NO_MUTANT) {
        world.broken = what;
        return;
    }
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms: %s\n", w->seed, w->now_ms, what);
    exit(1);
}

static uint64_t clock_ms(const struct world *w, const struct process *p)
{
    return p->offset_ms + w->now_ms * p->rate_percent / 100;
}

static bool is_awake(const struct world *w, const struct process *p)
{
    return p->is_up && w->now_ms >= p->stopped_until_ms;
}

static uint32_t index_of(const struct world *w, const struct process *p)
{
    return (uint32_t)(p - w->processes);
}

static bool leads(const struct world *w, const struct process *p)
{
    return p->is_up && p->has_roster &&
           clock_ms(w, p) < quorum_proposer_end_ms(&p->council.proposer);
}

/* --- messages --- */

static void post(struct world *w, uint32_t from, uint32_t to, const struct ballot *b)
{
    if (w->is_cut[from][to] || w->n_mails == MAX_MAILS ||
        (w->loses_one_in > 0 && draw(w, w->loses_one_in) == 0))
        return;
    const uint64_t delay_ms = draw(w, 20) == 0 ? draw(w, 2000) : draw(w, 5);
    w->mails[w->n_mails++] =
        (struct mail){.at_ms = w->now_ms + delay_ms, .from = from, .to = to, .ballot = *b};
}

static struct elector_address address_of(uint32_t i)
{
    return (struct elector_address){.host = "sim", .port = (uint16_t)(i + 1)};
}

static void send_to(struct world *w, struct process *p, const struct ballot *b,
                    const struct ballot_voter *to, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        check(w, to[i].at.port == to[i].id, "a process has another one's address");
        post(w, index_of(w, p), (uint32_t)to[i].id - 1, b);
    }
}

/* --- generations --- */

/* n_restarts is the mark of a generation, and world_size that of the one that it follows. The
 * process that wrote a record may learn of it later than another one that has written it again. */
static void note_decision(struct world *w, const struct elector_record *r)
{
    for (uint32_t i = 0; i < w->n_decisions; i++)
        if (w->decided[i] == r->n_restarts)
            return;
    check(w, r->world_size == w->decided[w->n_decisions - 1],
          "a generation does not follow the last one");
    check(w, w->n_decisions < MAX_DECISIONS, "more decisions than there is room for");
    w->decided[w->n_decisions++] = r->n_restarts;
}

static void obey(struct world *w, struct process *p, const struct council_orders *o)
{
    struct ballot_voter to[QUORUM_MAX_ASKED];
    struct ballot b;
    if (o->lease)
        p->lease_due_ms = w->now_ms + draw(w, LEASE_LATE_MS);
    if (o->give_up)
        p->has_roster = false;
    if (o->doubt)
        p->certain_until_ms = 0;
    if (o->certain)
        p->certain_until_ms = o->certain_until_ms;
    if (o->make) {
        check(w, !p->has_roster, "a second roster is made");
        schedules_tell(w->now_ms, "%u coordinates", index_of(w, p) + 1);
        p->has_roster = true;
        p->is_committing = false;
        p->knows = o->has_past ? o->past : (struct elector_record){0};
        if (o->has_past)
            note_decision(w, &o->past);
        totals.n_leaders++;
    }
    if (o->committed && p->is_committing) {
        check(w, p->has_roster, "a record is committed without a roster");
        p->is_committing = false;
        note_decision(w, &p->knows);
    }
    totals.n_changes += o->voters;
    council_question(&p->council, &b);
    if (o->ask)
        send_to(w, p, &b, to, council_asked(&p->council, to));
    council_record(&p->council, &b);
    if (o->repeat)
        send_to(w, p, &b, &o->missed, 1);
    b = (struct ballot){.type = BALLOT_READ, .job = p->council.job, .from = p->council.id};
    if (o->read)
        send_to(w, p, &b, to, council_offers(&p->council, to));
    if (o->over && p->has_left)
        p->is_up = false;
}

static void deliver(struct world *w, const struct mail *mail)
{
    struct process *p = &w->processes[mail->to];
    struct council_orders orders;
    struct ballot answer;
    if (w->mutant == NOT_RESERVED)
        p->council.voter.is_reserved = false;
    council_take(&p->council, &mail->ballot, clock_ms(w, p), &answer, &orders);
    if (mail->ballot.type != BALLOT_VOTE)
        post(w, mail->to, mail->from, &answer);
    obey(w, p, &orders);
}

static void deliver_due(struct world *w)
{
    for (uint32_t i = 0; i < w->n_mails;) {
        const struct process *p = &w->processes[w->mails[i].to];
        if (w->mails[i].at_ms > w->now_ms || (p->is_up && !is_awake(w, p))) {
            i++;
            continue;
        }
        static struct mail mail;
        mail = w->mails[i];
        if (draw(w, 50) != 0) /* else once more */
            w->mails[i] = w->mails[--w->n_mails];
        else
            w->mails[i].at_ms = w->now_ms + draw(w, 3000);
        if (p->is_up)
            deliver(w, &mail);
    }
}

/* --- what a process does by itself --- */

static const struct process *find_leader(const struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (leads(w, &w->processes[i]))
            return &w->processes[i];
    return NULL;
}

static void offer(struct world *w, struct process *p)
{
    const struct process *leader = find_leader(w);
    const uint32_t i = index_of(w, p);
    if (clock_ms(w, p) < p->offers_at_ms || leader == NULL || leader == p || p->has_left)
        return;
    p->offers_at_ms = clock_ms(w, p) + OFFER_MS;
    const struct ballot b = {.type = BALLOT_OFFER,
                             .job = p->council.job,
                             .from = i + 1,
                             .at = address_of(i),
                             .order = i};
    post(w, i, index_of(w, leader), &b);
}

static void begin_generation(struct world *w, struct process *p)
{
    struct council_orders orders;
    if (!p->has_roster || p->is_committing || p->has_left || draw(w, 60) != 0)
        return;
    p->knows = (struct elector_record){.generation = p->knows.generation + 1,
                                       .n_nodes = 1,
                                       .world_size = p->knows.n_restarts,
                                       .n_restarts = ++w->n_marks};
    p->is_committing = true;
    council_commit(&p->council, &p->knows, clock_ms(w, p), &orders);
    obey(w, p, &orders);
}

static void report_leased(struct world *w, struct process *p)
{
    struct council_orders orders;
    council_note_leased(&p->council, clock_ms(w, p), &orders);
    obey(w, p, &orders);
}

/* Nothing of a process that has left runs. */
static void set_lease(struct world *w, struct process *p)
{
    const enum council_lease lease = council_get_lease(&p->council);
    const struct quorum_proposer *q = &p->council.proposer;
    if (w->mutant == ANSWERED_EARLY && lease == COUNCIL_LEASE_AWAITED)
        report_leased(w, p);
    if (w->mutant == NOT_STORED && q->phase == QUORUM_WRITING && q->next.voters.n <= 2)
        p->lacks_lease = true;
    if (w->now_ms < p->lease_due_ms)
        return;
    p->lease_due_ms = CO_NEVER_MS;
    totals.n_unleased += lease == COUNCIL_LEASE_OFF && !p->lacks_lease;
    p->lacks_lease = lease == COUNCIL_LEASE_OFF && !p->has_left;
    if (lease == COUNCIL_LEASE_AWAITED)
        report_leased(w, p);
}

/* Nothing that is decided relies on a report that is right. */
static void draw_silence(struct world *w, struct process *p)
{
    struct council_orders orders;
    if (w->host_ms == 0 || w->now_ms >= FAULTS_END_MS || draw(w, 100) != 0)
        return;
    const bool is_silent = draw(w, 2) == 0;
    totals.n_silent += is_silent;
    council_note_silent(&p->council, is_silent, clock_ms(w, p), &orders);
    obey(w, p, &orders);
}

static void live_on(struct world *w, struct process *p)
{
    struct council_orders orders;
    set_lease(w, p);
    draw_silence(w, p);
    if (clock_ms(w, p) >= council_deadline_ms(&p->council)) {
        council_time(&p->council, clock_ms(w, p), &orders);
        obey(w, p, &orders);
    }
    offer(w, p);
    begin_generation(w, p);
}

/* --- faults --- */

static uint32_t n_up(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->processes[i].is_up;
    return n;
}

/* The others find its port refused, or only its silence. */
static void kill_process(struct world *w, struct process *p)
{
    const struct elector_address at = address_of(index_of(w, p));
    const bool is_found = draw(w, 2) == 0;
    if (n_up(w) <= 2 || !p->is_up)
        return;
    schedules_tell(w->now_ms, "%u is killed%s", at.port, is_found ? ", which is noticed" : "");
    totals.n_killed++;
    totals.n_early += is_found;
    p->is_up = false;
    for (uint32_t i = 0; i < w->n && is_found; i++) {
        struct process *other = &w->processes[i];
        struct council_orders orders;
        if (!is_awake(w, other) || w->is_cut[i][at.port - 1] || w->is_cut[at.port - 1][i])
            continue;
        council_note_ended(&other->council, &at, clock_ms(w, other), &orders);
        obey(w, other, &orders);
    }
}

static void leave(struct world *w, struct process *p)
{
    struct council_orders orders;
    const struct elector_record last = p->knows;
    if (n_up(w) <= 2 || !is_awake(w, p) || p->has_left || p->is_committing)
        return;
    schedules_tell(w->now_ms, "%u leaves", index_of(w, p) + 1);
    totals.n_left++;
    totals.n_hand_overs += p->has_roster;
    p->has_left = true;
    p->lacks_lease = false;
    council_resign(&p->council, p->has_roster ? &last : NULL, clock_ms(w, p), &orders);
    p->has_roster = false;
    obey(w, p, &orders);
}

static void draw_fault(struct world *w)
{
    const uint32_t i = (uint32_t)draw(w, w->n), k = (uint32_t)draw(w, w->n);
    struct process *p = &w->processes[i];
    switch (draw(w, 8)) {
    case 0:
        kill_process(w, p);
        break;
    case 1:
        leave(w, p);
        break;
    case 2:
        p->stopped_until_ms = w->now_ms + draw(w, 10000);
        break;
    case 3:
        w->is_cut[i][k] = i != k && !w->is_cut[i][k];
        break;
    case 4: /* a set of processes from the others */
        for (uint32_t a = 0; a < w->n; a++)
            for (uint32_t b = 0; b < w->n; b++)
                w->is_cut[a][b] = (a <= i) != (b <= i);
        break;
    default:
        memset(w->is_cut, 0, sizeof w->is_cut);
        break;
    }
}

/* --- a schedule --- */

static void world_init(struct world *w, uint64_t seed, enum mutant mutant)
{
    struct council_orders orders;
    *w = (struct world){
        .seed = seed, .chance = chance_from(seed), .n_decisions = 1, .mutant = mutant};
    for (int i = 0; i < 4; i++)
        draw(w, 2);
    w->n = 2 + (uint32_t)draw(w, MAX_PROCESSES - 1);
    w->loses_one_in = draw(w, 2) == 0 ? 0 : 3 + draw(w, 20);
    if (seed % 3 == 0)
        w->host_ms = HOST_MIN_MS + draw(w, HOST_MAX_MS - HOST_MIN_MS + 1);
    const struct council_limits limits =
        w->host_ms > 0 ? council_limits_with(w->host_ms) : council_usual_limits;
    for (uint32_t i = 0; i < w->n; i++) {
        struct process *p = &w->processes[i];
        const struct elector_address at = address_of(i);
        *p = (struct process){.is_up = true,
                              .rate_percent = 100 - DRIFT_PERCENT + draw(w, 2 * DRIFT_PERCENT + 1),
                              .offset_ms = 1 + draw(w, 1000000),
                              .lease_due_ms = CO_NEVER_MS};
        council_init(&p->council, &limits, i + 1, &at, seed % 8 != 0);
        if (mutant == FREED_EARLY) { /* it obeys for as long, unless the host is silent */
            struct quorum_limits *l = &p->council.voter.limits;
            l->stay_ms += l->lease_ms + l->margin_ms;
            l->lease_ms = l->margin_ms = 0;
        }
    }
    struct process *founder = &w->processes[0];
    council_found(&founder->council, 1 + draw(w, 1000), clock_ms(w, founder), &orders);
    obey(w, founder, &orders);
}

static void check_leaders(const struct world *w)
{
    uint32_t n_leads = 0, n_certain = 0, n_unleased = 0, n_leased = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *p = &w->processes[i];
        n_leads += leads(w, p);
        n_unleased += p->is_up && p->lacks_lease;
        n_leased += leads(w, p) && !p->lacks_lease;
        n_certain += p->is_up && p->has_roster && clock_ms(w, p) < p->certain_until_ms;
        check(w,
              !is_awake(w, p) || p->council.is_over ||
                  !quorum_list_has(&p->council.voter.record.voters, p->council.id) ||
                  council_deadline_ms(&p->council) != CO_NEVER_MS || !p->council.stands,
              "a council waits for nothing");
    }
    check(w, n_unleased <= 1, "the nodes of two processes have no lease");
    check(w, n_unleased == 0 || n_leased == 0,
          "a process coordinates while the node of another one has no lease");
    check(w, n_leads <= 1, "two processes are the coordinator");
    check(w, n_certain <= 1, "two processes renew leases");
}

/* The newest record that a process which lives has stored decides whether enough voters live. A
 * council that does not stand takes over only from one that has resigned. */
static void check_end(const struct world *w)
{
    struct quorum_record newest = {0};
    const struct process *leader = find_leader(w);
    struct quorum_set up = {0};
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *p = &w->processes[i];
        if (!p->is_up)
            continue;
        quorum_set_add(&up, i + 1);
        if (quorum_record_compare(&p->council.voter.record, &newest) > 0)
            newest = p->council.voter.record;
    }
    const bool could = quorum_carries_record(&up, &newest) && w->processes[0].council.stands;
    check(w, leader != NULL || !could, "no process leads, although it could");
    check(w, leader == NULL || leader->council.proposer.newest.voters.n > 2 || leader->lacks_lease,
          "no other process can take over, and the node still needs a lease");
    for (uint32_t i = 0; i < w->n && leader != NULL; i++) {
        const struct process *p = &w->processes[i];
        check(w,
              !p->is_up || p == leader ||
                  !quorum_list_has(&leader->council.proposer.newest.voters, i + 1) ||
                  p->council.voter.record.term.owner == leader->council.id,
              "a voter does not follow the coordinator");
        check(w, p == leader || !p->is_up || !p->has_roster, "a roster was not dropped");
    }
}

static void end_faults(struct world *w)
{
    memset(w->is_cut, 0, sizeof w->is_cut);
    w->loses_one_in = 0;
    for (uint32_t i = 0; i < w->n; i++)
        w->processes[i].stopped_until_ms = 0;
}

static void run_mutant(uint64_t seed, enum mutant mutant)
{
    struct world *w = &world;
    world_init(w, seed, mutant);
    for (; w->now_ms < END_MS && w->broken == NULL; w->now_ms += TICK_MS) {
        if (w->now_ms < FAULTS_END_MS && draw(w, 200) == 0)
            draw_fault(w);
        if (w->now_ms == FAULTS_END_MS)
            end_faults(w);
        deliver_due(w);
        for (uint32_t i = 0; i < w->n; i++)
            if (is_awake(w, &w->processes[i]))
                live_on(w, &w->processes[i]);
        check_leaders(w);
    }
    if (w->broken == NULL)
        check_end(w);
    totals.n_decisions += w->n_decisions - 1;
}

static void run(uint64_t seed)
{
    run_mutant(seed, NO_MUTANT);
}

/* A simulator that finds nothing proves something only if it can find. */
static bool find_mutant(enum mutant mutant)
{
    uint64_t seed = 0;
    do
        run_mutant(++seed, mutant);
    while (world.broken == NULL && seed < MUTANT_RUNS);
    if (world.broken == NULL)
        fprintf(stderr, "%s: not found in %d schedules\n", mutant_names[mutant], MUTANT_RUNS);
    else
        printf("%s: found by seed %" PRIu64 ": %s\n", mutant_names[mutant], seed, world.broken);
    return world.broken != NULL;
}

int main(void)
{
    const uint64_t n = schedules_run(500, run);
    bool well = true;
    if (n > 0)
        printf(
            "%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " coordinators, %" PRIu64
            " generations, %" PRIu64 " news of voters; %" PRIu64 " processes killed, %" PRIu64
            " of them noticed at once; %" PRIu64 " left, %" PRIu64 " of them coordinators; %" PRIu64
            " times a node needed no lease; %" PRIu64 " hosts reported as silent\n",
            n, n, totals.n_leaders, totals.n_decisions, totals.n_changes, totals.n_killed,
            totals.n_early, totals.n_left, totals.n_hand_overs, totals.n_unleased, totals.n_silent);
    for (int m = NO_MUTANT + 1; n > 0 && m < N_MUTANTS; m++)
        well &= find_mutant((enum mutant)m);
    return well ? 0 : 1;
}
