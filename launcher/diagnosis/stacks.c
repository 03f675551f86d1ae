/* Where all ranks are. stacks_begin() reads /proc and starts a timer; continue_stacks() then asks
 * torch's worker servers (ask_servers()), sends signals, looks at what the ranks write until all
 * are quiet (read_target()), runs tools, the next one when one has ended, waits for the dumps that
 * torch writes and for the answer of NCCL meanwhile, and calls on_done().
 * The second part runs one tool: stack_tool_begin(). Read continue_stacks() first.
 *
 * Invariant: all of it begins with the timer, so that on_done() is never called from within
 * stacks_begin(). */
#include "stacks.h"

#include "flight_recorder.h"
#include "launcher/stdio/output.h"
#include "launcher/torch/torch_query.h"
#include "ras_query.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "console/job_request.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    N_TOOLS = 2, /* at a time */
    LOOK_MS = 50,
    SERVER_LOOK_MS = 5,   /* it answers within some milliseconds */
    ANSWER_MS = 2000,     /* a rank that writes nothing by then will not */
    ALL_BYTES = 1 << 20,  /* of all stacks together: they travel in one answer */
    MAX_BYTES = 64 << 10, /* of one */
    ESCAPE_BYTES = 6,     /* what a byte comes to in JSON, at most */
    PATH_LINE_BYTES = 128,
};

/* The answer has each stack twice, as it is and in its text, where each line is indented by two
 * blanks, which takes less than an escape. The rest of the answer is for the other facts about the
 * ranks. */
_Static_assert(2 * ESCAPE_BYTES * ALL_BYTES <= JOB_ANSWER_BYTES_MAX / 4 * 3,
               "an answer with all stacks must not be too long for ddpctl");

struct target {
    struct stacks *s;
    struct stack stack;
    int local_rank;
    struct torch_query *query; /* owned; its server is asked; NULL: it has none, or has answered */
    char *stderr_path;         /* owned; as in struct stacks_rank */
    int signal;                /* to ask it by; 0: none */
    bool waits;                /* its answer to the signal is awaited */
    bool no_tool;
    bool needs_tool;
    size_t from, to;             /* of its stderr: where its answer begins, and ends so far */
    struct stack_tool *tool;     /* runs */
    enum stack_source tool_kind; /* while it runs */
    bool is_second;              /* gdb without symbols of libraries, as the first took too long */
};

struct stacks {
    struct stacks_opts opts;
    uv_loop_t *loop;
    uv_timer_t timer;
    uint64_t begun_ms;
    uint64_t asked_ms;    /* the last signal was sent */
    uint64_t changed_ms;  /* something was written */
    int n, n_tools, next; /* next: whose turn it is for a tool */
    char *py_spy, *gdb;   /* owned; NULL: not installed */
    size_t max_bytes;
    struct target targets[];
};

static const char no_time[] = "there was no time left for it";

static void continue_stacks(struct stacks *s);

static void on_stacks_timer(uv_timer_t *timer)
{
    continue_stacks(timer->data);
}

static void set_stacks_timer(struct stacks *s, uint64_t ms)
{
    uv_update_time(s->loop);
    uv_timer_start(&s->timer, on_stacks_timer, ms, 0);
}

/* --- torch's worker server --- */

static void ask_rank(struct stacks *s, struct target *t);

static void take_server_answer(struct stacks *s, struct target *t)
{
    struct stack *stack = &t->stack;
    stack->text = torch_query_take_stack(t->query);
    stack->trace = torch_query_take_trace(t->query);
    torch_query_destroy(t->query);
    t->query = NULL;
    if (stack->text != NULL && strlen(stack->text) > s->max_bytes)
        stack->text[s->max_bytes] = '\0';
    if (stack->text != NULL) {
        stack->source = STACK_TORCH;
        t->needs_tool = false;
    } else {
        ask_rank(s, t);
    }
}

/* returns whether answers are awaited */
static bool ask_servers(struct stacks *s)
{
    bool waits = false;
    for (int i = 0; i < s->n; i++) {
        struct target *t = &s->targets[i];
        if (t->query == NULL)
            continue;
        if (torch_query_look(t->query, co_now_ms()))
            waits = true;
        else
            take_server_answer(s, t);
    }
    return waits;
}

/* --- The signal --- */

/* Our rank, and no other process of that pid: the spawner's children are ours, and it alone can
 * reap them. */
static int signal_rank(const struct stacks *s, const struct stack *stack, int sig)
{
    struct co_process now;
    co_autoclose_fd int fd = (int)syscall(SYS_pidfd_open, stack->pid, 0);
    if (fd < 0 || co_process_look(stack->pid, &now, NULL) < 0 || now.parent != s->opts.parent ||
        now.start_ticks != stack->process.start_ticks)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0 ? -errno : 0;
}

static void ask_rank(struct stacks *s, struct target *t)
{
    struct stack *stack = &t->stack;
    const char *stderr_path = t->stderr_path;
    const int sig = t->signal;
    if (sig == 0 || !stack->is_there)
        return;
    const char *name = sigabbrev_np(sig);
    if (!co_process_catches(&stack->where, sig)) {
        snprintf(stack->note, sizeof stack->note, "it has no handler for SIG%s",
                 name != NULL ? name : "?");
        return;
    }
    t->from = t->to = output_written(s->opts.output, t->local_rank);
    if (signal_rank(s, stack, sig) < 0)
        return;
    t->waits = stderr_path == NULL;
    t->needs_tool = false;
    s->asked_ms = co_now_ms();
    if (stderr_path != NULL)
        snprintf(stack->note, sizeof stack->note, "the signal was sent; its output is in %.*s",
                 PATH_LINE_BYTES, stderr_path);
}

/* More was written: the answer is not over. */
static void read_target(struct stacks *s, struct target *t)
{
    size_t written = output_written(s->opts.output, t->local_rank);
    if (written != t->to)
        s->changed_ms = co_now_ms();
    t->to = written;
}

static void take_target_answer(struct stacks *s, struct target *t)
{
    size_t from, n;
    char *bytes = output_since(s->opts.output, t->local_rank, t->from, &from, &n);
    t->waits = false;
    if (bytes == NULL) {
        t->needs_tool = !t->no_tool; /* another kind of handler */
        snprintf(t->stack.note, sizeof t->stack.note, "it wrote nothing when it got the signal");
        return;
    }
    const size_t kept = n < s->max_bytes ? n : s->max_bytes;
    if ((t->stack.text = malloc(kept + 1)) != NULL)
        *(char *)mempcpy(t->stack.text, bytes, kept) = '\0';
    t->stack.source = STACK_SIGNAL;
    free(bytes);
}

/* returns whether answers are awaited still */
static bool await_answers(struct stacks *s)
{
    bool waits = false;
    for (int i = 0; i < s->n; i++) {
        if (s->targets[i].waits)
            read_target(s, &s->targets[i]);
        waits |= s->targets[i].waits;
    }
    uint64_t now_ms = co_now_ms();
    bool is_quiet = s->changed_ms != 0 && now_ms - s->changed_ms >= STACKS_QUIET_MS;
    if (waits && !is_quiet && now_ms - s->asked_ms < ANSWER_MS)
        return true;
    for (int i = 0; i < s->n; i++)
        if (s->targets[i].waits)
            take_target_answer(s, &s->targets[i]);
    return false;
}

/* --- Tools --- */

static int run_tool(struct stacks *s, struct target *t, struct co_error *err);

static const char *tool_name(const struct target *t)
{
    return t->tool_kind == STACK_GDB ? "gdb" : "py-spy";
}

/* The output of a tool becomes the rank's stack, or the reason why it has no stack. */
static void take_tool_answer(struct target *t, char *text, bool timed_out)
{
    struct stack *stack = &t->stack;
    const char *trouble = "it printed nothing";
    bool is_good = text != NULL && *text != '\0';
    if (is_good && (t->tool_kind == STACK_GDB || strstr(text, "Thread ") == NULL))
        is_good = stack_keep_frames(text, &trouble); /* py-spy complains: its last line has the
                                                      * reason */
    if (timed_out)
        snprintf(stack->note, sizeof stack->note, "%s timed out after %g s", tool_name(t),
                 (double)t->s->opts.tool_ms / 1000);
    else if (!is_good)
        snprintf(stack->note, sizeof stack->note, "%s: %.180s", tool_name(t), trouble);
    if (is_good) {
        stack->text = text;
        stack->source = t->tool_kind;
    } else {
        free(text);
    }
}

static void on_tool_done(void *arg, const char *text, int status, bool timed_out)
{
    (void)status;
    struct target *t = arg;
    struct stacks *s = t->s;
    t->tool = NULL;
    s->n_tools--;
    if (timed_out && !t->is_second && s->gdb != NULL) {
        t->is_second = true;
        if (run_tool(s, t, NULL) == 0) {
            s->n_tools++;
            return;
        }
    }
    take_tool_answer(t, strdup(text), timed_out);
    if (t->is_second && t->stack.text != NULL)
        snprintf(
            t->stack.note, sizeof t->stack.note,
            "without symbols of shared libraries, for lack of time: some frames may be missing");
    continue_stacks(s);
}

/* Neither the user's settings of gdb nor the network are needed for a stack. */
static int run_tool(struct stacks *s, struct target *t, struct co_error *err)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", t->stack.pid);
    char *const py_spy[] = {"py-spy", "dump", "--pid", pid, NULL};
    char *const gdb[] = {"gdb",
                         "-nx",
                         "-batch",
                         "-iex",
                         "set debuginfod enabled off",
                         "-iex",
                         "set auto-load off",
                         "-iex",
                         t->is_second ? "set auto-solib-add off" : "set auto-solib-add on",
                         "-p",
                         pid,
                         "-ex",
                         "thread apply all -ascending bt 32",
                         NULL};
    const uint64_t first_ms = s->opts.tool_ms / 10 * 7;
    bool is_python = t->stack.is_python && s->py_spy != NULL && !t->is_second;
    t->tool_kind = is_python ? STACK_PY_SPY : STACK_GDB;
    const struct stack_tool_opts opts = {.path = is_python ? s->py_spy : s->gdb,
                                         .argv = is_python ? py_spy : gdb,
                                         .target = t->stack.pid,
                                         .max_bytes = s->max_bytes,
                                         .timeout_ms =
                                             t->is_second ? s->opts.tool_ms - first_ms : first_ms,
                                         .on_done = on_tool_done,
                                         .arg = t};
    return stack_tool_begin(s->loop, &opts, &t->tool, err);
}

/* Why no tool may look at it; NULL: one may. */
static const char *tool_hindrance(const struct stacks *s, const struct target *t)
{
    const struct stack *stack = &t->stack;
    if (stack->process.state == 'T' || stack->process.state == 't' || stack->where.tracer != 0 ||
        stack->process.state == 'Z' || stack->process.state == 'D')
        return ""; /* its state shows it */
    if (s->gdb == NULL && (!stack->is_python || s->py_spy == NULL))
        return stack->is_python ? "neither py-spy nor gdb is installed; install one of them"
                                : "gdb is not installed; install it";
    if (co_now_ms() - s->begun_ms > s->opts.total_ms - s->opts.tool_ms)
        return no_time;
    return NULL;
}

static void begin_tool(struct stacks *s, struct target *t)
{
    struct co_error err;
    const char *hindrance = tool_hindrance(s, t);
    if (hindrance != NULL) {
        if (t->stack.note[0] == '\0')
            snprintf(t->stack.note, sizeof t->stack.note, "%s", hindrance);
        return;
    }
    if (run_tool(s, t, &err) < 0)
        snprintf(t->stack.note, sizeof t->stack.note, "%.200s", err.text);
    else
        s->n_tools++;
}

/* returns whether some run, or are about to */
static bool run_tools(struct stacks *s)
{
    while (s->next < s->n && s->n_tools < N_TOOLS) {
        struct target *t = &s->targets[s->next++];
        if (t->needs_tool && s->opts.has_tools)
            begin_tool(s, t);
    }
    return s->n_tools > 0;
}

/* --- All of it --- */

static void on_stacks_closed(uv_handle_t *handle)
{
    struct stacks *s = handle->data;
    for (int i = 0; i < s->n; i++) {
        stack_fini(&s->targets[i].stack);
        torch_query_destroy(s->targets[i].query);
        free(s->targets[i].stderr_path);
    }
    free(s->py_spy);
    free(s->gdb);
    flight_recorder_destroy(s->opts.flights);
    ras_query_destroy(s->opts.ras);
    free(s);
}

void stacks_cancel(struct stacks *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n; i++)
        stack_tool_cancel(s->targets[i].tool);
    uv_close((uv_handle_t *)&s->timer, on_stacks_closed);
}

static void report_stacks(struct stacks *s)
{
    struct stack *list = calloc((size_t)s->n + 1, sizeof *list);
    for (int i = 0; list != NULL && i < s->n; i++)
        list[i] = s->targets[i].stack;
    s->opts.on_done(s->opts.arg, list, list != NULL ? s->n : 0, s->opts.flights, s->opts.ras);
    free(list);
    uv_close((uv_handle_t *)&s->timer, on_stacks_closed);
}

void stacks_finish(struct stacks *s)
{
    for (int i = 0; i < s->n; i++) {
        struct target *t = &s->targets[i];
        torch_query_end(t->query);
        t->signal = 0;
        if (t->query != NULL)
            take_server_answer(s, t);
        if (t->waits)
            take_target_answer(s, t);
        if (t->tool != NULL)
            snprintf(t->stack.note, sizeof t->stack.note, "%s", no_time);
        stack_tool_cancel(t->tool);
        t->tool = NULL;
    }
    report_stacks(s);
}

/* From the loop: the timer, or the end of a tool. */
static void continue_stacks(struct stacks *s)
{
    if (co_now_ms() - s->begun_ms >= s->opts.total_ms) {
        stacks_finish(s);
        return;
    }
    const bool asks_nccl = ras_query_look(s->opts.ras, co_now_ms());
    const bool asks_servers = ask_servers(s);
    const bool waits = await_answers(s) || asks_servers;
    const bool has_tools = !waits && run_tools(s); /* the end of one comes here again */
    if (asks_servers)
        set_stacks_timer(s, SERVER_LOOK_MS);
    else if (waits || asks_nccl ||
             (!has_tools && flight_recorder_look(s->opts.flights, co_now_ms())))
        set_stacks_timer(s, LOOK_MS);
    else if (!has_tools)
        report_stacks(s);
}

static void look_at_rank(struct stacks *s, struct target *t, const struct stacks_rank *rank)
{
    struct stack *stack = &t->stack;
    const int named = s->opts.signal;
    *t = (struct target){.s = s,
                         .local_rank = rank->local_rank,
                         .signal = named != 0 ? named : rank->signal,
                         .no_tool = rank->no_tool};
    if (rank->stderr_path != NULL)
        t->stderr_path = strdup(rank->stderr_path);
    stack->rank = rank->rank;
    stack->pid = rank->pid;
    stack->is_there = co_process_look(rank->pid, &stack->process, NULL) == 0;
    if (!stack->is_there)
        return;
    co_process_where(rank->pid, &stack->where);
    stack->has_progress = rank->progress != NULL;
    if (stack->has_progress)
        stack->progress = *rank->progress;
    stack->is_python = co_process_is_python(rank->pid);
    t->needs_tool = !rank->no_tool;
    if (rank->server != NULL && s->opts.signal == 0)
        torch_query_begin(rank->server, true, s->begun_ms, &t->query);
}

int stacks_begin(uv_loop_t *loop, const struct stacks_opts *opts, const struct stacks_rank *ranks,
                 int n, struct stacks **ret, struct co_error *err)
{
    struct stacks *s = calloc(1, sizeof *s + (size_t)n * sizeof s->targets[0]);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    s->opts = *opts;
    s->loop = loop;
    s->n = n;
    s->begun_ms = co_now_ms();
    s->max_bytes = n > ALL_BYTES / MAX_BYTES ? ALL_BYTES / (size_t)n : MAX_BYTES;
    if (opts->has_tools) {
        s->py_spy = stack_tool_find("py-spy");
        s->gdb = stack_tool_find("gdb");
    }
    for (int i = 0; i < n; i++)
        look_at_rank(s, &s->targets[i], &ranks[i]);
    for (int i = 0; i < n; i++)
        if (s->targets[i].query == NULL)
            ask_rank(s, &s->targets[i]);
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    set_stacks_timer(s, 0);
    *ret = s;
    return 0;
}

/* --- a debugger that looks at a rank --- */

/* The happy path: the pipe is read as output arrives; the pidfd is readable when the tool has
 * ended; what the pipe still holds is read, the tool is reaped, on_done() is called. The deadline
 * kills it, and then the same happens. A canceled tool ends the same way, but its end is not
 * reported. A tool that does not die because the kernel holds it is left to the process that reaps
 * our orphans. */

enum {
    READ_BYTES = 4096,
    CANCEL_MS = 2000,
    LAST_READS = 1024, /* after its end: what it started may write without an end */
};

struct stack_tool {
    struct stack_tool_opts opts;
    pid_t pid;                     /* 0: reaped */
    int out_fd, pid_fd, target_fd; /* target_fd: -1: the target has exited, or there is no target */
    bool timed_out, is_cancelled;
    uv_poll_t out, end;
    uv_timer_t deadline;
    int n_handles;
    struct co_buf text;
};

char *stack_tool_find(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at != NULL && *at != '\0'; at += *at == ':') {
        size_t n = strcspn(at, ":");
        char *candidate = NULL;
        if (n > 0 && asprintf(&candidate, "%.*s/%s", (int)n, at, name) > 0 &&
            access(candidate, X_OK) == 0)
            return candidate;
        free(candidate);
        at += n;
    }
    return NULL;
}

/* --- Its end --- */

static void on_tool_closed(uv_handle_t *handle)
{
    struct stack_tool *t = handle->data;
    if (--t->n_handles > 0)
        return;
    co_buf_fini(&t->text);
    free(t);
}

static void close_handle(struct stack_tool *t, uv_handle_t *handle)
{
    t->n_handles++;
    uv_close(handle, on_tool_closed);
}

static void tool_close(struct stack_tool *t)
{
    close_handle(t, (uv_handle_t *)&t->out);
    close_handle(t, (uv_handle_t *)&t->end);
    close_handle(t, (uv_handle_t *)&t->deadline);
    close(t->out_fd);
    close(t->pid_fd);
    if (t->target_fd >= 0)
        close(t->target_fd);
}

/* All of its session, whose leader it is once it has come so far: it may have children. */
static void tool_kill(struct stack_tool *t)
{
    if (t->pid <= 0)
        return;
    kill(-t->pid, SIGKILL);
    kill(t->pid, SIGKILL);
}

/* A debugger stops every thread that it looks at by SIGSTOP, and takes that signal back. One that
 * dies in between leaves the process stopped, and no signal but SIGKILL would end it. SIGCONT also
 * takes back a SIGSTOP that is only about to work. */
static int tool_reap(struct stack_tool *t)
{
    int status = 0;
    while (t->pid > 0 && waitpid(t->pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (t->pid > 0 && t->target_fd >= 0 && status != 0)
        syscall(SYS_pidfd_send_signal, t->target_fd, SIGCONT, NULL, 0);
    t->pid = 0;
    return status;
}

/* --- Its output --- */

static void keep_end(struct stack_tool *t, const char *bytes, size_t n)
{
    co_buf_append(&t->text, bytes, n);
    if (co_buf_len(&t->text) > t->opts.max_bytes)
        co_buf_consume(&t->text, co_buf_len(&t->text) - t->opts.max_bytes);
}

/* returns   1 there may be more; 0 its end; -1 nothing now */
static int read_tool_output(struct stack_tool *t)
{
    char bytes[READ_BYTES];
    ssize_t n = read(t->out_fd, bytes, sizeof bytes);
    if (n < 0)
        return errno == EAGAIN ? -1 : errno == EINTR;
    if (t->opts.keeps_end) {
        keep_end(t, bytes, (size_t)n);
        return n > 0;
    }
    size_t left = t->opts.max_bytes - co_buf_len(&t->text);
    co_buf_append(&t->text, bytes, (size_t)n < left ? (size_t)n : left);
    return n > 0;
}

static void on_out(uv_poll_t *poll, int status, int events)
{
    struct stack_tool *t = poll->data;
    (void)status;
    (void)events;
    if (read_tool_output(t) == 0)
        uv_poll_stop(&t->out); /* it has closed its end, and may live on */
}

static void on_tool_ended(uv_poll_t *poll, int status, int events)
{
    struct stack_tool *t = poll->data;
    (void)status;
    (void)events;
    for (int i = 0;
         i < LAST_READS && !t->is_cancelled &&
         (t->opts.keeps_end || co_buf_len(&t->text) < t->opts.max_bytes) && read_tool_output(t) > 0;
         i++) {
    }
    const int end = tool_reap(t);
    if (t->is_cancelled) {
        tool_close(t);
        return;
    }
    bool is_kept = co_buf_append(&t->text, "", 1) == 0;
    t->opts.on_done(t->opts.arg, is_kept ? (const char *)co_buf_bytes(&t->text) : "", end,
                    t->timed_out);
    tool_close(t);
}

static void on_deadline(uv_timer_t *timer)
{
    struct stack_tool *t = timer->data;
    t->timed_out = true;
    tool_kill(t);
}

static void on_not_dead(uv_timer_t *timer)
{
    tool_close(timer->data);
}

void stack_tool_cancel(struct stack_tool *t)
{
    if (t == NULL)
        return;
    t->is_cancelled = true;
    tool_kill(t);
    uv_poll_stop(&t->out);
    uv_update_time(t->deadline.loop);
    uv_timer_start(&t->deadline, on_not_dead, CANCEL_MS, 0);
}

/* --- Its beginning --- */

/* No signal of ours is blocked in it, nor ignored; nothing but its output is ours: our descriptors
 * are close-on-exec. It dies with us: nothing else would end a debugger that hangs. */
static _Noreturn void become(const struct stack_tool_opts *opts, pid_t ddprun, int out_fd)
{
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDONLY);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != ddprun)
        _exit(127);
    if (setsid() >= 0 && null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
        dup2(out_fd, STDOUT_FILENO) >= 0 && dup2(out_fd, STDERR_FILENO) >= 0)
        execv(opts->path, opts->argv);
    _exit(127);
}

static int spawn(struct stack_tool *t, int out_fd)
{
    const pid_t ddprun = getpid();
    t->pid = fork();
    if (t->pid == 0)
        become(&t->opts, ddprun, out_fd);
    return t->pid < 0 ? -errno : 0;
}

static int watch_tool(struct stack_tool *t, uv_loop_t *loop)
{
    int rc = uv_poll_init(loop, &t->out, t->out_fd);
    if (rc < 0)
        return rc;
    rc = uv_poll_init(loop, &t->end, t->pid_fd);
    if (rc < 0) {
        close_handle(t, (uv_handle_t *)&t->out);
        return rc;
    }
    uv_timer_init(loop, &t->deadline);
    uv_poll_start(&t->out, UV_READABLE, on_out);
    uv_poll_start(&t->end, UV_READABLE, on_tool_ended);
    uv_update_time(loop);
    uv_timer_start(&t->deadline, on_deadline, t->opts.timeout_ms, 0);
    return 0;
}

static int tool_start(struct stack_tool *t, uv_loop_t *loop)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    t->out_fd = pipe_fds[0];
    int rc = spawn(t, pipe_fds[1]);
    close(pipe_fds[1]);
    if (rc == 0)
        t->pid_fd = (int)syscall(SYS_pidfd_open, t->pid, 0);
    if (rc == 0 && t->pid_fd < 0)
        rc = -errno;
    return rc == 0 ? watch_tool(t, loop) : rc;
}

int stack_tool_begin(uv_loop_t *loop, const struct stack_tool_opts *opts, struct stack_tool **ret,
                     struct co_error *err)
{
    struct stack_tool *t = calloc(1, sizeof *t);
    if (t == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *t = (struct stack_tool){.opts = *opts, .out_fd = -1, .pid_fd = -1};
    t->target_fd = opts->target > 0 ? (int)syscall(SYS_pidfd_open, opts->target, 0) : -1;
    t->out.data = t->end.data = t->deadline.data = t;
    int rc = tool_start(t, loop);
    if (rc == 0) {
        *ret = t;
        return 0;
    }
    tool_kill(t);
    tool_reap(t);
    if (t->out_fd >= 0)
        close(t->out_fd);
    if (t->pid_fd >= 0)
        close(t->pid_fd);
    if (t->target_fd >= 0)
        close(t->target_fd);
    if (t->n_handles == 0)
        free(t);
    return co_fail(err, rc, "cannot run %s: %s", opts->path, strerror(-rc));
}
