/* misfit.c - ranks that do what troubleshooting is for, for tests/system/pages/troubleshooting.py:
 *
 *     misfit late | die | fault | count | segment | absent
 *
 * late: rank 1 makes no call; die, fault: it ends by SIGKILL, by SIGSEGV; count: it calls something
 * else; segment: more memory is asked for than there is; absent: no others are waited for longer
 * than a second. */
#include <ddp/ddp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const struct ddp_init_opts hurried = {.start_timeout_ms = 1000};
    const char *how = argc > 1 ? argv[1] : "";
    struct ddp_group *g;
    double x[4] = {0};
    void *segment;
    if (ddp_init(strcmp(how, "absent") == 0 ? &hurried : NULL, &g) != 0)
        ddp_fatal("ddp_init");
    const bool is_1 = ddp_rank(g) == 1;
    if (is_1 && strcmp(how, "late") == 0)
        pause();
    if (is_1 && strcmp(how, "die") == 0)
        raise(SIGKILL);
    if (is_1 && strcmp(how, "fault") == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own end for it */
        raise(SIGSEGV);
    }
    if (strcmp(how, "segment") == 0 && ddp_alloc(g, (size_t)1 << 40, &segment) != 0)
        ddp_fatal("ddp_alloc");
    const size_t count = is_1 && strcmp(how, "count") == 0 ? 3 : 4;
    if (ddp_all_reduce(g, x, x, count, DDP_FLOAT64, DDP_SUM, NULL) != 0)
        ddp_fatal("ddp_all_reduce");
    ddp_finalize(g);
    return 0;
}
