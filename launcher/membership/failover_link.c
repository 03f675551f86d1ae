/* failover_link.c - a node's link where another node may replace the coordinator.
 *
 * Read obey() first: it carries out what the council (rendezvous/quorum/council.h) orders. The job
 * begins at its endpoint (endpoint.c), whose node founds the council. When the coordinator moves,
 * `is_moved` is set, and from then on the link is `remote` or `own_roster` here. While the
 * coordinator is not heard, on_hunt() asks the voters which process coordinates.
 *
 * Invariant: a roster in this process is in `roster`, at most one, and the member sees a change of
 * rosters as a lost link. A step of the council that a roster has caused is carried out from the
 * loop, since a roster is not to be stepped or closed within its own step. */
#include "failover_link.h"

#include "failover_link_priv.h"

#include "etcd_record.h"
#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"

#include "common/clock.h"
#include "rendezvous/membership/lease.h"
#include "rendezvous/net/address.h"
#include "rendezvous/server/server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    WAIT_MS = 2000, /* an attempt to get a link waits this long for a coordinator */
    CONFIRM_MIN_MS = 10000,
};

static void on_refused(void *arg, const char *text)
{
    failover_note(arg, CO_WARNING, "%s", text);
}

static void open_listener(struct failover_link *l);
static void close_parts(struct failover_link *l);

/* --- up and down --- */

static void on_up(void *arg, bool is_here)
{
    struct failover_link *l = arg;
    (void)is_here; /* also here: this node has a lease like all */
    l->is_up = true;
    l->wants_link = false;
    uv_timer_stop(&l->later);
    failover_hunt_end(l);
    l->callbacks.on_up(l->callbacks.arg, false);
}

static void on_moved_up(void *arg)
{
    on_up(arg, false);
}

static void on_down(void *arg, const char *text, int exit_code, bool rejected)
{
    struct failover_link *l = arg;
    l->is_up = l->wants_link = false;
    uv_timer_stop(&l->later);
    uv_timer_stop(&l->silence);
    failover_hunt_begin(l);
    l->callbacks.on_down(l->callbacks.arg, text, exit_code, rejected);
}

static void on_remote_down(void *arg, const char *text, int code)
{
    on_down(arg, text, roster_link_exit_code(code), code != 0);
}

static void on_local_down(void *arg, const char *text, int code)
{
    (void)code;
    on_down(arg, text, 0, false);
}

static void on_later(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    on_down(l, l->why, 0, false);
}

/* From the loop, since the caller may be within a call. */
static void go_down_in(struct failover_link *l, uint64_t in_ms, const char *why)
{
    snprintf(l->why, sizeof l->why, "%s", why);
    l->is_up = false;
    uv_update_time(l->loop);
    uv_timer_start(&l->later, on_later, in_ms, 0);
}

static void on_message(void *arg, const struct message *m)
{
    struct failover_link *l = arg;
    if (m->type == MESSAGE_WELCOME) {
        l->is_welcome = true;
        l->silence_ms = m->welcome.keep_alive_ms * 3 / 2;
        open_listener(l);
    }
    if (m->type == MESSAGE_SEALED) {
        l->own_generation = m->generation;
        l->own_index = m->sealed.node_index;
        failover_offer_soon(l);
    }
    l->is_over |= m->type == MESSAGE_VERDICT;
    failover_hear(l);
    l->callbacks.on_message(l->callbacks.arg, m);
}

/* --- a roster here --- */

static void queue_orders(struct failover_link *l, const struct council_orders *o);

static bool note_host(struct failover_link *l)
{
    struct roster_node_view own;
    struct elector_host *host = &l->record.host;
    if (l->roster == NULL || !jobs_view_local(local_roster_jobs(l->roster), &own) ||
        !own.is_member ||
        (host->node == own.node_index && failover_is_same(&host->at, &l->council.own)))
        return false;
    *host = (struct elector_host){.node = own.node_index, .at = l->council.own};
    return true;
}

static void commit(struct failover_link *l)
{
    struct council_orders orders;
    council_commit(&l->council, &l->record, co_now_ms(), &orders);
    queue_orders(l, &orders);
}

static void on_changed(void *arg, const char *run_id, const struct roster *r,
                       enum roster_state from)
{
    struct failover_link *l = arg;
    const enum roster_state to = roster_get_state(r);
    (void)run_id;
    (void)from;
    bool begins = to == ROSTER_RUNNING && !l->leaves;
    if ((!begins && to != ROSTER_CLOSED) || !etcd_record_of(r, &l->record))
        return;
    note_host(l);
    commit(l);
}

/* This node has come to the roster that it has taken over. */
static void on_heard(void *arg, const struct roster *r)
{
    struct failover_link *l = arg;
    if (l->record.n_nodes > 0 && !l->record.is_over && roster_get_state(r) == ROSTER_RUNNING &&
        roster_generation(r) == l->record.generation && note_host(l))
        commit(l);
}

static struct roster_limits roster_limits_of(const struct job_world *w)
{
    struct roster_limits r = {
        .keep_alive_ms = w->keep_alive_ms > 0 ? w->keep_alive_ms : LEASE_KEEP_ALIVE_MS,
        .lease_ms = w->lease_ms > LEASE_MS ? w->lease_ms : LEASE_MS,
        .confirm_ms = w->rejoin_timeout_ms > CONFIRM_MIN_MS ? w->rejoin_timeout_ms : CONFIRM_MIN_MS,
    };
    /* the old coordinator was certain for the last time before its successor led */
    r.absent_ms = r.lease_ms + LEASE_MARGIN_MS;
    return r;
}

static void prepare(void *arg, struct jobs_opts *opts)
{
    struct failover_link *l = arg;
    opts->limits = roster_limits_of(l->world);
    opts->outlives_local = true;
    opts->on_note = on_refused;
    opts->on_changed = on_changed;
    opts->on_heard = on_heard;
    opts->arg = l;
}

static int make_roster(struct failover_link *l, const struct roster_past *past,
                       struct co_error *err)
{
    const struct channel_link_callbacks callbacks = {
        .on_up = on_moved_up, .on_message = on_message, .on_down = on_local_down, .arg = l};
    struct jobs_opts opts = {
        .keys = l->world->key,
        .n_keys = l->world->key != NULL ? 1 : 0,
        .max_conns = listen_limits(l->spec).n_nodes,
        .only_run_id = l->spec->run_id,
        .terms = &l->terms,
        .past = past,
    };
    prepare(l, &opts);
    int rc = local_roster_create(l->loop, &opts, &callbacks, &l->own_roster, err);
    if (rc == 0)
        l->roster = l->own_roster;
    return rc;
}

static void drop_roster(struct failover_link *l)
{
    if (l->roster != NULL && l->roster != l->own_roster)
        endpoint_drop_roster(l->endpoint);
    l->roster = NULL;
    close_group_close_own(&l->close_group, &l->own_roster);
}

static void on_probed(void *arg, bool is_refused)
{
    struct failover_link *l = arg;
    l->host_probe = NULL;
    if (is_refused && l->roster != NULL)
        jobs_tell_ended(local_roster_jobs(l->roster), l->probed_generation, l->probed_node);
}

/* The ranks of the coordinator before are waited for, unless its process has ended. */
static void probe_host(struct failover_link *l, const struct elector_record *r)
{
    struct co_error err;
    if (r->host.at.port == 0 || r->gone >= 0 || r->is_over || l->host_probe != NULL ||
        failover_is_same(&r->host.at, &l->council.own))
        return;
    l->probed_generation = r->generation;
    l->probed_node = r->host.node;
    if (port_probe_start(l->loop, r->host.at.host, r->host.at.port, on_probed, l, &l->host_probe,
                         &err) < 0)
        l->host_probe = NULL; /* a lease has to end */
}

static void tell_past(struct failover_link *l, const struct elector_record *r)
{
    if (r->is_over)
        jobs_end(local_roster_jobs(l->roster), r->exit_code,
                 "the job had ended when its coordinator moved");
    else
        failover_note(l, CO_NOTE,
                      "this node is the coordinator now; generation %" PRIu32 " continues",
                      r->generation);
    probe_host(l, r);
}

/* r   NULL: no generation has begun */
static void lead(struct failover_link *l, const struct elector_record *r)
{
    struct roster_past past;
    struct co_error err;
    if (r != NULL)
        past = etcd_record_past(r);
    if (l->roster != NULL) /* the endpoint's, with which the job begins */
        return;
    close_group_close_link(&l->close_group, &l->remote);
    if (!l->is_moved)
        endpoint_disconnect(l->endpoint);
    l->is_moved = true;
    if (make_roster(l, r != NULL ? &past : NULL, &err) < 0) {
        failover_note(l, CO_WARNING, "cannot become the coordinator: %s", err.text);
        return;
    }
    l->record = r != NULL ? *r : (struct elector_record){0};
    if (r != NULL)
        tell_past(l, r);
    if (l->is_up)
        go_down_in(l, 0, "this node is the coordinator now");
    else if (l->wants_link)
        channel_link_connect(local_roster_link(l->own_roster));
}

/* --- the roster elsewhere --- */

static void follow(struct failover_link *l, const struct elector_address *leader)
{
    const struct channel_link_callbacks callbacks = {
        .on_up = on_moved_up, .on_message = on_message, .on_down = on_remote_down, .arg = l};
    char why[FAILOVER_TEXT_BYTES];
    struct co_error err;
    if (l->roster != NULL || l->is_over ||
        (l->remote != NULL && failover_is_same(&l->leader, leader)))
        return;
    close_group_close_link(&l->close_group, &l->remote);
    if (!l->is_moved)
        endpoint_disconnect(l->endpoint);
    l->is_moved = true;
    l->leader = *leader;
    if (channel_link_create(l->loop, leader->host, leader->port, l->world->key, &callbacks,
                            &l->remote, &err) < 0) {
        failover_note(l, CO_WARNING, "%s", err.text);
        return;
    }
    snprintf(why, sizeof why, "the coordinator moved to %s port %u", leader->host, leader->port);
    if (l->is_up)
        go_down_in(l, 0, why);
    else if (l->wants_link)
        channel_link_connect(l->remote);
    failover_offer_soon(l);
}

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

static void set_council_timer(struct failover_link *l);

static void tell_roster(struct failover_link *l, const struct council_orders *o)
{
    struct jobs *jobs = local_roster_jobs(l->roster);
    if (o->doubt)
        jobs_tell(jobs, ROSTER_DOUBT, 0);
    if (o->certain && co_now_ms() < o->certain_until_ms)
        jobs_tell_certain(jobs, o->certain_until_ms);
    if (o->committed)
        jobs_tell(jobs, ROSTER_CONFIRMED, l->record.generation);
}

/* The coordinator is that to which the link goes already. */
static bool is_at_endpoint(const struct failover_link *l)
{
    return !l->is_moved && l->endpoint_id != 0 &&
           l->council.voter.record.term.owner == l->endpoint_id;
}

/* Not within a step of a roster. */
static void obey(struct failover_link *l, const struct council_orders *o)
{
    if (o->give_up && l->roster != NULL) {
        drop_roster(l);
        l->is_moved = true;
        failover_note(l, CO_NOTE, "the coordinator moved to another node");
        if (l->is_up)
            go_down_in(l, 0, "the coordinator moved to another node");
    }
    if (o->make)
        lead(l, o->has_past ? &o->past : NULL);
    if (l->roster != NULL)
        tell_roster(l, o);
    if (o->follow && !is_at_endpoint(l))
        follow(l, &o->leader);
    if (o->over && l->closing)
        close_parts(l);
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

/* Newer orders replace older ones of the same kind. */
static void queue_orders(struct failover_link *l, const struct council_orders *o)
{
    struct council_orders *q = &l->queued;
    send_ballots(l, o);
    tell_voters(l);
    set_council_timer(l);
    if (o->give_up)
        q->make = q->committed = q->certain = q->doubt = false;
    q->give_up |= o->give_up;
    q->doubt = (q->doubt && !o->certain) || o->doubt;
    q->make |= o->make;
    q->committed |= o->committed;
    q->over |= o->over;
    if (o->make) {
        q->has_past = o->has_past;
        q->past = o->past;
    }
    if (o->certain) {
        q->certain = true;
        q->certain_until_ms = o->certain_until_ms;
    }
    if (o->follow) {
        q->follow = true;
        q->leader = o->leader;
    }
    uv_timer_start(&l->orders_due, on_orders_due, 0, 0);
}

static void on_council_due(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    struct council_orders orders;
    council_time(&l->council, co_now_ms(), &orders);
    queue_orders(l, &orders);
}

static void set_council_timer(struct failover_link *l)
{
    const uint64_t at_ms = council_deadline_ms(&l->council), now_ms = co_now_ms();
    uv_update_time(l->loop);
    if (at_ms == CO_NEVER_MS)
        uv_timer_stop(&l->council_due);
    else
        uv_timer_start(&l->council_due, on_council_due, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

static void take_ballot(struct failover_link *l, const struct ballot *b, struct ballot *answer)
{
    struct council_orders orders;
    council_take(&l->council, b, co_now_ms(), answer, &orders);
    queue_orders(l, &orders);
}

static void note_ended(struct failover_link *l, const struct elector_address *at)
{
    struct council_orders orders;
    council_note_ended(&l->council, at, co_now_ms(), &orders);
    queue_orders(l, &orders);
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

static struct jobs *get_jobs(void *arg)
{
    const struct failover_link *l = arg;
    return l->roster != NULL ? local_roster_jobs(l->roster) : NULL;
}

static int listen_at(struct failover_link *l, uint16_t port, struct co_error *err)
{
    struct server_opts callbacks = {.on_control = on_control, .on_refused = on_refused, .arg = l};
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

/* A lost coordinator is replaced only where the endpoint cannot begin the job once more: where MIN
 * nodes cannot come together twice, or where it is not started again. */
static void begin_council(struct failover_link *l, const struct elector_address *own)
{
    const struct job_world *w = l->world;
    const bool stands = w->endpoint_once || 2 * w->min_nodes > w->max_nodes;
    council_init(&l->council, &council_usual_limits, draw_number(), own, stands);
}

/* At the endpoint's port number, which a site may have opened, if it is free here. */
static void open_listener(struct failover_link *l)
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

/* This node is the endpoint: the job begins with it. */
static void on_roster(void *arg, struct local_roster *own)
{
    struct failover_link *l = arg;
    struct council_orders orders;
    l->roster = own;
    open_listener(l);
    if (l->server == NULL)
        begin_council(l, &(struct elector_address){0});
    if (!l->council.stands)
        failover_note(l, CO_NOTE,
                      "a lost coordinator is not replaced with --nnodes %" PRIu32 ":%" PRIu32
                      ": this ddprun, started again, could begin the job a second time. If it is "
                      "not started again, use --rdzv-conf endpoint=once",
                      l->world->min_nodes, l->world->max_nodes);
    council_found(&l->council, draw_number(), co_now_ms(), &orders);
    queue_orders(l, &orders);
}

static bool on_endpoint_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    struct failover_link *l = arg;
    const bool is_ours = ballot_links_claims(bytes, len) || l->own_roster != NULL;
    if (is_ours)
        on_control(l, fd, bytes, len);
    return is_ours;
}

/* Another coordinator has this job, which has begun no generation here. */
static void yield(struct failover_link *l)
{
    const struct elector_address own = l->council.own;
    const struct council_orders orders = {.give_up = true};
    begin_council(l, &own);
    queue_orders(l, &orders);
}

/* --- as a node's link --- */

static void disconnect(struct failover_link *l)
{
    uv_timer_stop(&l->later);
    uv_timer_stop(&l->silence);
    if (!l->is_moved)
        endpoint_disconnect(l->endpoint);
    if (l->remote != NULL)
        channel_link_disconnect(l->remote);
    if (l->own_roster != NULL)
        channel_link_disconnect(local_roster_link(l->own_roster));
    l->is_up = l->wants_link = false;
}

static void link_disconnect(void *link)
{
    disconnect(link);
    failover_hunt_end(link);
}

static void link_connect(void *link)
{
    struct failover_link *l = link;
    disconnect(l);
    l->wants_link = true;
    if (l->is_welcome || l->is_moved)
        failover_hunt_begin(l);
    if (!l->is_moved)
        endpoint_connect(l->endpoint);
    else if (l->own_roster != NULL)
        channel_link_connect(local_roster_link(l->own_roster));
    else if (l->remote != NULL)
        channel_link_connect(l->remote);
    else
        go_down_in(l, WAIT_MS, "no process coordinates the job");
}

/* Without another voter, the job ends with its coordinator. */
static void end_with_host(struct failover_link *l)
{
    if (l->roster != NULL && !council_has_successor(&l->council, co_now_ms()))
        jobs_end(local_roster_jobs(l->roster), FAILOVER_EXIT_TOO_FEW,
                 "the rendezvous host is shutting down, and no other node can replace it");
}

static void link_send(void *link, const struct message *m)
{
    struct failover_link *l = link;
    if (m->type == MESSAGE_LEAVE && !l->leaves) {
        l->leaves = true;
        end_with_host(l);
    }
    if (!l->is_up)
        return;
    if (!l->is_moved)
        endpoint_send(l->endpoint, m);
    else if (l->own_roster != NULL)
        channel_link_send(local_roster_link(l->own_roster), m);
    else if (l->remote != NULL)
        channel_link_send(l->remote, m);
}

static int link_own_address(const void *link, char *text, size_t n)
{
    const struct failover_link *l = link;
    if (!l->is_moved || l->council.own.port == 0)
        return endpoint_own_address(l->endpoint, text, n);
    if (strlen(l->council.own.host) >= n)
        return -ENOTCONN;
    strcpy(text, l->council.own.host);
    return 0;
}

static bool link_lend_port(void *link, uint16_t port)
{
    struct failover_link *l = link;
    return endpoint_lend_port(l->endpoint, port);
}

static void link_adopt(void *link, int fd, const uint8_t *bytes, size_t len)
{
    struct failover_link *l = link;
    endpoint_adopt(l->endpoint, fd, bytes, len);
}

static int link_take_port(void *link, struct co_error *err)
{
    struct failover_link *l = link;
    return endpoint_take_port(l->endpoint, err);
}

/* --- beginning and end --- */

static void close_parts(struct failover_link *l)
{
    if (l->has_closed)
        return;
    l->has_closed = true;
    failover_hunt_close(l);
    if (l->host_probe != NULL)
        port_probe_close(l->host_probe);
    l->roster = NULL;
    close_group_close_own(&l->close_group, &l->own_roster);
    close_group_close_link(&l->close_group, &l->remote);
    close_group_close_server(&l->close_group, &l->server);
    close_group_close_timer(&l->close_group, &l->later);
    close_group_close_timer(&l->close_group, &l->silence);
    close_group_close_timer(&l->close_group, &l->hunt);
    close_group_close_timer(&l->close_group, &l->offer);
    close_group_close_timer(&l->close_group, &l->orders_due);
    close_group_close_timer(&l->close_group, &l->council_due);
    if (l->ballots != NULL) {
        close_group_expect(&l->close_group);
        ballot_links_close(l->ballots, close_group_on_closed, &l->close_group);
    }
    if (l->endpoint != NULL)
        endpoint_close(l->endpoint);
    close_group_end(&l->close_group, free, l);
}

/* What the next coordinator is to find. NULL: none follows */
static const struct elector_record *find_last_words(struct failover_link *l)
{
    if (l->roster == NULL || l->record.n_nodes == 0 || l->record.is_over || l->is_over)
        return NULL;
    if (l->own_generation == l->record.generation)
        l->record.gone = (int32_t)l->own_index;
    return &l->record;
}

static void on_begin_to_close(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    struct council_orders orders;
    council_resign(&l->council, find_last_words(l), co_now_ms(), &orders);
    queue_orders(l, &orders);
}

static void link_close(void *link)
{
    struct failover_link *l = link;
    link_disconnect(l);
    l->closing = true;
    uv_timer_start(&l->later, on_begin_to_close, 0, 0);
}

static int open_parts(struct failover_link *l, struct co_error *err)
{
    const struct roster_link_callbacks callbacks = {.on_up = on_up,
                                                    .on_message = on_message,
                                                    .on_down = on_down,
                                                    .on_note = failover_on_note,
                                                    .arg = l};
    const struct endpoint_hooks hooks = {
        .prepare = prepare, .on_roster = on_roster, .on_control = on_endpoint_control, .arg = l};
    int rc = failover_open_ballots(l, err);
    if (rc == 0)
        rc = endpoint_open(l->loop, l->spec, &callbacks, &l->endpoint, err);
    if (rc == 0)
        endpoint_set_hooks(l->endpoint, &hooks);
    return rc;
}

static int link_open(uv_loop_t *loop, const struct job_spec *spec,
                     const struct roster_link_callbacks *callbacks, void **ret,
                     struct co_error *err)
{
    struct failover_link *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    l->loop = loop;
    l->spec = spec;
    l->world = &spec->world;
    l->callbacks = *callbacks;
    l->hunter = (struct failover_hunter){
        .follow = follow, .take = take_ballot, .note_ended = note_ended, .yield = yield};
    l->own_generation = MESSAGE_NO_GENERATION;
    l->own_index = UINT32_MAX;
    uv_timer_t *const timers[] = {&l->later, &l->silence,    &l->hunt,
                                  &l->offer, &l->orders_due, &l->council_due};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        timers[i]->data = l;
        uv_timer_init(loop, timers[i]);
    }
    job_spec_terms(spec, &l->terms);
    int rc = open_parts(l, err);
    if (rc < 0) {
        l->closing = true;
        close_parts(l);
        return rc;
    }
    *ret = l;
    return 0;
}

const struct roster_link_ops failover_link_ops = {
    .open = link_open,
    .connect = link_connect,
    .send = link_send,
    .disconnect = link_disconnect,
    .own_address = link_own_address,
    .lend_port = link_lend_port,
    .adopt = link_adopt,
    .take_port = link_take_port,
    .close = link_close,
};
