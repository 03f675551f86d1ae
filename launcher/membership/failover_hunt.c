/* failover_hunt.c - which process coordinates, and the offer to vote.
 *
 * Read on_hunt() first: while the coordinator is not heard it asks the voters, and the endpoint;
 * on_answer() follows a coordinator that voters obey in a newer term. A process that does not vote
 * answers what it was answered itself (redirect()). A coordinator whose link has ended and whose
 * port refuses connections has ended: then the council may replace it at once. */
#include "failover_link_priv.h"

#include "launcher/job/job_spec.h"

#include "common/clock.h"
#include "rendezvous/membership/lease.h"

enum {
    HUNT_MS = 100,
    ALSO_MS = 1000, /* another endpoint that does not answer is waited for */
    OFFER_MS = 1000,
    READ_MS = 30000, /* a node that does not offer to vote learns the voters at this interval ... */
    SPREAD_MS = 20,  /* ... and this time later than the node before it */
    SPARE_MS = 2000, /* one without a place does so later than this */
    SPARES_MS = 8000,
};

/* --- ballots --- */

/* No other process would continue what this one has begun. */
static bool is_only_voter(const struct failover_link *l)
{
    return l->council.proposer.newest.voters.n == 1;
}

/* A coordinator calls at the endpoint, where a ddprun that was started again may have begun the job
 * once more. If it has begun no generation, it joins the other one; where two parts of a job are
 * accepted, also later. */
static bool must_yield(const struct failover_link *l, const struct ballot *b)
{
    const bool may = l->record.n_nodes == 0 ||
                     (l->world->failover_alone && l->own_roster == NULL && is_only_voter(l));
    return b->type == BALLOT_OFFER && b->job != 0 && l->council.job != 0 &&
           b->job != l->council.job && l->roster != NULL && may;
}

/* Each of two nodes has to expect of the other one what that one does. */
static void check_offer(struct failover_link *l, const struct ballot *b)
{
    if (b->type != BALLOT_OFFER || b->alone == l->world->failover_alone ||
        l->has_reported_difference || l->roster == NULL)
        return;
    l->has_reported_difference = true;
    failover_note(l, CO_WARNING,
                  "the node at %s port %u has no vote on the next coordinator: it was started %s "
                  "--rdzv-conf failover=alone, unlike this node; use the same setting on all nodes",
                  b->at.host, b->at.port, b->alone ? "with" : "without");
}

/* --- a job that was begun again --- */

static uint64_t own_job(const struct failover_link *l)
{
    return l->council.job != 0 ? l->council.job : l->seen.job;
}

/* This node has joined the other job already, or its lease in its own one is over. */
static bool has_no_job(const struct failover_link *l, const struct elector_address *from)
{
    const struct elector_address to = failover_coordinator(l);
    const uint64_t now_ms = co_now_ms();
    if (l->roster != NULL || l->is_over || council_obeys(&l->council, now_ms))
        return false;
    return l->is_up ? elector_same_address(from, &to)
                    : failover_is_endpoint(l, from) &&
                          now_ms >= l->heard_ms + l->lease_ms + LEASE_MARGIN_MS;
}

/* A node that has lost its coordinator also takes part in a job that was begun again at the
 * endpoint. The process with which it has begun never votes as another one. */
static void change_job(struct failover_link *l, const struct elector_address *from,
                       const struct ballot *b)
{
    if (own_job(l) == 0 || b->job == 0 || b->job == own_job(l) || !b->has_entry || !b->is_bound ||
        !has_no_job(l, from))
        return;
    failover_note(l, CO_NOTE,
                  "the job was begun again at %s port %u: this node, which has lost the "
                  "coordinator of the one before, joins it",
                  from->host, from->port);
    l->calls.change_job(l);
    l->seen = (struct ballot){0};
    l->n_known = 0;
    l->endpoint_id = 0;
}

/* --- answers --- */

/* The coordinator is heard, and this process knows which one it is. One that has lost the
 * coordinator asks itself. */
static void redirect(const struct failover_link *l, struct ballot *answer)
{
    if (!l->is_up || l->hunts || !l->seen.has_entry)
        return;
    answer->job = l->seen.job;
    answer->is_bound = answer->has_entry = true;
    answer->entry = l->seen.entry;
}

static void on_question(void *arg, const struct ballot *b, struct ballot *answer)
{
    struct failover_link *l = arg;
    check_offer(l, b);
    if (must_yield(l, b)) {
        l->known[0] = b->at;
        l->n_known = 1;
        l->seen = (struct ballot){0};
        l->calls.yield(l, &b->at);
    }
    if (l->council.id != 0)
        l->calls.take_ballot(l, b, answer);
    else
        *answer = (struct ballot){.type = BALLOT_VOTE,
                                  .asked = b->type,
                                  .term = b->term,
                                  .index = b->index,
                                  .settled = b->settled,
                                  .asked_ms = b->asked_ms};
    if (b->type == BALLOT_READ && !answer->has_entry)
        redirect(l, answer);
}

static const struct elector_address *find_owner(const struct ballot_entry *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        if (e->voters[i].id == e->record.term.owner)
            return &e->voters[i].at;
    return NULL;
}

static void learn_voters(struct failover_link *l, const struct ballot_entry *e)
{
    l->n_known = e->n;
    for (uint32_t i = 0; i < e->n; i++)
        l->known[i] = e->voters[i].at;
}

static void on_answer(void *arg, const struct elector_address *from, const struct ballot *b)
{
    struct failover_link *l = arg;
    const struct elector_address came_from = *from;
    const bool is_asked = b->asked == BALLOT_READ || b->asked == BALLOT_OFFER;
    const struct elector_address *at = find_owner(&b->entry);
    const struct quorum_record *known = &l->seen.entry.record, *record = &b->entry.record;
    failover_note_reached(l, &came_from, b);
    if (!b->has_entry)
        failover_note_also(l, &came_from);
    if (l->council.id != 0)
        l->calls.take_ballot(l, b, NULL);
    if (is_asked)
        change_job(l, &came_from, b);
    if (!is_asked || !b->has_entry || !b->is_bound || l->roster != NULL || at == NULL ||
        (l->council.job != 0 && b->job != l->council.job) ||
        quorum_record_compare(record, known) < 0)
        return;
    const bool is_news = quorum_term_compare(&record->term, &known->term) > 0;
    if (l->is_moved && elector_same_address(at, &l->leader))
        l->named_ms = co_now_ms();
    l->seen = *b;
    learn_voters(l, &b->entry); /* they change within a term */
    if (!is_news)
        return;
    if (!l->is_moved && b->from == record->term.owner && failover_is_endpoint(l, &came_from))
        l->endpoint_id = b->from; /* where the link goes */
    else
        l->calls.follow(l, at);
}

int failover_open_ballots(struct failover_link *l, struct co_error *err)
{
    const struct ballot_links_callbacks callbacks = {
        .on_question = on_question, .on_answer = on_answer, .on_lost = failover_on_lost, .arg = l};
    return ballot_links_create(l->loop, l->world->key, l->spec->run_id, &callbacks, &l->ballots,
                               err);
}

/* --- to hunt --- */

static void ask(struct failover_link *l, const struct elector_address *at)
{
    const struct ballot b = {.type = BALLOT_READ, .job = l->council.job, .from = l->council.id};
    ballot_links_send(l->ballots, at, &b);
}

static void probe_leader(struct failover_link *l);

/* A node without a place goes where others send it: to a coordinator that they may have lost since.
 * When no process has named it for so long that its nodes have no lease either, the endpoints count
 * again. */
static void check_named(struct failover_link *l)
{
    if (!l->is_welcome && !l->is_up && l->is_moved && l->roster == NULL &&
        co_now_ms() >= l->named_ms + LEASE_MS + LEASE_MARGIN_MS)
        l->calls.unfollow(l);
}

static void on_hunt(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    struct ballot_voter voters[QUORUM_MAX_ASKED];
    struct elector_address at = failover_endpoint(l);
    check_named(l);
    const uint32_t n = l->council.id != 0 ? council_voters(&l->council, voters) : 0;
    l->hunts = true;
    for (uint32_t i = 0; i < n; i++)
        ask(l, &voters[i].at);
    for (uint32_t i = 0; n == 0 && i < l->n_known; i++)
        ask(l, &l->known[i]);
    if (!l->is_up && !l->is_foreign)
        ask(l, &at);
    for (uint32_t i = 0; !l->is_up && i < l->world->n_also; i++) {
        at = failover_also(l, i);
        ask(l, &at);
    }
    probe_leader(l);
}

static void on_probed(void *arg, bool is_refused)
{
    struct failover_link *l = arg;
    l->leader_probe = NULL;
    if (is_refused && l->hunts && l->council.id != 0)
        l->calls.note_ended(l, &l->probed_leader);
}

static void probe_leader(struct failover_link *l)
{
    struct co_error err;
    if (l->is_up || l->leader_probe != NULL || l->council.id == 0 ||
        !council_leader(&l->council, &l->probed_leader))
        return;
    const struct elector_address *at = failover_find_reached(l, &l->probed_leader);
    if (at == NULL ||
        port_probe_start(l->loop, at->host, at->port, on_probed, l, &l->leader_probe, &err) < 0)
        l->leader_probe = NULL;
}

/* From the loop. One that has begun continues. */
void failover_hunt_begin(struct failover_link *l, uint64_t in_ms)
{
    if (l->is_over || l->closing || l->roster != NULL || l->hunts || (l->is_welcome && !l->elects))
        return;
    uv_update_time(l->loop);
    uv_timer_start(&l->hunt, on_hunt, in_ms, HUNT_MS);
    l->hunts = in_ms == 0;
}

void failover_hunt_end(struct failover_link *l)
{
    uv_timer_stop(&l->hunt);
    l->hunts = false;
}

void failover_hunt_close(struct failover_link *l)
{
    failover_hunt_end(l);
    if (l->leader_probe != NULL)
        port_probe_close(l->leader_probe);
    l->leader_probe = NULL;
}

bool failover_may_begin(void *arg)
{
    struct failover_link *l = arg;
    const uint64_t now_ms = co_now_ms();
    if (l->world->n_also == 0 || l->is_welcome)
        return true;
    if (!l->asks_also) {
        l->asks_also = true;
        l->asks_until_ms = now_ms + ALSO_MS;
        l->n_also_left = l->world->n_also;
        failover_hunt_begin(l, 0);
    }
    return l->n_also_left == 0 || now_ms >= l->asks_until_ms;
}

static void on_silence(uv_timer_t *timer)
{
    failover_hunt_begin(timer->data, 0);
}

void failover_hear(struct failover_link *l)
{
    l->heard_ms = co_now_ms();
    if (l->silence_ms > 0 && l->is_up)
        uv_timer_start(&l->silence, on_silence, l->silence_ms, 0);
    if (l->is_up)
        failover_hunt_end(l);
}

/* --- to offer --- */

static bool is_voter(const struct failover_link *l)
{
    return quorum_list_has(&l->council.voter.record.voters, l->council.id);
}

static struct ballot own_offer(const struct failover_link *l)
{
    return (struct ballot){.type = BALLOT_OFFER,
                           .job = l->council.job,
                           .from = l->council.id,
                           .at = l->council.own,
                           .order = l->own_index,
                           .alone = l->world->failover_alone};
}

/* A coordinator elsewhere than at the endpoint calls there. Where a process may take over alone,
 * each coordinator also calls at the other endpoints, and at those that have voted: one of them may
 * coordinate another part. */
static void call_others(struct failover_link *l)
{
    struct elector_address at = failover_endpoint(l);
    const struct ballot b = own_offer(l);
    if (l->council.own.port == 0)
        return;
    if (l->own_roster != NULL)
        ballot_links_send(l->ballots, &at, &b);
    if (!l->world->failover_alone)
        return;
    if (council_next_stray(&l->council, &at))
        ballot_links_send(l->ballots, &at, &b);
    for (uint32_t i = 0; i < l->world->n_also; i++) {
        at = failover_also(l, i);
        ballot_links_send(l->ballots, &at, &b);
    }
}

static bool offers(const struct failover_link *l)
{
    return l->own_index < FAILOVER_MAX_OFFERED && l->council.id != 0 && l->council.own.port != 0;
}

/* A refused connection counts only where the coordinator has answered. */
static bool has_reached_leader(const struct failover_link *l)
{
    struct elector_address leader;
    return !council_leader(&l->council, &leader) || failover_find_reached(l, &leader) != NULL;
}

static void ask_coordinator(struct failover_link *l)
{
    const struct elector_address to = failover_coordinator(l);
    const struct ballot offer = own_offer(l);
    if (offers(l) && !is_voter(l))
        ballot_links_send(l->ballots, &to, &offer);
    else if (!is_voter(l) || !has_reached_leader(l) || !council_obeys(&l->council, co_now_ms()))
        ask(l, &to);
}

/* Nodes with a high index read in turn: thousands of them begin a generation at once. */
static uint64_t turn_ms(const struct failover_link *l)
{
    const bool has_place = l->own_index != UINT32_MAX;
    return has_place ? (uint64_t)l->own_index * SPREAD_MS : SPARE_MS + l->council.id % SPARES_MS;
}

static void on_offer(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    const bool is_often = offers(l) || l->roster != NULL;
    uv_timer_start(&l->offer, on_offer, is_often ? OFFER_MS : READ_MS + turn_ms(l), 0);
    if (l->roster != NULL) {
        call_others(l);
        failover_check_reach(l);
    } else if (l->is_up) {
        ask_coordinator(l);
    }
}

void failover_offer_soon(struct failover_link *l)
{
    const bool is_soon = offers(l) || l->roster != NULL;
    if (!l->closing && (l->elects || l->roster != NULL))
        uv_timer_start(&l->offer, on_offer, is_soon ? 0 : turn_ms(l), 0);
}
