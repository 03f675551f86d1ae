/* rank - a rank that executes its arguments as commands, for the system tests: it does them in
 * order.
 *
 *     say TEXT       a line on stdout          err TEXT        a line on stderr
 *     exit N         end with that status      die SIGNAL      end by that signal (a number)
 *     put TEXT       the same without a newline
 *     tell TEXT      a line "RANK TEXT" into the FIFO that TEST_FIFO names
 *     pid            report "pid PID"
 *     wait           until a signal ends it
 *     await SIGNAL   report "awaits SIGNAL", continue when it arrives
 *     use MIB        take so much memory and write to it
 *     feed MIB       a child does that; continue when it has ended
 *     ignore SIGNAL  from now on
 *     on SIGNAL N    when it arrives: report "got SIGNAL", exit N
 *     note SIGNAL    when it arrives: report "got SIGNAL", continue
 *     child          a child in the same process group; report "child PID"; wait
 *     daemon         a grandchild with a session of its own, as daemons fork; report
 *                    "daemon PID"; wait
 *     asked          wait until DDP_CHECKPOINT_FD reports that a node waits; report "asked"
 *     saved          report there that the state is saved
 *     stdin          read stdin to its end, report "stdin BYTES"
 *     error TEXT     write TEXT to the file TORCHELASTIC_ERROR_FILE names
 *     only RANK      the rest is for this rank; others continue after "end"    end
 *
 * It takes its rank from the environment of ddprun and torchrun, or of another launcher. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int fifo_fd = -1;
static const char *rank = "?";
static int exit_on[NSIG]; /* status + 1; 0: continue */

static void tell(const char *format, long value)
{
    char text[200];
    char line[256];
    snprintf(text, sizeof text, format, value);
    int n = snprintf(line, sizeof line, "%s %s\n", rank, text);
    if (write(fifo_fd, line, (size_t)n) != n)
        _exit(99);
}

static void on_signal(int sig)
{
    tell("got %ld", sig);
    if (exit_on[sig] > 0)
        _exit(exit_on[sig] - 1);
}

static void wait_for_signals(void)
{
    for (;;)
        pause();
}

/* A signal that ends it must not arrive between another signal and the line that reports that. */
static void handle(int sig, int exit_code_plus_1)
{
    struct sigaction a = {.sa_handler = on_signal};
    exit_on[sig] = exit_code_plus_1;
    if (exit_code_plus_1 == 0)
        sigfillset(&a.sa_mask);
    sigaction(sig, &a, NULL);
}

static void daemonize(void)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    tell("daemon %ld", getpid());
    wait_for_signals();
}

static void read_stdin(void)
{
    char buf[4096];
    long total = 0;
    for (ssize_t n; (n = read(STDIN_FILENO, buf, sizeof buf)) > 0;)
        total += n;
    tell("stdin %ld", total);
}

static void write_error(const char *text)
{
    FILE *f = fopen(getenv("TORCHELASTIC_ERROR_FILE"), "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0)
        _exit(98);
}

static void die(int sig)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(sig, SIG_DFL);
    raise(sig);
    _exit(97); /* a signal that does not kill */
}

static void await(int sig)
{
    sigset_t set;
    int got;
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tell("awaits %ld", sig);
    sigwait(&set, &got);
}

static void use_memory(int mib)
{
    for (int i = 0; i < mib; i++) {
        char *block = malloc(1 << 20);
        if (block == NULL)
            _exit(95);
        for (size_t at = 0; at < 1 << 20; at += 1024)
            ((volatile char *)block)[at] = 1;
    }
}

static void feed(int mib)
{
    pid_t pid = fork();
    if (pid == 0) {
        use_memory(mib);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static int checkpoint_fd(void)
{
    const char *text = getenv("DDP_CHECKPOINT_FD");
    return text != NULL ? atoi(text) : -1;
}

static void await_question(void)
{
    struct pollfd p = {.fd = checkpoint_fd(), .events = POLLIN};
    while (poll(&p, 1, -1) < 0) { /* a handler has run */
    }
    tell("asked", 0);
}

static void say_saved(void)
{
    if (write(checkpoint_fd(), "\n", 1) != 1)
        _exit(94);
}

/* --- the commands --- */

static void do_nothing(void)
{
}

static void make_child(void)
{
    if (fork() != 0)
        return;
    tell("child %ld", getpid());
    wait_for_signals();
}

static void tell_pid(void)
{
    tell("pid %ld", getpid());
}

static void say(const char *text)
{
    dprintf(STDOUT_FILENO, "%s\n", text);
}

static void put(const char *text)
{
    dprintf(STDOUT_FILENO, "%s", text);
}

static void say_error(const char *text)
{
    dprintf(STDERR_FILENO, "%s\n", text);
}

static void tell_word(const char *text)
{
    tell(text, 0);
}

static void ignore(int sig)
{
    signal(sig, SIG_IGN);
}

static void note(int sig)
{
    handle(sig, 0);
}

static const struct command { /* one of the three */
    const char *name;
    void (*alone)(void);
    void (*with_text)(const char *text);
    void (*with_number)(int number);
} commands[] = {
    {"wait", .alone = wait_for_signals}, {"child", .alone = make_child},
    {"daemon", .alone = daemonize},      {"stdin", .alone = read_stdin},
    {"asked", .alone = await_question},  {"saved", .alone = say_saved},
    {"end", .alone = do_nothing},        {"pid", .alone = tell_pid},
    {"say", .with_text = say},           {"put", .with_text = put},
    {"err", .with_text = say_error},     {"tell", .with_text = tell_word},
    {"error", .with_text = write_error}, {"await", .with_number = await},
    {"use", .with_number = use_memory},  {"feed", .with_number = feed},
    {"exit", .with_number = exit},       {"die", .with_number = die},
    {"ignore", .with_number = ignore},   {"note", .with_number = note},
};

/* "only RANK ... end". returns how many words another rank leaves out */
static int skip(char **argv)
{
    int n = 2;
    while (atoi(rank) != atoi(argv[1]) && argv[n] != NULL && strcmp(argv[n], "end") != 0)
        n++;
    return n;
}

/* returns how many words it took; 0: there is no such command */
static int act_by_table(const char *name, const char *word)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const struct command *c = &commands[i];
        if (strcmp(name, c->name) != 0)
            continue;
        if (c->alone != NULL)
            c->alone();
        else if (c->with_text != NULL)
            c->with_text(word);
        else
            c->with_number(atoi(word));
        return c->alone != NULL ? 1 : 2;
    }
    return 0;
}

/* Do the command at argv; returns how many words it took. */
static int act(char **argv)
{
    const char *word = argv[1] == NULL ? "" : argv[1];
    if (strcmp(argv[0], "only") == 0 && argv[1] != NULL)
        return skip(argv);
    if (strcmp(argv[0], "on") == 0 && argv[1] != NULL && argv[2] != NULL) {
        handle(atoi(word), atoi(argv[2]) + 1);
        return 3;
    }
    int n = act_by_table(argv[0], word);
    if (n == 0) {
        fprintf(stderr, "rank: what is '%s'?\n", argv[0]);
        exit(96);
    }
    return n;
}

static void find_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getenv(names[i]) != NULL) {
            rank = getenv(names[i]);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    find_rank();
    const char *fifo = getenv("TEST_FIFO");
    if (fifo != NULL)
        fifo_fd = open(fifo, O_WRONLY | O_CLOEXEC);
    for (int i = 1; i < argc;)
        i += act(argv + i);
    return 0;
}
