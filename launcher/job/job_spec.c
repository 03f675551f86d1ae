#include "job_spec.h"

#include "launcher/platform/binding.h"
#include "rank_argv.h"

#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/channel/seal.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- several programs --- */

int mpmd_add(struct mpmd **more, int first_rank, const struct job_program *program,
             struct co_error *err)
{
    if (*more == NULL)
        *more = calloc(1, sizeof **more);
    struct mpmd *m = *more;
    if (m == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (m->n == JOB_PROGRAMS_MAX - 1)
        return co_fail(err, -EINVAL, "too many programs: at most %d are allowed", JOB_PROGRAMS_MAX);
    m->of[m->n].first_rank = first_rank;
    m->of[m->n++].program = *program;
    return 0;
}

int mpmd_join(struct mpmd *m, char *const *first, struct co_error *err)
{
    char *const colon[] = {(char *)":", NULL};
    char *const *lists[2 * JOB_PROGRAMS_MAX] = {first};
    size_t n = 1;
    for (int i = 0; i < m->n; i++) {
        lists[n++] = colon;
        lists[n++] = m->of[i].program.argv;
    }
    char **words = co_join_words(lists, n);
    if (words == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    free(m->words);
    m->words = words;
    return 0;
}

int mpmd_end(const struct mpmd *m, int local_rank)
{
    int i = 0;
    while (m != NULL && i < m->n && m->of[i].first_rank <= local_rank)
        i++;
    return m != NULL && i < m->n ? m->of[i].first_rank : INT_MAX;
}

struct job_program job_spec_program(const struct job_spec *spec, int local_rank)
{
    const struct mpmd *m = spec->more;
    struct job_program p = {.path = spec->path,
                            .argv = spec->argv,
                            .shown = spec->shown,
                            .n_program_words = spec->n_program_words,
                            .has_templates = spec->has_templates,
                            .fills_braces = spec->fills_braces};
    for (int i = 0; m != NULL && i < m->n && m->of[i].first_rank <= local_rank; i++)
        p = m->of[i].program;
    return p;
}

/* --- the whole job --- */

char *const *job_spec_words(const struct job_spec *spec)
{
    return spec->more != NULL ? spec->more->words : spec->argv;
}

bool job_spec_agent_store(const struct job_spec *spec, uint32_t world_size)
{
    return spec->store == STORE_AGENT || (spec->store == STORE_AUTO && world_size > 1);
}

bool job_spec_recovers(const struct job_spec *spec)
{
    return spec->mpi == MPI_BY_NOTHING &&
           (spec->on_failure == FAILURE_REPLACES || spec->on_failure == FAILURE_SHRINKS) &&
           (spec->max_restarts > 0 || spec->restart_after_progress ||
            /* one may join */
            (spec->world.has_others && spec->world.min_nodes < spec->world.max_nodes));
}

bool job_spec_asks(const struct job_spec *spec)
{
    return spec->on_term_ms > 0 || (spec->world.has_others && spec->world.max_nodes > 1);
}

bool job_spec_checks(const struct job_spec *spec)
{
    return spec->health.command != NULL || health_checks_any(&spec->health.builtin);
}

void job_spec_terms(const struct job_spec *spec, struct message_terms *ret)
{
    const struct job_world *w = &spec->world;
    *ret = (struct message_terms){
        .min_nodes = w->min_nodes,
        .max_nodes = w->max_nodes,
        .window_ms = w->window_ms,
        .start_timeout_ms = w->start_timeout_ms,
        .rejoin_timeout_ms = w->rejoin_timeout_ms,
        .max_restarts = (uint32_t)spec->max_restarts,
        .restart_window_ms = spec->restart_window_ms,
        .admit_at = w->admit_at,
        .admit_timeout_ms = w->admit_timeout_ms,
        .exclude_after = w->exclude_after,
        .exclude_window_ms = w->exclude_window_ms,
        .no_progress = spec->no_progress,
        .spares = w->spares,
        .segment = w->segment,
    };
    for (int code = 0; code < 256; code++)
        if (spec->no_restart_on[code])
            ret->no_restart_on[code / 8] |= (uint8_t)(1 << code % 8);
}

void job_spec_set_binding(struct job_spec *spec, struct binding *binding)
{
    spec->binding = binding;
    if (!binding->is_bound || spec->omp_asked || spec->as_torchrun)
        return;
    for (int i = 0; i < spec->n_local; i++) {
        int n = (int)cpu_set_count(&binding->ranks[i].cpus);
        spec->omp_threads = n < spec->omp_threads ? n : spec->omp_threads;
    }
}

static void mpmd_destroy(struct mpmd *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < m->n; i++) {
        const struct job_program *p = &m->of[i].program;
        free((char *)p->path);
        free((char **)p->argv);
        free((char *)p->shown);
    }
    free(m->words);
    free(m);
}

void job_spec_fini(struct job_spec *spec)
{
    void *owned[] = {
        spec->notes,
        spec->run_id,
        spec->role,
        spec->backend,
        spec->master_addr,
        spec->binding,
        spec->gpus,
        spec->path,
        spec->argv,
        spec->shown,
        spec->wrap != NULL ? spec->wrap->path : NULL,
        spec->wrap,
        spec->local_rank_arg,
        spec->health.command,
        spec->events,
        spec->report,
        spec->failure_dump,
        spec->http_hosts,
        spec->timer_file,
        spec->http,
        spec->signals_to_handle,
        spec->exports,
        spec->task,
        spec->wdir,
        spec->world.node_name,
        spec->world.domain_rule,
        spec->world.domain,
        spec->world.local_addr,
        spec->world.endpoint_host,
        spec->world.also,
        spec->world.etcd,
        spec->world.token_file,
        spec->world.store_allow,
    };
    health_checks_fini(&spec->health.builtin);
    seal_key_destroy(spec->world.key);
    if (spec->world.etcd != NULL)
        explicit_bzero(spec->world.etcd, sizeof *spec->world.etcd); /* a password may be in it */
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    if (spec->remote != NULL) {
        host_list_fini(&spec->remote->hosts);
        free(spec->remote->shares);
        free((char **)spec->remote->way.command);
        free(spec->remote);
    }
    output_spec_fini(&spec->output);
    mpmd_destroy(spec->more);
    *spec = (struct job_spec){0};
}
