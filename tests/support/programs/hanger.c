/* hanger - ranks of which one stops making progress in some way, for system/hang.py:
 *
 *     hanger WAY
 *
 *     sleep     after two steps rank 1 sleeps for good, outside of calls
 *     stop      it stops itself with SIGSTOP, as a user's ^Z would
 *     inside    it has begun a call and never completes it
 *     deadlock  it waits for a message that no rank sends
 *     join      it never joins the others
 *     slow      it takes 5 ms for a step, the others next to nothing, 40 steps long
 *
 * Each rank writes "step N" after a step, and "end" at its end. In a generation that follows, where
 * the rank was replaced, no rank hangs. */
#include <ddp/ddp.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, HANGS_AT = 2, VICTIM = 1, FLOATS = 1000, SLOW_STEPS = 40, SLOW_US = 5000 };

/* With a frame of its own, which debuggers show even without debugging information. */
static __attribute__((noinline)) void sleep_for_good(void)
{
    for (;;)
        pause();
}

static int hang(const char *way, struct ddp_group *g)
{
    static float data[FLOATS];
    struct ddp_request *request;
    int32_t word;
    if (strcmp(way, "stop") == 0) {
        raise(SIGSTOP);
    } else if (strcmp(way, "deadlock") == 0) {
        return ddp_recv(g, &word, 1, DDP_INT32, 0, 99, NULL);
    } else if (strcmp(way, "inside") == 0) {
        int rc = ddp_iall_reduce(g, data, data, FLOATS, DDP_FLOAT32, DDP_AVG, NULL, &request);
        if (rc == 0)
            rc = ddp_store_set(g, "begun", "", 0);
        if (rc != 0)
            return rc;
    }
    sleep_for_good();
    return 0;
}

/* A call that is begun after the others' goes through at once: they have to come after it. */
static int let_hang(const char *way, struct ddp_group *g)
{
    return strcmp(way, "inside") == 0 ? ddp_store_wait(g, "begun", 60000) : 0;
}

static int train(struct ddp_group *g, void *arg)
{
    static float weight[FLOATS], gradient[FLOATS];
    const char *way = arg;
    struct ddp_tensor tensor = {
        .param = weight, .grad = gradient, .count = FLOATS, .dtype = DDP_FLOAT32, .name = "w"};
    struct ddp_model *m;
    int rc = ddp_model_create(g, &tensor, 1, NULL, &m);
    const bool is_slow = strcmp(way, "slow") == 0;
    for (int step = 0; rc == 0 && step < (is_slow ? SLOW_STEPS : STEPS); step++) {
        if (is_slow && ddp_rank(g) == VICTIM)
            usleep(SLOW_US);
        if (!is_slow && step == HANGS_AT && ddp_generation(g) == 0)
            rc = ddp_rank(g) == VICTIM ? hang(way, g) : let_hang(way, g);
        if (rc == 0)
            rc = ddp_model_sync(m);
        if (rc == 0)
            printf("step %d\n", step);
    }
    return rc;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *generation = getenv("DDP_GENERATION");
    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(argv[1], "join") == 0 && rank != NULL && atoi(rank) == VICTIM &&
        (generation == NULL || atoi(generation) == 0))
        sleep_for_good();
    if (ddp_run(train, argv[1]) != 0) {
        fprintf(stderr, "%s\n", ddp_last_error());
        return 1;
    }
    puts("end");
    return 0;
}
