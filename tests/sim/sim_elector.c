/* sim_elector - the electors of a job's nodes and one etcd, in virtual time: requests and answers
 * that are slow or lost, nodes that are cut off, stopped, killed and restarted, an etcd that is
 * stopped, killed and started again, and leases that end.
 *
 * The electors are the real ones; etcd is a test double in this file: two keys and leases.
 * Each schedule is drawn from a seed. Checked at every step:
 *   - never two nodes are sure that they lead
 *   - each generation is begun by one node, and is newer than all that others have begun: a
 *     generation is begun when its record is written, as etcd_link.c does it
 *   - what a new leader is given is what was written last
 * and at the end, some seconds after the last fault: one node leads, all others follow it. */
#include "schedules.h"

#include "rendezvous/election/elector.h"

#include "common/clock.h"
#include "tests/support/chance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 5,
    MAX_LEASES = 256,
    MAX_GENERATIONS = 4096,
    MAX_STEPS = 400000,
    FAULTS_END_MS = 60000,
    CALM_MS = 20000, /* and then all must be well */
    REQUEST_MS = 800,
    EXPIRY_MS = 500, /* etcd looks for leases that are over now and then */
};

struct lease {
    int64_t id;
    uint64_t ends_ms, ttl_ms;
};

struct key {
    bool exists;
    int64_t create_revision, mod_revision, lease;
};

/* The double. */
struct etcd {
    int64_t revision;
    int64_t n_leases; /* ever: their names */
    struct lease leases[MAX_LEASES];
    struct key leader, record;
    struct elector_address address;
    struct elector_record written;
    uint64_t away_until_ms;
    uint64_t looks_at_ms; /* for leases that are over */
};

enum way { WAY_THERE, WAY_BACK };

struct node {
    struct elector *elector; /* NULL: it is not running */
    bool has_roster, doubts;
    uint32_t generation; /* the newest that its roster knows; UINT32_MAX: none */
    bool is_asking;
    uint64_t commits_at_ms, starts_at_ms, dies_at_ms;
    uint64_t cut_until_ms, frozen_until_ms;
    int follows; /* -1: no leader */

    bool is_out;
    struct elector_request ask;
    struct elector_answer answer;
    enum way way;
    bool is_lost;
    uint64_t arrives_ms, fails_ms;
};

struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    struct etcd etcd;
    struct node nodes[MAX_NODES];
    int n_nodes;
    int8_t begun_by[MAX_GENERATIONS]; /* 0: no node; else the node's number plus 1 */
    uint32_t newest;                  /* and 1; 0: none */
    uint64_t away_at_ms;
    uint64_t n_leaders, n_commits, n_doubts, n_deposed;
};

static uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

static bool chance(struct world *w, uint64_t one_in)
{
    return draw(w, one_in) == 0;
}

static void check(const struct world *w, bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms: %s\n", w->seed, w->now_ms, what);
    exit(1);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- etcd --- */

static struct lease *find_lease(struct etcd *e, int64_t id)
{
    for (int i = 0; i < MAX_LEASES; i++)
        if (id != 0 && e->leases[i].id == id)
            return &e->leases[i];
    return NULL;
}

static void drop_key(struct etcd *e, struct key *k)
{
    if (k->exists)
        e->revision++;
    *k = (struct key){0};
}

static void put_key(struct etcd *e, struct key *k, int64_t lease)
{
    e->revision++;
    if (!k->exists)
        k->create_revision = e->revision;
    k->exists = true;
    k->mod_revision = e->revision;
    k->lease = lease;
}

/* As etcd does it: not at the very moment, but never before. */
static void end_leases(struct world *w)
{
    struct etcd *e = &w->etcd;
    e->looks_at_ms = w->now_ms + EXPIRY_MS;
    for (int i = 0; i < MAX_LEASES; i++) {
        struct lease *l = &e->leases[i];
        if (l->id == 0 || w->now_ms < l->ends_ms)
            continue;
        if (e->leader.lease == l->id)
            drop_key(e, &e->leader);
        if (e->record.lease == l->id)
            drop_key(e, &e->record);
        l->id = 0;
    }
}

static void grant(struct world *w, const struct elector_request *ask, struct elector_answer *a)
{
    struct etcd *e = &w->etcd;
    struct lease *l = NULL;
    for (int i = 0; i < MAX_LEASES && l == NULL; i++)
        l = e->leases[i].id == 0 ? &e->leases[i] : NULL;
    check(w, l != NULL, "leases are piled up");
    uint64_t ttl_ms = (uint64_t)ask->ttl_s * 1000;
    *l = (struct lease){++e->n_leases, w->now_ms + ttl_ms, ttl_ms};
    a->lease = l->id;
    a->ttl_s = ask->ttl_s;
}

static void keep(struct world *w, const struct elector_request *ask, struct elector_answer *a)
{
    struct lease *l = find_lease(&w->etcd, ask->lease);
    a->lease = ask->lease;
    if (l == NULL)
        return;
    l->ends_ms = w->now_ms + l->ttl_ms;
    a->ttl_s = (uint32_t)(l->ttl_ms / 1000);
}

static void show_keys(const struct etcd *e, struct elector_answer *a)
{
    a->has_leader = e->leader.exists;
    a->leader = e->address;
    a->leader_create_revision = e->leader.create_revision;
    a->leader_lease = e->leader.lease;
    a->has_record = e->record.exists;
    a->record = e->written;
    a->record_mod_revision = e->record.mod_revision;
    a->record_lease = e->record.lease;
}

static void claim(struct world *w, const struct elector_request *ask, struct elector_answer *a)
{
    struct etcd *e = &w->etcd;
    a->succeeded = !e->leader.exists;
    if (a->succeeded && find_lease(e, ask->lease) == NULL) {
        a->failed = a->lacks_lease = true;
        return;
    }
    if (a->succeeded) {
        put_key(e, &e->leader, ask->lease);
        e->address = ask->address;
    }
    show_keys(e, a);
}

static void write_or_give_up(struct world *w, const struct elector_request *ask,
                             struct elector_answer *a)
{
    struct etcd *e = &w->etcd;
    a->succeeded = e->leader.exists && e->leader.create_revision == ask->create_revision;
    if (!a->succeeded)
        return;
    if (ask->has_record && find_lease(e, ask->lease) == NULL) {
        a->failed = a->lacks_lease = true;
        return;
    }
    if (ask->has_record) {
        put_key(e, &e->record, ask->lease);
        e->written = ask->record;
    } else {
        drop_key(e, &e->record);
    }
    if (ask->type == ELECTOR_GIVE_UP)
        drop_key(e, &e->leader);
}

static void serve(struct world *w, struct node *n)
{
    struct elector_answer *a = &n->answer;
    *a = (struct elector_answer){0};
    switch (n->ask.type) {
    case ELECTOR_READ:
        show_keys(&w->etcd, a);
        break;
    case ELECTOR_GRANT:
        grant(w, &n->ask, a);
        break;
    case ELECTOR_CLAIM:
        claim(w, &n->ask, a);
        break;
    case ELECTOR_KEEP:
        keep(w, &n->ask, a);
        break;
    default:
        write_or_give_up(w, &n->ask, a);
        break;
    }
    a->revision = w->etcd.revision;
}

/* --- Nodes --- */

static int number_of(const struct world *w, const struct node *n)
{
    return (int)(n - w->nodes);
}

static void feed(struct world *w, struct node *n, struct elector_input in);

static uint64_t draw_way(struct world *w)
{
    return w->now_ms < FAULTS_END_MS && chance(w, 20) ? draw(w, 700) : draw(w, 10);
}

static void send(struct world *w, struct node *n, const struct elector_request *ask)
{
    n->ask = *ask;
    n->is_out = true;
    n->way = WAY_THERE;
    n->is_lost = w->now_ms < FAULTS_END_MS && chance(w, 20);
    n->arrives_ms = w->now_ms + draw_way(w);
    n->fails_ms = w->now_ms + REQUEST_MS;
}

static void begin_generation(struct world *w, struct node *n)
{
    uint32_t g = n->generation;
    check(w, g < MAX_GENERATIONS, "too many generations");
    check(w, w->begun_by[g] == 0 || w->begun_by[g] == number_of(w, n) + 1,
          "two nodes have begun the same generation");
    check(w, g + 1 >= w->newest, "a generation is begun that is older than another one");
    w->begun_by[g] = (int8_t)(number_of(w, n) + 1);
    w->newest = g + 1 > w->newest ? g + 1 : w->newest;
    w->n_commits++;
    schedules_tell(w->now_ms, "node %d begins generation %" PRIu32, number_of(w, n), g);
}

static void make_roster(struct world *w, struct node *n, const struct elector_orders *o)
{
    n->has_roster = true;
    n->doubts = n->is_asking = false;
    n->generation = o->has_past ? o->past.generation : UINT32_MAX;
    check(w, w->newest == 0 || (o->has_past && o->past.generation + 1 >= w->newest),
          "a new leader does not know what was begun");
    n->commits_at_ms = w->now_ms + draw(w, 3000);
    w->n_leaders++;
    schedules_tell(w->now_ms, "node %d leads", number_of(w, n));
}

static void give_up_roster(struct world *w, struct node *n)
{
    n->has_roster = n->is_asking = false;
    n->commits_at_ms = CO_NEVER_MS;
    w->n_deposed++;
    schedules_tell(w->now_ms, "node %d gives its roster up", number_of(w, n));
}

static void take_orders(struct world *w, struct node *n, const struct elector_orders *o)
{
    if (o->request)
        send(w, n, &o->ask);
    if (o->give_up)
        give_up_roster(w, n);
    if (o->make)
        make_roster(w, n, o);
    if (o->doubt && n->has_roster) {
        n->doubts = true;
        w->n_doubts++;
    }
    if (o->certain)
        n->doubts = false;
    if (o->committed && n->is_asking) {
        n->is_asking = false;
        begin_generation(w, n);
        n->commits_at_ms = w->now_ms + draw(w, 5000);
    }
    if (o->follow)
        n->follows = o->leader.port - 1;
    if (o->vacant || o->make)
        n->follows = -1;
}

static void feed(struct world *w, struct node *n, struct elector_input in)
{
    struct elector_orders orders;
    in.now_ms = w->now_ms;
    enum elector_state from = elector_get_state(n->elector);
    elector_step(n->elector, &in, &orders);
    if (from != elector_get_state(n->elector))
        schedules_tell(w->now_ms, "node %d: %s -> %s", number_of(w, n), elector_state_name(from),
                       elector_state_name(elector_get_state(n->elector)));
    take_orders(w, n, &orders);
}

static void start_node(struct world *w, struct node *n)
{
    const struct elector_limits limits = {
        .ttl_s = 2, .record_ttl_s = 60, .ask_ms = 1000, .hurry_ms = 200, .prefer_ms = 1500};
    struct elector_address address = {.host = "node", .port = (uint16_t)(number_of(w, n) + 1)};
    *n = (struct node){.commits_at_ms = CO_NEVER_MS,
                       .starts_at_ms = CO_NEVER_MS,
                       .dies_at_ms = CO_NEVER_MS,
                       .follows = -1};
    if (w->now_ms < FAULTS_END_MS && chance(w, 2))
        n->dies_at_ms = sooner(w->now_ms + draw(w, 20000), FAULTS_END_MS);
    n->elector = elector_create(&limits);
    check(w, n->elector != NULL, "no memory");
    elector_set_address(n->elector, &address);
    feed(w, n, (struct elector_input){.type = ELECTOR_TIME});
}

static void stop_node(struct world *w, struct node *n)
{
    schedules_tell(w->now_ms, "node %d dies", number_of(w, n));
    elector_destroy(n->elector);
    n->elector = NULL;
    n->is_out = n->has_roster = false;
    n->dies_at_ms = n->commits_at_ms = CO_NEVER_MS;
    n->starts_at_ms = w->now_ms + draw(w, 5000);
}

static void commit(struct world *w, struct node *n)
{
    n->commits_at_ms = CO_NEVER_MS;
    n->is_asking = true;
    n->generation++; /* UINT32_MAX + 1 is 0 */
    const struct elector_record r = {
        .generation = n->generation, .n_nodes = 1, .world_size = 1, .gone = -1};
    feed(w, n, (struct elector_input){.type = ELECTOR_COMMIT, .record = &r});
}

/* --- Time --- */

static bool is_cut(const struct world *w, const struct node *n)
{
    return w->now_ms < n->cut_until_ms;
}

/* A request or its answer is where it goes to. */
static void arrive(struct world *w, struct node *n)
{
    bool is_dropped = n->is_lost || is_cut(w, n);
    n->arrives_ms = CO_NEVER_MS;
    if (n->way == WAY_BACK) {
        n->is_out = false;
        feed(w, n, (struct elector_input){.type = ELECTOR_ANSWER, .answer = &n->answer});
        return;
    }
    if (is_dropped)
        return; /* its time ends */
    serve(w, n);
    n->way = WAY_BACK;
    if (w->now_ms < FAULTS_END_MS && chance(w, 20))
        return; /* the answer is lost */
    n->arrives_ms = w->now_ms + draw_way(w);
}

static void fail(struct world *w, struct node *n)
{
    n->is_out = false;
    n->answer = (struct elector_answer){.failed = true, .text = "no answer"};
    feed(w, n, (struct elector_input){.type = ELECTOR_ANSWER, .answer = &n->answer});
}

/* When this node has something to do next; frozen it does nothing, but what it has sent arrives. */
static uint64_t next_of(const struct world *w, const struct node *n)
{
    uint64_t at_ms = CO_NEVER_MS;
    if (n->elector == NULL)
        return n->starts_at_ms;
    if (n->is_out && n->way == WAY_THERE && n->arrives_ms != CO_NEVER_MS)
        at_ms = later(n->arrives_ms, w->etcd.away_until_ms);
    uint64_t own_ms = sooner(elector_deadline_ms(n->elector), n->commits_at_ms);
    if (n->is_out && n->way == WAY_BACK)
        own_ms = sooner(own_ms, n->arrives_ms);
    if (n->is_out)
        own_ms = sooner(own_ms, n->fails_ms);
    own_ms = own_ms == CO_NEVER_MS ? own_ms : later(own_ms, n->frozen_until_ms);
    return sooner(sooner(at_ms, own_ms), n->dies_at_ms);
}

static void act(struct world *w, struct node *n)
{
    if (n->elector == NULL)
        start_node(w, n);
    else if (w->now_ms >= n->dies_at_ms)
        stop_node(w, n);
    else if (n->is_out && n->way == WAY_THERE && w->now_ms >= n->arrives_ms &&
             w->now_ms >= w->etcd.away_until_ms)
        arrive(w, n);
    else if (w->now_ms < n->frozen_until_ms)
        return;
    else if (n->is_out && n->way == WAY_BACK && w->now_ms >= n->arrives_ms)
        arrive(w, n);
    else if (n->is_out && w->now_ms >= n->fails_ms)
        fail(w, n);
    else if (w->now_ms >= n->commits_at_ms)
        commit(w, n);
    else
        feed(w, n, (struct elector_input){.type = ELECTOR_TIME});
}

/* Stopped, or killed and started again: then leases have all their time once more. */
static void stop_etcd(struct world *w)
{
    uint64_t for_ms = draw(w, 8000);
    bool is_restart = chance(w, 2);
    w->etcd.away_until_ms = w->now_ms + for_ms;
    w->etcd.looks_at_ms = w->etcd.away_until_ms + EXPIRY_MS;
    for (int i = 0; is_restart && i < MAX_LEASES; i++)
        w->etcd.leases[i].ends_ms = w->etcd.away_until_ms + w->etcd.leases[i].ttl_ms;
    w->away_at_ms = w->now_ms + 5000 + draw(w, 40000);
    if (w->away_at_ms > FAULTS_END_MS)
        w->away_at_ms = CO_NEVER_MS;
    schedules_tell(w->now_ms, "etcd is %s for %" PRIu64 " ms", is_restart ? "gone" : "stopped",
                   for_ms);
}

static void draw_fault(struct world *w, struct node *n)
{
    if (w->now_ms >= FAULTS_END_MS || n->elector == NULL)
        return;
    if (chance(w, 300))
        n->cut_until_ms = w->now_ms + draw(w, 8000);
    if (chance(w, 300))
        n->frozen_until_ms = w->now_ms + draw(w, 8000);
    if (chance(w, 30))
        feed(w, n, (struct elector_input){.type = ELECTOR_HURRY, .hurries = chance(w, 2)});
}

/* --- What must hold --- */

static bool is_sure(const struct world *w, const struct node *n)
{
    return n->elector != NULL && n->has_roster && !n->doubts && w->now_ms >= n->frozen_until_ms &&
           w->now_ms < elector_deadline_ms(n->elector);
}

static void check_leaders(const struct world *w)
{
    int n_sure = 0;
    for (int i = 0; i < w->n_nodes; i++)
        n_sure += is_sure(w, &w->nodes[i]);
    check(w, n_sure <= 1, "two nodes are sure that they lead");
}

static void check_end(const struct world *w)
{
    int leader = -1;
    for (int i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].elector != NULL && w->nodes[i].has_roster && !w->nodes[i].doubts) {
            check(w, leader < 0, "two nodes lead at the end");
            leader = i;
        }
    check(w, leader >= 0, "nobody leads at the end");
    for (int i = 0; i < w->n_nodes; i++)
        check(w,
              w->nodes[i].elector == NULL || i == leader ||
                  (w->nodes[i].follows == leader && !w->nodes[i].has_roster),
              "a node does not follow the leader at the end");
}

/* --- A whole schedule --- */

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed, .chance = chance_from(seed)};
    for (int i = 0; i < 4; i++)
        draw(w, 2);
    w->now_ms = 1;
    w->n_nodes = 1 + (int)draw(w, MAX_NODES);
    w->away_at_ms = chance(w, 2) ? draw(w, 40000) : CO_NEVER_MS;
    w->etcd.looks_at_ms = EXPIRY_MS;
    for (int i = 0; i < w->n_nodes; i++)
        w->nodes[i].starts_at_ms = draw(w, chance(w, 2) ? 10 : 5000);
}

static uint64_t next_time(const struct world *w)
{
    uint64_t at_ms = sooner(w->etcd.looks_at_ms, w->away_at_ms);
    for (int i = 0; i < w->n_nodes; i++)
        at_ms = sooner(at_ms, next_of(w, &w->nodes[i]));
    return at_ms;
}

static void live_on(struct world *w)
{
    w->now_ms = later(w->now_ms, next_time(w));
    if (w->now_ms >= w->away_at_ms)
        stop_etcd(w);
    if (w->now_ms >= w->etcd.looks_at_ms)
        end_leases(w);
    int first = (int)draw(w, (uint64_t)w->n_nodes);
    for (int i = 0; i < w->n_nodes; i++) {
        struct node *n = &w->nodes[(first + i) % w->n_nodes];
        if (next_of(w, n) <= w->now_ms)
            act(w, n);
        check_leaders(w);
    }
    draw_fault(w, &w->nodes[draw(w, (uint64_t)w->n_nodes)]);
}

static struct {
    uint64_t n_leaders, n_commits, n_doubts, n_deposed;
} totals;

static void run(uint64_t seed)
{
    static struct world world;
    struct world *w = &world;
    world_init(w, seed);
    for (int i = 0; w->now_ms < FAULTS_END_MS + CALM_MS; i++) {
        check(w, i < MAX_STEPS, "it goes on and on");
        live_on(w);
    }
    check_end(w);
    for (int i = 0; i < w->n_nodes; i++)
        elector_destroy(w->nodes[i].elector);
    totals.n_leaders += w->n_leaders;
    totals.n_commits += w->n_commits;
    totals.n_doubts += w->n_doubts;
    totals.n_deposed += w->n_deposed;
}

int main(void)
{
    const uint64_t n = schedules_run(3000, run);
    if (n == 0)
        return 0;
    printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " leaders, %" PRIu64
           " generations, %" PRIu64 " doubts, %" PRIu64 " deposed\n",
           n, n, totals.n_leaders, totals.n_commits, totals.n_doubts, totals.n_deposed);
    return totals.n_leaders > n && totals.n_commits > n && totals.n_doubts > 0 &&
                   totals.n_deposed > 0
               ? 0
               : 1;
}
