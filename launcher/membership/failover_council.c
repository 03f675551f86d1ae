/* failover_council.c - libuv around the council: its ballots, its deadlines, its orders, and the
 * listener of this node.
 *
 * Read obey() first: it carries out what the council (rendezvous/quorum/council.h) orders. A step
 * of the council that a roster has caused is carried out from the loop, since a roster is not to be
 * stepped or closed within its own step: failover_queue_orders(). */
#include "failover_link_priv.h"

#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"

#include "common/clock.h"
#include "rendezvous/net/address.h"
#include "rendezvous/server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

/* --- what the council orders --- */

static void send_ballots(struct failover_link *l, const struct council_orders *o)
{
    struct ballot_voter to[QUORUM_MAX_ASKED];
    struct ballot *b = &l->ballot;
    uint32_t n = council_asked(&l->council, to);
    council_question(&l->council, b);
    for (uint32_t i = 0; o->ask && i < n; i++)
        ballot_links_send(l->ballots, &to[i].at, b);
    n = council_offers(&l->council, to);
    *b = (struct ballot){.type = BALLOT_READ, .job = l->council.job, .from = l->council.id};
    for (uint32_t i = 0; o->read && i < n; i++)
        ballot_links_send(l->ballots, &to[i].at, b);
    council_record(&l->council, b);
    if (o->repeat)
        ballot_links_send(l->ballots, &o->missed.at, b);
}

static uint64_t term_of(const struct failover_link *l)
{
    const uint64_t number = l->council.proposer.newest.term.number;
    return number < MESSAGE_MAX_TERM ? number : MESSAGE_MAX_TERM;
}

static void tell_roster(struct failover_link *l, const struct council_orders *o)
{
    struct jobs *jobs = local_roster_jobs(l->roster);
    if (o->doubt)
        jobs_tell(jobs, ROSTER_DOUBT);
    if (o->certain && co_now_ms() < o->certain_until_ms)
        jobs_tell_certain(jobs, o->certain_until_ms);
    if (o->committed)
        jobs_tell_confirmed(jobs, l->record.generation, term_of(l));
}

/* The coordinator is that to which the link goes already. */
static bool is_at_endpoint(const struct failover_link *l)
{
    return !l->is_moved && l->endpoint_id != 0 &&
           l->council.voter.record.term.owner == l->endpoint_id;
}

/* Without one only while the link goes to the roster here. */
void failover_tell_lease(struct failover_link *l)
{
    const bool is_needed = council_get_lease(&l->council) != COUNCIL_LEASE_OFF;
    if (l->closing || (!is_needed && (!l->is_up || l->roster == NULL)))
        return;
    l->callbacks.on_lease(l->callbacks.arg, is_needed);
    if (l->spec->verbose > 0 && is_needed == l->needs_no_lease)
        failover_note(l, CO_NOTE, "the ranks of this node need %s lease: %s node can take over",
                      is_needed ? "a" : "no", is_needed ? "another" : "no other");
    l->needs_no_lease = !is_needed;
}

/* Not within a step of a roster. */
static void obey(struct failover_link *l, const struct council_orders *o)
{
    if (o->merges)
        failover_end_part(l, &o->leader);
    if (o->give_up)
        failover_drop_roster(l);
    if (o->certain)
        l->certain_until_ms = o->certain_until_ms;
    if (o->make)
        failover_lead(l, o->has_past ? &o->past : NULL);
    if (l->roster != NULL)
        tell_roster(l, o);
    if (o->certain || o->lease) /* before failover_tell_lease(): another process may rely on it */
        failover_state_end(l);
    if (o->follow && !is_at_endpoint(l))
        failover_follow(l, &o->leader);
    if (o->lease)
        failover_tell_lease(l);
    if (o->over && l->closing)
        l->calls.close_parts(l);
}

static void on_orders_due(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    const struct council_orders o = l->queued;
    l->queued = (struct council_orders){0};
    obey(l, &o);
}

static void tell_voters(struct failover_link *l)
{
    const struct quorum_record *r = &l->council.proposer.newest;
    if (l->spec->verbose == 0 || l->roster == NULL || !r->settled || r->voters.n == l->n_voters)
        return;
    l->n_voters = r->voters.n;
    failover_note(l, CO_NOTE, "%u %s on the coordinator", l->n_voters,
                  l->n_voters == 1 ? "node votes" : "nodes vote");
}

static void set_timer(struct failover_link *l);

/* Newer orders replace older ones of the same kind. */
void failover_queue_orders(struct failover_link *l, const struct council_orders *o)
{
    struct council_orders *q = &l->queued;
    send_ballots(l, o);
    tell_voters(l);
    set_timer(l);
    if (o->give_up)
        q->make = q->committed = q->certain = q->doubt = false;
    q->give_up |= o->give_up;
    q->merges |= o->merges;
    q->doubt = (q->doubt && !o->certain) || o->doubt;
    q->make |= o->make;
    q->committed |= o->committed;
    q->over |= o->over;
    q->lease |= o->lease;
    if (o->make) {
        q->has_past = o->has_past;
        q->past = o->past;
    }
    if (o->certain) {
        q->certain = true;
        q->certain_until_ms = o->certain_until_ms;
    }
    q->follow |= o->follow;
    if (o->follow || o->merges)
        q->leader = o->leader;
    uv_timer_start(&l->orders_due, on_orders_due, 0, 0);
}

static void on_council_due(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    struct council_orders orders;
    council_time(&l->council, co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
}

static void set_timer(struct failover_link *l)
{
    const uint64_t at_ms = council_deadline_ms(&l->council), now_ms = co_now_ms();
    uv_update_time(l->loop);
    if (at_ms == CO_NEVER_MS)
        uv_timer_stop(&l->council_due);
    else
        uv_timer_start(&l->council_due, on_council_due, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* --- what the council is fed --- */

/* A confirmation that waits is not of this record. */
void failover_commit(struct failover_link *l)
{
    struct council_orders orders;
    l->queued.committed = false;
    council_commit(&l->council, &l->record, co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
}

void failover_take_ballot(struct failover_link *l, const struct ballot *b, struct ballot *answer)
{
    struct council_orders orders;
    council_take(&l->council, b, co_now_ms(), answer, &orders);
    failover_queue_orders(l, &orders);
}

void failover_note_ended(struct failover_link *l, const struct elector_address *at)
{
    struct council_orders orders;
    council_note_ended(&l->council, at, co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
}

void failover_note_silent(struct failover_link *l, bool is_silent)
{
    struct council_orders orders;
    if (l->council.id == 0)
        return;
    council_note_silent(&l->council, is_silent, co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
}

void failover_note_leased(struct failover_link *l)
{
    struct council_orders orders;
    council_note_leased(&l->council, co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
}

void failover_resign(struct failover_link *l, const struct elector_record *last)
{
    struct council_orders orders;
    council_resign(&l->council, last, co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
}

/* --- the listener of this node --- */

static void find_own_host(const struct failover_link *l, char host[ELECTOR_HOST_BYTES])
{
    char text[ADDRESS_TEXT_BYTES];
    const char *found = l->world->local_addr;
    if (found == NULL && endpoint_own_address(l->endpoint, text, sizeof text) == 0)
        found = text;
    snprintf(host, ELECTOR_HOST_BYTES, "%s", found != NULL ? found : l->world->endpoint_host);
}

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    struct failover_link *l = arg;
    if (ballot_links_claims(bytes, len))
        ballot_links_adopt(l->ballots, fd, bytes, len);
    else if (l->roster != NULL)
        jobs_adopt(local_roster_jobs(l->roster), fd, bytes, len);
    else
        close(fd); /* it asks which process coordinates */
}

bool failover_on_endpoint_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    struct failover_link *l = arg;
    const bool is_ours = ballot_links_claims(bytes, len) || l->own_roster != NULL;
    if (is_ours)
        on_control(l, fd, bytes, len);
    return is_ours;
}

static struct jobs *get_jobs(void *arg)
{
    const struct failover_link *l = arg;
    return l->roster != NULL ? local_roster_jobs(l->roster) : NULL;
}

static int listen_at(struct failover_link *l, uint16_t port, struct co_error *err)
{
    struct server_opts callbacks = {
        .on_control = on_control, .on_refused = failover_on_refused, .arg = l};
    l->pages = (struct jobs_pages){.key = l->world->key, .get_jobs = get_jobs, .arg = l};
    jobs_pages_fill(&l->pages, &callbacks);
    const bool is_loopback = address_host_is_loopback(l->world->endpoint_host);
    const char *where = !is_loopback                   ? "::"
                        : l->world->local_addr != NULL ? l->world->local_addr
                                                       : "localhost";
    int rc = listen_open_roster(l->loop, l->spec, &callbacks, where, port, &l->server, err);
    if (rc < 0)
        close_group_close_server(&l->close_group, &l->server);
    return rc;
}

/* --- the beginning of a council --- */

static uint64_t draw_number(void)
{
    uint64_t n = 0;
    while (n == 0)
        if (getrandom(&n, sizeof n, 0) < 0)
            n = co_now_ns();
    return n;
}

/* A lost coordinator is replaced only where the endpoint cannot begin the job once more: where MIN
 * nodes cannot come together twice, or where it is not started again; or where two parts of the job
 * are accepted. */
static void begin_council(struct failover_link *l, const struct elector_address *own)
{
    const struct job_world *w = l->world;
    const bool stands = w->failover_alone || w->endpoint_once || 2 * w->min_nodes > w->max_nodes;
    struct council_limits limits =
        w->host_timeout_ms > 0 ? council_limits_with(w->host_timeout_ms) : council_usual_limits;
    if (w->failover_alone)
        council_limits_set_alone(&limits);
    council_init(&l->council, &limits, draw_number(), own, stands);
}

/* At the endpoint's port number, which a site may have opened, if it is free here. */
void failover_listen(struct failover_link *l)
{
    struct elector_address own = {0};
    struct co_error err;
    if (l->server != NULL || l->closing)
        return;
    if (endpoint_is_here(l->endpoint) || listen_at(l, l->world->endpoint_port, &err) < 0)
        if (listen_at(l, 0, &err) < 0) {
            failover_note(l, CO_WARNING, "this node cannot replace the coordinator: %s", err.text);
            return;
        }
    find_own_host(l, own.host);
    own.port = server_port(l->server);
    begin_council(l, &own);
}

/* At the start: what a loss of this node costs, and how to choose. */
static void tell_failover(struct failover_link *l)
{
    const struct job_world *w = l->world;
    const bool may_begin_twice = 2 * w->min_nodes <= w->max_nodes;
    if (!l->council.stands)
        failover_note(l, CO_NOTE,
                      "a lost coordinator is not replaced with --nnodes %" PRIu32 ":%" PRIu32
                      ": this ddprun, started again, could begin the job a second time. If it is "
                      "not started again, use --rdzv-conf endpoint=once",
                      w->min_nodes, w->max_nodes);
    else if (w->failover_alone)
        failover_note(l, CO_NOTE,
                      "of two nodes that are left, each continues without the other one "
                      "(--rdzv-conf failover=alone): if the network between them is cut, the job "
                      "runs twice until it is back");
    else if (w->max_nodes == 2)
        failover_note(l, CO_NOTE,
                      "the other node continues if this node, the coordinator, leaves, but not if "
                      "it is lost. With --rdzv-conf failover=off the job ends in either case; with "
                      "failover=alone it continues in either case");
    else
        failover_note(l, CO_NOTE,
                      "another node replaces the coordinator if this node is lost or leaves. With "
                      "--rdzv-conf failover=off the job ends instead%s",
                      may_begin_twice && w->endpoint_guessed
                          ? "; if this ddprun is started again automatically, use endpoint=again"
                          : "");
}

/* This node is the endpoint: the job begins with it. */
void failover_on_roster(void *arg, struct local_roster *own)
{
    struct failover_link *l = arg;
    struct council_orders orders;
    l->roster = own;
    failover_listen(l);
    if (l->server == NULL)
        begin_council(l, &(struct elector_address){0});
    tell_failover(l);
    council_found(&l->council, draw_number(), co_now_ms(), &orders);
    failover_queue_orders(l, &orders);
    failover_offer_soon(l);
}

/* To the job before, this process has ended. */
void failover_change_job(struct failover_link *l)
{
    const struct elector_address own = l->council.own;
    l->queued = (struct council_orders){0};
    if (l->council.id == 0)
        return;
    begin_council(l, &own);
    set_timer(l);
}

/* Another coordinator has this job, which was begun again here. */
void failover_yield(struct failover_link *l, const struct elector_address *leader)
{
    const struct elector_address own = l->council.own;
    const struct council_orders orders = {
        .give_up = true, .merges = l->world->failover_alone, .leader = *leader};
    begin_council(l, &own);
    failover_queue_orders(l, &orders);
}
