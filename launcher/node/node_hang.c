#include "node_hang.h"

#include "launcher/diagnosis/flight_recorder.h"
#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/ras_query.h"
#include "launcher/diagnosis/stacks.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/report.h"
#include "launcher/stdio/output.h"
#include "launcher/supervisor/hang.h"
#include "launcher/torch/torch_hook.h"
#include "launcher/torch/torch_watch.h"
#include "node_dump.h"
#include "node_goodput.h"
#include "node_stacks.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LINES = 16, /* of a finding: ranks that are described one by one */
    TORCH_EVERY_MS = 10000,
    LOOK_MS = 1000, /* without a timeout */
};

struct sleep {         /* of a rank, in which the kernel does not let it be woken */
    uint64_t since_ms; /* CO_NEVER_MS: it was not so at the last look */
    uint64_t cpu_ms;   /* that it had used then */
};

struct node_hang {
    const struct node_view *n;
    uv_timer_t timer;
    struct hang *hang;         /* NULL: without --hang-timeout */
    struct sleep *sleeps;      /* by rank; owned */
    struct hang_look *looks;   /* by rank; owned */
    struct hang_proc *procs;   /* as above */
    struct torch_watch *torch; /* owned; the last collectives of ranks, if torch reports them */
    uint64_t ask_at_ms;        /* it is asked again then */
    uint64_t since_ms;         /* time runs, in this generation: */
    bool is_on;
    uint32_t generation;
    struct hang_finding finding; /* the last one */
    pid_t pid;                   /* the process that it is about; 0: no rank */
    uint32_t found_in;           /* its generation */
    int signal;                  /* the first one that it gets */
    struct stacks *stacks;       /* where it is, is being found out; NULL: it is known */
    bool is_reported;            /* the finding */
    uint64_t kill_at_ms;         /* it was asked to end, and is killed then */
    uint64_t killed_ms;
    uint64_t give_up_at_ms; /* it was killed, and counts as ended then, unless it still runs */
};

/* --- looking ---------------------------------------------------------------------------------- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What reads and writes files is often found so, but uses a CPU between two looks. */
static void note_sleep(struct sleep *s, const struct co_process *p, uint64_t now_ms)
{
    if (p->state != 'D')
        s->since_ms = CO_NEVER_MS;
    else if (s->since_ms == CO_NEVER_MS || s->cpu_ms != p->cpu_ms)
        s->since_ms = now_ms;
    s->cpu_ms = p->cpu_ms;
}

/* A collective of torch is movement as output is. */
static void look_at(const struct node_hang *w, int rank, uint64_t now_ms, struct hang_look *ret)
{
    const struct node_view *n = w->n;
    const struct supervisor_rank *r = supervisor_get_rank(n->supervisor, rank);
    struct co_process process = {0};
    *ret = (struct hang_look){
        .runs = r->phase == RANK_RUNS,
        .output_ms = later(output_rank_ms(n->output, rank), torch_watch_moved_ms(w->torch, rank)),
    };
    if (ret->runs && co_process_look(r->pid, &process, NULL) == 0) {
        ret->is_runnable = process.state == 'R';
        ret->cpu_ms = process.cpu_ms;
    }
    note_sleep(&w->sleeps[rank], &process, now_ms);
    ret->has_page = generation_read_progress(n->gen, rank, &ret->progress, &ret->digest);
}

/* Whether no rank has done anything for half of the timeout: torch is not asked without need. A
 * timeout that is learned needs to know more. */
static bool is_quiet(const struct node_hang *w, uint64_t now_ms)
{
    uint64_t moved_ms = w->since_ms;
    for (int i = 0; i < w->n->spec->n_local; i++)
        if (w->looks[i].runs)
            moved_ms = later(moved_ms, w->looks[i].output_ms);
    return now_ms - moved_ms >=
           (w->n->spec->hang_learns ? TORCH_EVERY_MS : hang_timeout_ms(w->hang) / 2);
}

/* Ranks that report their progress in another way are not asked. */
static void ask_torch(struct node_hang *w, uint64_t now_ms)
{
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    torch_watch_look(w->torch, now_ms, (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec);
    if (w->n->torch_hook->archive == NULL || torch_watch_is_busy(w->torch) ||
        now_ms < w->ask_at_ms || !is_quiet(w, now_ms))
        return;
    const uint64_t every_ms = hang_timeout_ms(w->hang) / 8;
    w->ask_at_ms = now_ms + (every_ms < TORCH_EVERY_MS ? every_ms : TORCH_EVERY_MS);
    char **servers = node_stacks_find_servers(w->n);
    for (int i = 0; servers != NULL && i < w->n->spec->n_local; i++) {
        if (servers[i] != NULL && w->looks[i].runs && !w->looks[i].has_page)
            torch_watch_ask(w->torch, i, servers[i], now_ms);
        free(servers[i]);
    }
    free(servers);
}

static void look_closer(struct node_hang *w)
{
    for (int i = 0; i < w->n->spec->n_local; i++) {
        struct hang_look *look = &w->looks[i];
        if (!look->runs)
            continue;
        hang_proc_read(supervisor_get_rank(w->n->supervisor, i)->pid, &w->procs[i]);
        look->is_stopped = w->procs[i].state == 'T';
        memcpy(look->place, w->procs[i].place, sizeof look->place);
    }
}

/* --- reporting -------------------------------------------------------------------------------- */

/* "  rank 1: pid 4711, sleeps in hrtimer_nanosleep, uses 0% of a CPU, last in all_reduce #811;
 * 417 steps completed" */
static void print_rank(FILE *out, const struct node_hang *w, int rank)
{
    const struct hang_look *look = &w->looks[rank];
    char text[HANG_PLACE_BYTES + 64];
    fprintf(out, "  rank %d: pid %d, %s", rank_number(node_numbers(w->n), rank),
            (int)supervisor_get_rank(w->n->supervisor, rank)->pid,
            hang_proc_text(&w->procs[rank], text, sizeof text));
    const int cpu_percent = w->hang != NULL ? hang_cpu_percent(w->hang, rank) : -1;
    if (cpu_percent >= 0)
        fprintf(out, ", uses %d%% of a CPU", cpu_percent);
    const struct progress *p = &look->progress;
    const char *before = ", ";
    for (unsigned i = 0; look->has_page && i < p->n_calls; i++) {
        static const char *const states[] = {[RANK_STATUS_OUTSIDE] = "last in",
                                             [RANK_STATUS_BEGUN] = "has begun",
                                             [RANK_STATUS_WAITS] = "waits in"};
        char call[HANG_CALL_BYTES];
        fprintf(out, "%s%s %s", before, states[p->call[i].state],
                hang_text_call(&p->call[i], call));
    }
    if (look->has_page)
        fprintf(out, "; %llu steps completed", (unsigned long long)(p->steps_before + p->steps));
    fputc('\n', out);
}

static void tell_finding(struct node_hang *w)
{
    const struct node_view *n = w->n;
    char what[HANG_TEXT_BYTES];
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    hang_text(&w->finding, node_numbers(n), what);
    if (w->finding.is_guess && !w->finding.is_stopped)
        fprintf(out, "ddprun: warning: the job hangs: %s\n", what);
    else
        fprintf(out, "ddprun: warning: rank %d hangs: %s\n",
                rank_number(node_numbers(n), w->finding.rank), what);
    int n_printed = 0;
    for (int i = 0; i < n->spec->n_local && n_printed < LINES; i++)
        if (w->looks[i].runs) {
            print_rank(out, w, i);
            n_printed++;
        }
    if (fclose(out) == 0)
        output_report(n->output, text);
    free(text);
    w->is_reported = true;
    events_hang(n->events, n->supervisor, &w->finding, &w->procs[w->finding.rank]);
}

/* --- ending it -------------------------------------------------------------------------------- */

/* A signal that can be caught shows where it hangs: a core dump, Python's faulthandler. A stopped
 * process receives only SIGKILL. */
static void end_rank(struct node_hang *w, uint64_t now_ms)
{
    const struct node_view *n = w->n;
    const int sig = w->finding.is_stopped ? SIGKILL : w->signal;
    spawner_signal_one(n->spawner, sig == SIGKILL ? SPAWNER_GROUP : SPAWNER_MAIN, w->finding.rank,
                       sig);
    w->kill_at_ms = now_ms + n->spec->failure_grace_ms;
    w->give_up_at_ms = CO_NEVER_MS;
}

static bool is_ending(const struct node_hang *w)
{
    const struct supervisor_rank *r = supervisor_get_rank(w->n->supervisor, w->finding.rank);
    return w->pid != 0 && r->phase == RANK_RUNS && r->pid == w->pid;
}

/* Time has passed: the ranks may be stopping, which they are given time for, or are called to
 * another generation, whose start the supervisor awaits. */
static bool is_wanted(const struct node_hang *w)
{
    const struct supervisor *s = w->n->supervisor;
    const enum supervisor_state state = supervisor_get_state(s);
    /* awaiting: another rank lost a peer, and this one's hang may be why */
    return (state == SUPERVISOR_RUNNING || state == SUPERVISOR_AWAITING) &&
           supervisor_generation(s) == w->found_in;
}

/* Torch may know which rank the others wait for, where its output does not show it. */
static void find_by_torch(struct node_hang *w, const struct stack *list, int n)
{
    const int missing = stack_find_missing(list, n);
    const int rank =
        missing >= 0 ? rank_of_number(node_numbers(w->n), w->n->spec->n_local, list[missing].rank)
                     : -1;
    if (w->finding.kind != HANG_SILENT || w->finding.is_stopped || rank < 0)
        return;
    w->finding.rank = rank;
    w->finding.is_guess = false;
    w->finding.odd = HANG_LAGS;
    w->finding.has_steps = w->looks[rank].has_page;
    w->finding.steps = w->looks[rank].progress.steps_before + w->looks[rank].progress.steps;
    w->pid = supervisor_get_rank(w->n->supervisor, rank)->pid;
}

static void on_stacks(void *arg, const struct stack *list, int n, const struct flights *flights,
                      const struct ras_query *ras)
{
    struct node_hang *w = arg;
    w->stacks = NULL;
    if (!is_ending(w)) /* it has ended by itself meanwhile */
        return;
    if (!is_wanted(w)) {
        w->pid = 0; /* it does not end of its hanging */
        return;
    }
    if (!w->is_reported) {
        find_by_torch(w, list, n);
        tell_finding(w);
    }
    node_stacks_tell(w->n, rank_number(node_numbers(w->n), w->finding.rank), list, n, flights, ras);
    node_dump_take(w->n, list, n, flights, ras);
    end_rank(w, co_now_ms());
}

/* First where it is, by a debugger if there is one, where the others are, as far as they report it
 * themselves, and what NCCL and torch know of all ranks: afterwards it is lost. */
static void begin_end(struct node_hang *w, uint64_t now_ms)
{
    struct co_error err;
    const bool wants_all = node_dump_begin(w->n);
    const struct node_stacks_opts opts = {.local_rank = -1,
                                          .tool_rank = wants_all ? -1 : w->finding.rank,
                                          .has_tools = true,
                                          .tool_ms = STACKS_TOOL_HANG_MS,
                                          .total_ms = wants_all ? JOB_FAILURE_DUMP_MS : 0,
                                          .all_dump = true,
                                          .on_done = on_stacks,
                                          .arg = w};
    w->kill_at_ms = w->give_up_at_ms = CO_NEVER_MS;
    if (node_stacks_begin(w->n, &opts, &w->stacks, &err) < 0) {
        if (!w->is_reported)
            tell_finding(w);
        end_rank(w, now_ms);
    }
}

static void tell_kill(const struct node_hang *w)
{
    char state[HANG_PLACE_BYTES + 64], name[REPORT_SIGNAL_BYTES], text[sizeof state + 160];
    struct hang_proc process;
    hang_proc_read(w->pid, &process);
    snprintf(text, sizeof text,
             "ddprun: warning: rank %d did not end within %.1f s of %s, it %s: ddprun kills it\n",
             rank_number(node_numbers(w->n), w->finding.rank),
             (double)w->n->spec->failure_grace_ms / 1000,
             report_signal(w->signal, name, sizeof name),
             hang_proc_text(&process, state, sizeof state));
    output_report(w->n->output, text);
}

/* It waits in the kernel, where no signal reaches it. As if it had ended: the others are stopped,
 * and it is one of the processes that outlive SIGKILL. */
static void give_up(struct node_hang *w)
{
    const struct supervisor_exit x = {
        .rank = w->finding.rank, .status = SIGKILL, .was_ending = true, .lost = -1, .aborter = -1};
    const struct supervisor_event e = supervisor_exit_event(&x);
    char state[HANG_PLACE_BYTES + 64];
    struct hang_proc process;
    hang_proc_read(w->pid, &process);
    node_say(w->n, CO_WARNING,
             "rank %d did not end within %d s of SIGKILL, it %s: ddprun no longer waits "
             "for it",
             rank_number(node_numbers(w->n), w->finding.rank),
             (int)((w->give_up_at_ms - w->killed_ms) / 1000),
             hang_proc_text(&process, state, sizeof state));
    w->pid = 0;
    node_post(w->n, &e);
}

static void hasten_end(struct node_hang *w, uint64_t now_ms)
{
    const bool may_run_on = w->give_up_at_ms < w->killed_ms + SUPERVISOR_TEARDOWN_MS;
    if (now_ms >= w->give_up_at_ms && may_run_on && co_process_tears_down(w->pid))
        w->give_up_at_ms += SUPERVISOR_KILL_MS;
    else if (now_ms >= w->give_up_at_ms)
        give_up(w);
    if (now_ms < w->kill_at_ms)
        return;
    if (!w->finding.is_stopped && w->signal != SIGKILL)
        tell_kill(w);
    spawner_signal_one(w->n->spawner, SPAWNER_GROUP, w->finding.rank, SIGKILL);
    w->kill_at_ms = CO_NEVER_MS;
    w->killed_ms = now_ms;
    w->give_up_at_ms = now_ms + SUPERVISOR_KILL_MS;
}

/* The finding is known. */
static void begin(struct node_hang *w, int sig, uint64_t now_ms)
{
    w->pid = supervisor_get_rank(w->n->supervisor, w->finding.rank)->pid;
    w->found_in = w->generation;
    w->signal = sig;
    node_goodput_note_hang(w->n, now_ms - w->finding.still_ms);
    w->is_reported = false;
    if (w->finding.kind != HANG_SILENT || w->n->torch_hook->archive == NULL) /* or torch is asked */
        tell_finding(w);
    begin_end(w, now_ms);
}

/* returns whether the kernel keeps a rank asleep for too long */
static bool find_asleep(const struct node_hang *w, uint64_t now_ms, struct hang_finding *ret)
{
    const uint64_t limit_ms = w->n->spec->uninterruptible_ms;
    for (int i = 0; limit_ms > 0 && i < w->n->spec->n_local; i++) {
        const uint64_t since_ms = w->sleeps[i].since_ms;
        if (!w->looks[i].runs || since_ms == CO_NEVER_MS || now_ms - since_ms < limit_ms)
            continue;
        *ret = (struct hang_finding){.kind = HANG_ASLEEP, .rank = i, .still_ms = now_ms - since_ms};
        return true;
    }
    return false;
}

static void look_at_all(struct node_hang *w, uint64_t now_ms)
{
    for (int i = 0; i < w->n->spec->n_local; i++)
        look_at(w, i, now_ms, &w->looks[i]);
}

static void look_at_ranks(struct node_hang *w, uint64_t now_ms)
{
    look_at_all(w, now_ms);
    if (find_asleep(w, now_ms, &w->finding)) {
        look_closer(w);
        begin(w, SIGABRT, now_ms);
        return;
    }
    if (w->hang == NULL)
        return;
    ask_torch(w, now_ms);
    if (!hang_note(w->hang, w->looks, now_ms))
        return;
    look_closer(w);
    if (hang_blame(w->hang, w->looks, now_ms, &w->finding))
        begin(w, SIGABRT, now_ms);
}

/* returns whether ranks can be looked at */
static bool enter(struct node_hang *w, uint64_t now_ms)
{
    const struct supervisor *s = w->n->supervisor;
    const bool was_on = w->is_on && w->generation == supervisor_generation(s);
    w->is_on = supervisor_get_state(s) == SUPERVISOR_RUNNING;
    if (!w->is_on || was_on)
        return w->is_on;
    w->generation = supervisor_generation(s);
    if (w->hang != NULL)
        hang_renew(w->hang, w->n->start->place.n_nodes > 1, now_ms);
    torch_watch_renew(w->torch);
    for (int i = 0; i < w->n->spec->n_local; i++)
        w->sleeps[i].since_ms = CO_NEVER_MS;
    w->since_ms = now_ms;
    return true;
}

static bool is_busy(const struct node_hang *w)
{
    return w->stacks != NULL || node_dump_is_busy(w->n);
}

static void on_time(uv_timer_t *timer)
{
    struct node_hang *w = timer->data;
    const uint64_t now_ms = co_now_ms();
    if (!enter(w, now_ms) || is_busy(w))
        return;
    if (is_ending(w))
        hasten_end(w, now_ms);
    else
        look_at_ranks(w, now_ms);
}

bool node_hang_end(const struct node_view *n, const struct hang_finding *f, int sig)
{
    struct node_hang *w = n->parts->hang;
    const uint64_t now_ms = co_now_ms();
    if (w == NULL || !enter(w, now_ms) || is_busy(w) || is_ending(w))
        return false;
    w->finding = *f;
    look_at_all(w, now_ms);
    look_closer(w);
    begin(w, sig, now_ms);
    return true;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void destroy(struct node_hang *w)
{
    if (w == NULL)
        return;
    hang_destroy(w->hang);
    torch_watch_destroy(w->torch);
    free(w->looks);
    free(w->procs);
    free(w->sleeps);
    free(w);
}

/* How often to look; 0: not at all. */
static uint64_t find_interval_ms(const struct job_spec *spec)
{
    const bool has_others = spec->uninterruptible_ms > 0 || spec->timer_file != NULL;
    const uint64_t hang_ms =
        spec->hang_timeout_ms > 0 ? hang_interval_ms(spec->hang_timeout_ms) : 0;
    return has_others && (hang_ms == 0 || hang_ms > LOOK_MS) ? LOOK_MS : hang_ms;
}

static int create(const struct node_view *n, struct node_hang **ret)
{
    const size_t n_ranks = (size_t)n->spec->n_local;
    const uint64_t timeout_ms = n->spec->hang_timeout_ms;
    struct node_hang *w = calloc(1, sizeof *w);
    if (w == NULL)
        return -ENOMEM;
    w->n = n;
    w->hang =
        timeout_ms > 0 ? hang_create(n->spec->n_local, timeout_ms, n->spec->hang_learns) : NULL;
    w->torch = torch_watch_create(n->spec->n_local);
    w->looks = calloc(n_ranks, sizeof *w->looks);
    w->procs = calloc(n_ranks, sizeof *w->procs);
    w->sleeps = calloc(n_ranks, sizeof *w->sleeps);
    *ret = w;
    return (timeout_ms > 0 && w->hang == NULL) || w->torch == NULL || w->looks == NULL ||
                   w->procs == NULL || w->sleeps == NULL
               ? -ENOMEM
               : 0;
}

static int hang_open(const struct node_view *n, struct co_error *err)
{
    const uint64_t interval_ms = find_interval_ms(n->spec);
    struct node_hang *w = NULL;
    if (interval_ms == 0)
        return 0;
    if (create(n, &w) < 0) {
        destroy(w);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    uv_timer_init(n->loop, &w->timer);
    w->timer.data = w;
    uv_timer_start(&w->timer, on_time, interval_ms, interval_ms);
    n->parts->hang = w;
    return 0;
}

const struct hang_finding *node_hang_of(const struct node_view *n, pid_t pid)
{
    const struct node_hang *w = n->parts->hang;
    return w != NULL && w->pid != 0 && w->pid == pid ? &w->finding : NULL;
}

static void on_closed(uv_handle_t *handle)
{
    destroy(handle->data);
}

static void hang_close(const struct node_view *n)
{
    struct node_hang *w = n->parts->hang;
    if (w == NULL)
        return;
    stacks_cancel(w->stacks);
    uv_close((uv_handle_t *)&w->timer, on_closed);
}

const struct node_feature node_hang_feature = {.open = hang_open, .close = hang_close};
