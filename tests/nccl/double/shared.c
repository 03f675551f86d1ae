#include "shared.h"

#include "double.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct place {
    _Alignas(64) _Atomic uint64_t step;
    _Atomic uint64_t word[2]; /* by the parity of the step */
    _Atomic uint32_t round;
    int color[2], key[2]; /* by that of the round */
    _Alignas(64) char data[SHARED_CHUNK];
};

struct mail {
    _Alignas(64) _Atomic uint32_t n_put, n_taken;
    char data[SHARED_MAIL];
};

struct shared {
    _Atomic uint32_t n_joined;
    _Atomic uint32_t n;
    struct place place[SHARED_RANKS];
    struct mail mail[SHARED_RANKS][SHARED_RANKS]; /* from, to */
};

bool shared_nap(const struct shared_wait *w, unsigned *n)
{
    const struct timespec t = {.tv_nsec = 50 * 1000};
    if ((w->stop != NULL && atomic_load(w->stop)) || (w->also != NULL && atomic_load(w->also)))
        return false;
    if ((*n)++ < 100)
        sched_yield();
    else
        nanosleep(&t, NULL);
    return true;
}

static void name_of(uint64_t id, char path[PATH_MAX])
{
    const char *dir = getenv("NCCL_DOUBLE_DIR");
    snprintf(path, PATH_MAX, "%s/%016" PRIx64, dir != NULL ? dir : "/tmp", id);
}

struct shared *shared_open(uint64_t id, int n)
{
    char path[PATH_MAX];
    name_of(id, path);
    const int fd = n <= SHARED_RANKS ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(struct shared)) == 0)
        at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED) {
        double_report("%d ranks cannot meet at %s", n, path);
        return NULL;
    }
    struct shared *s = at;
    uint32_t known = 0;
    if (!atomic_compare_exchange_strong(&s->n, &known, (uint32_t)n) && known != (uint32_t)n)
        double_report("a communicator has %u ranks and %d", known, n);
    return s;
}

void shared_close(struct shared *s)
{
    if (s != NULL)
        munmap(s, sizeof *s);
}

bool shared_join(struct shared *s, uint64_t id, const struct shared_wait *w)
{
    char path[PATH_MAX];
    unsigned n = 0;
    atomic_fetch_add(&s->n_joined, 1);
    while (atomic_load(&s->n_joined) < atomic_load(&s->n))
        if (!shared_nap(w, &n))
            return false;
    name_of(id, path);
    unlink(path); /* by the first rank */
    return true;
}

char *shared_own(struct shared *s, int rank)
{
    return s->place[rank].data;
}

const char *shared_of(const struct shared *s, int rank)
{
    return s->place[rank].data;
}

bool shared_meet(struct shared *s, int rank, uint64_t step, const struct shared_wait *w)
{
    atomic_store(&s->place[rank].step, step);
    for (uint32_t r = 0; r < atomic_load(&s->n); r++)
        for (unsigned n = 0; atomic_load(&s->place[r].step) < step;)
            if (!shared_nap(w, &n))
                return false;
    return true;
}

bool shared_compare(struct shared *s, int rank, uint64_t step, uint64_t word,
                    const struct shared_wait *w, bool *ret_same)
{
    atomic_store(&s->place[rank].word[step & 1], word);
    if (!shared_meet(s, rank, step, w))
        return false;
    *ret_same = true;
    for (uint32_t r = 0; r < atomic_load(&s->n); r++)
        *ret_same = *ret_same && atomic_load(&s->place[r].word[step & 1]) == word;
    return true;
}

bool shared_put(struct shared *s, int from, int to, const void *at, size_t bytes)
{
    struct mail *m = &s->mail[from][to];
    if (atomic_load(&m->n_put) != atomic_load(&m->n_taken))
        return false;
    memcpy(m->data, at, bytes);
    atomic_fetch_add(&m->n_put, 1);
    return true;
}

bool shared_take(struct shared *s, int from, int to, void *at, size_t bytes)
{
    struct mail *m = &s->mail[from][to];
    if (atomic_load(&m->n_put) == atomic_load(&m->n_taken))
        return false;
    memcpy(at, m->data, bytes);
    atomic_fetch_add(&m->n_taken, 1);
    return true;
}

bool shared_tell_color(struct shared *s, int rank, unsigned round, int color, int key,
                       const struct shared_wait *w, struct shared_colors *ret)
{
    struct place *own = &s->place[rank];
    own->color[round & 1] = color;
    own->key[round & 1] = key;
    atomic_store(&own->round, round);
    for (uint32_t r = 0; r < atomic_load(&s->n); r++) {
        for (unsigned n = 0; atomic_load(&s->place[r].round) < round;)
            if (!shared_nap(w, &n))
                return false;
        ret->color[r] = s->place[r].color[round & 1];
        ret->key[r] = s->place[r].key[round & 1];
    }
    return true;
}
