/* sim_heartbeat - the heartbeats of a node, on virtual time: are its ranks suspended before the
 * coordinator counts it as lost?
 *
 * The arithmetic of the spawner is the real one (launcher/spawner/heartbeat.h); kernels,
 * connections and the coordinator are models. Both clocks run up to 6% too fast or too slow. Bytes
 * arrive in order, are sent again until they are acknowledged, and get lost; the network is cut one
 * way or both ways; the spawner runs late; the node's ddprun and the coordinator are stopped.
 * Checked at every step: once the node is lost, its ranks never run. At the end, when the network
 * is whole: a node that is not lost has running ranks.
 *
 * Variants, each with a rule left out, must be found to break this. */
#include "schedules.h"

#include "launcher/spawner/heartbeat.h"

#include "common/clock.h"
#include "tests/support/chance.h"

#include <string.h>

enum {
    LIMIT_MIN_MS = 300,
    LIMIT_MAX_MS = 1000,
    DRIFT_PERCENT = 6,
    LATE_MS = 20, /* the spawner runs so late at most */
    KEEP_ALIVE_MS = 500,
    RESEND_MS = 200,
    MAX_MAILS = 1024,
    FAULTS_END_MS = 20000,
    END_MS = 24000,
    MUTANT_RUNS = 3000,
};

enum mutant {
    NO_MUTANT,
    RESUMES_BY_ACK,
    NO_MARGIN,
    COUNTS_FROM_ACK,
    KEEP_ALIVES_IGNORED,
    N_MUTANTS
};
static const char *const mutant_names[] = {
    [NO_MUTANT] = "none",
    [RESUMES_BY_ACK] = "an acknowledgment resumes the ranks",
    [NO_MARGIN] = "the coordinator does not wait for the margin",
    [COUNTS_FROM_ACK] = "the spawner counts from when the acknowledgment came",
    [KEEP_ALIVES_IGNORED] = "the coordinator does not count keep-alives",
};

enum mail_type { BYTES, ACK, KEEP_ALIVE, LEASE };

struct mail {
    uint64_t at_ms;
    enum mail_type type;
    uint64_t number; /* BYTES, ACK: so many bytes; else the node's time */
};

static struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    enum mutant mutant;
    const char *broken;
    uint64_t loses_one_in;
    bool is_cut_there, is_cut_back;
    struct mail mails[MAX_MAILS];
    uint32_t n_mails;

    uint64_t limit_ms, silent_ms;
    struct node {
        uint64_t rate_percent, offset_ms;
        struct heartbeat heartbeat;
        uint64_t n_acked; /* by its kernel's count */
        uint64_t resends_at_ms, runs_at_ms;
        uint64_t asks_at_ms, ddprun_stopped_until_ms;
        bool owes_keep_alive;
    } node;
    struct coordinator {
        uint64_t rate_percent, offset_ms;
        uint64_t n_bytes, byte_ms; /* in its kernel; its own clock */
        uint64_t heard_ms;         /* a keep-alive, by the process */
        uint64_t stopped_until_ms, looks_at_ms;
        uint32_t n_silent;
        bool has_lost;
    } coordinator;
} world;

static struct totals {
    uint64_t n_lost, n_suspended, n_resumed;
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

static uint64_t node_ms(const struct world *w)
{
    return w->node.offset_ms + w->now_ms * w->node.rate_percent / 100;
}

static uint64_t coordinator_ms(const struct world *w)
{
    return w->coordinator.offset_ms + w->now_ms * w->coordinator.rate_percent / 100;
}

/* --- the network --- */

static void post(struct world *w, enum mail_type type, uint64_t number)
{
    const bool is_there = type == BYTES || type == KEEP_ALIVE;
    const bool is_cut = is_there ? w->is_cut_there : w->is_cut_back;
    if (is_cut || w->n_mails == MAX_MAILS || (w->loses_one_in > 0 && draw(w, w->loses_one_in) == 0))
        return;
    const uint64_t delay_ms = draw(w, 30) == 0 ? draw(w, 1500) : draw(w, 4);
    w->mails[w->n_mails++] =
        (struct mail){.at_ms = w->now_ms + delay_ms, .type = type, .number = number};
}

static void resume(struct world *w, uint64_t from_ms)
{
    if (heartbeat_resume(&w->node.heartbeat, from_ms, node_ms(w)))
        totals.n_resumed++;
    else if (w->node.heartbeat.is_suspended)
        w->node.owes_keep_alive = true;
}

static void take_ack(struct world *w, uint64_t n)
{
    struct heartbeat *h = &w->node.heartbeat;
    if (n <= w->node.n_acked)
        return;
    w->node.n_acked = n;
    heartbeat_acked(h, h->n_sent - n);
    if (w->mutant == COUNTS_FROM_ACK)
        h->from_ms = node_ms(w);
    if (w->mutant == RESUMES_BY_ACK)
        h->is_suspended = false;
}

/* The kernel of the coordinator acknowledges as long as the connection is open. */
static void take_bytes(struct world *w, uint64_t n)
{
    struct coordinator *c = &w->coordinator;
    if (c->has_lost)
        return;
    if (n > c->n_bytes) {
        c->n_bytes = n;
        c->byte_ms = coordinator_ms(w);
    }
    post(w, ACK, c->n_bytes);
}

static bool waits(const struct world *w, const struct mail *m)
{
    return m->at_ms > w->now_ms ||
           (m->type == KEEP_ALIVE && w->now_ms < w->coordinator.stopped_until_ms) ||
           (m->type == LEASE && w->now_ms < w->node.ddprun_stopped_until_ms);
}

static void deliver(struct world *w)
{
    for (uint32_t i = 0; i < w->n_mails;) {
        const struct mail m = w->mails[i];
        if (waits(w, &m)) {
            i++;
            continue;
        }
        w->mails[i] = w->mails[--w->n_mails];
        if (m.type == BYTES) {
            take_bytes(w, m.number);
        } else if (m.type == ACK) {
            take_ack(w, m.number);
        } else if (m.type == LEASE) {
            resume(w, m.number);
        } else if (!w->coordinator.has_lost) {
            w->coordinator.heard_ms = coordinator_ms(w);
            post(w, LEASE, m.number);
        }
    }
}

/* --- the node --- */

static void run_spawner(struct world *w)
{
    struct node *n = &w->node;
    struct heartbeat *h = &n->heartbeat;
    if (w->now_ms >= n->resends_at_ms && n->n_acked < h->n_sent) {
        post(w, BYTES, h->n_sent);
        n->resends_at_ms = w->now_ms + RESEND_MS;
    }
    if (w->now_ms < n->runs_at_ms)
        return;
    n->runs_at_ms = w->now_ms + 1 + draw(w, LATE_MS);
    if (heartbeat_is_due(h, node_ms(w))) {
        heartbeat_sent(h, node_ms(w), true);
        post(w, BYTES, h->n_sent);
        n->resends_at_ms = w->now_ms + RESEND_MS;
    }
    if (heartbeat_lapse(h, node_ms(w))) {
        totals.n_suspended++;
        n->owes_keep_alive = true;
    }
}

static void run_ddprun(struct world *w)
{
    struct node *n = &w->node;
    if (w->now_ms < n->ddprun_stopped_until_ms ||
        (w->now_ms < n->asks_at_ms && !n->owes_keep_alive))
        return;
    n->owes_keep_alive = false;
    n->asks_at_ms = w->now_ms + KEEP_ALIVE_MS;
    post(w, KEEP_ALIVE, node_ms(w));
}

/* --- the coordinator --- */

static void look(struct world *w)
{
    struct coordinator *c = &w->coordinator;
    const uint64_t now_ms = coordinator_ms(w);
    if (c->has_lost || w->now_ms < c->stopped_until_ms || w->now_ms < c->looks_at_ms)
        return;
    c->looks_at_ms = w->now_ms + 10 + draw(w, 30);
    c->n_silent = now_ms - c->byte_ms >= w->silent_ms ? c->n_silent + 1 : 0;
    const bool is_heard = now_ms - c->heard_ms < w->silent_ms && w->mutant != KEEP_ALIVES_IGNORED;
    if (c->n_silent < 2 || is_heard)
        return;
    c->has_lost = true;
    totals.n_lost++;
    schedules_tell(w->now_ms, "the node is lost");
}

/* --- a schedule --- */

static void draw_fault(struct world *w)
{
    switch (draw(w, 6)) {
    case 0:
        w->is_cut_there = !w->is_cut_there;
        break;
    case 1:
        w->is_cut_back = !w->is_cut_back;
        break;
    case 2:
        w->coordinator.stopped_until_ms = w->now_ms + draw(w, 3000);
        break;
    case 3:
        w->node.ddprun_stopped_until_ms = w->now_ms + draw(w, 3000);
        break;
    default:
        w->is_cut_there = w->is_cut_back = false;
        break;
    }
}

static void world_init(struct world *w, uint64_t seed, enum mutant mutant)
{
    *w = (struct world){.seed = seed, .chance = chance_from(seed), .mutant = mutant};
    for (int i = 0; i < 4; i++)
        draw(w, 2);
    w->limit_ms = LIMIT_MIN_MS + draw(w, LIMIT_MAX_MS - LIMIT_MIN_MS + 1);
    w->silent_ms = w->limit_ms + (mutant == NO_MARGIN ? 0 : w->limit_ms / 4);
    w->loses_one_in = draw(w, 2) == 0 ? 0 : 3 + draw(w, 20);
    w->node.rate_percent = 100 - DRIFT_PERCENT + draw(w, 2 * DRIFT_PERCENT + 1);
    w->coordinator.rate_percent = 100 - DRIFT_PERCENT + draw(w, 2 * DRIFT_PERCENT + 1);
    w->node.offset_ms = 1 + draw(w, 1000000);
    w->coordinator.offset_ms = 1 + draw(w, 1000000);
    heartbeat_begin(&w->node.heartbeat, node_ms(w), w->limit_ms);
    w->coordinator.byte_ms = w->coordinator.heard_ms = coordinator_ms(w);
}

static void run_mutant(uint64_t seed, enum mutant mutant)
{
    struct world *w = &world;
    world_init(w, seed, mutant);
    for (; w->now_ms < END_MS && w->broken == NULL; w->now_ms++) {
        if (w->now_ms < FAULTS_END_MS && draw(w, 800) == 0)
            draw_fault(w);
        if (w->now_ms == FAULTS_END_MS) {
            w->is_cut_there = w->is_cut_back = false;
            w->loses_one_in = 0;
        }
        deliver(w);
        run_spawner(w);
        run_ddprun(w);
        look(w);
        check(w, !w->coordinator.has_lost || w->node.heartbeat.is_suspended,
              "ranks of a lost node run");
    }
    check(w, w->broken != NULL || w->coordinator.has_lost || !w->node.heartbeat.is_suspended,
          "the ranks of a node that is not lost stay suspended");
}

static void run(uint64_t seed)
{
    run_mutant(seed, NO_MUTANT);
}

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
    const uint64_t n = schedules_run(2000, run);
    bool well = true;
    if (n > 0)
        printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " nodes lost, %" PRIu64
               " times suspended, %" PRIu64 " times resumed\n",
               n, n, totals.n_lost, totals.n_suspended, totals.n_resumed);
    for (int m = NO_MUTANT + 1; n > 0 && m < N_MUTANTS; m++)
        well &= find_mutant((enum mutant)m);
    return well ? 0 : 1;
}
