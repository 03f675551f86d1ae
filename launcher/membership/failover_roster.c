/* failover_roster.c - the roster in this process, or the way to that of another one.
 *
 * Read failover_lead() and failover_follow() first: the council orders them. A roster that takes
 * over continues the generation of the record, and waits for its members, except for the node of a
 * coordinator whose process has ended (probe_host()). on_changed() has each generation, and the
 * verdict, decided before nodes get it. */
#include "failover_link_priv.h"

#include "etcd_record.h"
#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"

#include "common/clock.h"
#include "rendezvous/membership/lease.h"

#include <inttypes.h>
#include <stdio.h>

enum { CONFIRM_MIN_MS = 10000 };

/* --- a roster here --- */

static bool note_host(struct failover_link *l)
{
    struct roster_node_view own;
    return l->roster != NULL && jobs_view_local(local_roster_jobs(l->roster), &own) &&
           etcd_record_note_host(&l->record, &own, &l->council.own);
}

static void on_changed(void *arg, const char *run_id, const struct roster *r,
                       enum roster_state from)
{
    struct failover_link *l = arg;
    (void)run_id;
    (void)from;
    if (!etcd_record_take(r, l->leaves, &l->record))
        return;
    note_host(l);
    l->calls.commit(l);
}

/* This node has come to the roster that it has taken over. */
static void on_heard(void *arg, const struct roster *r)
{
    struct failover_link *l = arg;
    if (etcd_record_is_continued(&l->record, r) && note_host(l))
        l->calls.commit(l);
}

static struct roster_limits limits_of(const struct job_world *w)
{
    const uint64_t usual_ms =
        w->host_timeout_ms > 0 ? LEASE_KEEP_ALIVE_MS / 2 : LEASE_KEEP_ALIVE_MS;
    struct roster_limits r = {
        .keep_alive_ms = w->keep_alive_ms > 0 ? w->keep_alive_ms : usual_ms,
        .lease_ms = w->lease_ms > LEASE_MS ? w->lease_ms : LEASE_MS,
        .confirm_ms = w->seek_ms > CONFIRM_MIN_MS ? w->seek_ms : CONFIRM_MIN_MS,
    };
    /* the old coordinator was certain for the last time before its successor led */
    r.absent_ms = r.lease_ms + LEASE_MARGIN_MS;
    return r;
}

void failover_prepare_roster(void *arg, struct jobs_opts *opts)
{
    struct failover_link *l = arg;
    opts->limits = limits_of(l->world);
    opts->host_ms = l->world->host_timeout_ms;
    opts->host_silent_ms = opts->host_ms + council_host_margin_ms(opts->host_ms);
    opts->outlives_local = true;
    opts->on_note = failover_on_refused;
    opts->on_changed = on_changed;
    opts->on_heard = on_heard;
    opts->arg = l;
}

static int make_roster(struct failover_link *l, const struct roster_past *past,
                       struct co_error *err)
{
    struct jobs_opts opts = {
        .keys = l->world->key,
        .n_keys = l->world->key != NULL ? 1 : 0,
        .max_conns = listen_limits(l->spec).n_nodes,
        .only_run_id = l->spec->run_id,
        .terms = &l->terms,
        .past = past,
    };
    failover_prepare_roster(l, &opts);
    int rc = local_roster_create(l->loop, &opts, &l->calls.local, &l->own_roster, err);
    if (rc == 0)
        l->roster = l->own_roster;
    return rc;
}

/* What nodes have done here since is not in the record that the job continues from. */
void failover_end_part(struct failover_link *l, const struct elector_address *leader)
{
    char text[FAILOVER_TEXT_BYTES];
    if (l->roster == NULL || l->record.n_nodes == 0)
        return;
    snprintf(text, sizeof text,
             "the job has continued at %.200s port %u without this node, which was not heard there "
             "(--rdzv-conf failover=alone): what this part of the job has begun since then ends",
             leader->host, leader->port);
    failover_note(l, CO_WARNING, "%s, and its nodes join there", text);
    jobs_tell_replaced(local_roster_jobs(l->roster), text);
}

void failover_drop_roster(struct failover_link *l)
{
    if (l->roster == NULL)
        return;
    if (l->roster != l->own_roster)
        endpoint_drop_roster(l->endpoint);
    l->roster = NULL;
    close_group_close_own(&l->close_group, &l->own_roster);
    l->is_moved = true;
    failover_note(l, CO_NOTE, "the coordinator moved to another node");
    if (l->is_up)
        l->calls.go_down_in(l, 0, "the coordinator moved to another node");
}

/* Its node is lost: its ranks are suspended, and run again only by a coordinator that has them. */
static bool note_silent_host(struct failover_link *l, const struct elector_record *r)
{
    if (l->silent_host.port == 0 || r->gone >= 0 || r->is_over ||
        !elector_same_address(&l->silent_host, &r->host.at))
        return false;
    jobs_tell_ended(local_roster_jobs(l->roster), r->generation, r->host.node);
    return true;
}

static void on_host_probed(void *arg, bool is_refused)
{
    struct failover_link *l = arg;
    l->host_probe = NULL;
    if (is_refused && l->roster != NULL)
        jobs_tell_ended(local_roster_jobs(l->roster), l->probed_generation, l->probed_node);
}

/* The ranks of the coordinator before are waited for, unless its process has ended. Else, as where
 * it was never reached, a lease has to end. */
static void probe_host(struct failover_link *l, const struct elector_record *r)
{
    const struct elector_address *at = failover_find_reached(l, &r->host.at);
    struct co_error err;
    if (r->host.at.port == 0 || at == NULL || r->gone >= 0 || r->is_over || l->host_probe != NULL ||
        elector_same_address(&r->host.at, &l->council.own))
        return;
    l->probed_generation = r->generation;
    l->probed_node = r->host.node;
    if (port_probe_start(l->loop, at->host, at->port, on_host_probed, l, &l->host_probe, &err) < 0)
        l->host_probe = NULL;
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
    if (l->council.proposer.is_alone)
        failover_note(
            l, CO_WARNING,
            "the other node that votes does not answer, and this one continues alone "
            "(--rdzv-conf failover=alone): if the other one still runs, the job runs twice "
            "until they reach each other");
    if (!note_silent_host(l, r))
        probe_host(l, r);
}

void failover_lead(struct failover_link *l, const struct elector_record *r)
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
        l->calls.go_down_in(l, 0, "this node is the coordinator now");
    else if (l->wants_link)
        channel_link_connect(local_roster_link(l->own_roster));
}

/* --- the roster elsewhere --- */

void failover_follow(struct failover_link *l, const struct elector_address *leader)
{
    char why[FAILOVER_TEXT_BYTES];
    struct co_error err;
    if (l->roster != NULL || l->is_over ||
        (l->remote != NULL && elector_same_address(&l->leader, leader)))
        return;
    close_group_close_link(&l->close_group, &l->remote);
    if (!l->is_moved)
        endpoint_disconnect(l->endpoint);
    l->is_moved = true;
    l->leader = *leader;
    l->named_ms = co_now_ms();
    if (channel_link_create(l->loop, leader->host, leader->port, l->world->key, &l->calls.remote,
                            &l->remote, &err) < 0) {
        failover_note(l, CO_WARNING, "%s", err.text);
        return;
    }
    snprintf(why, sizeof why, "the coordinator moved to %s port %u", leader->host, leader->port);
    if (l->is_up)
        l->calls.go_down_in(l, 0, why);
    else if (l->wants_link)
        channel_link_connect(l->remote);
    failover_offer_soon(l);
}

void failover_unfollow(struct failover_link *l)
{
    failover_note(
        l, CO_NOTE,
        "the coordinator at %s port %u, which another node has named, does not answer, and "
        "no node names it any more: this node asks the endpoints again",
        l->leader.host, l->leader.port);
    close_group_close_link(&l->close_group, &l->remote);
    l->is_moved = false;
    l->n_known = 0;
    l->seen = (struct ballot){0};
    if (l->wants_link)
        endpoint_connect(l->endpoint);
}
