/* stand_in_nccl - a test double of NCCL's library, of which only the version can be asked for. */

int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    *version = 21805;
    return 0;
}
