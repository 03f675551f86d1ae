#include "shared_perm.h"

#include "common/error.h"
#include "common/scope.h"
#include "randperm.h"
#include "worker-runtime/core/collective.h"

#include <ddp/collective.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { N_SLOTS = 2, PAGE = 4096, NO_SLOT = 0 };

struct slot {
    uint64_t seed;
    _Atomic uint32_t is_drawn; /* a rank that dies while it draws leaves 0 */
};

struct shared_perm {
    pthread_mutex_t lock; /* robust; guards all that follows */
    uint32_t n;
    int32_t n_local;
    struct slot slot[N_SLOTS];
    uint8_t uses[]; /* of each local rank: which slot, counted from 1, or NO_SLOT */
};

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t head_bytes(int n_local)
{
    return round_up(sizeof(struct shared_perm) + (size_t)n_local);
}

static size_t slot_bytes(uint32_t n)
{
    return round_up((size_t)n * sizeof(uint32_t));
}

size_t shared_perm_bytes(const struct shared_perm_shape *shape)
{
    if ((size_t)shape->n > (SIZE_MAX / 2 - head_bytes(shape->n_local)) / N_SLOTS / 8)
        return 0;
    return head_bytes(shape->n_local) + N_SLOTS * slot_bytes(shape->n);
}

void shared_perm_init(void *memory, const struct shared_perm_shape *shape)
{
    struct shared_perm *p = memory;
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&p->lock, &how);
    pthread_mutexattr_destroy(&how);
    p->n = shape->n;
    p->n_local = shape->n_local;
}

/* The dead rank held it between two writes of `slot` and `uses`, each of which leaves them
 * usable. */
static bool lock_perm(struct shared_perm *p, uint64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ms / 1000) + 1; /* rounded up */
    int rc = pthread_mutex_clocklock(&p->lock, CLOCK_MONOTONIC, &until);
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(&p->lock);
    return rc == 0;
}

static uint32_t *numbers_of(struct shared_perm *p, unsigned slot)
{
    uint8_t *first = (uint8_t *)p + head_bytes(p->n_local);
    return (uint32_t *)(first + (slot - 1) * slot_bytes(p->n));
}

static bool is_used_by_others(const struct shared_perm *p, unsigned slot, int local_rank)
{
    for (int r = 0; r < p->n_local; r++)
        if (r != local_rank && p->uses[r] == slot)
            return true;
    return false;
}

/* Set what a rank uses, and free the pages that no rank uses any more. */
static void use_slot(struct shared_perm *p, int local_rank, unsigned slot)
{
    const unsigned last = p->uses[local_rank];
    p->uses[local_rank] = (uint8_t)slot;
    if (last == NO_SLOT || last == slot || is_used_by_others(p, last, local_rank))
        return;
    p->slot[last - 1].is_drawn = false;
    madvise(numbers_of(p, last), slot_bytes(p->n), MADV_REMOVE); /* else it costs memory, no more */
}

static unsigned find_drawn(const struct shared_perm *p, uint64_t seed)
{
    for (unsigned slot = 1; slot <= N_SLOTS; slot++)
        if (p->slot[slot - 1].is_drawn && p->slot[slot - 1].seed == seed)
            return slot;
    return NO_SLOT;
}

static unsigned find_free(const struct shared_perm *p, int local_rank)
{
    for (unsigned slot = 1; slot <= N_SLOTS; slot++)
        if (!is_used_by_others(p, slot, local_rank))
            return slot;
    return NO_SLOT;
}

const uint32_t *shared_perm_take(struct shared_perm *p, uint64_t seed, int local_rank,
                                 uint64_t timeout_ms)
{
    if (!lock_perm(p, timeout_ms))
        return NULL;
    unsigned slot = find_drawn(p, seed);
    if (slot == NO_SLOT && (slot = find_free(p, local_rank)) != NO_SLOT) {
        struct slot *s = &p->slot[slot - 1];
        s->is_drawn = false; /* until it is whole: this rank may die meanwhile */
        randperm_fill(numbers_of(p, slot), p->n, seed);
        s->seed = seed;
        s->is_drawn = true;
    }
    use_slot(p, local_rank, slot);
    pthread_mutex_unlock(&p->lock);
    return slot != NO_SLOT ? numbers_of(p, slot) : NULL;
}

void shared_perm_give_back(struct shared_perm *p, int local_rank, uint64_t timeout_ms)
{
    if (!lock_perm(p, timeout_ms))
        return;
    use_slot(p, local_rank, NO_SLOT);
    pthread_mutex_unlock(&p->lock);
}

/* --- memory that all ranks of a group on one node have mapped
 * ---------------------------------- */

struct place { /* where a rank is, and the memory it has made */
    int64_t node_rank, local_rank;
    int64_t pid, fd; /* fd < 0: none */
    uint64_t inode;  /* distinguishes it from a file of another process that has the same number */
};

static void *map_memory(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at != MAP_FAILED ? at : NULL;
}

static int make_memory(size_t bytes, uint64_t *ret_inode, void **ret)
{
    struct stat st;
    co_autoclose_fd int fd = memfd_create("ddp shared", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 || fstat(fd, &st) < 0)
        return -1;
    *ret = map_memory(fd, bytes);
    *ret_inode = st.st_ino;
    return *ret != NULL ? co_take_fd(&fd) : -1;
}

static void *open_of(const struct place *p, size_t bytes)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)p->pid, (long long)p->fd);
    co_autoclose_fd int fd = p->fd >= 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != p->inode || st.st_size != (off_t)bytes)
        return NULL;
    return map_memory(fd, bytes);
}

/* Exchange twice: to learn where the memory is, and whether all ranks have it. */
static int share_memory(struct ddp_group *g, size_t bytes, const struct place *own, void **memory,
                        bool *ret_all_have)
{
    int rc;
    co_autofree struct place *all = collective_gather(g, own, sizeof *own, &rc);
    if (rc != 0)
        return rc;
    for (int r = 0; r < g->world_size && g->local_rank != 0; r++)
        if (all[r].node_rank == g->node_rank && all[r].local_rank == 0)
            *memory = open_of(&all[r], bytes);
    int32_t has = *memory != NULL;
    rc = ddp_all_reduce(g, &has, &has, 1, DDP_INT32, DDP_MIN, NULL);
    *ret_all_have = has != 0;
    return rc;
}

int shared_perm_create(struct ddp_group *g, uint32_t n, struct shared_perm **ret)
{
    const struct shared_perm_shape shape = {.n = n, .n_local = g->local_world_size};
    const size_t bytes = shared_perm_bytes(&shape);
    struct place own = {
        .node_rank = g->node_rank, .local_rank = g->local_rank, .pid = getpid(), .fd = -1};
    void *memory = NULL;
    bool all_have = false;
    *ret = NULL;
    if (g->backend == NULL || bytes == 0)
        return DDP_OK;
    if (g->local_rank == 0)
        own.fd = make_memory(bytes, &own.inode, &memory);
    if (memory != NULL)
        shared_perm_init(memory, &shape);
    int rc = share_memory(g, bytes, &own, &memory, &all_have);
    if (own.fd >= 0)
        close((int)own.fd);
    if (rc == 0 && all_have)
        *ret = memory;
    else if (memory != NULL)
        munmap(memory, bytes);
    return rc;
}

void shared_perm_destroy(struct shared_perm *p)
{
    munmap(p, shared_perm_bytes(&(struct shared_perm_shape){p->n, p->n_local}));
}
