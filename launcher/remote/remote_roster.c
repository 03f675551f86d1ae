/* The roster that all hosts connect to: remote_roster_open() makes the jobs (rendezvous/jobs) and
 * the listener; on_changed() follows the state of the roster, shows once a second what the job
 * waits for (on_line_timer()), and calls on_closed when the verdict is known. Read on_changed()
 * first.
 */
#include "remote_roster.h"

#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"
#include "launcher/membership/close_group.h"
#include "launcher/reporting/health_list.h"
#include "launcher/reporting/wait_line.h"

#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MS = 1000 };

struct remote_roster {
    const struct job_spec *spec;
    struct remote_roster_callbacks callbacks;
    struct message_terms terms;
    struct server *server;
    struct jobs *jobs;
    struct jobs_pages pages;
    const char **names; /* owned; of all hosts */
    char cause[MESSAGE_TEXT_BYTES];
    bool is_closed, awaits_saved;
    struct health_list unhealthy;
    uint32_t n_health_changes; /* as the list has them */

    uv_timer_t line_timer;
    uint64_t waits_from_ms;
    struct wait_line shown;
    struct wait_text text;
    struct close_group close_group;
};

__attribute__((format(printf, 3, 4))) static void
pass_line(struct remote_roster *r, enum co_severity severity, const char *format, ...)
{
    char line[WAIT_LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    r->callbacks.on_line(r->callbacks.arg, severity, line);
}

static void on_job(void *arg, const char *run_id, const struct roster *roster)
{
    (void)run_id;
    *(const struct roster **)arg = roster;
}

/* There is one job, for as long as there are jobs. */
static const struct roster *get_roster(const struct remote_roster *r)
{
    const struct roster *roster = NULL;
    jobs_each(r->jobs, on_job, &roster);
    return roster;
}

static bool is_here(const struct roster *roster, const char *name)
{
    struct roster_node_view node;
    for (uint32_t i = 0; i < roster_n_slots(roster); i++)
        if (roster_view(roster, i, &node) && node.here && node.is_fit &&
            strcmp(node.name, name) == 0)
            return true;
    return false;
}

bool remote_roster_knows(const struct remote_roster *r, const char *name)
{
    const struct roster *roster = get_roster(r);
    struct roster_node_view node;
    for (uint32_t i = 0; i < roster_n_slots(roster); i++)
        if (roster_view(roster, i, &node) && strcmp(node.name, name) == 0)
            return true;
    return false;
}

/* --- what was saved --- */

static bool have_all_saved(const struct roster *roster)
{
    struct roster_node_view node;
    if (roster_get_state(roster) != ROSTER_RUNNING)
        return false;
    for (uint32_t i = 0; i < roster_n_slots(roster); i++)
        if (roster_view(roster, i, &node) && node.is_member && !node.has_saved && !node.is_done &&
            !node.leaves)
            return false;
    return true;
}

/* --- health --- */

static bool is_unfit(const struct roster *roster, const char *name)
{
    struct roster_node_view node;
    for (uint32_t i = 0; i < roster_n_slots(roster); i++)
        if (roster_view(roster, i, &node) && node.unfit[0] != '\0' && strcmp(node.name, name) == 0)
            return true;
    return false;
}

static void note_health(struct remote_roster *r, const struct roster *roster)
{
    struct roster_node_view node;
    if (roster_n_health_changes(roster) == r->n_health_changes)
        return;
    r->n_health_changes = roster_n_health_changes(roster);
    for (uint32_t i = 0; i < r->unhealthy.n; i++)
        if (!is_unfit(roster, r->unhealthy.nodes[i].name))
            health_list_note(&r->unhealthy, r->unhealthy.nodes[i].name, MESSAGE_FIT, "");
    for (uint32_t i = 0; i < roster_n_slots(roster); i++)
        if (roster_view(roster, i, &node) && node.unfit[0] != '\0')
            health_list_note(&r->unhealthy, node.name, MESSAGE_UNFIT, node.unfit);
}

const struct health_list *remote_roster_unhealthy(const struct remote_roster *r)
{
    return &r->unhealthy;
}

static void on_heard(void *arg, const struct roster *roster)
{
    struct remote_roster *r = arg;
    note_health(r, roster);
    if (!r->awaits_saved || !have_all_saved(roster))
        return;
    r->awaits_saved = false;
    r->callbacks.on_saved(r->callbacks.arg);
}

void remote_roster_await_saved(struct remote_roster *r)
{
    r->awaits_saved = true;
    on_heard(r, get_roster(r));
}

/* --- what is waited for --- */

static void fill_progress(const struct remote_roster *r, const struct roster *roster,
                          struct message_progress *p)
{
    const struct remote_spec *remote = r->spec->remote;
    bool is_open = roster_get_state(roster) == ROSTER_OPEN;
    uint64_t now_ms = co_now_ms(), deadline_ms = roster_state_deadline_ms(roster);
    *p = (struct message_progress){.wait = is_open ? MESSAGE_WAIT_WINDOW : MESSAGE_WAIT_NODES,
                                   .n_wanted = is_open ? r->terms.max_nodes : r->terms.min_nodes,
                                   .elapsed_ms = now_ms - r->waits_from_ms,
                                   .left_ms = deadline_ms == CO_NEVER_MS ? UINT64_MAX
                                              : deadline_ms > now_ms     ? deadline_ms - now_ms
                                                                         : 0};
    for (size_t i = 0; i < remote->hosts.n; i++) {
        if (is_here(roster, r->names[i]))
            p->n_here++;
        else if (p->n_names < MESSAGE_MAX_NAMES)
            p->names[p->n_names++] = r->names[i];
    }
    p->n_all_names = (uint32_t)remote->hosts.n - p->n_here;
}

static void on_line_timer(uv_timer_t *timer)
{
    struct remote_roster *r = timer->data;
    const struct roster *roster = get_roster(r);
    enum roster_state state = roster_get_state(roster);
    struct message_progress p;
    if (r->cause[0] != '\0') /* it takes long until more is known */
        pass_line(r, CO_NOTE, "%s", r->cause);
    r->cause[0] = '\0';
    if (state != ROSTER_GATHERING && state != ROSTER_OPEN)
        return;
    fill_progress(r, roster, &p);
    wait_text_progress(&r->text, &p);
    if (wait_line_look(&r->shown, &r->text, co_now_ms()) == WAIT_CHANGED)
        pass_line(r, CO_NOTE, "%s", r->text.line);
}

static void begin_wait(struct remote_roster *r)
{
    r->waits_from_ms = co_now_ms();
    r->shown = (struct wait_line){0};
    uv_update_time(r->line_timer.loop);
    uv_timer_start(&r->line_timer, on_line_timer, LINE_MS, LINE_MS);
}

void remote_roster_begin(struct remote_roster *r)
{
    begin_wait(r);
}

/* --- what happens --- */

static void announce(struct remote_roster *r, const struct roster *roster)
{
    struct roster_node_view node;
    uint32_t n_nodes = 0, n_ranks = 0;
    for (uint32_t i = 0; i < roster_n_slots(roster); i++)
        if (roster_view(roster, i, &node) && node.is_member) {
            n_nodes++;
            n_ranks += node.n_local;
        }
    const char *excluded = roster_newly_excluded(roster);
    if (roster_generation(roster) > 0 || r->spec->verbose > 0)
        pass_line(r, CO_NOTE,
                  "%s%s%s%sgeneration %" PRIu32 ": %" PRIu32 " node%s, %" PRIu32 " rank%s",
                  r->cause, r->cause[0] != '\0' ? "; " : "", excluded,
                  excluded[0] != '\0' ? " is excluded; " : "", roster_generation(roster), n_nodes,
                  n_nodes == 1 ? "" : "s", n_ranks, n_ranks == 1 ? "" : "s");
    r->cause[0] = '\0';
}

static void on_changed(void *arg, const char *run_id, const struct roster *roster,
                       enum roster_state from)
{
    struct remote_roster *r = arg;
    (void)run_id, (void)from;
    switch (roster_get_state(roster)) {
    case ROSTER_GATHERING:
    case ROSTER_OPEN:
        begin_wait(r);
        break;
    case ROSTER_RUNNING:
        uv_timer_stop(&r->line_timer);
        announce(r, roster);
        break;
    case ROSTER_STOPPING:
        snprintf(r->cause, sizeof r->cause, "%s", roster_change(roster));
        begin_wait(r);
        break;
    case ROSTER_CLOSED:
    default:
        uv_timer_stop(&r->line_timer);
        r->is_closed = true;
        r->callbacks.on_closed(r->callbacks.arg);
    }
}

const struct message_verdict *remote_roster_verdict(const struct remote_roster *r)
{
    return r->is_closed ? roster_get_verdict(get_roster(r)) : NULL;
}

uint32_t remote_roster_n_owed(const struct remote_roster *r)
{
    return jobs_n_owed(r->jobs);
}

uint32_t remote_roster_generation(const struct remote_roster *r)
{
    return roster_generation(get_roster(r));
}

uint32_t remote_roster_n_restarts(const struct remote_roster *r)
{
    return roster_n_restarts(get_roster(r));
}

static void on_result(void *arg, const struct message *m)
{
    struct remote_roster *r = arg;
    r->callbacks.on_result(r->callbacks.arg, m);
}

static void on_jobs_note(void *arg, const char *text)
{
    pass_line(arg, CO_WARNING, "%s", text);
}

/* --- beginning and end --- */

static void on_jobs_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    struct remote_roster *r = arg;
    jobs_adopt(r->jobs, fd, bytes, len);
}

static struct jobs *get_jobs(void *arg)
{
    return ((struct remote_roster *)arg)->jobs;
}

static int open_jobs(struct remote_roster *r, uv_loop_t *loop, struct co_error *err)
{
    const struct job_world *w = &r->spec->world;
    const struct host_list *hosts = &r->spec->remote->hosts;
    const struct jobs_opts opts = {
        .keys = w->key,
        .n_keys = w->key != NULL ? 1 : 0,
        .limits = {.keep_alive_ms = w->keep_alive_ms, .lease_ms = w->lease_ms},
        .max_conns = listen_limits(r->spec).n_nodes,
        .only_run_id = r->spec->run_id,
        .terms = &r->terms,
        .expected = r->names,
        .n_expected = hosts->n,
        .on_note = on_jobs_note,
        .on_changed = on_changed,
        .on_heard = on_heard,
        .on_result = r->callbacks.on_result != NULL ? on_result : NULL,
        .arg = r,
    };
    return jobs_create(loop, &opts, &r->jobs, err);
}

static int open_listener(struct remote_roster *r, uv_loop_t *loop, struct co_error *err)
{
    struct server_opts callbacks = {
        .on_control = on_jobs_control, .on_refused = on_jobs_note, .arg = r};
    r->pages = (struct jobs_pages){.key = r->spec->world.key, .get_jobs = get_jobs, .arg = r};
    jobs_pages_fill(&r->pages, &callbacks);
    return listen_open_roster(loop, r->spec, &callbacks, r->spec->world.endpoint_host, 0,
                              &r->server, err);
}

int remote_roster_open(uv_loop_t *loop, const struct job_spec *spec,
                       const struct remote_roster_callbacks *callbacks, struct remote_roster **ret,
                       struct co_error *err)
{
    const struct host_list *hosts = &spec->remote->hosts;
    struct remote_roster *r = calloc(1, sizeof *r);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    r->spec = spec;
    r->callbacks = *callbacks;
    job_spec_terms(spec, &r->terms);
    uv_timer_init(loop, &r->line_timer);
    r->line_timer.data = r;
    r->names = calloc(hosts->n, sizeof *r->names);
    int rc = r->names != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < hosts->n; i++)
        r->names[i] = hosts->hosts[i].name;
    rc = rc ?: open_jobs(r, loop, err) ?: open_listener(r, loop, err);
    if (rc < 0) {
        remote_roster_close(r);
        return rc;
    }
    *ret = r;
    return 0;
}

uint16_t remote_roster_port(const struct remote_roster *r)
{
    return server_port(r->server);
}

static void destroy_roster(void *arg)
{
    struct remote_roster *r = arg;
    health_list_fini(&r->unhealthy);
    free(r->names);
    free(r);
}

void remote_roster_close(struct remote_roster *r)
{
    if (r == NULL)
        return;
    close_group_close_server(&r->close_group, &r->server);
    close_group_close_jobs(&r->close_group, &r->jobs);
    close_group_close_timer(&r->close_group, &r->line_timer);
    close_group_end(&r->close_group, destroy_roster, r);
}
