/* nccl_hello.c - a communicator of NCCL for all ranks of a job, each with a GPU of its own: for a
 * program that calls NCCL itself. */
#include <ddp/ddp.h>
#include <nccl.h>
#include <stdio.h>

static int hello(struct ddp_group *g, void *arg)
{
    void *comm;
    int gpu, n, rc;

    (void)arg;
    if ((rc = ddp_device(g, &gpu)) != 0 || (rc = ddp_nccl_comm(g, &comm)) != 0)
        return rc;
    ncclCommCount(comm, &n);
    printf("rank %d has GPU %d, and a communicator of %d ranks\n", ddp_rank(g), gpu, n);
    return 0;
}

int main(void)
{
    if (ddp_run(hello, NULL) != 0)
        ddp_fatal("nccl_hello");
    return 0;
}
