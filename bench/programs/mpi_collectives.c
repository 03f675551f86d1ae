/* mpi_collectives.c - time an MPI's all-reduce over a range of sizes, as collectives.c does for
 * libddp. collectives.py builds it with each mpicc that is installed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "sweep.h"

static int all_reduce(struct sweep *s, size_t count)
{
    return MPI_Allreduce(MPI_IN_PLACE, s->data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int barrier(struct sweep *s)
{
    (void)s;
    return MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    struct sweep s = {.all_reduce = all_reduce, .barrier = barrier};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.world_size);
    if (sweep_read_words(&s, argc - 1, argv + 1) != 0) {
        fputs("usage: mpi_collectives REPEATS MAX_BYTES | steady MS BYTES\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    s.data = malloc(s.max_bytes);
    if (s.data == NULL || sweep_run(&s) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    free(s.data);
    return MPI_Finalize();
}
