#include "mpi_end.h"

int mpi_end_of_abort(int exit_code)
{
    return ((exit_code & 0xff) != 0 ? exit_code & 0xff : 1) << 8;
}

int mpi_end_status(const struct mpi_end *e, enum mpi_end_note *ret_note)
{
    *ret_note = MPI_END_NO_NOTE;
    if (e->has_aborted)
        return mpi_end_of_abort(e->exit_code);
    if (e->status != 0 || e->was_signaled || e->stage == MPI_END_FINALIZED)
        return e->status;
    *ret_note = e->stage == MPI_END_INSIDE ? MPI_END_LEFT : MPI_END_ALONE;
    return e->stage == MPI_END_INSIDE ? 1 << 8 : e->status;
}
