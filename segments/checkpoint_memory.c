#include "checkpoint_memory.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct head {
    uint8_t magic[8];
    uint32_t n_ranks, n_slots;
    uint64_t slot_bytes;
};
static const uint8_t magic[8] = "DDPCKM1";

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

uint64_t checkpoint_memory_entries_at(unsigned local_rank)
{
    return (uint64_t)CHECKPOINT_MEMORY_PAGE * (1 + local_rank);
}

static uint64_t slots_at(const struct checkpoint_memory *m)
{
    return checkpoint_memory_entries_at(m->n_ranks);
}

uint64_t checkpoint_memory_slot_at(const struct checkpoint_memory *m, unsigned local_rank,
                                   unsigned slot)
{
    return slots_at(m) + (CHECKPOINT_MEMORY_SLOTS * (uint64_t)local_rank + slot) * m->slot_bytes;
}

uint64_t checkpoint_memory_bytes(const struct checkpoint_memory *m)
{
    return checkpoint_memory_slot_at(m, m->n_ranks, 0);
}

static bool is_possible(uint64_t n_ranks, uint64_t slot_bytes)
{
    return n_ranks >= 1 && n_ranks <= CHECKPOINT_MEMORY_RANKS && slot_bytes >= 1 &&
           slot_bytes <= CHECKPOINT_MEMORY_SLOT_MAX;
}

/* ftruncate() beyond the limit would send SIGXFSZ. */
static int check_limit(uint64_t bytes, struct co_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return 0;
    return co_fail(err, -EFBIG,
                   "cannot create %llu bytes of memory for checkpoints: the limit on the size of "
                   "files is %llu bytes (ulimit -f)",
                   (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
}

int checkpoint_memory_make(unsigned n_ranks, uint64_t slot_bytes, int *ret_fd, struct co_error *err)
{
    if (!is_possible(n_ranks, slot_bytes))
        return co_fail(err, -EINVAL, "%llu bytes for each of %u ranks cannot be kept in memory",
                       (unsigned long long)slot_bytes, n_ranks);
    const uint64_t pages = (slot_bytes + CHECKPOINT_MEMORY_PAGE - 1) / CHECKPOINT_MEMORY_PAGE;
    const struct checkpoint_memory m = {n_ranks, pages * CHECKPOINT_MEMORY_PAGE};
    struct head head = {
        .n_ranks = m.n_ranks, .n_slots = CHECKPOINT_MEMORY_SLOTS, .slot_bytes = m.slot_bytes};
    int rc = check_limit(checkpoint_memory_bytes(&m), err);
    if (rc < 0)
        return rc;
    co_autoclose_fd int fd = memfd_create("ddp-checkpoints", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    memcpy(head.magic, magic, sizeof head.magic);
    if (fd < 0 || fchmod(fd, 0600) != 0 || ftruncate(fd, (off_t)checkpoint_memory_bytes(&m)) != 0 ||
        pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        return co_fail(err, -errno, "cannot create %llu bytes of memory for checkpoints: %s",
                       (unsigned long long)checkpoint_memory_bytes(&m), strerror(errno));
    *ret_fd = co_take_fd(&fd);
    return 0;
}

int checkpoint_memory_read(int fd, struct checkpoint_memory *ret, struct co_error *err)
{
    struct head head;
    struct stat st;
    const bool is_ours =
        pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && fstat(fd, &st) == 0 &&
        memcmp(head.magic, magic, sizeof magic) == 0 && head.n_slots == CHECKPOINT_MEMORY_SLOTS &&
        is_possible(head.n_ranks, head.slot_bytes) &&
        head.slot_bytes % CHECKPOINT_MEMORY_PAGE == 0 && (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS;
    const struct checkpoint_memory m = {is_ours ? head.n_ranks : 0, is_ours ? head.slot_bytes : 0};
    if (!is_ours || (uint64_t)st.st_size != checkpoint_memory_bytes(&m))
        return co_fail(err, -EBADF,
                       "descriptor %d is not the memory for checkpoints that ddprun has passed: a "
                       "program between ddprun and this process has closed it",
                       fd);
    *ret = m;
    return 0;
}
