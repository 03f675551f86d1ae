/* etcd_link.c - libuv around the elector in the plug-in, and around the roster, if this node has
 * it.
 *
 * Read on_orders() first: lead() makes a roster in this process from the record of the generation
 * before, follow() connects to the node that has it, and an order to resign closes the own one.
 * on_changed() has the plug-in commit each generation to etcd before the roster announces it. The
 * plug-in has its own protocol with etcd; here it only gets descriptors watched (watch()) and
 * alarms.
 *
 * Invariant: at most one of `local_roster` and `remote` exists at a time, and the member sees a
 * change between them as a lost link. */
#include "etcd_link.h"

#include "close_group.h"
#include "etcd_config.h"
#include "etcd_loader.h"
#include "etcd_record.h"
#include "etcd_sockets.h"
#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"
#include "local_roster.h"
#include "port_probe.h"

#include "common/error.h"
#include "rendezvous/etcd/etcd_plugin.h"
#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_BYTES = 1024,
    WAIT_MS = 2000, /* an attempt to get a link waits this long for a node to have the roster */
    ETCD_TERM = 1,  /* etcd has one record of the job: generations alone are in order */
};

struct etcd_link {
    uv_loop_t *loop;
    const struct job_spec *spec;
    const struct job_world *world; /* of spec */
    struct roster_link_callbacks callbacks;
    struct message_terms terms;
    const struct etcd_plugin *plugin;
    struct etcd *etcd;
    struct etcd_sockets *sockets;
    struct server *server;
    struct elector_address own; /* where others reach a roster here; port 0: not known yet */

    struct channel_link *remote; /* to a roster elsewhere; NULL: none is known */
    struct elector_address leader;
    struct local_roster *local_roster; /* NULL: it is not in this process */
    struct jobs_pages pages;
    uint32_t own_index; /* this node's, in own_generation */
    uint32_t own_generation;
    struct elector_record record; /* what was written down last, or is to be; n_nodes 0: nothing */
    uint32_t probed_generation, probed_node; /* of `probe` */
    struct port_probe *probe; /* of the coordinator before; NULL: none is under way */

    bool wants_link, is_up;
    bool is_over;     /* a verdict was heard */
    bool leaves;      /* this node does: what comes next is the next roster's to begin */
    uv_timer_t later; /* reports, from the loop, that the link is down */
    uv_timer_t silence;
    uint64_t silence_ms; /* the roster is not heard for so long: look for another one */
    bool hurries;
    char why[TEXT_BYTES];
    int exit_code;
    bool has_reported_trouble;
    bool has_stopped; /* the elector */

    struct close_group close_group; /* also of rosters that were closed */
    bool closing;
};

__attribute__((format(printf, 3, 4))) static void
note(struct etcd_link *l, enum co_severity severity, const char *format, ...)
{
    char line[TEXT_BYTES];
    va_list args;
    if (l->closing || l->callbacks.on_note == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    l->callbacks.on_note(l->callbacks.arg, severity, line);
}

static void on_refused(void *arg, const char *text)
{
    note(arg, CO_WARNING, "%s", text);
}

/* --- up and down --- */

static void hurry(struct etcd_link *l, bool hurries)
{
    if (l->hurries == hurries || l->is_over || l->closing)
        return;
    l->hurries = hurries;
    l->plugin->hurry(l->etcd, hurries);
}

static void on_silence(uv_timer_t *timer)
{
    hurry(timer->data, true);
}

static void hear(struct etcd_link *l)
{
    if (l->silence_ms > 0)
        uv_timer_start(&l->silence, on_silence, l->silence_ms, 0);
    hurry(l, false);
}

static void go_up(void *arg)
{
    struct etcd_link *l = arg;
    l->is_up = true;
    l->wants_link = false;
    uv_timer_stop(&l->later);
    l->callbacks.on_up(l->callbacks.arg, false); /* also here: this node has a lease like all */
}

static void go_down(struct etcd_link *l, const char *text, int exit_code, bool rejected)
{
    l->is_up = l->wants_link = false;
    uv_timer_stop(&l->later);
    uv_timer_stop(&l->silence);
    hurry(l, true);
    l->callbacks.on_down(l->callbacks.arg, text, exit_code, rejected);
}

/* No node has the roster yet. Find the reason, unless etcd reports just that. */
static void find_reason(struct etcd_link *l)
{
    const char *trouble = l->plugin->trouble(l->etcd);
    snprintf(l->why, sizeof l->why, "%s",
             *trouble != '\0' ? trouble : "etcd has no coordinator for this job yet");
}

static void on_later(uv_timer_t *timer)
{
    struct etcd_link *l = timer->data;
    if (l->why[0] == '\0')
        find_reason(l);
    go_down(l, l->why, l->exit_code, false);
}

/* From the loop, since the caller may be within a call. */
static void go_down_in(struct etcd_link *l, uint64_t in_ms)
{
    l->is_up = false;
    uv_update_time(l->loop);
    uv_timer_start(&l->later, on_later, in_ms, 0);
}

__attribute__((format(printf, 2, 3))) static void go_down_soon(struct etcd_link *l,
                                                               const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->why, sizeof l->why, format, args);
    va_end(args);
    go_down_in(l, 0);
}

static void on_remote_down(void *arg, const char *text, int code)
{
    go_down(arg, text, roster_link_exit_code(code), code != 0);
}

static void on_local_down(void *arg, const char *text, int code)
{
    (void)code;
    go_down(arg, text, 0, false);
}

static void on_message(void *arg, const struct message *m)
{
    struct etcd_link *l = arg;
    if (m->type == MESSAGE_WELCOME)
        l->silence_ms = m->welcome.keep_alive_ms * 3 / 2;
    if (m->type == MESSAGE_SEALED) {
        l->own_generation = m->generation;
        l->own_index = m->sealed.node_index;
    }
    hear(l);
    if (m->type == MESSAGE_VERDICT && !l->is_over) {
        l->is_over = true;
        if (l->local_roster == NULL) /* no node is to be followed any more */
            l->plugin->stop(l->etcd, NULL);
    }
    l->callbacks.on_message(l->callbacks.arg, m);
}

/* --- the roster elsewhere --- */

static void follow(struct etcd_link *l, const struct elector_address *leader)
{
    const struct channel_link_callbacks callbacks = {
        .on_up = go_up, .on_message = on_message, .on_down = on_remote_down, .arg = l};
    struct co_error err;
    if (l->remote != NULL && elector_same_address(leader, &l->leader))
        return;
    close_group_close_link(&l->close_group, &l->remote);
    l->leader = *leader;
    if (channel_link_create(l->loop, leader->host, leader->port, l->world->key, &callbacks,
                            &l->remote, &err) < 0) {
        note(l, CO_WARNING, "%s", err.text); /* asked again soon */
        return;
    }
    if (l->is_up)
        go_down_soon(l, "the coordinator moved to %s port %u", leader->host, leader->port);
    else if (l->wants_link)
        channel_link_connect(l->remote);
}

/* --- the roster here --- */

static void stop_probing(struct etcd_link *l)
{
    if (l->probe != NULL)
        port_probe_close(l->probe);
    l->probe = NULL;
}

static bool note_host(struct etcd_link *l)
{
    struct roster_node_view own;
    return l->local_roster != NULL && l->own.port != 0 &&
           jobs_view_local(local_roster_jobs(l->local_roster), &own) &&
           etcd_record_note_host(&l->record, &own, &l->own);
}

static void on_changed(void *arg, const char *run_id, const struct roster *r,
                       enum roster_state from)
{
    struct etcd_link *l = arg;
    (void)run_id;
    (void)from;
    if (!etcd_record_take(r, l->leaves, &l->record))
        return;
    note_host(l);
    l->plugin->commit(l->etcd, &l->record);
}

/* This node has come to the roster that it has taken over. */
static void on_heard(void *arg, const struct roster *r)
{
    struct etcd_link *l = arg;
    if (etcd_record_is_continued(&l->record, r) && note_host(l))
        l->plugin->commit(l->etcd, &l->record);
}

static void on_probed(void *arg, bool is_refused)
{
    struct etcd_link *l = arg;
    l->probe = NULL;
    if (is_refused && l->local_roster != NULL)
        jobs_tell_ended(local_roster_jobs(l->local_roster), l->probed_generation, l->probed_node);
}

/* The ranks of the coordinator before are waited for, unless its process has ended. If it has, and
 * its connections have, its spawner has killed them. */
static void probe_host(struct etcd_link *l, const struct elector_record *r)
{
    const struct elector_address *at = &r->host.at;
    struct co_error err;
    if (at->port == 0 || r->gone >= 0 || elector_same_address(at, &l->own))
        return;
    stop_probing(l);
    l->probed_generation = r->generation;
    l->probed_node = r->host.node;
    if (port_probe_start(l->loop, at->host, at->port, on_probed, l, &l->probe, &err) < 0)
        note(l, CO_WARNING, "cannot check whether the previous coordinator has ended: %s",
             err.text);
}

/* past   NULL: no earlier roster */
static int make_roster(struct etcd_link *l, const struct roster_past *past, struct co_error *err)
{
    const struct channel_link_callbacks callbacks = {
        .on_up = go_up, .on_message = on_message, .on_down = on_local_down, .arg = l};
    const struct jobs_opts opts = {
        .keys = l->world->key,
        .n_keys = l->world->key != NULL ? 1 : 0,
        .limits = etcd_config_limits(l->world, l->plugin->ttl_s(l->etcd)),
        .max_conns = listen_limits(l->spec).n_nodes,
        .only_run_id = l->spec->run_id,
        .terms = &l->terms,
        .past = past,
        .outlives_local = true,
        .on_note = on_refused,
        .on_changed = on_changed,
        .on_heard = on_heard,
        .arg = l,
    };
    return local_roster_create(l->loop, &opts, &callbacks, &l->local_roster, err);
}

/* A job that is over is also over for nodes that join now. */
static void tell_past(struct etcd_link *l, const struct elector_record *r)
{
    if (r->is_over)
        jobs_end(local_roster_jobs(l->local_roster), r->exit_code,
                 "the job had ended when its coordinator moved");
    else
        note(l, CO_NOTE, "this node is the coordinator now; generation %" PRIu32 " continues",
             r->generation);
    if (!r->is_over)
        probe_host(l, r);
}

/* r   NULL: the job begins */
static void lead(struct etcd_link *l, const struct elector_record *r)
{
    struct co_error err;
    struct roster_past past = r != NULL ? etcd_record_past(r) : (struct roster_past){0};
    close_group_close_link(&l->close_group, &l->remote);
    if (make_roster(l, r != NULL ? &past : NULL, &err) < 0) {
        l->exit_code = ROSTER_LINK_UNAVAILABLE;
        go_down_soon(l, "cannot become the coordinator: %s", err.text);
        return;
    }
    l->record = r != NULL ? *r : (struct elector_record){0};
    if (r != NULL)
        tell_past(l, r);
    if (l->is_up)
        go_down_soon(l, "this node is the coordinator now");
    else if (l->wants_link)
        channel_link_connect(local_roster_link(l->local_roster));
}

/* --- what the elector wants --- */

static void take_roster_orders(struct etcd_link *l, const struct elector_orders *o)
{
    if (o->give_up)
        stop_probing(l);
    if (o->give_up && l->local_roster != NULL) {
        note(l, CO_NOTE, "the coordinator moves to another node");
        close_group_close_own(&l->close_group, &l->local_roster);
        if (l->is_up)
            go_down_soon(l, "the coordinator moved to another node");
    }
    if (o->make)
        lead(l, o->has_past ? &o->past : NULL);
    if (l->local_roster == NULL)
        return;
    if (o->doubt)
        jobs_tell(local_roster_jobs(l->local_roster), ROSTER_DOUBT);
    if (o->certain)
        jobs_tell(local_roster_jobs(l->local_roster), ROSTER_CERTAIN);
    if (o->committed)
        jobs_tell_confirmed(local_roster_jobs(l->local_roster), l->record.generation, ETCD_TERM);
}

/* Once, and that it is over. */
static void tell_trouble(struct etcd_link *l, const struct elector_orders *o)
{
    const char *trouble = l->plugin->trouble(l->etcd);
    if (o->doubt && !l->has_reported_trouble && *trouble != '\0') {
        note(l, CO_WARNING,
             "lost contact with etcd: %s; ranks keep running, but no node can join and failures "
             "cannot be recovered until etcd is back; check that it runs and is reachable",
             trouble);
        l->has_reported_trouble = true;
    }
    if ((o->certain || o->give_up) && l->has_reported_trouble) {
        note(l, CO_NOTE, "etcd is back");
        l->has_reported_trouble = false;
    }
}

static void on_begin_to_close(uv_timer_t *timer);

static void on_orders(void *arg, const struct elector_orders *o)
{
    struct etcd_link *l = arg;
    l->has_stopped |= o->over;
    if (l->closing) {
        if (o->over) /* the plug-in is not to be closed while it calls */
            uv_timer_start(&l->later, on_begin_to_close, 0, 0);
        return;
    }
    tell_trouble(l, o);
    take_roster_orders(l, o);
    if (o->vacant && l->callbacks.on_vacant != NULL)
        l->callbacks.on_vacant(l->callbacks.arg, o->asked_ms);
    if (o->follow && l->local_roster == NULL)
        follow(l, &o->leader);
}

/* --- the plug-in --- */

static void watch(void *arg, int fd, int events)
{
    struct etcd_link *l = arg;
    etcd_sockets_watch(l->sockets, fd, events);
}

static void set_alarm(void *arg, uint64_t at_ms)
{
    struct etcd_link *l = arg;
    etcd_sockets_set_alarm(l->sockets, at_ms);
}

static void on_ready(void *arg, int fd, int events)
{
    struct etcd_link *l = arg;
    l->plugin->ready(l->etcd, fd, events);
}

static void on_alarm(void *arg)
{
    struct etcd_link *l = arg;
    l->plugin->alarm(l->etcd);
}

static bool find_address(void *arg, const char *own, struct elector_address *ret)
{
    struct etcd_link *l = arg;
    etcd_config_find_host(l->world, own, l->own.host);
    l->own.port = server_port(l->server);
    *ret = l->own;
    return true;
}

static int open_plugin(struct etcd_link *l, struct co_error *err)
{
    const struct etcd_host host = {.watch = watch,
                                   .set_alarm = set_alarm,
                                   .on_orders = on_orders,
                                   .find_address = find_address,
                                   .arg = l};
    char password[ETCD_SETTING_BYTES];
    struct etcd_config config;
    int rc = etcd_config_make(l->spec, password, &config, err);
    if (rc == 0)
        rc = l->plugin->open(&config, &host, &l->etcd, err);
    explicit_bzero(password, sizeof password);
    return rc;
}

/* --- the listener --- */

/* Before this node has the roster, no node should connect; a node that got an old address tries
 * again. */
static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    struct etcd_link *l = arg;
    if (l->local_roster != NULL)
        jobs_adopt(local_roster_jobs(l->local_roster), fd, bytes, len);
    else
        close(fd);
}

static struct jobs *get_jobs(void *arg)
{
    const struct etcd_link *l = arg;
    return l->local_roster != NULL ? local_roster_jobs(l->local_roster) : NULL;
}

static int open_server(struct etcd_link *l, struct co_error *err)
{
    struct server_opts callbacks = {.on_control = on_control, .on_refused = on_refused, .arg = l};
    l->pages = (struct jobs_pages){.key = l->world->key, .get_jobs = get_jobs, .arg = l};
    jobs_pages_fill(&l->pages, &callbacks);
    return listen_open_roster(l->loop, l->spec, &callbacks, etcd_config_listen_where(l->world), 0,
                              &l->server, err);
}

/* --- as a node's link --- */

static void link_disconnect(void *link)
{
    struct etcd_link *l = link;
    uv_timer_stop(&l->later);
    uv_timer_stop(&l->silence);
    if (l->remote != NULL)
        channel_link_disconnect(l->remote);
    if (l->local_roster != NULL)
        channel_link_disconnect(local_roster_link(l->local_roster));
    l->is_up = l->wants_link = false;
}

static void wait_for_leader(struct etcd_link *l)
{
    l->why[0] = '\0'; /* it is not known yet why there will be none */
    go_down_in(l, WAIT_MS);
}

static void link_connect(void *link)
{
    struct etcd_link *l = link;
    link_disconnect(l);
    l->wants_link = true;
    hurry(l, true);
    if (l->local_roster != NULL)
        channel_link_connect(local_roster_link(l->local_roster));
    else if (l->remote != NULL)
        channel_link_connect(l->remote);
    else
        wait_for_leader(l);
}

static void link_send(void *link, const struct message *m)
{
    struct etcd_link *l = link;
    if (l->is_up && (l->local_roster != NULL || l->remote != NULL))
        channel_link_send(l->local_roster != NULL ? local_roster_link(l->local_roster) : l->remote,
                          m);
    l->leaves |= m->type == MESSAGE_LEAVE;
}

static int link_own_address(const void *link, char *text, size_t n)
{
    const struct etcd_link *l = link;
    if (l->own.port == 0 || strlen(l->own.host) >= n)
        return -ENOTCONN;
    strcpy(text, l->own.host);
    return 0;
}

static bool link_lend_port(void *link, uint16_t port)
{
    (void)link;
    (void)port; /* the roster's port is not one that was configured */
    return false;
}

static void link_adopt(void *link, int fd, const uint8_t *bytes, size_t len)
{
    on_control(link, fd, bytes, len);
}

static int link_take_port(void *link, struct co_error *err)
{
    (void)link;
    (void)err;
    return 0;
}

/* --- beginning and end --- */

/* Nothing is sent to etcd any more. */
static void close_all(struct etcd_link *l)
{
    stop_probing(l);
    close_group_close_own(&l->close_group, &l->local_roster);
    close_group_close_link(&l->close_group, &l->remote);
    close_group_close_timer(&l->close_group, &l->later);
    close_group_close_timer(&l->close_group, &l->silence);
    if (l->etcd != NULL)
        l->plugin->close(l->etcd);
    l->etcd = NULL;
    if (l->sockets != NULL) {
        close_group_expect(&l->close_group);
        etcd_sockets_close(l->sockets, close_group_on_closed, &l->close_group);
    }
    close_group_close_server(&l->close_group, &l->server);
    close_group_end(&l->close_group, free, l);
}

/* A node that could not be notified of the job's end must find it in etcd. */
static bool has_informed_all(const struct etcd_link *l)
{
    return jobs_n_uninformed(local_roster_jobs(l->local_roster)) == 0;
}

/* What the next leader is to find; NULL: there is to be none. */
static const struct elector_record *find_last_words(struct etcd_link *l)
{
    if (l->local_roster == NULL || l->record.n_nodes == 0 ||
        (l->record.is_over && has_informed_all(l)))
        return NULL;
    if (!l->record.is_over && l->own_generation == l->record.generation)
        l->record.gone = (int32_t)l->own_index;
    return &l->record;
}

static void on_begin_to_close(uv_timer_t *timer)
{
    struct etcd_link *l = timer->data;
    if (l->has_stopped)
        close_all(l);
    else
        l->plugin->stop(l->etcd, find_last_words(l)); /* and once more, from on_orders() */
}

static void link_close(void *link)
{
    struct etcd_link *l = link;
    link_disconnect(l);
    l->closing = true;
    uv_timer_start(&l->later, on_begin_to_close, 0, 0);
}

static int open_parts(struct etcd_link *l, struct co_error *err)
{
    const struct etcd_socket_callbacks callbacks = {
        .on_ready = on_ready, .on_alarm = on_alarm, .arg = l};
    int rc = etcd_load(&l->plugin, err);
    if (rc == 0 && (l->sockets = etcd_sockets_open(l->loop, &callbacks)) == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = open_server(l, err);
    return rc == 0 ? open_plugin(l, err) : rc;
}

static int link_open(uv_loop_t *loop, const struct job_spec *spec,
                     const struct roster_link_callbacks *callbacks, void **ret,
                     struct co_error *err)
{
    struct etcd_link *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    l->loop = loop;
    l->spec = spec;
    l->world = &spec->world;
    l->callbacks = *callbacks;
    l->own_generation = MESSAGE_NO_GENERATION;
    l->later.data = l->silence.data = l;
    job_spec_terms(spec, &l->terms);
    uv_timer_init(loop, &l->later);
    uv_timer_init(loop, &l->silence);
    int rc = open_parts(l, err);
    if (rc < 0) {
        l->closing = true;
        close_all(l);
        return rc;
    }
    l->plugin->begin(l->etcd);
    *ret = l;
    return 0;
}

const struct roster_link_ops etcd_link_ops = {
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
