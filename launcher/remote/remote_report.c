/* remote_report.c - --report of a job on other hosts: the nodes' results come to the roster
 * here. */
#include "launcher/job/job_spec.h"
#include "launcher/stdio/output.h"
#include "remote_priv.h"
#include "remote_roster.h"

#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/membership/member.h"

#include <unistd.h>

/* The ways to the hosts have ended: what a node sent last has arrived, or is in a socket. */
enum { RESULTS_MS = 2000 };

bool remote_report_is_wanted(const struct job_spec *spec)
{
    return spec->report != NULL && !job_report_is_by_node(spec->report);
}

static void on_time(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static void await_results(struct remote *r)
{
    bool is_over = false;
    uv_update_time(&r->loop);
    r->last.data = &is_over;
    uv_timer_start(&r->last, on_time, RESULTS_MS, 0);
    while (!is_over && remote_roster_n_owed(r->roster) > 0)
        uv_run(&r->loop, UV_RUN_ONCE);
    uv_timer_stop(&r->last);
    r->last.data = r;
}

int remote_report_write(struct remote *r, int exit_code, int signal, struct co_error *err)
{
    const struct message_verdict *v = remote_roster_verdict(r->roster);
    const struct job_spec *spec = r->spec;
    char host[256] = "";
    if (!remote_report_is_wanted(spec))
        return 0;
    await_results(r);
    gethostname(host, sizeof host - 1);
    const struct member_end end = {.signal = signal,
                                   .outcome = v != NULL ? v->outcome : MESSAGE_MISSING};
    const struct job_report_end all = {
        .run_id = spec->run_id,
        .host = host,
        .program = job_spec_program(spec, 0).shown,
        .outcome = job_report_outcome(&end),
        .exit_code = exit_code,
        .signal = signal,
        .has_others = true,
        .node = v != NULL ? v->node : NULL,
        .text = v != NULL ? v->text : "",
        .rank = v != NULL ? v->rank : MESSAGE_NO_RANK,
        .n_restarts = v != NULL ? v->n_restarts : remote_roster_n_restarts(r->roster),
        .n_generations = remote_roster_generation(r->roster) + 1,
        .duration_ms = co_now_ms() - r->begun_ms,
        .output_error = output_error(r->output),
        .unhealthy = remote_roster_unhealthy(r->roster),
    };
    return job_report_write(&r->report, &all, spec->report, err);
}
