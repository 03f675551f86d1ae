#include "node_flight_recorder.h"

#include "launcher/diagnosis/flight_recorder.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/stdio/log_files.h"
#include "launcher/stdio/output.h"

#include "common/clock.h"
#include "common/process.h"
#include "common/scope.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char *get_variable(const char *name)
{
    return getenv(name);
}

/* One that is stopped would be waited for in vain. */
static bool can_dump(const struct node_view *n, int local_rank)
{
    const struct supervisor_rank *r = supervisor_get_rank(n->supervisor, local_rank);
    struct co_process process;
    return r->phase == RANK_RUNS && co_process_look(r->pid, &process, NULL) == 0 &&
           process.state != 'T' && process.state != 't';
}

/* Where copies are put; NULL: nowhere. */
static const char *find_dir(const struct node_view *n, char dir[PATH_MAX])
{
    return n->io->log_dir != NULL ? log_files_path(n->io->log_dir, n->io->generation, -1,
                                                   "flight_recorder", dir, PATH_MAX)
                                  : NULL;
}

static void forget(const struct node_view *n)
{
    flight_recorder_destroy(n->parts->flights);
    n->parts->flights = NULL;
}

/* The ranks' environment is ours, and what ddprun adds to it has nothing to do with this. */
struct flights *node_flight_recorder_ask(const struct node_view *n, int local_rank)
{
    struct flight_recorder_names names;
    struct flights *flights = NULL;
    char dir[PATH_MAX];
    const struct rank_numbers numbers = node_numbers(n);
    int n_asked = 0;
    co_autofree int *ranks = calloc((size_t)n->spec->n_local, sizeof *ranks);
    flight_recorder_find_names(&names, get_variable);
    if (ranks == NULL || names.pipe[0] == '\0')
        return NULL;
    for (int i = 0; i < n->spec->n_local; i++)
        if ((local_rank < 0 || local_rank == i) && can_dump(n, i))
            ranks[n_asked++] = rank_number(numbers, i);
    flight_recorder_ask(&names, ranks, n_asked, find_dir(n, dir), co_now_ms(), &flights, NULL);
    if (flights != NULL && local_rank < 0)
        forget(n);
    return flights;
}

/* What is there already is not of the ranks that are about to be started. */
static int watch(const struct node_view *n)
{
    struct flight_recorder_names names;
    char dir[PATH_MAX];
    const struct rank_numbers numbers = node_numbers(n);
    co_autofree int *ranks = calloc((size_t)n->spec->n_local, sizeof *ranks);
    forget(n);
    flight_recorder_find_names(&names, get_variable);
    if (ranks == NULL || !names.is_chosen)
        return 0;
    for (int i = 0; i < n->spec->n_local; i++)
        ranks[i] = rank_number(numbers, i);
    flight_recorder_watch(&names, ranks, n->spec->n_local, find_dir(n, dir), &n->parts->flights,
                          NULL);
    return 0;
}

void node_flight_recorder_tell(const struct node_view *n)
{
    char *text = NULL;
    size_t size = 0;
    if (n->parts->flights == NULL ||
        supervisor_get_verdict(n->supervisor)->outcome != OUTCOME_RANK_FAILED)
        return;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    flight_recorder_take(n->parts->flights);
    flight_recorder_print(n->parts->flights, out);
    if (fclose(out) == 0 && size > 0)
        output_report(n->output, text);
    free(text);
    forget(n);
}

const struct node_feature node_flight_recorder_feature = {.on_generation = watch, .close = forget};
