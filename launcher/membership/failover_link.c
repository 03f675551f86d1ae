/* failover_link.c - a node's link where another node may replace the coordinator.
 *
 * The job begins at its endpoint (endpoint.c), whose node founds the council. When the coordinator
 * moves, `is_moved` is set, and from then on the link is `remote` or `own_roster`
 * (failover_roster.c). While the coordinator is not heard, failover_hunt.c asks which process
 * coordinates. The other files are listed in failover_link_priv.h.
 *
 * Invariant: a roster in this process is in `roster`, at most one, and the member sees a change of
 * rosters as a lost link. */
#include "failover_link.h"

#include "failover_link_priv.h"

#include "launcher/job/job_spec.h"

#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAIT_MS = 2000,  /* an attempt to get a link waits this long for a coordinator */
    FIRST_MS = 1000, /* the endpoint is given so long before other processes are asked */
};

/* --- up and down --- */

static void on_up(void *arg, bool is_here)
{
    struct failover_link *l = arg;
    (void)is_here; /* also here: this node has a lease like all, unless the council needs none */
    l->is_up = true;
    l->wants_link = false;
    uv_timer_stop(&l->later);
    failover_hunt_end(l);
    l->callbacks.on_up(l->callbacks.arg, false);
    if (l->is_up && l->roster != NULL)
        failover_tell_lease(l);
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
    failover_hunt_begin(l, 0);
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
        l->lease_ms = m->welcome.lease_ms;
        l->elects = m->welcome.elects;
        if (l->elects)
            failover_listen(l);
        failover_offer_soon(l);
        failover_heartbeat_soon(l, 0);
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
        failover_hunt_begin(l, 0);
    else if (l->world->n_also > 0)
        failover_hunt_begin(l, FIRST_MS);
    if (!l->is_moved)
        endpoint_connect(l->endpoint);
    else if (l->own_roster != NULL)
        channel_link_connect(local_roster_link(l->own_roster));
    else if (l->remote != NULL)
        channel_link_connect(l->remote);
    else
        go_down_in(l, WAIT_MS, "no process coordinates the job");
}

/* Without another voter, the job ends with its coordinator. One in doubt does not decide that:
 * others may continue. */
static void end_with_host(struct failover_link *l)
{
    const uint64_t now_ms = co_now_ms();
    if (l->roster != NULL && council_get_state(&l->council, now_ms) == COUNCIL_LEADING &&
        !council_has_successor(&l->council, now_ms))
        jobs_end(local_roster_jobs(l->roster), FAILOVER_EXIT_TOO_FEW,
                 "the rendezvous host is shutting down, and no other node can replace it");
}

static void link_send(void *link, const struct message *m)
{
    struct failover_link *l = link;
    if (m->type == MESSAGE_HELLO)
        memcpy(l->instance, m->hello.instance, sizeof l->instance);
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

static void link_note_leased(void *link)
{
    failover_note_leased(link);
}

static void link_note_sign(void *link, enum roster_link_sign sign)
{
    failover_heartbeat_sign(link, sign);
}

/* --- beginning and end --- */

static void close_parts(struct failover_link *l)
{
    if (l->has_closed)
        return;
    l->has_closed = true;
    failover_hunt_close(l);
    failover_heartbeat_close(l);
    close_group_close_timer(&l->close_group, &l->heartbeat_due);
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
    failover_resign(l, find_last_words(l));
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
    const struct endpoint_hooks hooks = {.prepare = failover_prepare_roster,
                                         .may_begin = failover_may_begin,
                                         .on_roster = failover_on_roster,
                                         .on_control = failover_on_endpoint_control,
                                         .arg = l};
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
    l->calls = (struct failover_calls){.local = {.on_up = on_moved_up,
                                                 .on_message = on_message,
                                                 .on_down = on_local_down,
                                                 .arg = l},
                                       .remote = {.on_up = on_moved_up,
                                                  .on_message = on_message,
                                                  .on_down = on_remote_down,
                                                  .arg = l},
                                       .go_down_in = go_down_in,
                                       .close_parts = close_parts,
                                       .commit = failover_commit,
                                       .take_ballot = failover_take_ballot,
                                       .note_ended = failover_note_ended,
                                       .note_silent = failover_note_silent,
                                       .yield = failover_yield,
                                       .change_job = failover_change_job,
                                       .follow = failover_follow,
                                       .unfollow = failover_unfollow};
    l->own_generation = MESSAGE_NO_GENERATION;
    l->own_index = UINT32_MAX;
    uv_timer_t *const timers[] = {&l->later,      &l->silence,     &l->hunt,         &l->offer,
                                  &l->orders_due, &l->council_due, &l->heartbeat_due};
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
    .note_leased = link_note_leased,
    .note_sign = link_note_sign,
    .close = link_close,
};
