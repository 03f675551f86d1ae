/* mpi_end.h - how the end of an MPI rank counts, from what it did with MPI. Pure. */
#ifndef DDP_LAUNCHER_GENERATION_MPI_END_H
#define DDP_LAUNCHER_GENERATION_MPI_END_H

#include <stdbool.h>

enum mpi_end_stage {
    MPI_END_SILENT, /* it has not called MPI_Init, or uses another MPI */
    MPI_END_INSIDE, /* between MPI_Init and MPI_Finalize */
    MPI_END_FINALIZED,
};

struct mpi_end {
    enum mpi_end_stage stage;
    bool has_aborted;  /* it has called MPI_Abort ... */
    int exit_code;     /* ... with this */
    int status;        /* as waitpid() has it */
    bool was_signaled; /* ddprun had sent it a signal, so its end is not evidence about the job */
};

enum mpi_end_note {
    MPI_END_NO_NOTE,
    MPI_END_LEFT,  /* it has exited with 0 without MPI_Finalize, and others wait for it */
    MPI_END_ALONE, /* it has exited with 0, and never used what ddprun offers */
};

/* The status of a rank that has called MPI_Abort, as waitpid() has it, and never that of a success:
 * exit() keeps eight bits of a code. */
int mpi_end_of_abort(int exit_code);

/* One that has called MPI_Abort fails with that code, however it ends then. One that ends with 0
 * between MPI_Init and MPI_Finalize fails.
 *
 * returns   the status that counts, as waitpid() has it */
int mpi_end_status(const struct mpi_end *e, enum mpi_end_note *ret_note);

#endif
