#include "quorum_world.h"

#include "common/clock.h"

#include <string.h>

enum {
    OFFER_MS = 1000,
    LATE_MS = 10,
    LEASE_LATE_MS = 2000, /* a node sets a lease within this time */
    NODE_LEASE_MS = 3500, /* BEGUN_AGAIN: a node that hears no coordinator then looks for one */
    IDS = 100,            /* a process that was begun again has an id that is higher by this */
};

struct world world;
struct totals totals;

uint64_t world_draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

void world_check(const struct world *w, bool holds, const char *what)
{
    if (holds)
        return;
    if (w->mutant != NO_MUTANT) {
        world.broken = what;
        return;
    }
    fprintf(stderr, "kind %d, seed %" PRIu64 ", at %" PRIu64 " ms: %s\n", (int)w->kind, w->seed,
            w->now_ms, what);
    exit(1);
}

uint64_t world_clock_ms(const struct world *w, const struct process *p)
{
    return p->offset_ms + w->now_ms * p->rate_percent / 100;
}

bool world_is_awake(const struct world *w, const struct process *p)
{
    return p->is_up && w->now_ms >= p->stopped_until_ms;
}

static uint32_t index_of(const struct world *w, const struct process *p)
{
    return (uint32_t)(p - w->processes);
}

bool world_leads(const struct world *w, const struct process *p)
{
    return p->is_up && p->has_roster &&
           world_clock_ms(w, p) < quorum_proposer_end_ms(&p->council.proposer);
}

/* --- messages --- */

static void post(struct world *w, uint32_t from, uint32_t to, const struct ballot *b)
{
    if (w->is_cut[from][to] || w->n_mails == MAX_MAILS ||
        (w->loses_one_in > 0 && world_draw(w, w->loses_one_in) == 0))
        return;
    const bool is_late = w->kind != ALONE_WHOLE && world_draw(w, 20) == 0;
    const uint64_t delay_ms = is_late ? world_draw(w, 2000) : world_draw(w, 5);
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
        world_check(w, to[i].at.port == to[i].id % IDS, "a process has another one's address");
        post(w, index_of(w, p), (uint32_t)to[i].at.port - 1, b);
    }
}

/* --- generations --- */

/* n_restarts is the mark of a generation, and world_size that of the one that it follows. The
 * process that wrote a record may learn of it later than another one that has written it again. */
static void note_decision(struct world *w, const struct process *p, const struct elector_record *r)
{
    if (p->council.job != w->job)
        return;
    for (uint32_t i = 0; i < w->n_decisions; i++)
        if (w->decided[i] == r->n_restarts)
            return;
    const bool follows = r->world_size == w->decided[w->n_decisions - 1];
    w->is_split |= !follows;
    world_check(w, follows || w->kind == ALONE_CUT, "a generation does not follow the last one");
    world_check(w, w->n_decisions < MAX_DECISIONS, "more decisions than there is room for");
    w->decided[w->n_decisions++] = r->n_restarts;
}

static void obey(struct world *w, struct process *p, const struct council_orders *o)
{
    struct ballot_voter to[QUORUM_MAX_ASKED];
    struct ballot b;
    if (o->lease)
        p->lease_due_ms = w->now_ms + world_draw(w, LEASE_LATE_MS);
    if (o->give_up)
        p->has_roster = false;
    if (o->doubt)
        p->certain_until_ms = 0;
    if (o->certain)
        p->certain_until_ms = o->certain_until_ms;
    if (o->make) {
        world_check(w, !p->has_roster, "a second roster is made");
        schedules_tell(w->now_ms, "%u coordinates", index_of(w, p) + 1);
        p->has_roster = true;
        p->is_committing = false;
        p->knows = o->has_past ? o->past : (struct elector_record){0};
        if (o->has_past)
            note_decision(w, p, &o->past);
        totals.n_leaders++;
    }
    if (o->committed && p->is_committing) {
        world_check(w, p->has_roster, "a record is committed without a roster");
        p->is_committing = false;
        note_decision(w, p, &p->knows);
    }
    totals.n_changes += o->voters;
    totals.n_merged += o->merges;
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

/* A coordinator calls where the job was begun again. */
static bool must_yield(const struct world *w, const struct process *p, const struct ballot *b)
{
    return w->kind == BEGUN_AGAIN && b->type == BALLOT_OFFER && p->has_roster &&
           p->knows.n_nodes == 0 && p->council.job != w->job && b->job == w->job;
}

static void yield(struct process *p)
{
    const struct council was = p->council;
    council_init(&p->council, &was.limits, was.id, &was.own, was.stands);
    p->has_roster = p->lacks_lease = false;
    p->lease_due_ms = CO_NEVER_MS;
}

static void deliver(struct world *w, const struct mail *mail)
{
    struct process *p = &w->processes[mail->to];
    struct council_orders orders;
    struct ballot answer;
    if (must_yield(w, p, &mail->ballot))
        yield(p);
    if (w->mutant == NOT_RESERVED)
        p->council.voter.is_reserved = false;
    if (w->mutant == REPLACED_EARLY)
        p->council.voter.is_claimed |= mail->ballot.type == BALLOT_CLAIM;
    if (w->mutant == NOT_ANSWERED)
        p->council.proposer.has_answer = false;
    council_take(&p->council, &mail->ballot, world_clock_ms(w, p), &answer, &orders);
    if (mail->ballot.type != BALLOT_VOTE)
        post(w, mail->to, mail->from, &answer);
    obey(w, p, &orders);
}

/* One that was stopped may find a time over before it reads what has arrived. */
static bool reads(const struct world *w, const struct process *p)
{
    const uint64_t late_ms = w->kind == MAJORITY || p->stopped_until_ms == 0 ? 0 : LATE_MS;
    return p->is_up && w->now_ms >= p->stopped_until_ms + late_ms;
}

void world_deliver(struct world *w)
{
    for (uint32_t i = 0; i < w->n_mails;) {
        const struct process *p = &w->processes[w->mails[i].to];
        if (w->mails[i].at_ms > w->now_ms || (p->is_up && !reads(w, p))) {
            i++;
            continue;
        }
        static struct mail mail;
        mail = w->mails[i];
        if (world_draw(w, 50) != 0) /* else once more */
            w->mails[i] = w->mails[--w->n_mails];
        else
            w->mails[i].at_ms = w->now_ms + world_draw(w, 3000);
        if (p->is_up)
            deliver(w, &mail);
    }
}

/* --- what a process does by itself --- */

const struct process *world_find_leader(const struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (world_leads(w, &w->processes[i]))
            return &w->processes[i];
    return NULL;
}

static bool is_joined(const struct world *w, uint32_t i, uint32_t k)
{
    return i == k || (!w->is_cut[i][k] && !w->is_cut[k][i]);
}

/* The one that a process may follow: where there can be two, one that it reaches. */
static const struct process *find_leader_of(const struct world *w, const struct process *p)
{
    if (w->kind == MAJORITY || w->kind == ALONE_WHOLE)
        return world_find_leader(w);
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *q = &w->processes[i];
        const bool is_ours = p->council.job == 0 || p->council.job == q->council.job;
        if (q != p && world_leads(w, q) && is_ours && is_joined(w, index_of(w, p), i))
            return q;
    }
    return NULL;
}

/* A coordinator calls at the endpoint, and, where there may be parts, at processes that have voted,
 * and at a list of endpoints that names all. */
static void call_others(struct world *w, struct process *p, const struct ballot *b)
{
    struct elector_address at;
    if (w->kind == MAJORITY)
        return;
    if (p != &w->processes[0])
        post(w, index_of(w, p), 0, b);
    if (p->council.limits.quorum.alone && council_next_stray(&p->council, &at))
        post(w, index_of(w, p), (uint32_t)at.port - 1, b);
    for (uint32_t i = 1; w->kind == ALONE_CUT && i < w->n; i++)
        if (i != index_of(w, p))
            post(w, index_of(w, p), i, b);
}

static void offer(struct world *w, struct process *p)
{
    const bool calls = p->has_roster && w->kind != MAJORITY;
    const struct process *leader = calls ? NULL : find_leader_of(w, p);
    const uint32_t i = index_of(w, p);
    if (world_clock_ms(w, p) < p->offers_at_ms || p->has_left ||
        (!calls && (leader == NULL || leader == p)))
        return;
    p->offers_at_ms = world_clock_ms(w, p) + OFFER_MS;
    const struct ballot b = {.type = BALLOT_OFFER,
                             .job = p->council.job,
                             .from = p->council.id,
                             .at = address_of(i),
                             .order = i,
                             .alone = p->council.limits.quorum.alone && w->mutant != NOT_AGREED};
    if (calls)
        call_others(w, p, &b);
    else
        post(w, i, index_of(w, leader), &b);
}

/* --- nodes, where generations need some --- */

static const struct process *find_reached_leader(const struct world *w, const struct process *p,
                                                 uint64_t job)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *q = &w->processes[i];
        if (world_leads(w, q) && (job == 0 || q->council.job == job) &&
            is_joined(w, index_of(w, p), i))
            return q;
    }
    return NULL;
}

/* It votes in the job that its node joins, and in the one before no more. */
static void change_job(struct world *w, struct process *p)
{
    const struct council was = p->council;
    if (p->has_roster || was.job == 0 || was.job == p->in_job ||
        council_obeys(&was, world_clock_ms(w, p)))
        return;
    council_init(&p->council, &was.limits, was.id + IDS, &was.own, was.stands);
    p->lease_due_ms = CO_NEVER_MS;
    totals.n_moved++;
}

/* A node stays with its coordinator, and looks for another one when its lease is over. */
static void take_place(struct world *w, struct process *p)
{
    const struct process *leader = find_reached_leader(w, p, p->in_job);
    if (w->kind != BEGUN_AGAIN)
        return;
    if (leader == NULL && w->now_ms >= p->led_ms + NODE_LEASE_MS)
        leader = find_reached_leader(w, p, 0);
    if (leader == NULL)
        return;
    p->in_job = leader->council.job;
    p->led_ms = w->now_ms;
    change_job(w, p);
}

uint32_t world_n_reached(const struct world *w, const struct process *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *q = &w->processes[i];
        n += q->is_up && q->in_job == p->council.job && is_joined(w, index_of(w, p), i);
    }
    return n;
}

static void begin_generation(struct world *w, struct process *p)
{
    struct council_orders orders;
    if (!p->has_roster || p->is_committing || p->has_left || world_draw(w, 60) != 0 ||
        world_n_reached(w, p) < w->min_nodes)
        return;
    p->knows = (struct elector_record){.generation = p->knows.generation + 1,
                                       .n_nodes = 1,
                                       .world_size = p->knows.n_restarts,
                                       .n_restarts = ++w->n_marks};
    p->is_committing = true;
    council_commit(&p->council, &p->knows, world_clock_ms(w, p), &orders);
    obey(w, p, &orders);
}

static void report_leased(struct world *w, struct process *p)
{
    struct council_orders orders;
    council_note_leased(&p->council, world_clock_ms(w, p), &orders);
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
    if (w->host_ms == 0 || w->now_ms >= FAULTS_END_MS || world_draw(w, 100) != 0)
        return;
    const bool is_silent = world_draw(w, 2) == 0;
    totals.n_silent += is_silent;
    council_note_silent(&p->council, is_silent, world_clock_ms(w, p), &orders);
    obey(w, p, &orders);
}

void world_live_on(struct world *w, struct process *p)
{
    struct council_orders orders;
    take_place(w, p);
    set_lease(w, p);
    draw_silence(w, p);
    if (world_clock_ms(w, p) >= council_deadline_ms(&p->council)) {
        council_time(&p->council, world_clock_ms(w, p), &orders);
        obey(w, p, &orders);
    }
    offer(w, p);
    begin_generation(w, p);
}

/* --- faults --- */

uint32_t world_n_up(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->processes[i].is_up;
    return n;
}

/* Others decide after that, unless the schedule is about the last one. */
static uint32_t least_up(const struct world *w)
{
    return w->kind == MAJORITY || w->kind == ALONE_CUT ? 2 : 1;
}

/* The others find its port refused, or only its silence. */
void world_kill(struct world *w, struct process *p)
{
    const struct elector_address at = address_of(index_of(w, p));
    const bool is_found = world_draw(w, 2) == 0;
    if (world_n_up(w) <= least_up(w) || !p->is_up)
        return;
    schedules_tell(w->now_ms, "%u is killed%s", at.port, is_found ? ", which is noticed" : "");
    totals.n_killed++;
    totals.n_early += is_found;
    p->is_up = false;
    for (uint32_t i = 0; i < w->n && is_found; i++) {
        struct process *other = &w->processes[i];
        struct council_orders orders;
        if (!world_is_awake(w, other) || w->is_cut[i][at.port - 1] || w->is_cut[at.port - 1][i])
            continue;
        council_note_ended(&other->council, &at, world_clock_ms(w, other), &orders);
        obey(w, other, &orders);
    }
}

void world_leave(struct world *w, struct process *p)
{
    struct council_orders orders;
    const struct elector_record last = p->knows;
    if (world_n_up(w) <= least_up(w) || !world_is_awake(w, p) || p->has_left || p->is_committing)
        return;
    schedules_tell(w->now_ms, "%u leaves", index_of(w, p) + 1);
    totals.n_left++;
    totals.n_hand_overs += p->has_roster;
    p->has_left = true;
    p->lacks_lease = false;
    council_resign(&p->council, p->has_roster ? &last : NULL, world_clock_ms(w, p), &orders);
    p->has_roster = false;
    obey(w, p, &orders);
}

static struct council_limits limits_of(const struct world *w, bool is_first)
{
    struct council_limits l =
        w->host_ms > 0 ? council_limits_with(w->host_ms) : council_usual_limits;
    const bool is_alone = w->kind == ALONE_WHOLE || w->kind == ALONE_CUT;
    if (is_alone && !(is_first && w->mutant == NOT_AGREED))
        council_limits_set_alone(&l);
    return l;
}

/* A new process, which knows of nothing. */
void world_begin_again(struct world *w)
{
    struct process *p = &w->processes[0];
    struct council_orders orders;
    const struct elector_address at = address_of(0);
    const struct council_limits limits = limits_of(w, true);
    if (p->is_up)
        return;
    schedules_tell(w->now_ms, "1 is started again");
    *p = (struct process){.is_up = true,
                          .rate_percent = p->rate_percent,
                          .offset_ms = p->offset_ms,
                          .lease_due_ms = CO_NEVER_MS};
    council_init(&p->council, &limits, 1 + IDS * ++w->n_begun, &at, w->processes[1].council.stands);
    p->in_job = w->job + w->n_begun;
    council_found(&p->council, p->in_job, world_clock_ms(w, p), &orders);
    obey(w, p, &orders);
}

void world_part(struct world *w, uint32_t last)
{
    for (uint32_t a = 0; a < w->n; a++)
        for (uint32_t b = 0; b < w->n; b++)
            w->is_cut[a][b] = (a <= last) != (b <= last);
}

void world_mend(struct world *w)
{
    memset(w->is_cut, 0, sizeof w->is_cut);
}

/* --- the beginning --- */

static void process_init(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    const struct elector_address at = address_of(i);
    const struct council_limits limits = limits_of(w, i == 0);
    *p =
        (struct process){.is_up = true,
                         .rate_percent = 100 - DRIFT_PERCENT + world_draw(w, 2 * DRIFT_PERCENT + 1),
                         .offset_ms = 1 + world_draw(w, 1000000),
                         .lease_due_ms = CO_NEVER_MS};
    council_init(&p->council, &limits, i + 1, &at,
                 w->kind == MAJORITY ? w->seed % 8 != 0 : w->kind != BEGUN_AGAIN || w->stands);
    if (w->mutant == FREED_EARLY) { /* it obeys for as long, unless the host is silent */
        struct quorum_limits *l = &p->council.voter.limits;
        l->stay_ms += l->lease_ms + l->margin_ms;
        l->lease_ms = l->margin_ms = 0;
    }
}

void world_init(struct world *w, uint64_t seed, enum kind kind, enum mutant mutant)
{
    struct council_orders orders;
    *w = (struct world){.seed = seed,
                        .chance = chance_from(seed),
                        .kind = kind,
                        .n_decisions = 1,
                        .mutant = mutant};
    for (int i = 0; i < 4; i++)
        world_draw(w, 2);
    w->n = 2 + (uint32_t)world_draw(w, MAX_PROCESSES - 1);
    w->loses_one_in = world_draw(w, 2) == 0 ? 0 : 3 + world_draw(w, 20);
    if (kind == ALONE_WHOLE || kind == BEGUN_AGAIN)
        w->loses_one_in = 0;
    if (seed % 3 == 0)
        w->host_ms = HOST_MIN_MS + world_draw(w, HOST_MAX_MS - HOST_MIN_MS + 1);
    if (kind == BEGUN_AGAIN) {
        w->min_nodes = 1 + (uint32_t)world_draw(w, w->n);
        w->stands = world_draw(w, 2) == 0 || 2 * w->min_nodes > w->n;
    }
    for (uint32_t i = 0; i < w->n; i++)
        process_init(w, i);
    struct process *founder = &w->processes[0];
    w->job = 1 + world_draw(w, 1000);
    for (uint32_t i = 0; i < w->n; i++)
        w->processes[i].in_job = w->job;
    council_found(&founder->council, w->job, world_clock_ms(w, founder), &orders);
    if (mutant == DOES_NOT_WAIT)
        founder->council.proposer.limits.alone = false;
    obey(w, founder, &orders);
}
