/* sim_quorum - voters and proposers on virtual time, with leases.
 *
 * Voters and proposers are the real ones. Each process has its own clock, which runs up to 6% too
 * fast or too slow. Messages are late, lost, and repeated; links are cut one way or both ways;
 * processes are stopped and continued, and killed for good. The policy around the proposer is that
 * of this file: it claims when its own voter is free, renews every KEEP_MS, decides at random, and
 * drops voters that it has not heard for a while. Schedules are drawn from seeds. Checked at every
 * step:
 *   - at most one process is the coordinator, each by its own clock
 *   - a decision follows the last one: no two proposers decide from the same state
 * and at the end, when links are whole again: if enough voters live, one of them leads. */
#include "schedules.h"

#include "rendezvous/quorum/proposer.h"

#include "tests/support/chance.h"

#include <string.h>

enum {
    MAX_PROCESSES = 6,
    MAX_MAILS = 256,
    MAX_DECISIONS = 4096,
    TICK_MS = 10,
    LEASE = 3000,
    MARGIN = 500,
    CLAIM_TIME = 500,
    KEEP_MS = 250,
    ASK_AGAIN_MS = 100,
    GIVE_UP_MS = 800,
    TURN_MS = 150,
    DEAF_MS = 1000,
    FAULTS_END_MS = 60000,
    END_MS = 90000,
    DRIFT_PERCENT = 6, /* two of them differ by 12%, and a margin of 500 in 3500 ms covers 14% */
};

struct mail {
    uint64_t at_ms;
    uint32_t from, to;
    bool is_vote;
    struct quorum_ask ask;
    struct quorum_vote vote;
};

struct process {
    bool is_up;
    struct quorum_voter voter;
    struct quorum_proposer proposer;
    uint64_t rate_percent, offset_ms;                               /* of its clock */
    uint64_t stopped_until_ms;                                      /* real time, as below */
    uint64_t asks_at_ms, keeps_at_ms, claims_at_ms, gives_up_at_ms; /* by its clock */
    uint64_t heard_ms[MAX_PROCESSES];
};

static struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    uint32_t n;
    struct process processes[MAX_PROCESSES];
    bool is_cut[MAX_PROCESSES][MAX_PROCESSES]; /* from, to */
    struct mail mails[MAX_MAILS];
    uint32_t n_mails;
    uint64_t decided[MAX_DECISIONS]; /* values, in order */
    uint32_t n_decisions;
    uint64_t loses_one_in;
} world;

static struct totals {
    uint64_t n_leaders, n_decisions, n_killed, n_changes;
} totals;

static uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

static void check(const struct world *w, bool holds, const char *what)
{
    if (holds)
        return;
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

/* --- messages --- */

static void post(struct world *w, struct mail mail)
{
    if (w->is_cut[mail.from][mail.to] || w->n_mails == MAX_MAILS ||
        (mail.from != mail.to && w->loses_one_in > 0 && draw(w, w->loses_one_in) == 0))
        return;
    mail.at_ms = w->now_ms + (mail.from == mail.to ? 0
                              : draw(w, 20) == 0   ? draw(w, 2000)
                                                   : draw(w, 5));
    w->mails[w->n_mails++] = mail;
}

static void ask_all(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    struct mail mail = {.from = i};
    if (!quorum_proposer_question(&p->proposer, &mail.ask))
        return;
    p->asks_at_ms = clock_ms(w, p) + ASK_AGAIN_MS;
    for (mail.to = 0; mail.to < w->n; mail.to++)
        if (quorum_proposer_asks(&p->proposer, mail.to + 1))
            post(w, mail);
}

/* A value names the decision that it follows: only one may follow each. The process that wrote one
 * may learn of it later than another one that has written it again. */
static void note_decision(struct world *w, const struct quorum_record *r)
{
    const uint64_t last = w->decided[w->n_decisions - 1];
    for (uint32_t i = 0; i < w->n_decisions; i++)
        if (w->decided[i] == r->value)
            return;
    check(w, r->value >> 32 == (last & UINT32_MAX), "a decision does not follow the last one");
    check(w, w->n_decisions < MAX_DECISIONS, "more decisions than there is room for");
    w->decided[w->n_decisions++] = r->value;
}

static void hear_vote(struct world *w, const struct mail *mail)
{
    struct process *p = &w->processes[mail->to];
    const enum quorum_phase was = p->proposer.phase;
    p->heard_ms[mail->from] = clock_ms(w, p);
    quorum_proposer_hear(&p->proposer, &mail->ask, mail->from + 1, &mail->vote);
    if (p->proposer.phase == was)
        return;
    if (p->proposer.phase == QUORUM_LEADING) {
        note_decision(w, &p->proposer.newest);
        totals.n_leaders += was == QUORUM_REWRITING;
    }
    ask_all(w, mail->to);
}

static void deliver(struct world *w, const struct mail *mail)
{
    struct process *p = &w->processes[mail->to];
    if (mail->is_vote) {
        hear_vote(w, mail);
        return;
    }
    struct mail answer = {.from = mail->to, .to = mail->from, .is_vote = true, .ask = mail->ask};
    quorum_voter_ask(&p->voter, &mail->ask, clock_ms(w, p), &answer.vote);
    post(w, answer);
}

static void deliver_due(struct world *w)
{
    for (uint32_t i = 0; i < w->n_mails;) {
        const struct mail mail = w->mails[i];
        if (mail.at_ms > w->now_ms ||
            (w->processes[mail.to].is_up && !is_awake(w, &w->processes[mail.to]))) {
            i++;
            continue;
        }
        if (draw(w, 50) != 0) /* else once more */
            w->mails[i] = w->mails[--w->n_mails];
        else
            w->mails[i].at_ms = w->now_ms + draw(w, 3000);
        if (w->processes[mail.to].is_up)
            deliver(w, &mail);
    }
}

/* --- what a process does by itself --- */

static bool leads(const struct world *w, const struct process *p)
{
    return p->is_up && clock_ms(w, p) < quorum_proposer_end_ms(&p->proposer);
}

/* This process first, then those of the others that were heard lately. */
static struct quorum_list choose_voters(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    struct quorum_list l = {.n = 1, .ids = {i + 1}};
    for (uint32_t k = 0; k < w->n && l.n < QUORUM_MAX_VOTERS; k++)
        if (k != i && clock_ms(w, p) < p->heard_ms[k] + DEAF_MS)
            l.ids[l.n++] = k + 1;
    return l;
}

/* Nodes that do not vote are heard as well, as a roster hears them: by their keep-alives. */
static void hear_nodes(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    for (uint32_t k = 0; k < w->n; k++)
        if (is_awake(w, &w->processes[k]) && !w->is_cut[k][i] && !w->is_cut[i][k])
            p->heard_ms[k] = clock_ms(w, p);
}

static void lead_on(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    const uint64_t now_ms = clock_ms(w, p);
    hear_nodes(w, i);
    if (p->proposer.phase != QUORUM_LEADING)
        return;
    if (p->proposer.newest.settled && draw(w, 40) == 0) {
        const struct quorum_list voters = choose_voters(w, i);
        const uint64_t value = 1 + draw(w, UINT32_MAX);
        const bool changes = !quorum_list_is_same(&voters, &p->proposer.newest.voters);
        if (quorum_proposer_write(&p->proposer, (p->proposer.newest.value << 32) | value, &voters,
                                  now_ms)) {
            totals.n_changes += changes;
            ask_all(w, i);
        }
    } else if (now_ms >= p->keeps_at_ms) {
        p->keeps_at_ms = now_ms + KEEP_MS;
        quorum_proposer_keep(&p->proposer, now_ms);
        ask_all(w, i);
    }
}

static uint64_t turn_ms(const struct quorum_list *l, uint64_t id)
{
    uint32_t at = 0;
    while (at < l->n && l->ids[at] != id)
        at++;
    return at * TURN_MS;
}

/* It stands when its own voter is free. */
static void stand(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    const uint64_t now_ms = clock_ms(w, p);
    const struct quorum_record *own = &p->voter.record;
    const bool is_bound = now_ms < p->voter.until_ms;
    if (p->proposer.phase == QUORUM_OUTBID && is_bound && p->voter.promised.owner == i + 1)
        p->claims_at_ms = now_ms;
    else if (!quorum_list_has(&own->voters, i + 1) || is_bound) {
        p->claims_at_ms = now_ms + turn_ms(&own->voters, i + 1);
        return;
    }
    if (now_ms < p->claims_at_ms)
        return;
    if (quorum_record_compare(own, &p->proposer.newest) > 0)
        p->proposer.newest = *own;
    quorum_proposer_claim(&p->proposer, now_ms);
    p->gives_up_at_ms = now_ms + GIVE_UP_MS;
    p->claims_at_ms = now_ms + GIVE_UP_MS + turn_ms(&own->voters, i + 1);
    ask_all(w, i);
}

static void live_on(struct world *w, uint32_t i)
{
    struct process *p = &w->processes[i];
    const uint64_t now_ms = clock_ms(w, p);
    const bool claims =
        p->proposer.phase == QUORUM_CLAIMING || p->proposer.phase == QUORUM_REWRITING;
    if (!leads(w, p) && (!claims || now_ms >= p->gives_up_at_ms))
        quorum_proposer_give_up(&p->proposer);
    if (p->proposer.phase == QUORUM_IDLE || p->proposer.phase == QUORUM_OUTBID)
        stand(w, i);
    else if (!claims)
        lead_on(w, i);
    if (now_ms >= p->asks_at_ms)
        ask_all(w, i);
}

/* --- faults --- */

static uint32_t n_up(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += w->processes[i].is_up;
    return n;
}

static void draw_fault(struct world *w)
{
    const uint32_t i = (uint32_t)draw(w, w->n), k = (uint32_t)draw(w, w->n);
    struct process *p = &w->processes[i];
    switch (draw(w, 6)) {
    case 0:
        if (n_up(w) > 2) {
            totals.n_killed += p->is_up;
            p->is_up = false;
        }
        break;
    case 1:
        p->stopped_until_ms = w->now_ms + draw(w, 10000);
        break;
    case 2:
        w->is_cut[i][k] = i != k && !w->is_cut[i][k];
        break;
    case 3: /* a set of processes from the others */
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

static void world_init(struct world *w, uint64_t seed)
{
    const struct quorum_limits limits = {LEASE, MARGIN, CLAIM_TIME};
    struct quorum_record r = {.term = {1, 1}, .settled = true, .value = 1};
    *w =
        (struct world){.seed = seed, .chance = chance_from(seed), .decided = {1}, .n_decisions = 1};
    for (int i = 0; i < 4; i++)
        draw(w, 2);
    w->n = 2 + (uint32_t)draw(w, MAX_PROCESSES - 1);
    w->loses_one_in = draw(w, 2) == 0 ? 0 : 3 + draw(w, 20);
    for (uint32_t i = 0; i < w->n && i < QUORUM_MAX_VOTERS; i++)
        r.voters.ids[r.voters.n++] = i + 1;
    r.before = r.voters;
    for (uint32_t i = 0; i < w->n; i++) {
        struct process *p = &w->processes[i];
        const bool votes = i < r.voters.n;
        *p = (struct process){.is_up = true,
                              .rate_percent = 100 - DRIFT_PERCENT + draw(w, 2 * DRIFT_PERCENT + 1),
                              .offset_ms = draw(w, 1000000)};
        quorum_voter_init(&p->voter, &limits, i + 1, votes ? &r : NULL);
        p->voter.promised = p->voter.record.term;
        quorum_proposer_init(&p->proposer, &limits, i + 1, &p->voter.record);
    }
}

static void check_leaders(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += leads(w, &w->processes[i]);
    check(w, n <= 1, "two processes are the coordinator");
}

/* The newest record decides whether enough voters live. */
static void check_end(const struct world *w)
{
    const struct quorum_record *newest = &w->processes[0].voter.record;
    struct quorum_set up = {0};
    bool some_lead = false;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct process *p = &w->processes[i];
        if (p->is_up)
            quorum_set_add(&up, i + 1);
        if (quorum_record_compare(&p->voter.record, newest) > 0)
            newest = &p->voter.record;
        some_lead |= leads(w, p);
    }
    check(w, some_lead || !quorum_carries_record(&up, newest),
          "no process leads, although it could");
}

static void end_faults(struct world *w)
{
    memset(w->is_cut, 0, sizeof w->is_cut);
    w->loses_one_in = 0;
    for (uint32_t i = 0; i < w->n; i++)
        w->processes[i].stopped_until_ms = 0;
}

static void run(uint64_t seed)
{
    struct world *w = &world;
    world_init(w, seed);
    for (; w->now_ms < END_MS; w->now_ms += TICK_MS) {
        if (w->now_ms < FAULTS_END_MS && draw(w, 200) == 0)
            draw_fault(w);
        if (w->now_ms == FAULTS_END_MS)
            end_faults(w);
        deliver_due(w);
        for (uint32_t i = 0; i < w->n; i++)
            if (is_awake(w, &w->processes[i]))
                live_on(w, i);
        check_leaders(w);
    }
    check_end(w);
    totals.n_decisions += w->n_decisions;
}

int main(void)
{
    const uint64_t n = schedules_run(1000, run);
    if (n > 0)
        printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " coordinators, %" PRIu64
               " decisions, %" PRIu64 " changes of voters, %" PRIu64 " processes killed\n",
               n, n, totals.n_leaders, totals.n_decisions, totals.n_changes, totals.n_killed);
    return 0;
}
