/* sim_quorum_all - every state that a few voters and proposers can reach, without clocks.
 *
 * Voters and proposers are the real ones. A question that was asked may arrive at any later time,
 * any number of times, or never; its answer arrives or not. Any process may claim at any time, and
 * each voter is always free: so no result here depends on a lease, or on how fast a clock runs. A
 * process that ends is one to which nothing happens any more. Each decision appends a number to the
 * value that was decided before it. Checked in each state: of two values that were decided, by what
 * the voters stored or by what a proposer believes, one is the beginning of the other.
 *
 * A process that carries its list alone may do without a lease of its own node: its voter is
 * reserved then, and it writes no list that others carry. Checked: meanwhile no voters that carry
 * the record of another process obey that process.
 *
 * Where of two voters one takes over alone (limits.alone), the same holds if the other one has
 * ended when all had one record.
 *
 * Variants, each with a rule left out, must be found to break that: a search that finds nothing
 * proves something only if it can find. The argument `all` adds larger worlds. */
#include "rendezvous/quorum/proposer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROCESSES = 3, MAX_ASKS = 24, MAX_DEPTH = 400, VALUE_BITS = 4 };

enum mutant {
    NO_MUTANT,
    NO_BEFORE,
    ANY_HALF,
    AMNESIA,
    NO_RESERVE,
    GROWS,
    UNSTORED,
    ALONE_ENDED, /* none: of two voters one may be alone where the other one has ended */
    ALONE_LIVES  /* ... or lives: the documented split */
};

struct config {
    const char *name;
    uint32_t n_processes, n_voters; /* the voters are the first of the processes */
    uint32_t n_terms, n_changes;    /* in all */
    enum mutant mutant;             /* it has to break */
    bool is_large;                  /* with `all` only */
};

struct sent {
    struct quorum_ask ask;
    uint32_t by;
    uint32_t stored; /* WRITE: a bit for each process whose voter has stored it */
};

struct world {
    const struct config *config;
    struct quorum_voter voters[MAX_PROCESSES];
    struct quorum_proposer proposers[MAX_PROCESSES];
    struct sent sent[MAX_ASKS];
    uint32_t n_sent, n_terms, n_changes;
    uint64_t decided; /* the longest value */
    bool lacks_lease[MAX_PROCESSES];
    uint32_t n_forgotten;
    uint32_t ended; /* a bit for each process to which nothing happens any more */
};

enum act_type { CLAIM, WRITE, KEEP, ARRIVE, FORGET, LEASE_OFF, LEASE_ON, END, ALONE };

struct act {
    enum act_type type;
    uint32_t process; /* ARRIVE: the voter */
    uint32_t detail;  /* WRITE: a bit for each other voter. ARRIVE: which question */
    bool is_heard;    /* ARRIVE: the answer is */
};

static struct search {
    const struct config *config;
    uint64_t *hashes; /* 0: free */
    size_t n, n_cells;
    uint64_t n_steps;
    struct act path[MAX_DEPTH];
    uint32_t depth, max_depth;
    const char *broken;
} search;

static uint64_t id_of(uint32_t process)
{
    return process + 1;
}

/* --- what must hold --- */

static bool begins_with(uint64_t value, uint64_t beginning)
{
    while (value > beginning)
        value >>= VALUE_BITS;
    return value == beginning;
}

static void decide(struct world *w, uint64_t value)
{
    if (begins_with(value, w->decided))
        w->decided = value;
    else if (!begins_with(w->decided, value))
        search.broken = "two values were decided, and neither is the beginning of the other";
}

static void check_stored(struct world *w, const struct sent *s)
{
    struct quorum_set stored = {0};
    for (uint32_t i = 0; i < w->config->n_processes; i++)
        if ((s->stored >> i & 1) != 0)
            quorum_set_add(&stored, id_of(i));
    if (quorum_carries_record(&stored, &s->ask.record))
        decide(w, s->ask.record.value);
}

/* Do voters that carry the record of this voter have it, and still obey the process that wrote it?
 * A lease of that process ends before one of them obeys another one. */
static bool is_obeyed(const struct world *w, const struct quorum_voter *v)
{
    struct quorum_record r = v->record;
    struct quorum_set obey = {0};
    for (uint32_t i = 0; i < w->config->n_processes; i++) {
        const struct quorum_voter *other = &w->voters[i];
        if (quorum_record_compare(&other->record, &r) != 0 ||
            quorum_term_compare(&other->promised, &r.term) != 0)
            continue;
        r.settled |= other->record.settled;
        quorum_set_add(&obey, other->id);
    }
    return r.voters.n > 0 && quorum_carries_record(&obey, &r);
}

static void check_leases(const struct world *w)
{
    for (uint32_t p = 0; p < w->config->n_processes; p++)
        for (uint32_t i = 0; i < w->config->n_processes && w->lacks_lease[p]; i++)
            if (w->voters[i].record.term.owner != id_of(p) && is_obeyed(w, &w->voters[i]))
                search.broken = "a process is obeyed, and the node of another one has no lease";
}

/* --- the beginning --- */

static void world_init(struct world *w, const struct config *c)
{
    const struct quorum_limits limits = {.alone = c->mutant >= ALONE_ENDED}; /* no promise lasts */
    struct quorum_record r = {.term = {1, id_of(0)}, .settled = true, .value = 1};
    *w = (struct world){.config = c, .n_terms = 1, .decided = 1};
    for (uint32_t i = 0; i < c->n_voters; i++)
        r.voters.ids[r.voters.n++] = id_of(i);
    r.before = r.voters;
    for (uint32_t i = 0; i < c->n_processes; i++) {
        quorum_voter_init(&w->voters[i], &limits, id_of(i), i < c->n_voters ? &r : NULL);
        w->voters[i].promised = w->voters[i].record.term;
        quorum_proposer_init(&w->proposers[i], &limits, id_of(i), &w->voters[i].record);
    }
    w->proposers[0].phase = QUORUM_LEADING;
    w->proposers[0].term = r.term;
}

/* --- what can happen --- */

static bool is_sent(const struct world *w, uint32_t by, const struct quorum_ask *ask)
{
    for (uint32_t i = 0; i < w->n_sent; i++) {
        const struct quorum_ask *s = &w->sent[i].ask;
        if (w->sent[i].by == by && s->type == ask->type && s->index == ask->index &&
            quorum_term_compare(&s->term, &ask->term) == 0 && s->record.index == ask->record.index)
            return true;
    }
    return false;
}

static void send(struct world *w, uint32_t by)
{
    struct quorum_ask ask;
    if (!quorum_proposer_question(&w->proposers[by], &ask) || is_sent(w, by, &ask))
        return;
    if (w->n_sent == MAX_ASKS)
        search.broken = "more questions than this search has room for";
    else
        w->sent[w->n_sent++] = (struct sent){.ask = ask, .by = by};
}

static struct quorum_list list_of(const struct world *w, uint32_t first, uint32_t others)
{
    struct quorum_list l = {.n = 1, .ids = {id_of(first)}};
    for (uint32_t i = 0; i < w->config->n_processes; i++)
        if (i != first && (others >> i & 1) != 0)
            l.ids[l.n++] = id_of(i);
    return l;
}

/* Terms are in the order of the claims: a claim of a lower term than another that was made before
 * it is one that was made before that and arrives later. */
static void claim(struct world *w, uint32_t i)
{
    struct quorum_proposer *p = &w->proposers[i];
    const struct quorum_record *own = &w->voters[i].record;
    if (quorum_record_compare(own, &p->newest) > 0)
        p->newest = *own;
    p->highest.number = w->n_terms++;
    quorum_proposer_claim(p, 0);
    send(w, i);
}

static bool carries_alone(uint32_t process, const struct quorum_list *l)
{
    const struct quorum_set self = {.n = 1, .ids = {id_of(process)}};
    return quorum_carries(&self, l);
}

static bool has_ended(const struct world *w, uint32_t process)
{
    return (w->ended >> process & 1) != 0;
}

/* All vote, and have one record. */
static bool may_end(const struct world *w)
{
    const struct quorum_record *r = &w->voters[0].record;
    bool may = w->config->mutant == ALONE_ENDED && w->ended == 0;
    for (uint32_t i = 0; i < w->config->n_processes; i++)
        may &= quorum_list_has(&r->voters, id_of(i)) &&
               quorum_record_compare(&w->voters[i].record, r) == 0;
    return may;
}

/* With more voters it makes no difference. */
static bool may_be_alone(const struct world *w, uint32_t process)
{
    const struct quorum_proposer *p = &w->proposers[process];
    bool may = p->phase == QUORUM_CLAIMING && p->limits.alone && !p->is_alone && !p->has_answer;
    for (uint32_t i = 0; i < w->config->n_processes; i++)
        may &= i == process || has_ended(w, i) || w->config->mutant == ALONE_LIVES ||
               p->newest.voters.n > 2 || !quorum_list_has(&p->newest.voters, id_of(i));
    return may;
}

static bool may_lack_lease(const struct world *w, uint32_t process)
{
    const struct quorum_proposer *p = &w->proposers[process];
    const bool is_writing = w->config->mutant == UNSTORED && p->phase == QUORUM_WRITING;
    const struct quorum_record *r = is_writing ? &p->next : &p->newest;
    return !p->limits.alone && !w->lacks_lease[process] &&
           (p->phase == QUORUM_LEADING || is_writing) && (r->settled || is_writing) &&
           carries_alone(process, &r->voters) &&
           quorum_term_compare(&w->voters[process].promised, &p->term) == 0;
}

static void set_lease(struct world *w, uint32_t process, bool lacks)
{
    w->lacks_lease[process] = lacks;
    quorum_voter_reserve(&w->voters[process], lacks && w->config->mutant != NO_RESERVE);
}

/* Others also carry this list. */
static bool needs_lease(const struct world *w, uint32_t process, const struct quorum_list *voters)
{
    return w->lacks_lease[process] && !carries_alone(process, voters) && w->config->mutant != GROWS;
}

static void write(struct world *w, const struct act *a)
{
    struct quorum_proposer *p = &w->proposers[a->process];
    const struct quorum_list voters = list_of(w, a->process, a->detail);
    const uint64_t value = p->newest.value << VALUE_BITS | (2 + w->n_changes);
    if (needs_lease(w, a->process, &voters) || !quorum_proposer_write(p, value, &voters, 0))
        return;
    w->n_changes++;
    if (w->config->mutant == NO_BEFORE)
        p->next.settled = true;
    send(w, a->process);
}

/* Half of the voters, any of them, is made to look as if the first was among them. */
static void count_any_half(struct quorum_proposer *p)
{
    const struct quorum_record *r = p->phase == QUORUM_WRITING ? &p->next : &p->newest;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->voters.n; i++)
        n += quorum_set_has(&p->yes, r->voters.ids[i]);
    if (2 * (n + 1) == r->voters.n)
        quorum_set_add(&p->yes, r->voters.ids[0]);
}

static void hear(struct world *w, const struct sent *s, uint32_t from,
                 const struct quorum_vote *vote)
{
    struct quorum_proposer *p = &w->proposers[s->by];
    const enum quorum_phase was = p->phase;
    if (w->config->mutant == ANY_HALF && vote->yes)
        count_any_half(p);
    quorum_proposer_hear(p, &s->ask, id_of(from), vote);
    if (p->phase == QUORUM_LEADING && was != QUORUM_LEADING)
        decide(w, p->newest.value);
    send(w, s->by);
}

static void arrive(struct world *w, const struct act *a)
{
    struct sent *s = &w->sent[a->detail];
    struct quorum_voter *v = &w->voters[a->process];
    const struct sent sent = *s;
    struct quorum_vote vote;
    quorum_voter_ask(v, &s->ask, 0, &vote);
    if (s->ask.type == QUORUM_WRITE && quorum_record_compare(&v->record, &s->ask.record) == 0) {
        s->stored |= 1u << a->process;
        check_stored(w, s);
    }
    if (a->is_heard)
        hear(w, &sent, a->process, &vote);
}

/* A claim or a KEEP that its process has replaced by another question, or a write that no voter
 * stores any more: whether it arrives makes no difference. */
static bool is_past(const struct world *w, const struct sent *s)
{
    struct quorum_ask now;
    if (s->ask.type != QUORUM_WRITE)
        return !quorum_proposer_question(&w->proposers[s->by], &now) || now.type != s->ask.type ||
               quorum_term_compare(&now.term, &s->ask.term) != 0 || now.index != s->ask.index;
    for (uint32_t i = 0; i < w->config->n_processes; i++) {
        const struct quorum_voter *v = &w->voters[i];
        if (quorum_record_names(&s->ask.record, v->id) &&
            quorum_term_compare(&v->promised, &s->ask.term) <= 0 &&
            (v->record.voters.n == 0 || quorum_record_compare(&v->record, &s->ask.record) <= 0))
            return false;
    }
    return true;
}

static void drop_past(struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_sent; i++)
        if (!is_past(w, &w->sent[i]))
            w->sent[n++] = w->sent[i];
    w->n_sent = n;
}

static void act_do(struct world *w, const struct act *a)
{
    switch (a->type) {
    case CLAIM:
        claim(w, a->process);
        break;
    case WRITE:
        write(w, a);
        break;
    case KEEP:
        quorum_proposer_keep(&w->proposers[a->process], 0);
        send(w, a->process);
        break;
    case ARRIVE:
        arrive(w, a);
        break;
    case FORGET:
        w->n_forgotten++;
        quorum_voter_init(&w->voters[a->process], &w->voters[a->process].limits, id_of(a->process),
                          NULL);
        break;
    case END:
        w->ended |= 1u << a->process;
        break;
    case ALONE:
        quorum_proposer_stand_alone(&w->proposers[a->process], 0);
        send(w, a->process);
        break;
    case LEASE_OFF:
    case LEASE_ON:
        set_lease(w, a->process, a->type == LEASE_OFF);
        break;
    }
    drop_past(w);
    check_leases(w);
}

/* --- two states that have the same future are one --- */

static void put(uint64_t *hash, uint64_t word)
{
    *hash = (*hash ^ word) * 0x9e3779b97f4a7c15u;
    *hash ^= *hash >> 29;
}

static void put_list(uint64_t *h, const struct quorum_list *l)
{
    put(h, l->n);
    for (uint32_t i = 0; i < l->n; i++)
        put(h, l->ids[i]);
}

static void put_record(uint64_t *h, const struct quorum_record *r)
{
    put(h, r->term.number << 8 | r->term.owner);
    put(h, r->index << 1 | r->settled);
    put(h, r->value);
    put_list(h, &r->voters);
    put_list(h, &r->before);
}

static uint64_t mask_of(const struct quorum_set *s)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < s->n; i++)
        mask |= UINT64_C(1) << s->ids[i];
    return mask;
}

static void put_proposer(uint64_t *h, const struct quorum_proposer *p)
{
    const uint64_t alone = p->limits.alone ? 1 + p->has_answer + 2 * (uint64_t)p->is_alone : 0;
    put(h, p->phase | (uint64_t)p->keeps << 8 | alone << 16);
    put(h, p->term.number << 8 | p->term.owner);
    put(h, mask_of(&p->yes));
    put_record(h, &p->newest);
    if (p->phase == QUORUM_WRITING)
        put_record(h, &p->next);
}

/* Questions are a set: sums do not depend on the order. */
static uint64_t world_hash(const struct world *w)
{
    uint64_t h = 1, sum = 0;
    for (uint32_t i = 0; i < w->config->n_processes; i++) {
        put(&h, w->voters[i].promised.number << 8 | w->voters[i].promised.owner);
        put_record(&h, &w->voters[i].record);
        put_proposer(&h, &w->proposers[i]);
        put(&h, w->lacks_lease[i]);
    }
    for (uint32_t i = 0; i < w->n_sent; i++) {
        uint64_t one = w->sent[i].by + 7;
        put(&one, w->sent[i].ask.type | w->sent[i].ask.index << 8);
        put(&one, w->sent[i].ask.term.number << 8 | w->sent[i].ask.term.owner);
        put_record(&one, &w->sent[i].ask.record);
        put(&one, w->sent[i].stored);
        sum += one;
    }
    put(&h, sum);
    put(&h, w->decided);
    put(&h, w->n_terms | w->n_changes << 8 | w->n_forgotten << 16 | (uint64_t)w->ended << 32);
    return h | 1;
}

/* --- the search, depth first --- */

static bool remember(struct search *s, uint64_t hash)
{
    if (2 * s->n >= s->n_cells) {
        uint64_t *old = s->hashes;
        const size_t n_old = s->n_cells;
        s->n_cells = n_old == 0 ? 1 << 16 : 2 * n_old;
        s->n = 0;
        s->hashes = calloc(s->n_cells, sizeof *s->hashes);
        if (s->hashes == NULL)
            abort();
        for (size_t i = 0; i < n_old; i++)
            if (old[i] != 0)
                remember(s, old[i]);
        free(old);
    }
    size_t i = hash & (s->n_cells - 1);
    for (; s->hashes[i] != 0; i = (i + 1) & (s->n_cells - 1))
        if (s->hashes[i] == hash)
            return false;
    s->hashes[i] = hash;
    s->n++;
    return true;
}

static void explore(const struct world *w);

static void try_act(const struct world *w, struct act a)
{
    struct world next = *w;
    if (search.broken != NULL)
        return;
    act_do(&next, &a);
    search.n_steps++;
    if (search.depth == MAX_DEPTH)
        search.broken = "the search is too deep";
    search.path[search.depth++] = a;
    search.max_depth = search.depth > search.max_depth ? search.depth : search.max_depth;
    if (search.broken == NULL && remember(&search, world_hash(&next)))
        explore(&next);
    if (search.broken == NULL)
        search.depth--;
}

/* A claim that its candidate has replaced by another can only make a voter promise more. */
static bool may_arrive(const struct world *w, const struct sent *s, uint32_t voter)
{
    const struct quorum_proposer *p = &w->proposers[s->by];
    if (has_ended(w, voter))
        return false;
    if (s->ask.type == QUORUM_WRITE)
        return quorum_record_names(&s->ask.record, id_of(voter));
    return quorum_term_compare(&p->term, &s->ask.term) == 0 &&
           quorum_proposer_asks(p, id_of(voter));
}

static void explore_process(const struct world *w, uint32_t i)
{
    const struct config *c = w->config;
    const struct quorum_proposer *p = &w->proposers[i];
    for (uint32_t k = 0; k < w->n_sent; k++)
        for (int heard = 0;
             heard < (has_ended(w, w->sent[k].by) ? 1 : 2) && may_arrive(w, &w->sent[k], i);
             heard++)
            try_act(w, (struct act){ARRIVE, i, k, heard == 1});
    if (has_ended(w, i))
        return;
    if (may_end(w))
        try_act(w, (struct act){.type = END, .process = i});
    if (may_be_alone(w, i))
        try_act(w, (struct act){.type = ALONE, .process = i});
    if (w->voters[i].record.voters.n > 0 && w->n_terms < c->n_terms)
        try_act(w, (struct act){.type = CLAIM, .process = i});
    if (p->phase == QUORUM_LEADING && !p->newest.settled && !p->keeps)
        try_act(w, (struct act){.type = KEEP, .process = i});
    for (uint32_t others = 0; others < 1u << c->n_processes; others++)
        if (p->phase == QUORUM_LEADING && w->n_changes < c->n_changes && (others >> i & 1) == 0)
            try_act(w, (struct act){.type = WRITE, .process = i, .detail = others});
    if (may_lack_lease(w, i))
        try_act(w, (struct act){.type = LEASE_OFF, .process = i});
    if (w->lacks_lease[i])
        try_act(w, (struct act){.type = LEASE_ON, .process = i});
    if (c->mutant == AMNESIA && w->n_forgotten == 0)
        try_act(w, (struct act){.type = FORGET, .process = i});
}

static void explore(const struct world *w)
{
    for (uint32_t i = 0; i < w->config->n_processes; i++)
        explore_process(w, i);
}

/* --- results --- */

static void print_path(const struct search *s)
{
    static const char *const names[] = {[CLAIM] = "claims",
                                        [WRITE] = "writes, with voters",
                                        [KEEP] = "settles",
                                        [ARRIVE] = "receives question",
                                        [FORGET] = "forgets all",
                                        [LEASE_OFF] = "does without a lease",
                                        [LEASE_ON] = "has a lease again",
                                        [END] = "ends",
                                        [ALONE] = "stands alone"};
    for (uint32_t i = 0; i < s->depth; i++)
        fprintf(stderr, "    process %" PRIu32 " %s %" PRIu32 "%s\n", s->path[i].process + 1,
                names[s->path[i].type], s->path[i].detail, s->path[i].is_heard ? ", heard" : "");
}

/* returns whether it came out as it has to */
static bool run(const struct config *c)
{
    struct world w;
    search = (struct search){.config = c};
    world_init(&w, c);
    remember(&search, world_hash(&w));
    explore(&w);
    const bool has_broken = search.broken != NULL,
               must_break = c->mutant != NO_MUTANT && c->mutant != ALONE_ENDED;
    printf("%-44s %9zu states, %10" PRIu64 " steps, depth %3" PRIu32 "%s\n", c->name, search.n,
           search.n_steps, search.max_depth, has_broken ? ", BROKEN" : "");
    fflush(stdout);
    if (has_broken && !must_break) {
        print_path(&search);
        fprintf(stderr, "%s: %s\n", c->name, search.broken);
    }
    if (!has_broken && must_break)
        fprintf(stderr, "%s: the search did not find what this variant breaks\n", c->name);
    free(search.hashes);
    return has_broken == must_break;
}

/* clang-format off */
static const struct config configs[] = {
    /*                                             processes, voters, terms, changes */
    {"2 voters, 3 terms, a change",                        2, 2, 3, 1, NO_MUTANT, false},
    {"2 voters, 2 terms, 2 changes",                       2, 2, 2, 2, NO_MUTANT, false},
    {"2 voters and one that joins, 2 terms, a change",     3, 2, 2, 1, NO_MUTANT, false},
    {"3 voters, 2 terms, a change",                        3, 3, 2, 1, NO_MUTANT, false},
    {"3 voters, 2 terms, 2 changes",                       3, 3, 2, 2, NO_MUTANT, true},
    {"3 voters, 3 terms, a change",                        3, 3, 3, 1, NO_MUTANT, true},
    {"2 voters and one that joins, 2 terms, 2 changes",    3, 2, 2, 2, NO_MUTANT, true},
    {"2 voters and one that joins, 3 terms, a change",     3, 2, 3, 1, NO_MUTANT, true},
    {"alone: 2 voters, 3 terms, 2 changes, one ends",      2, 2, 3, 2, ALONE_ENDED, false},
    {"alone: 3 voters, 2 terms, 2 changes, one ends",      3, 3, 2, 2, ALONE_ENDED, true},
    {"alone: of two voters one, and the other one lives",  2, 2, 2, 2, ALONE_LIVES, false},
    {"the list before is not asked",                       3, 3, 3, 2, NO_BEFORE, false},
    {"any half is enough",                                 2, 2, 2, 2, ANY_HALF, false},
    {"a voter forgets and votes on",                       3, 3, 2, 2, AMNESIA, false},
    {"no lease, and the voter obeys others",               2, 2, 2, 1, NO_RESERVE, false},
    {"no lease, and the list grows",                       3, 1, 2, 1, GROWS, false},
    {"no lease before the list of two is stored",          3, 3, 2, 1, UNSTORED, false},
};
/* clang-format on */

/* SIM_ONLY=NAME: no other. */
int main(int argc, char **argv)
{
    const char *only = getenv("SIM_ONLY");
    const bool is_all = argc > 1 && strcmp(argv[1], "all") == 0;
    bool well = true;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        if (only != NULL ? strcmp(only, configs[i].name) == 0 : is_all || !configs[i].is_large)
            well &= run(&configs[i]);
    return well ? 0 : 1;
}
