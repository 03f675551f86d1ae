/* sim_membership - one roster and its members in a simulated world: connections that are slow, cut,
 * reset, rejected by another process or go silent, messages that arrive twice, nodes that join
 * late, leave, are killed or stopped, ranks that fail, take others along, or exit with 0, and
 * requested restarts.
 *
 * Roster, members and the bytes between them are the real ones; time, connections and processes are
 * simulated. Each schedule is drawn from a seed. Checked at every step:
 *   - a generation's ranks are dense and unique, its nodes between the minimum and the maximum
 *   - generations follow each other by one; all that start in one have the same world and the same
 *     store, which no other generation had
 *   - no rank of an older generation runs when one is sealed, unless its connection was reset less
 *     than a lease ago
 *   - no wait of the roster lasts longer than its limits allow
 *   - the effect of another node's loss on a rank never becomes the verdict or uses up budget
 *   - a rejection that does not last ends no node
 *   - a node that is excluded had as many failures as that takes, and participates in nothing more
 *   - with segments, a generation has whole ones only, and the nodes of a domain are consecutive
 *   - ranks that live on have missed no generation that has begun
 * In every third schedule the roster is lost now and then, and another one takes its place, which
 * knows only what was recorded when its generation was confirmed (docs/design/etcd.md): the same
 * holds, and no rank is stopped because of it alone. Half of the schedules have ranks that outlive
 * the end of a generation: they are kept if their node has not started in the newest generation,
 * and never if it was lost. In another third the one that takes its place knows nothing, like a
 * restarted ddp-rendezvous, and learns everything from the members.
 * In some of the others the roster is in the process of the first node. Both stop together, for any
 * time, and the ranks of that node live on as long as it needs no lease.
 * and at the end: the job is closed, each ddprun that received the verdict ended with the same
 * status, none is left waiting. */
#include "membership_world.h"
#include "schedules.h"

#include "common/clock.h"
#include "common/error.h"

#include <string.h>

/* --- What can happen next --- */

struct choice {
    uint64_t at_ms;
    enum {
        NOBODY,
        NODE,
        NODE_TIME,
        MAIL,
        ROSTER_TIME_,
        WAKE_ROSTER,
        RESET,
        FREEZE_ROSTER,
        LOSE_ROSTER,
        WRITE_RECORD,
        CONFIRM,
        TURN_LEASE
    } what;
    int index;
    int detail;
};

static void consider(struct choice *best, struct choice c)
{
    if (c.at_ms != CO_NEVER_MS && c.at_ms < best->at_ms)
        *best = c;
}

static void consider_mail(struct world *w, struct choice *best, int i, int to)
{
    const struct link *l = &w->links[i];
    const struct node *n = &w->nodes[l->node];
    if (l->id == 0 || l->is_dead || !l->has_end[to] || l->queues[to].n == 0)
        return;
    uint64_t at_ms = later(l->queues[to].mails[0].at_ms, n->blocked_until_ms);
    at_ms = later(at_ms, to == TO_NODE ? n->frozen_until_ms : w->roster_frozen_until_ms);
    consider(best, (struct choice){at_ms, MAIL, i, to});
}

static void consider_node(struct choice *best, const struct node *n, int i)
{
    for (size_t k = 0; k < NODE_N_HAPPENINGS; k++)
        consider(best, (struct choice){node_happens_at_ms(n, k), NODE, i, (int)k});
}

/* Messages before time: both machines are to be fed all that was received first. */
static struct choice choose(struct world *w)
{
    struct choice best = {.at_ms = CO_NEVER_MS};
    if (w->roster_slept)
        consider(&best, (struct choice){w->roster_frozen_until_ms, WAKE_ROSTER, 0, 0});
    for (int i = 0; i < MAX_LINKS; i++)
        for (int to = 0; to < 2; to++)
            consider_mail(w, &best, i, to);
    for (int i = 0; i < w->n_nodes; i++)
        consider_node(&best, &w->nodes[i], i);
    consider(&best, (struct choice){w->resets_at_ms, RESET, 0, 0});
    consider(&best, (struct choice){w->freezes_roster_at_ms, FREEZE_ROSTER, 0, 0});
    consider(&best, (struct choice){w->moves_at_ms, LOSE_ROSTER, 0, 0});
    consider(&best, (struct choice){w->writes_at_ms, WRITE_RECORD, 0, 0});
    if (w->lease_turns_at_ms != CO_NEVER_MS)
        consider(&best, (struct choice){later(w->lease_turns_at_ms, w->roster_frozen_until_ms),
                                        TURN_LEASE, 0, 0});
    if (w->confirms_at_ms != CO_NEVER_MS)
        consider(&best, (struct choice){later(w->confirms_at_ms, w->roster_frozen_until_ms),
                                        CONFIRM, 0, 0});
    for (int i = 0; i < w->n_nodes; i++) {
        const struct node *n = &w->nodes[i];
        uint64_t at_ms = n->is_up ? member_deadline_ms(n->member) : CO_NEVER_MS;
        if (at_ms != CO_NEVER_MS)
            at_ms = later(at_ms, n->frozen_until_ms);
        consider(&best, (struct choice){at_ms, NODE_TIME, i, 0});
    }
    uint64_t at_ms = roster_deadline_ms(w->roster);
    if (at_ms != CO_NEVER_MS)
        at_ms = later(at_ms, w->roster_frozen_until_ms);
    consider(&best, (struct choice){at_ms, ROSTER_TIME_, 0, 0});
    return best;
}

/* From a node that takes part: others are not believed. */
static void note_heard(struct world *w, const struct link *l, const struct message *m)
{
    struct roster_node_view v;
    if (m->type == MESSAGE_STOPPED && m->generation == roster_generation(w->roster) &&
        m->stopped.steps > w->most_steps) {
        w->most_steps = m->stopped.steps;
        w->advanced_after = m->generation + 1;
    }
    if (m->type != MESSAGE_FAILED || m->failed.exit_code == CONSEQUENCE_CODE ||
        m->generation != roster_generation(w->roster))
        return;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++)
        if (roster_view(w->roster, i, &v) && v.is_member && !v.is_stopped &&
            strcmp(v.name, w->nodes[l->node].name) == 0)
            w->generations[m->generation].own_is_heard = true;
}

static void receive(struct world *w, struct link *l, enum direction to, const struct mail *mail)
{
    struct message m;
    struct co_error err = {0};
    struct node *n = &w->nodes[l->node];
    if (channel_wire_decode(mail->bytes, mail->len, &w->scratch, &m, &err) < 0)
        give_up(w, err.text);
    if (to == TO_NODE) {
        n->was_welcome |= m.type == MESSAGE_WELCOME;
        node_feed(w, n, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
        return;
    }
    note_heard(w, l, &m);
    roster_feed(w, (struct roster_input){.type = ROSTER_MESSAGE, .link = l->id, .message = &m});
}

static void end_link(struct world *w, struct link *l, enum direction to)
{
    struct node *n = &w->nodes[l->node];
    uint64_t id = l->id;
    l->has_end[to] = false;
    if (to == TO_NODE)
        n->link = NULL;
    link_free_if_over(w, l);
    if (to == TO_NODE)
        node_feed(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = "end of file"});
    else
        roster_feed(w, (struct roster_input){.type = ROSTER_GONE, .link = id});
}

/* Now and then a message comes again later: both machines promise that this means nothing. */
static void deliver(struct world *w, struct link *l, enum direction to)
{
    struct queue *q = &l->queues[to];
    struct mail mail = queue_take(q);
    if (mail.bytes == NULL) {
        end_link(w, l, to);
        return;
    }
    bool ends = q->n > 0 && q->mails[q->n - 1].bytes == NULL;
    if (chance(w, 20) && !ends && w->now_ms < FAULTS_END_MS) {
        uint8_t *again = malloc(mail.len);
        if (again == NULL)
            give_up(w, "no memory");
        memcpy(again, mail.bytes, mail.len);
        queue_put(w, q, again, mail.len);
    }
    receive(w, l, to, &mail);
    free(mail.bytes);
}

static void reset_some(struct world *w)
{
    bool all = chance(w, 4);
    for (int i = 0; i < MAX_LINKS; i++)
        if (w->links[i].id != 0 && !w->links[i].is_dead &&
            !is_home(w, &w->nodes[w->links[i].node]) && (all || chance(w, 2)))
            link_reset(w, &w->links[i]);
    w->resets_at_ms = w->now_ms + draw(w, 4000);
    if (w->resets_at_ms > FAULTS_END_MS)
        w->resets_at_ms = CO_NEVER_MS;
}

static void freeze_roster(struct world *w)
{
    w->freezes_roster_at_ms = CO_NEVER_MS;
    w->roster_frozen_until_ms = w->now_ms + draw(w, 10000);
    w->roster_slept = true;
    w->state_since_ms = w->roster_frozen_until_ms;
    if (!w->has_home)
        return;
    w->nodes[0].frozen_until_ms = w->roster_frozen_until_ms;
    if (w->now_ms < FAULTS_END_MS)
        w->freezes_roster_at_ms = w->roster_frozen_until_ms + draw(w, 10000);
}

/* Its process has ended: all connections end, and their messages are lost. */
static void lose_roster(struct world *w)
{
    w->moves_at_ms = CO_NEVER_MS;
    if (roster_get_state(w->roster) == ROSTER_CLOSED &&
        (w->limits.confirm_ms == 0 || roster_generation(w->roster) == MESSAGE_NO_GENERATION))
        return;
    w->n_closed_moves += roster_get_state(w->roster) == ROSTER_CLOSED;
    schedules_tell(w->now_ms, "the roster is lost");
    for (int i = 0; i < MAX_LINKS; i++) {
        struct link *l = &w->links[i];
        if (l->id == 0 || !l->has_end[TO_ROSTER])
            continue;
        queue_clear(&l->queues[TO_NODE]);
        link_close(w, l, TO_ROSTER);
    }
    w->is_moving = w->roster_slept = true;
    w->roster_frozen_until_ms = w->now_ms + draw(w, w->is_blind && !chance(w, 4) ? 1500 : 4000);
    w->confirms_at_ms = CO_NEVER_MS; /* no node receives it, but a pending write may complete */
    if (chance(w, 2))
        w->writes_at_ms = CO_NEVER_MS;
    w->n_moves++;
}

/* The new roster's process has found that these do not listen any more. */
static void report_ended(struct world *w)
{
    for (int i = 0; i < w->n_nodes && w->seed % 2 == 0; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->is_up && !n->runs && n->has_place && n->sealed_in == w->past.generation) {
            roster_feed(w, (struct roster_input){.type = ROSTER_ENDED,
                                                 .generation = n->sealed_in,
                                                 .node_index = n->sealed_at});
            w->n_reported_ended++;
        }
    }
}

/* The record is of the end of the job: the next verdict has its exit status. */
static void end_again(struct world *w)
{
    const struct message end = {.type = MESSAGE_END,
                                .generation = MESSAGE_NO_GENERATION,
                                .verdict = {.outcome = MESSAGE_ENDED,
                                            .exit_code = w->past_end.exit_code,
                                            .rank = MESSAGE_NO_RANK,
                                            .node = "",
                                            .text = "it had ended"}};
    roster_feed(w, (struct roster_input){.type = ROSTER_END, .message = &end});
}

static void take_over(struct world *w)
{
    struct co_error err;
    roster_destroy(w->roster);
    w->replaced_at_ms = w->now_ms;
    if (roster_create(&w->limits, &w->terms, NULL, 0, w->now_ms, &w->roster, &err) < 0 ||
        (w->has_past && roster_resume(w->roster, &w->past, w->now_ms, &err) < 0))
        exit(1);
    w->inherited = w->has_past ? w->past.generation : MESSAGE_NO_GENERATION;
    schedules_tell(w->now_ms, "another roster: %s", roster_change(w->roster));
    w->is_moving = false;
    w->most_steps = w->advanced_after = 0;
    w->state_since_ms = w->now_ms;
    if (w->has_past)
        w->generations[w->past.generation].own_is_heard = false; /* may be reported again, or not */
    w->moves_at_ms =
        w->now_ms < FAULTS_END_MS && !chance(w, 3) ? w->now_ms + draw(w, 12000) : CO_NEVER_MS;
    if (w->has_past && w->past_end.is_over)
        end_again(w);
    else if (w->has_past)
        report_ended(w);
}

static void wake_roster(struct world *w)
{
    w->roster_slept = false;
    if (w->is_moving)
        take_over(w);
    else
        roster_feed(w, (struct roster_input){.type = ROSTER_ASLEEP});
}

static void confirm(struct world *w)
{
    w->confirms_at_ms = CO_NEVER_MS;
    roster_feed(w,
                (struct roster_input){.type = ROSTER_CONFIRMED, .generation = w->past.generation});
}

static void live_on(struct world *w, const struct choice *c)
{
    w->now_ms = later(w->now_ms, c->at_ms);
    switch (c->what) {
    case NODE:
        node_happen(w, &w->nodes[c->index], (size_t)c->detail);
        break;
    case NODE_TIME:
        node_take_time(w, &w->nodes[c->index]);
        break;
    case MAIL:
        deliver(w, &w->links[c->index], (enum direction)c->detail);
        break;
    case ROSTER_TIME_:
        roster_feed(w, (struct roster_input){.type = ROSTER_TIME});
        break;
    case WAKE_ROSTER:
        wake_roster(w);
        break;
    case LOSE_ROSTER:
        lose_roster(w);
        break;
    case WRITE_RECORD:
        w->writes_at_ms = CO_NEVER_MS;
        w->has_past = true;
        w->past = w->being_written;
        w->past_end = w->being_end;
        break;
    case CONFIRM:
        confirm(w);
        break;
    case TURN_LEASE:
        node_turn_lease(w, &w->nodes[0]);
        break;
    case RESET:
        reset_some(w);
        break;
    case FREEZE_ROSTER:
        freeze_roster(w);
        break;
    default:
        give_up(w, "nothing will ever happen again");
    }
}

/* --- A whole schedule --- */

static void draw_faults(struct world *w, struct node *n)
{
    n->leaves_at_ms = n->killed_at_ms = n->dies_at_ms = n->ends_job_at_ms = CO_NEVER_MS;
    if (is_home(w, n))
        return;
    switch (w->loses_nodes ? draw(w, 8) : 8) {
    case 0:
        n->leaves_at_ms = n->starts_at_ms + 1 + draw(w, 20000);
        break;
    case 1:
        n->killed_at_ms = n->starts_at_ms + 1 + draw(w, 10000);
        break;
    case 2:
        n->dies_at_ms = n->starts_at_ms + 1 + draw(w, 10000);
        break;
    default:
        break;
    }
}

static void draw_node(struct world *w, int i)
{
    struct node *n = &w->nodes[i];
    *n = (struct node){0};
    n->connect_at_ms = n->lease_end_ms = n->open_at_ms = n->fail_at_ms = CO_NEVER_MS;
    n->done_at_ms = n->gone_at_ms = n->yield_at_ms = n->check_at_ms = CO_NEVER_MS;
    n->sealed_in = MESSAGE_NO_GENERATION;
    n->starts_at_ms = i < (int)w->terms.min_nodes || chance(w, 2) ? draw(w, 50) : draw(w, 15000);
    node_make_hello(w, n, i);
    draw_faults(w, n);
    if (chance(w, 60))
        n->ends_job_at_ms = n->starts_at_ms + 1 + draw(w, 10000);
    n->restarts_at_ms = chance(w, 20) ? n->starts_at_ms + 1 + draw(w, 20000) : CO_NEVER_MS;
}

/* Silence begins and ends by itself; here it is only drawn when. */
static void draw_silence(struct world *w, struct node *n)
{
    if (w->now_ms >= FAULTS_END_MS || !w->loses_nodes || !n->is_up || is_home(w, n))
        return;
    if (chance(w, 400))
        n->blocked_until_ms = w->now_ms + draw(w, 6000);
    if (chance(w, 400))
        n->frozen_until_ms = w->now_ms + draw(w, 10000);
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed, .chance = chance_from(seed)};
    for (int i = 0; i < 4; i++)
        draw(w, 2);
    w->now_ms = w->state_since_ms = 1;
    w->terms.min_nodes = 1 + (uint32_t)draw(w, 3);
    w->terms.max_nodes = w->terms.min_nodes + (uint32_t)draw(w, 3);
    w->terms.window_ms = draw(w, 3000);
    w->terms.start_timeout_ms = 1000 + draw(w, 20000);
    w->terms.rejoin_timeout_ms = 1000 + draw(w, 10000);
    w->terms.max_restarts = (uint32_t)draw(w, 4);
    w->terms.admit_at = chance(w, 4) ? MESSAGE_ADMIT_AT_CHECKPOINT : MESSAGE_ADMIT_NOW;
    w->terms.admit_timeout_ms = chance(w, 2) ? draw(w, 20000) : 0;
    w->terms.exclude_after = chance(w, 2) ? 1 + (uint32_t)draw(w, 2) : 0;
    w->terms.exclude_window_ms = chance(w, 4) ? 1 + draw(w, 20000) : 0;
    w->loses_nodes = !chance(w, 4);
    w->has_node_ranks = chance(w, 3);
    w->tells = w->seed % 2 == 1;
    w->checks = w->seed / 2 % 3 == 1;
    w->resets_at_ms = chance(w, 3) ? draw(w, 10000) : CO_NEVER_MS;
    w->freezes_roster_at_ms = chance(w, 10) ? draw(w, 10000) : CO_NEVER_MS;
    w->writes_at_ms = w->confirms_at_ms = w->moves_at_ms = w->lease_turns_at_ms = CO_NEVER_MS;
    w->inherited = w->told = MESSAGE_NO_GENERATION;
    w->recovers = seed / 3 % 2 == 1;
    w->terms.spares = seed / 5 % 3 == 2 ? 1 : 0;
    if (seed / 12 % 4 == 1) {
        w->terms.segment = 1 + (uint32_t)(seed / 48 % 3);
        w->terms.min_nodes = w->terms.segment * (1 + (uint32_t)draw(w, 2));
        w->terms.max_nodes = w->terms.min_nodes + w->terms.segment * (uint32_t)draw(w, 2);
    }
    w->terms.no_progress = seed / 6 % 3 == 2 ? 1 + (uint32_t)(seed / 18 % 3) : 0;
    if (seed % 3 == 0) {
        w->limits.confirm_ms = 60000;
        w->freezes_roster_at_ms = CO_NEVER_MS; /* one that sleeps has lost its place */
        w->moves_at_ms = draw(w, 12000);
    } else if (seed % 3 == 1) {
        w->is_blind = true;
        w->freezes_roster_at_ms = CO_NEVER_MS;
        w->moves_at_ms = draw(w, 12000);
    } else if (seed / 36 % 2 == 1) {
        w->has_home = true;
        w->freezes_roster_at_ms = draw(w, 10000);
        w->lease_turns_at_ms = draw(w, 8000);
    }
    w->n_nodes = (int)w->terms.min_nodes + (int)draw(w, MAX_NODES - w->terms.min_nodes + 1);
    for (int i = 0; i < w->n_nodes; i++)
        draw_node(w, i);
    struct co_error err;
    if (roster_create(&w->limits, &w->terms, NULL, 0, w->now_ms, &w->roster, &err) < 0)
        exit(1);
}

/* The longest that the roster may stay in a state if the nodes keep to their stated times. */
static void check_wait(struct world *w)
{
    uint64_t silence_ms = LEASE_MS + LEASE_MARGIN_MS;
    uint64_t most = CO_NEVER_MS;
    switch (roster_get_state(w->roster)) {
    case ROSTER_GATHERING:
        most = later(w->terms.start_timeout_ms, w->terms.rejoin_timeout_ms);
        break;
    case ROSTER_OPEN:
        most = w->terms.window_ms + (w->is_blind ? silence_ms : 0);
        break;
    case ROSTER_STOPPING:
        most = STOP_MS + 2 * ROSTER_SLACK_MS + CHECK_MS + silence_ms + 30000; /* with a pause */
        break;
    default:
        break;
    }
    if (most != CO_NEVER_MS && w->now_ms > w->state_since_ms &&
        w->roster_frozen_until_ms < w->now_ms)
        check(w, w->now_ms - w->state_since_ms <= most, "a wait is longer than it may be");
}

/* No rank continues training when the store is lost with its node. */
static void check_store(const struct world *w)
{
    uint32_t generation = roster_generation(w->roster);
    if (roster_get_state(w->roster) != ROSTER_RUNNING || w->generations[generation].port == 0 ||
        w->now_ms < w->roster_frozen_until_ms)
        return;
    const struct node *n = &w->nodes[w->generations[generation].leader];
    check(w,
          n->is_up || w->now_ms <= n->ended_at_ms + LEASE_MS + LEASE_MARGIN_MS + 500 ||
              w->now_ms <= later(w->roster_frozen_until_ms, w->adopted_at_ms) + LEASE_MS +
                               LEASE_MARGIN_MS + 500,
          "a generation goes on without its store");
}

static bool is_over(const struct world *w)
{
    for (int i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].is_up || w->nodes[i].starts_at_ms != CO_NEVER_MS)
            return false;
    return true;
}

static void check_end(struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    for (int i = 0; i < w->n_nodes; i++) {
        const struct node *n = &w->nodes[i];
        check(w, !n->runs, "ranks are left");
        if (n->has_ended && n->end.by_roster && !node_is_excluded(n))
            check(w,
                  v != NULL && (n->end.exit_code == v->exit_code ||
                                (!n->end.took_part && v->exit_code == 0)),
                  "two nodes ended with different verdicts");
    }
}

static void world_fini(struct world *w)
{
    for (int i = 0; i < MAX_LINKS; i++)
        for (int to = 0; to < 2; to++)
            queue_clear(&w->links[i].queues[to]);
    roster_destroy(w->roster);
}

/* What all schedules together came to: a simulator that never reaches a case proves nothing of
 * it. */
static struct totals {
    uint64_t n_left_out, n_segmented, n_moves, n_closed_moves, n_adopted, n_untold, n_ended,
        n_messages, n_generations, n_restarts, n_virtual_s, n_unfit;
    uint64_t n_verdicts[MESSAGE_N_OUTCOMES], n_open, n_excluded;
} totals;

static void add_up(const struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    totals.n_messages += w->n_messages;
    totals.n_unfit += w->n_unfit;
    totals.n_left_out += w->n_left_out;
    if (w->terms.segment > 1)
        totals.n_segmented += roster_generation(w->roster) + 1;
    totals.n_moves += w->n_moves;
    totals.n_closed_moves += w->n_closed_moves;
    totals.n_adopted += w->n_adopted;
    totals.n_untold += w->n_untold;
    totals.n_ended += w->n_reported_ended;
    totals.n_generations += roster_generation(w->roster) + 1; /* none: -1 */
    totals.n_restarts += roster_n_restarts(w->roster);
    totals.n_virtual_s += w->now_ms / 1000;
    for (int i = 0; i < w->n_nodes; i++)
        totals.n_excluded += node_is_excluded(&w->nodes[i]);
    if (v != NULL)
        totals.n_verdicts[v->outcome]++;
    else
        totals.n_open++;
}

static void run(uint64_t seed)
{
    static struct world world;
    struct world *w = &world;
    world_init(w, seed);
    for (int i = 0; !is_over(w); i++) {
        check(w, i < MAX_STEPS && w->now_ms < 1200000, "it goes on and on");
        struct choice c = choose(w);
        live_on(w, &c);
        check_wait(w);
        check_store(w);
        draw_silence(w, &w->nodes[draw(w, (uint64_t)w->n_nodes)]);
    }
    check_end(w);
    add_up(w);
    world_fini(w);
}

int main(void)
{
    const uint64_t n = schedules_run(20000, run);
    if (n == 0)
        return 0;
    printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " generations, %" PRIu64
           " restarts, %" PRIu64 " messages, %" PRIu64 " s\n",
           n, n, totals.n_generations, totals.n_restarts, totals.n_messages, totals.n_virtual_s);
    printf("%" PRIu64 " times another roster took over, %" PRIu64
           " times after the verdict, %" PRIu64 " times by what the members said; %" PRIu64
           " nodes kept ranks although they did not know of the generation; %" PRIu64
           " were known to have ended\n",
           totals.n_moves, totals.n_closed_moves, totals.n_adopted, totals.n_untold,
           totals.n_ended);
    printf("%" PRIu64 " checks found a node unhealthy\n", totals.n_unfit);
    printf("%" PRIu64 " generations of segments of several nodes; %" PRIu64
           " nodes were left out of one that had been in the one before\n",
           totals.n_segmented, totals.n_left_out);
    printf("verdicts: %" PRIu64 " well, %" PRIu64 " a rank failed, %" PRIu64
           " too few left, %" PRIu64 " missing, %" PRIu64 " ended, %" PRIu64
           " no progress; no node left to receive it: %" PRIu64 "; nodes excluded: %" PRIu64 "\n",
           totals.n_verdicts[MESSAGE_WELL], totals.n_verdicts[MESSAGE_RANK_FAILED],
           totals.n_verdicts[MESSAGE_TOO_FEW], totals.n_verdicts[MESSAGE_MISSING],
           totals.n_verdicts[MESSAGE_ENDED], totals.n_verdicts[MESSAGE_STUCK], totals.n_open,
           totals.n_excluded);
    return 0;
}
