/* hello.c - the ranks of a job rendezvous and add up their numbers. */
#include <ddp/ddp.h>
#include <stdio.h>

static int hello(struct ddp_group *g, void *arg)
{
    int32_t sum = ddp_rank(g);
    int rc = ddp_all_reduce(g, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL);

    (void)arg;
    if (rc == 0)
        printf("rank %d of %d: the sum of all ranks is %d\n", ddp_rank(g), ddp_world_size(g), sum);
    return rc;
}

int main(void)
{
    if (ddp_run(hello, NULL) != 0)
        ddp_fatal("hello");
    return 0;
}
