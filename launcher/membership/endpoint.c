/* endpoint.c - connect to the roster, or become the endpoint.
 *
 * Read endpoint_connect() first. If the job orders this node to hold the roster, host_by_order()
 * opens the server and the roster at once, and a probe only warns. Otherwise the node connects
 * (`remote`). If that fails before any roster has welcomed the node, on_remote_down() looks the
 * name up again, on_resolved() listens at the port, and on_probed() makes the roster if the probe
 * shows that the name leads to this process; else the node stops listening and reports the link
 * down. The caller connects again later.
 *
 * Invariant: after a welcome this node never becomes the endpoint. */
#include "endpoint.h"

#include "close_group.h"
#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"
#include "local_roster.h"
#include "self_probe.h"

#include "common/error.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/resolve.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_HELD = 1024, /* connections that wait until it is known whether we are the endpoint, and no
                        more than the roster would take */
    TEXT_BYTES = 1500,
};

/* A connection that came before that. It sends no more than its greeting before an answer. */
struct held {
    int fd;
    size_t len;
    uint8_t bytes[SEAL_GREETING_BYTES];
};

struct endpoint {
    uv_loop_t *loop;
    const struct job_spec *spec;
    const struct job_world *world; /* of spec */
    struct roster_link_callbacks callbacks;
    struct endpoint_hooks hooks; /* each NULL: none */
    struct message_terms terms;

    struct channel_link *remote; /* to an endpoint elsewhere; NULL: that cannot be */
    struct local_roster *own;    /* NULL: the roster is not here */
    struct jobs_pages pages;
    struct server *server; /* our listener; NULL: none, or lent */
    struct resolve *resolve;
    struct self_probe *probe;
    bool was_lent;                  /* the port, to a store */
    struct sockaddr_storage led_to; /* where the endpoint's name leads; family 0: not to us */
    struct held *held;              /* owned */
    size_t n_held, max_held;

    bool is_up;
    bool is_welcome;      /* a roster elsewhere has known us */
    bool is_second_try;   /* this attempt found no roster, and then another process had the port */
    uv_timer_t later;     /* reports, from the loop, what was found within a call */
    char why[TEXT_BYTES]; /* there is no link */
    int exit_code;        /* with it */

    struct close_group close_group;
    bool closing;
};

__attribute__((format(printf, 3, 4))) static void
note(struct endpoint *e, enum co_severity severity, const char *format, ...)
{
    char line[TEXT_BYTES];
    va_list args;
    if (e->closing || e->callbacks.on_note == NULL)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    e->callbacks.on_note(e->callbacks.arg, severity, line);
}

static void on_refused(void *arg, const char *text)
{
    note(arg, CO_WARNING, "%s", text);
}

static void go_up(void *arg)
{
    struct endpoint *e = arg;
    e->is_up = true;
    e->callbacks.on_up(e->callbacks.arg, endpoint_is_here(e));
}

static void go_down(struct endpoint *e, int exit_code)
{
    e->is_up = false;
    e->callbacks.on_down(e->callbacks.arg, e->why, exit_code, false);
}

static void on_down_due(uv_timer_t *timer)
{
    struct endpoint *e = timer->data;
    go_down(e, e->exit_code);
}

/* From the loop, since the caller may be within a call. */
static void go_down_later(struct endpoint *e, const char *text, int exit_code)
{
    snprintf(e->why, sizeof e->why, "%s", text);
    e->exit_code = exit_code;
    uv_timer_start(&e->later, on_down_due, 0, 0);
}

/* --- connections that come in --- */

static void drop_held(struct endpoint *e)
{
    for (size_t i = 0; i < e->n_held; i++)
        close(e->held[i].fd);
    free(e->held);
    e->held = NULL;
    e->n_held = 0;
}

static void adopt_held(struct endpoint *e)
{
    for (size_t i = 0; i < e->n_held; i++)
        jobs_adopt(local_roster_jobs(e->own), e->held[i].fd, e->held[i].bytes, e->held[i].len);
    e->n_held = 0;
    drop_held(e);
}

static void hold(struct endpoint *e, int fd, const uint8_t *bytes, size_t len)
{
    if (e->held == NULL)
        e->held = calloc(MAX_HELD, sizeof *e->held);
    if (e->held == NULL || e->n_held >= e->max_held || len > sizeof e->held->bytes) {
        close(fd); /* it comes again */
        return;
    }
    struct held *h = &e->held[e->n_held++];
    h->fd = fd;
    h->len = len;
    memcpy(h->bytes, bytes, len);
}

void endpoint_adopt(struct endpoint *e, int fd, const uint8_t *bytes, size_t len)
{
    if (e->hooks.on_control != NULL && e->hooks.on_control(e->hooks.arg, fd, bytes, len))
        return;
    if (e->probe != NULL && self_probe_claims(e->probe, bytes, len))
        close(fd);
    else if (e->own != NULL)
        jobs_adopt(local_roster_jobs(e->own), fd, bytes, len);
    else if (e->probe != NULL)
        hold(e, fd, bytes, len);
    else
        close(fd);
}

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    endpoint_adopt(arg, fd, bytes, len);
}

/* --- the listener --- */

static struct jobs *get_jobs(void *arg)
{
    const struct endpoint *e = arg;
    return e->own != NULL ? local_roster_jobs(e->own) : NULL;
}

static int open_server(struct endpoint *e, struct co_error *err)
{
    struct server_opts callbacks = {.on_control = on_control, .on_refused = on_refused, .arg = e};
    e->pages = (struct jobs_pages){.key = e->world->key, .get_jobs = get_jobs, .arg = e};
    jobs_pages_fill(&e->pages, &callbacks);
    int rc = listen_open_roster(e->loop, e->spec, &callbacks, e->world->endpoint_host,
                                e->world->endpoint_port, &e->server, err);
    if (rc < 0)
        close_group_close_server(&e->close_group, &e->server);
    return rc;
}

bool endpoint_lend_port(struct endpoint *e, uint16_t port)
{
    bool is_ours =
        e->own != NULL && e->world->endpoint_host != NULL && e->world->endpoint_port == port;
    if (is_ours) {
        e->was_lent = true;
        close_group_close_server(&e->close_group, &e->server);
    }
    return is_ours;
}

int endpoint_take_port(struct endpoint *e, struct co_error *err)
{
    bool was_lent = e->own != NULL && e->world->endpoint_host != NULL && e->server == NULL;
    return was_lent ? open_server(e, err) : 0;
}

/* --- the roster here --- */

static void on_message(void *arg, const struct message *m)
{
    struct endpoint *e = arg;
    e->is_welcome |= m->type == MESSAGE_WELCOME;
    e->callbacks.on_message(e->callbacks.arg, m);
}

static void on_local_down(void *arg, const char *text, int code)
{
    struct endpoint *e = arg;
    (void)code;
    snprintf(e->why, sizeof e->why, "%s", text);
    go_down(e, 0);
}

static const char asks_others[] = "the other endpoints are asked whether they know a coordinator";

static bool may_begin(const struct endpoint *e)
{
    return e->hooks.may_begin == NULL || e->hooks.may_begin(e->hooks.arg);
}

static int make_roster(struct endpoint *e, struct co_error *err)
{
    const struct channel_link_callbacks callbacks = {
        .on_up = go_up, .on_message = on_message, .on_down = on_local_down, .arg = e};
    struct jobs_opts opts = {
        .keys = e->world->key,
        .n_keys = e->world->key != NULL ? 1 : 0,
        .limits = {.keep_alive_ms = e->world->keep_alive_ms, .lease_ms = e->world->lease_ms},
        .max_conns = listen_limits(e->spec).n_nodes,
        .only_run_id = e->spec->run_id,
        .terms = &e->terms,
        .on_note = on_refused,
        .arg = e,
    };
    if (e->hooks.prepare != NULL)
        e->hooks.prepare(e->hooks.arg, &opts);
    int rc = local_roster_create(e->loop, &opts, &callbacks, &e->own, err);
    if (rc == 0 && e->hooks.on_roster != NULL)
        e->hooks.on_roster(e->hooks.arg, e->own);
    if (rc == 0)
        adopt_held(e);
    return rc;
}

/* --- where the endpoint's name leads --- */

static void on_probed(void *arg, enum self_probe_result result, const char *text);

static int probe(struct endpoint *e, const struct sockaddr_storage *addresses, size_t n,
                 struct co_error *err)
{
    e->led_to = *address_first(addresses, n);
    return self_probe_start(e->loop, &e->led_to, e->world->key, on_probed, e, &e->probe, err);
}

static int resolve(struct endpoint *e, resolve_done on_done, struct co_error *err)
{
    return resolve_start(e->loop, e->world->endpoint_host, e->world->endpoint_port, on_done, e,
                         &e->resolve, err);
}

/* --- this node is the endpoint, by order: it begins at once. A probe checks whether others can
 * find it, and only reports --- */

static void on_own_resolved(void *arg, int code, const char *text,
                            const struct sockaddr_storage *addresses, size_t n)
{
    struct endpoint *e = arg;
    struct co_error err = {0};
    e->resolve = NULL;
    if (code < 0)
        note(e, CO_WARNING,
             "this node is the rendezvous endpoint, but other nodes may not find it: %s", text);
    else if (probe(e, addresses, n, &err) < 0)
        note(e, CO_WARNING, "cannot check whether '%s' is an address of this node: %s",
             e->world->endpoint_host, err.text);
}

/* A probe that fails after the port was lent is not reported: the kernel resets connections when
 * their listener closes, a worker's store hangs up, and the rendezvous is over. */
static void tell_probed(struct endpoint *e, enum self_probe_result result, const char *text)
{
    char at[ADDRESS_TEXT_BYTES];
    address_print(&e->led_to, at);
    if (result != SELF_PROBE_US && !e->was_lent)
        note(e, CO_WARNING,
             "this node is the rendezvous endpoint, but '%s' (%s) does not reach it: %s; check "
             "--rdzv-endpoint",
             e->world->endpoint_host, at, text);
}

static void host_by_order(struct endpoint *e)
{
    struct co_error err = {0};
    if (!may_begin(e)) {
        go_down_later(e, asks_others, 0);
        return;
    }
    int rc = open_server(e, &err);
    if (rc == 0 && (rc = make_roster(e, &err)) < 0)
        close_group_close_server(&e->close_group, &e->server);
    if (rc < 0) {
        co_fail_in(&err, "this node is the rendezvous endpoint");
        go_down_later(e, err.text, ROSTER_LINK_UNAVAILABLE);
        return;
    }
    channel_link_connect(local_roster_link(e->own));
    if (resolve(e, on_own_resolved, &err) < 0)
        note(e, CO_WARNING, "%s", err.text);
}

/* --- find out whether this node is; e->why already has the reason why no other node is --- */

static void stop_finding(struct endpoint *e)
{
    close_group_close_server(&e->close_group, &e->server);
    drop_held(e);
    e->led_to = (struct sockaddr_storage){0};
    go_down(e, 0);
}

static void on_probed(void *arg, enum self_probe_result result, const char *text)
{
    struct endpoint *e = arg;
    struct co_error err = {0};
    e->probe = NULL;
    if (e->own != NULL) {
        tell_probed(e, result, text);
        return;
    }
    if (result == SELF_PROBE_US && !may_begin(e))
        snprintf(e->why, sizeof e->why, "%s", asks_others);
    else if (result == SELF_PROBE_US && make_roster(e, &err) < 0)
        snprintf(e->why, sizeof e->why, "%s", err.text);
    if (e->own != NULL)
        channel_link_connect(local_roster_link(e->own));
    else
        stop_finding(e);
}

static void on_resolved(void *arg, int code, const char *text,
                        const struct sockaddr_storage *addresses, size_t n)
{
    struct endpoint *e = arg;
    struct co_error err = {0};
    (void)text; /* the link has reported the same */
    e->resolve = NULL;
    int rc = code < 0 ? code : open_server(e, &err);
    if (rc == 0)
        rc = probe(e, addresses, n, &err);
    if (rc == -EADDRINUSE && !e->is_second_try) { /* it was started a moment before us */
        e->is_second_try = true;
        channel_link_connect(e->remote);
    } else if (rc < 0) {
        stop_finding(e);
    }
}

static void on_remote_down(void *arg, const char *text, int code)
{
    struct endpoint *e = arg;
    struct co_error err = {0};
    bool may_be_us = e->world->host == JOB_HOST_FOUND_OUT && !e->is_welcome && !e->is_up;
    snprintf(e->why, sizeof e->why, "%s", text);
    e->is_up = false;
    if (code != 0)
        e->callbacks.on_down(e->callbacks.arg, e->why, roster_link_exit_code(code), true);
    else if (!may_be_us || resolve(e, on_resolved, &err) < 0)
        go_down(e, 0);
}

/* --- the link --- */

static void stop_probing(struct endpoint *e)
{
    if (e->resolve != NULL)
        resolve_cancel(e->resolve);
    if (e->probe != NULL)
        self_probe_close(e->probe);
    e->resolve = NULL;
    e->probe = NULL;
}

void endpoint_disconnect(struct endpoint *e)
{
    uv_timer_stop(&e->later);
    if (e->remote != NULL)
        channel_link_disconnect(e->remote);
    if (e->own != NULL)
        channel_link_disconnect(local_roster_link(e->own));
    e->is_up = false;
    if (e->own != NULL)
        return; /* others are served on */
    stop_probing(e);
    close_group_close_server(&e->close_group, &e->server);
    drop_held(e);
}

static void begin_alone(struct endpoint *e)
{
    struct co_error err = {0};
    if (make_roster(e, &err) < 0)
        go_down_later(e, err.text, ROSTER_LINK_UNAVAILABLE);
    else
        channel_link_connect(local_roster_link(e->own));
}

void endpoint_connect(struct endpoint *e)
{
    endpoint_disconnect(e);
    e->is_second_try = false;
    if (e->own != NULL)
        channel_link_connect(local_roster_link(e->own));
    else if (e->remote != NULL)
        channel_link_connect(e->remote);
    else if (e->world->endpoint_host == NULL)
        begin_alone(e);
    else
        host_by_order(e);
}

void endpoint_send(struct endpoint *e, const struct message *m)
{
    if (e->is_up)
        channel_link_send(e->own != NULL ? local_roster_link(e->own) : e->remote, m);
}

void endpoint_set_hooks(struct endpoint *e, const struct endpoint_hooks *hooks)
{
    e->hooks = *hooks;
}

void endpoint_drop_roster(struct endpoint *e)
{
    e->is_up = false;
    close_group_close_own(&e->close_group, &e->own);
}

bool endpoint_is_here(const struct endpoint *e)
{
    return e->own != NULL;
}

int endpoint_own_address(const struct endpoint *e, char *text, size_t n)
{
    struct sockaddr_storage own = e->led_to;
    bool is_known =
        e->own != NULL ? e->remote != NULL : channel_link_own_address(e->remote, &own) == 0;
    if (!is_known || !address_may_tell(e->world->endpoint_host, &own))
        return -ENOTCONN;
    return address_print_host(&own, text, n);
}

/* --- beginning and end --- */

void endpoint_close(struct endpoint *e)
{
    endpoint_disconnect(e);
    e->closing = true;
    stop_probing(e);
    close_group_close_server(&e->close_group, &e->server);
    close_group_close_timer(&e->close_group, &e->later);
    close_group_close_link(&e->close_group, &e->remote);
    close_group_close_own(&e->close_group, &e->own);
    close_group_end(&e->close_group, free, e);
}

int endpoint_open(uv_loop_t *loop, const struct job_spec *spec,
                  const struct roster_link_callbacks *callbacks, struct endpoint **ret,
                  struct co_error *err)
{
    const struct job_world *world = &spec->world;
    struct endpoint *e = calloc(1, sizeof *e);
    if (e == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    e->loop = loop;
    e->spec = spec;
    e->world = world;
    e->callbacks = *callbacks;
    e->later.data = e;
    const uint32_t n_nodes = listen_limits(spec).n_nodes;
    e->max_held = n_nodes < MAX_HELD ? n_nodes : MAX_HELD;
    job_spec_terms(spec, &e->terms);
    uv_timer_init(loop, &e->later);
    const struct channel_link_callbacks link_callbacks = {
        .on_up = go_up, .on_message = on_message, .on_down = on_remote_down, .arg = e};
    if (world->endpoint_host != NULL && world->host != JOB_HOST_HERE) {
        int rc = channel_link_create(loop, world->endpoint_host, world->endpoint_port, world->key,
                                     &link_callbacks, &e->remote, err);
        if (rc < 0) {
            endpoint_close(e);
            return rc;
        }
    }
    *ret = e;
    return 0;
}

/* --- as a node's link --- */

static int link_open(uv_loop_t *loop, const struct job_spec *spec,
                     const struct roster_link_callbacks *callbacks, void **ret,
                     struct co_error *err)
{
    struct endpoint *e;
    int rc = endpoint_open(loop, spec, callbacks, &e, err);
    if (rc == 0)
        *ret = e;
    return rc;
}

static void link_connect(void *link)
{
    endpoint_connect(link);
}

static void link_send(void *link, const struct message *m)
{
    endpoint_send(link, m);
}

static void link_disconnect(void *link)
{
    endpoint_disconnect(link);
}

static int link_own_address(const void *link, char *text, size_t n)
{
    return endpoint_own_address(link, text, n);
}

static bool link_lend_port(void *link, uint16_t port)
{
    return endpoint_lend_port(link, port);
}

static void link_adopt(void *link, int fd, const uint8_t *bytes, size_t len)
{
    endpoint_adopt(link, fd, bytes, len);
}

static int link_take_port(void *link, struct co_error *err)
{
    return endpoint_take_port(link, err);
}

static void link_close(void *link)
{
    endpoint_close(link);
}

const struct roster_link_ops endpoint_link_ops = {
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
