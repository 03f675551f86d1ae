/* One rank's stack, as text (stack_print()) and as JSON, from /proc, from what libddp reports, and
 * from the output of a debugger (stack_keep_frames()). stack_print_missing() compares the stacks of
 * all ranks: find_call() finds the call in which most ranks wait, and is_missing_in() which ranks
 * have not reached it. Read stack_print_missing() first. */
#include "stack.h"

#include "hang_report.h"
#include "launcher/lines/rank_list.h"
#include "launcher/platform/json_value.h"
#include "launcher/torch/torch_trace.h"

#include "common/scope.h"
#include "segments/call_kind.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void stack_fini(struct stack *s)
{
    free(s->text);
    free(s->trace);
    *s = (struct stack){0};
}

/* --- Output of gdb --- */

/* A line that is kept moves to the front, its newline with it if it has one. */
bool stack_keep_frames(char *text, const char **ret_trouble)
{
    char *out = text, *last = text;
    size_t last_len = 0;
    bool any = false;
    for (char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        size_t whole = n + (line[n] == '\n');
        if (line[0] == '#' || strncmp(line, "Thread ", 7) == 0) {
            memmove(out, line, whole);
            out += whole;
            any = true;
        } else if (!any && n > 0) {
            last = line;
            last_len = n;
        }
        line += whole;
    }
    if (any)
        *out = '\0';
    else
        last[last_len] = '\0';
    *ret_trouble = any ? "" : last;
    return any;
}

/* --- In words --- */

/* "sleeps in futex_wait_queue, system call futex", "is stopped by a signal". returns buf */
static char *describe_state(const struct stack *s, char *buf, size_t n)
{
    const char *call = co_process_syscall_name(s->where.syscall);
    char number[32] = "";
    if (call == NULL && s->where.syscall >= 0) {
        snprintf(number, sizeof number, "%d", s->where.syscall);
        call = number;
    }
    const char *state = s->process.state == 'R'   ? "runs"
                        : s->process.state == 'T' ? "is stopped by a signal"
                        : s->process.state == 't' ? "is stopped by its tracer"
                        : s->process.state == 'D'
                            ? "waits in the kernel, where no signal reaches it"
                        : s->process.state == 'Z' ? "has ended"
                                                  : "sleeps";
    bool is_at = s->where.wchan[0] != '\0' && s->process.state != 'R' && s->process.state != 'Z';
    snprintf(buf, n, "%s%s%s%s%s", state, is_at ? " in " : "", is_at ? s->where.wchan : "",
             call != NULL ? ", system call " : "", call != NULL ? call : "");
    return buf;
}

/* Each line of it, indented. */
static void print_lines(const char *text, const char *indent, FILE *out)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        fprintf(out, "%s%.*s\n", indent, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

/* What libddp reports: the last call of each group. */
static void print_calls(const struct stack *s, FILE *out)
{
    static const char *const states[] = {[RANK_STATUS_OUTSIDE] = "its last call was",
                                         [RANK_STATUS_BEGUN] = "it has begun",
                                         [RANK_STATUS_WAITS] = "it waits in"};
    char text[HANG_CALL_BYTES];
    if (!s->has_progress)
        return;
    fprintf(out, "  %s%" PRIu64 " steps",
            s->progress.only_steps ? "" : "libddp: ", s->progress.steps_before + s->progress.steps);
    for (unsigned i = 0; i < s->progress.n_calls; i++) {
        const struct rank_status_call *call = &s->progress.call[i];
        fprintf(out, "; %s %s", states[call->state], hang_text_call(call, text));
    }
    fputc('\n', out);
}

void stack_print(const struct stack *s, FILE *out)
{
    char state[256];
    if (!s->is_there) {
        fprintf(out, "rank %d (pid %d): has ended\n", s->rank, s->pid);
        return;
    }
    fprintf(out, "rank %d (pid %d, %s): %s", s->rank, s->pid, s->process.name,
            describe_state(s, state, sizeof state));
    if (s->where.tracer != 0)
        fprintf(out, "; process %d traces it", s->where.tracer);
    fputc('\n', out);
    print_calls(s, out);
    if (s->trace != NULL && s->trace->n > 0) {
        fputs("  torch:", out);
        torch_trace_print(s->trace, out);
        fputc('\n', out);
    }
    if (s->text != NULL)
        print_lines(s->text, "  ", out);
    if (s->where.kernel[0] != '\0' && s->text == NULL) {
        fputs("  in the kernel:\n", out);
        print_lines(s->where.kernel, "    ", out);
    }
    if (s->note[0] != '\0')
        fprintf(out, "  note: %s\n", s->note);
}

/* --- As JSON --- */

static json_t *make_kernel(const char *kernel)
{
    json_t *list = json_array();
    while (*kernel != '\0') {
        size_t n = strcspn(kernel, "\n");
        json_array_append_new(list, json_value_bytes(kernel, n));
        kernel += n + (kernel[n] == '\n');
    }
    return list;
}

static json_t *make_calls(const struct progress *p)
{
    static const char *const states[] = {[RANK_STATUS_OUTSIDE] = "outside",
                                         [RANK_STATUS_BEGUN] = "begun",
                                         [RANK_STATUS_WAITS] = "waits"};
    json_t *list = json_array();
    for (unsigned i = 0; i < p->n_calls; i++) {
        const struct rank_status_call *call = &p->call[i];
        json_t *bytes = json_value_number(call->bytes > 0, (int64_t)call->bytes);
        json_array_append_new(list, json_pack("{s:s,s:I,s:o,s:s,s:i,s:s}", "op",
                                              call_kind_name(call->kind), "number",
                                              (json_int_t)call->number, "bytes", bytes, "dtype",
                                              call_dtype_name(call->dtype), "group",
                                              (int)call->group, "state", states[call->state]));
    }
    return list;
}

static json_t *text_or_null(const char *text)
{
    return json_value_text(text[0] != '\0' ? text : NULL);
}

/* What the kernel reports about it. */
static json_t *make_place(const struct stack *s)
{
    const char *call = co_process_syscall_name(s->where.syscall);
    char state[2] = {s->process.state, '\0'};
    return json_pack("{s:i,s:i,s:s,s:o,s:i,s:o,s:o,s:o,s:o,s:o}", "rank", s->rank, "pid",
                     (int)s->pid, "state", state, "name", json_value_text(s->process.name),
                     "threads", s->process.n_threads, "wchan", text_or_null(s->where.wchan),
                     "syscall", json_value_text(call), "syscall_number",
                     json_value_number(s->where.syscall >= 0, s->where.syscall), "tracer",
                     json_value_number(s->where.tracer != 0, s->where.tracer), "kernel",
                     make_kernel(s->where.kernel));
}

json_t *stack_json_make(const struct stack *s)
{
    static const char *const sources[] = {[STACK_NONE] = "",
                                          [STACK_SIGNAL] = "signal",
                                          [STACK_PY_SPY] = "py-spy",
                                          [STACK_GDB] = "gdb",
                                          [STACK_TORCH] = "torch"};
    const struct progress *p = &s->progress;
    if (!s->is_there)
        return json_pack("{s:i,s:i,s:n}", "rank", s->rank, "pid", (int)s->pid, "state");
    json_t *all = make_place(s);
    json_object_set_new(all, "source", text_or_null(sources[s->source]));
    json_object_set_new(all, "stack", json_value_text(s->text));
    json_object_set_new(all, "note", text_or_null(s->note));
    json_object_set_new(all, "steps",
                        json_value_number(s->has_progress, (int64_t)(p->steps_before + p->steps)));
    json_object_set_new(all, "calls",
                        s->has_progress && !p->only_steps ? make_calls(p) : json_null());
    json_object_set_new(all, "torch_calls",
                        s->trace != NULL ? torch_trace_json_make(s->trace) : json_null());
    return all;
}

/* --- for which rank do others wait? --- */

/* The last call of the rank in a group; NULL: none. */
static const struct rank_status_call *call_in(const struct stack *s, uint16_t group)
{
    for (unsigned i = 0; i < s->progress.n_calls; i++)
        if (s->progress.call[i].group == group)
            return &s->progress.call[i];
    return NULL;
}

static bool waits_in(const struct stack *s, const struct rank_status_call *call)
{
    const struct rank_status_call *its = call_in(s, call->group);
    return its != NULL && its->number == call->number && its->state == RANK_STATUS_WAITS;
}

/* It is of the group, and has not come to the call, or has begun it and does something else. All
 * are of the world; of another group only those are known that have called in it. */
static bool is_missing_in(const struct stack *s, const struct rank_status_call *call)
{
    const struct rank_status_call *its = call_in(s, call->group);
    if (!s->is_there || !s->has_progress || s->progress.only_steps || waits_in(s, call))
        return false;
    if (its == NULL)
        return call->group == 0;
    return its->number < call->number ||
           (its->number == call->number && its->state == RANK_STATUS_BEGUN);
}

static int count_ranks(const struct stack *list, int n, const struct rank_status_call *call,
                       bool (*is_one)(const struct stack *, const struct rank_status_call *))
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += is_one(&list[i], call);
    return found;
}

/* The call in which most ranks wait; NULL: in none. */
static const struct rank_status_call *find_call(const struct stack *list, int n)
{
    const struct rank_status_call *best = NULL;
    int n_best = 0;
    for (int i = 0; i < n; i++) {
        for (unsigned j = 0; j < list[i].progress.n_calls; j++) {
            const struct rank_status_call *call = &list[i].progress.call[j];
            int n_waiting = count_ranks(list, n, call, waits_in);
            if (n_waiting > n_best) {
                best = call;
                n_best = n_waiting;
            }
        }
    }
    return best;
}

/* "rank 1", "ranks 0, 2 and 3" */
static void print_ranks(const struct stack *list, int n, const struct rank_status_call *call,
                        bool (*is_one)(const struct stack *, const struct rank_status_call *),
                        FILE *out)
{
    int found[RANK_LIST_NAMED], n_found = 0;
    char text[RANK_LIST_BYTES];
    for (int i = 0; i < n; i++) {
        if (!is_one(&list[i], call))
            continue;
        if (n_found < RANK_LIST_NAMED)
            found[n_found] = list[i].rank;
        n_found++;
    }
    fputs(rank_list_text(found, n_found, text), out);
}

/* returns   to free(); NULL: out of memory */
static struct torch_rank *list_traces(const struct stack *list, int n)
{
    struct torch_rank *ranks = calloc((size_t)n + 1, sizeof *ranks);
    for (int i = 0; ranks != NULL && i < n; i++)
        ranks[i] = (struct torch_rank){.rank = list[i].rank, .trace = list[i].trace};
    return ranks;
}

int stack_find_missing(const struct stack *list, int n)
{
    co_autofree struct torch_rank *ranks = list_traces(list, n);
    return ranks != NULL ? torch_trace_find_missing(ranks, n) : -1;
}

void stack_print_missing_in_torch(const struct stack *list, int n, FILE *out)
{
    co_autofree struct torch_rank *ranks = list_traces(list, n);
    if (ranks != NULL)
        torch_trace_print_missing(ranks, n, out);
}

void stack_print_missing(const struct stack *list, int n, FILE *out)
{
    char text[HANG_CALL_BYTES];
    const struct rank_status_call *call = find_call(list, n);
    stack_print_missing_in_torch(list, n, out);
    int n_missing = call != NULL ? count_ranks(list, n, call, is_missing_in) : 0;
    if (n_missing == 0)
        return;
    print_ranks(list, n, call, is_missing_in, out);
    fprintf(out, " %s missing in %s: ", n_missing == 1 ? "is" : "are", hang_text_call(call, text));
    print_ranks(list, n, call, waits_in, out);
    fprintf(out, " %s in it\n", count_ranks(list, n, call, waits_in) == 1 ? "waits" : "wait");
}
