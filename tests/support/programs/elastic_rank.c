/* elastic_rank - ranks of a job whose nodes join and leave. They sum up numbers with libddp, step
 * after step, and know nothing of restarts: a step that fails ends them.
 *
 * TEST_NODE is the name of this rank's node. Files in TEST_FOLDER control the ranks: after `stop`
 * all exit with 0 after the same step, and after `fail-NODE` the ranks of that node exit with 3.
 * TEST_CHILD also starts a daemon. The ranks report to the FIFO TEST_FIFO, a line for each event;
 * times are nanoseconds of CLOCK_MONOTONIC:
 *
 *     began NODE PID TIME RANK WORLD_SIZE GENERATION STORE     main() has begun
 *     daemon NODE PID
 *     summed NODE PID TIME SUM                                 the first step: 1 + ... + WORLD_SIZE
 *
 * tests/interop/elastic_steps.py does the same with torch. */
#include <ddp/ddp.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { STEP_NS = 1000 * 1000 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static const char *word(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "-";
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int fd = open(word("TEST_FIFO"), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        _exit(99);
    close(fd);
}

/* A grandchild with a session of its own. */
static void make_daemon(void)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    tell("daemon %s %d\n", word("TEST_NODE"), getpid());
    for (;;)
        pause();
}

static bool is_told_to(const char *what, const char *whom)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", word("TEST_FOLDER"), what, whom);
    return access(path, F_OK) == 0;
}

static int step(struct ddp_group *g, bool is_first)
{
    int32_t n = ddp_world_size(g);
    int32_t x[2] = {ddp_rank(g) + 1, is_told_to("stop", "")};
    if (ddp_all_reduce(g, x, x, 2, DDP_INT32, DDP_SUM, NULL) != 0)
        ddp_fatal("a step");
    if (is_first)
        tell("summed %s %d %" PRIu64 " %" PRId32 "\n", word("TEST_NODE"), getpid(), now_ns(), x[0]);
    if (x[0] != n * (n + 1) / 2)
        _exit(98);
    return x[1];
}

int main(void)
{
    uint64_t began_ns = now_ns();
    struct ddp_group *g;
    tell("began %s %d %" PRIu64 " %s %s %s %s:%s\n", word("TEST_NODE"), getpid(), began_ns,
         word("RANK"), word("WORLD_SIZE"), word("TORCHELASTIC_RESTART_COUNT"), word("MASTER_ADDR"),
         word("MASTER_PORT"));
    if (getenv("TEST_CHILD") != NULL)
        make_daemon();
    if (ddp_init(NULL, &g) != 0)
        ddp_fatal("the start");
    for (bool is_first = true; step(g, is_first) == 0; is_first = false) {
        if (is_told_to("fail-", word("TEST_NODE")))
            _exit(3); /* at once, as a crash ends it */
        nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
    }
    ddp_finalize(g);
    return 0;
}
