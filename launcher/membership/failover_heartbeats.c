/* failover_heartbeats.c - heartbeats of this node, with --rdzv-conf host_timeout.
 *
 * The coordinator has taken the connection (on_message()), and the spawner of this node gets it
 * (launcher/spawner/heartbeat.h). The spawner suspends the ranks if the coordinator's host
 * acknowledges no heartbeat, which the council hears (failover_heartbeat_sign()). Where the
 * coordinator is in this process, failover_state_end() states until when its node may run: as long
 * as no other process can be the coordinator. */
#include "failover_link_priv.h"

#include "launcher/job/job_spec.h"

#include "common/clock.h"

#include <string.h>
#include <unistd.h>

enum { AGAIN_MS = 500 }; /* a connection for heartbeats is tried again after */

static void close_link(struct failover_link *l)
{
    close_group_close_link(&l->close_group, &l->heartbeats);
}

static void on_up(void *arg)
{
    struct failover_link *l = arg;
    struct message m = {
        .type = MESSAGE_HEARTBEAT,
        .generation = MESSAGE_NO_GENERATION,
        .heartbeat = {.run_id = l->spec->run_id, .limit_ms = l->world->host_timeout_ms}};
    memcpy(m.heartbeat.instance, l->instance, sizeof l->instance);
    l->heartbeat_from_ms = co_now_ms();
    channel_link_send(l->heartbeats, &m);
}

static void on_message(void *arg, const struct message *m)
{
    struct failover_link *l = arg;
    const int fd = m->type == MESSAGE_HEARTBEAT ? channel_link_detach(l->heartbeats) : -1;
    close_link(l);
    if (m->type == MESSAGE_REFUSED) { /* it counts no host as silent */
        l->callbacks.on_end(l->callbacks.arg, CO_NEVER_MS);
        return;
    }
    if (fd < 0) {
        failover_heartbeat_soon(l, AGAIN_MS);
        return;
    }
    l->silent_host = (struct elector_address){0};
    l->calls.note_silent(l, false);
    l->callbacks.on_heartbeats(l->callbacks.arg, fd, l->heartbeat_from_ms);
    close(fd);
}

static void on_down(void *arg, const char *text, int code)
{
    struct failover_link *l = arg;
    (void)text;
    (void)code;
    close_link(l);
    failover_heartbeat_soon(l, AGAIN_MS);
}

static bool needs_heartbeats(const struct failover_link *l)
{
    return l->world->host_timeout_ms > 0 && l->is_up && l->is_welcome && l->elects &&
           l->roster == NULL && !l->closing && !l->is_over;
}

static void on_due(uv_timer_t *timer)
{
    struct failover_link *l = timer->data;
    const struct channel_link_callbacks callbacks = {
        .on_up = on_up, .on_message = on_message, .on_down = on_down, .arg = l};
    const struct elector_address at = failover_coordinator(l);
    struct co_error err;
    close_link(l);
    if (!needs_heartbeats(l))
        return;
    if (channel_link_create(l->loop, at.host, at.port, l->world->key, &callbacks, &l->heartbeats,
                            &err) < 0)
        failover_heartbeat_soon(l, AGAIN_MS);
    else
        channel_link_connect(l->heartbeats);
}

void failover_heartbeat_soon(struct failover_link *l, uint64_t in_ms)
{
    if (l->world->host_timeout_ms == 0 || l->closing)
        return;
    uv_update_time(l->loop);
    uv_timer_start(&l->heartbeat_due, on_due, in_ms, 0);
}

/* The ranks of a coordinator's node are suspended when no voter has to obey it any more
 * (failover_state_end()): its successor knows from the silence alone that its host is gone. */
void failover_heartbeat_sign(struct failover_link *l, enum roster_link_sign sign)
{
    if (sign == ROSTER_LINK_GONE) {
        failover_heartbeat_soon(l, AGAIN_MS / 10);
        return;
    }
    l->silent_host = (struct elector_address){0};
    if (sign == ROSTER_LINK_SILENT && l->council.id != 0)
        council_leader(&l->council, &l->silent_host);
    l->calls.note_silent(l, sign == ROSTER_LINK_SILENT);
}

void failover_heartbeat_close(struct failover_link *l)
{
    uv_timer_stop(&l->heartbeat_due);
    close_link(l);
}

void failover_state_end(struct failover_link *l)
{
    if (l->world->host_timeout_ms == 0 || l->roster == NULL || l->is_over)
        return;
    failover_heartbeat_close(l);
    l->callbacks.on_end(l->callbacks.arg, council_get_lease(&l->council) == COUNCIL_LEASE_OFF
                                              ? CO_NEVER_MS
                                              : l->certain_until_ms);
}
