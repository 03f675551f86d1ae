#include "shared_perm.h"

#include "randperm.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

enum { N_SLOTS = 2, PAGE = 4096, NO_SLOT = 0 };

struct slot {
    uint64_t seed;
    _Atomic uint32_t is_drawn; /* whoever dies while it draws leaves 0 */
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

void shared_perm_init(void *memory, void *arg)
{
    struct shared_perm *p = memory;
    const struct shared_perm_shape *shape = arg;
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&p->lock, &how);
    pthread_mutexattr_destroy(&how);
    p->n = shape->n;
    p->n_local = shape->n_local;
}

/* Who died held it between two writes of `slot` and `uses`, each of which leaves them usable. */
static bool lock(struct shared_perm *p, uint64_t timeout_ms)
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

/* Set what a rank uses, and give the pages of what nobody uses any more back. */
static void use(struct shared_perm *p, int local_rank, unsigned slot)
{
    const unsigned last = p->uses[local_rank];
    p->uses[local_rank] = (uint8_t)slot;
    if (last == NO_SLOT || last == slot || is_used_by_others(p, last, local_rank))
        return;
    p->slot[last - 1].is_drawn = false;
    madvise(numbers_of(p, last), slot_bytes(p->n), MADV_REMOVE); /* else it costs memory, no more */
}

static unsigned find(const struct shared_perm *p, uint64_t seed)
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

static void draw(struct shared_perm *p, unsigned slot, uint64_t seed)
{
    struct slot *s = &p->slot[slot - 1];
    s->is_drawn = false;
    randperm_fill(numbers_of(p, slot), p->n, seed);
    s->seed = seed;
    s->is_drawn = true;
}

const uint32_t *shared_perm_take(struct shared_perm *p, uint64_t seed, int local_rank,
                                 uint64_t timeout_ms)
{
    if (!lock(p, timeout_ms))
        return NULL;
    unsigned slot = find(p, seed);
    if (slot == NO_SLOT && (slot = find_free(p, local_rank)) != NO_SLOT)
        draw(p, slot, seed);
    use(p, local_rank, slot);
    pthread_mutex_unlock(&p->lock);
    return slot != NO_SLOT ? numbers_of(p, slot) : NULL;
}

void shared_perm_give_back(struct shared_perm *p, int local_rank, uint64_t timeout_ms)
{
    if (!lock(p, timeout_ms))
        return;
    use(p, local_rank, NO_SLOT);
    pthread_mutex_unlock(&p->lock);
}
