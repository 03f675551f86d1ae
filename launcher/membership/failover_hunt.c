/* failover_hunt.c - which process coordinates, and the offer to vote.
 *
 * Read on_hunt() first: while the coordinator is not heard it asks the voters, and the endpoint;
 * on_answer() follows a coordinator that voters obey in a newer term. A coordinator whose link has
 * ended and whose port refuses connections has ended: then the council may replace it at once. */
#include "failover_link_priv.h"

#include "launcher/job/job_spec.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    HUNT_MS = 100,
    OFFER_MS = 1000,
    READ_MS = 30000, /* a node that does not offer to vote learns the voters at this interval */
};

void failover_note(struct failover_link *l, enum co_severity severity, const char *format, ...)
{
    char line[FAILOVER_TEXT_BYTES];
    va_list args;
    if (l->closing || l->callbacks.on_note == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    l->callbacks.on_note(l->callbacks.arg, severity, line);
}

void failover_on_note(void *arg, enum co_severity severity, const char *text)
{
    failover_note(arg, severity, "%s", text);
}

/* --- ballots --- */

static struct elector_address endpoint_of(const struct failover_link *l)
{
    struct elector_address at = {.port = l->world->endpoint_port};
    snprintf(at.host, sizeof at.host, "%s", l->world->endpoint_host);
    return at;
}

/* A coordinator calls at the endpoint, where a ddprun that was started again may have begun the job
 * once more. It has begun no generation: it joins the other one. */
static bool must_yield(const struct failover_link *l, const struct ballot *b)
{
    return b->type == BALLOT_OFFER && b->job != 0 && l->council.job != 0 &&
           b->job != l->council.job && l->roster != NULL && l->record.n_nodes == 0;
}

static void on_question(void *arg, const struct ballot *b, struct ballot *answer)
{
    struct failover_link *l = arg;
    if (must_yield(l, b)) {
        l->known[0] = b->at;
        l->n_known = 1;
        l->term = (struct quorum_term){0};
        l->hunter.yield(l);
    }
    if (l->council.id != 0)
        l->hunter.take(l, b, answer);
    else
        *answer = (struct ballot){.type = BALLOT_VOTE,
                                  .asked = b->type,
                                  .term = b->term,
                                  .index = b->index,
                                  .settled = b->settled,
                                  .asked_ms = b->asked_ms};
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

static bool is_news(const struct failover_link *l, const struct ballot *b)
{
    return quorum_term_compare(&b->entry.record.term, &l->term) > 0;
}

static void on_answer(void *arg, const struct elector_address *from, const struct ballot *b)
{
    struct failover_link *l = arg;
    const struct elector_address endpoint = endpoint_of(l), came_from = *from;
    const bool is_asked = b->asked == BALLOT_READ || b->asked == BALLOT_OFFER;
    const struct elector_address *at = find_owner(&b->entry);
    if (l->council.id != 0)
        l->hunter.take(l, b, NULL);
    if (!is_asked || !b->has_entry || !b->is_bound || l->roster != NULL || at == NULL ||
        (l->council.job != 0 && b->job != l->council.job) || !is_news(l, b))
        return;
    l->term = b->entry.record.term;
    learn_voters(l, &b->entry);
    if (!l->is_moved && b->from == l->term.owner && failover_is_same(&came_from, &endpoint))
        l->endpoint_id = b->from; /* where the link goes */
    else
        l->hunter.follow(l, at);
}

int failover_open_ballots(struct failover_link *l, struct co_error *err)
{
    const struct ballot_links_callbacks callbacks = {
        .on_question = on_question, .on_answer = on_answer, .arg = l};
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

static void on_hunt(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    const struct elector_address endpoint = endpoint_of(l);
    struct ballot_voter voters[QUORUM_MAX_ASKED];
    const uint32_t n = l->council.id != 0 ? council_voters(&l->council, voters) : 0;
    for (uint32_t i = 0; i < n; i++)
        ask(l, &voters[i].at);
    for (uint32_t i = 0; n == 0 && i < l->n_known; i++)
        ask(l, &l->known[i]);
    if (!l->is_up)
        ask(l, &endpoint);
    probe_leader(l);
}

static void on_probed(void *arg, bool is_refused)
{
    struct failover_link *l = arg;
    l->leader_probe = NULL;
    if (is_refused && l->hunts && l->council.id != 0)
        l->hunter.note_ended(l, &l->probed_leader);
}

static void probe_leader(struct failover_link *l)
{
    struct co_error err;
    if (l->is_up || l->leader_probe != NULL || l->council.id == 0 ||
        !council_leader(&l->council, &l->probed_leader))
        return;
    if (port_probe_start(l->loop, l->probed_leader.host, l->probed_leader.port, on_probed, l,
                         &l->leader_probe, &err) < 0)
        l->leader_probe = NULL;
}

void failover_hunt_begin(struct failover_link *l)
{
    if (l->is_over || l->closing || l->roster != NULL)
        return;
    if (!l->hunts)
        uv_timer_start(&l->hunt, on_hunt, 0, HUNT_MS);
    l->hunts = true;
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

static void on_silence(uv_timer_t *timer)
{
    failover_hunt_begin(timer->data);
}

void failover_hear(struct failover_link *l)
{
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

/* Where the coordinator also takes ballots: the address to which the link goes. */
static struct elector_address coordinator_of(const struct failover_link *l)
{
    return l->is_moved && l->remote != NULL ? l->leader : endpoint_of(l);
}

/* A coordinator elsewhere than at the endpoint calls there. */
static void call_at_endpoint(struct failover_link *l)
{
    const struct elector_address at = endpoint_of(l);
    const struct ballot b = {
        .type = BALLOT_OFFER, .job = l->council.job, .from = l->council.id, .at = l->council.own};
    if (l->own_roster != NULL && l->council.own.port != 0)
        ballot_links_send(l->ballots, &at, &b);
}

static void on_offer(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    const struct elector_address to = coordinator_of(l);
    const struct ballot b = {.type = BALLOT_OFFER,
                             .job = l->council.job,
                             .from = l->council.id,
                             .at = l->council.own,
                             .order = l->own_index};
    const bool offers =
        l->own_index < FAILOVER_MAX_OFFERED && l->council.id != 0 && l->council.own.port != 0;
    uv_timer_start(&l->offer, on_offer, offers || l->roster != NULL ? OFFER_MS : READ_MS, 0);
    if (l->roster != NULL)
        call_at_endpoint(l);
    else if (l->is_up && offers && !is_voter(l))
        ballot_links_send(l->ballots, &to, &b);
    else if (l->is_up && !is_voter(l))
        ask(l, &to);
}

void failover_offer_soon(struct failover_link *l)
{
    if (!l->closing)
        uv_timer_start(&l->offer, on_offer, 0, 0);
}
