/* peer_maps.c - mappings of peers' segments: taken, given back, and unmapped by a thread.
 *
 * peer_maps_take() finds a mapping that was given back, or makes one. peer_maps_sweep() hands
 * those that nothing uses to a thread, run_sweep(), which unmaps them slowly; collect_sweeps()
 * joins the threads that are done. */
#include "peer_maps.h"

#include "common/clock.h"
#include "common/error.h"
#include "process.h"
#include "user_segment.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

/* The length of a piece bounds how long another thread that maps or unmaps memory may have to wait,
 * also if this thread gets little of a processor: so its priority is not lower. Most of a
 * segment was never written, and a gigabyte of untouched memory takes no longer than a written
 * page: pieces grow where they are quick. */
enum { PIECE_BYTES = 2 << 20, LONG_PIECE_BYTES = 64 << 20, QUICK_NS = 10000, LOW_PRIORITY = 10 };

/* By then the peers have most likely joined, and no longer need the processors for that: a thread
 * that has one keeps it for milliseconds, whatever its priority, where others give theirs away. */
enum { DELAY_MS = 100 };

struct peer_map {
    dev_t device; /* which memfd it is: the number stays taken as long as it is mapped */
    ino_t inode;
    uint8_t *base;
    uint64_t bytes;
    bool is_used;
};

struct peer_sweep {
    struct peer_sweep *next;
    pthread_t thread;
    sem_t hurries;
    atomic_bool is_done;
    size_t n;
    struct peer_map map[];
};

/* --- letting go ------------------------------------------------------------------------------- */

static void unmap_slowly(const struct peer_map *map)
{
    uint64_t piece = PIECE_BYTES, now_ns = co_now_ns();
    for (uint64_t at = 0, n; at < map->bytes; at += n) {
        n = map->bytes - at < piece ? map->bytes - at : piece;
        madvise(map->base + at, n, MADV_DONTNEED);
        const uint64_t begun_ns = now_ns;
        now_ns = co_now_ns();
        if (now_ns - begun_ns > QUICK_NS)
            piece = PIECE_BYTES;
        else if (piece < LONG_PIECE_BYTES)
            piece *= 2;
    }
    user_segment_unmap_peer(map->base, map->bytes);
}

static void unmap_all(const struct peer_sweep *s)
{
    for (size_t i = 0; i < s->n; i++)
        unmap_slowly(&s->map[i]);
}

static void wait_first(struct peer_sweep *s)
{
    const uint64_t until_ns = co_now_ns() + (uint64_t)DELAY_MS * 1000000;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                   .tv_nsec = (long)(until_ns % 1000000000)};
    while (sem_clockwait(&s->hurries, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
        ;
}

static void *run_sweep(void *arg)
{
    struct peer_sweep *s = arg;
    wait_first(s);
    setpriority(PRIO_PROCESS, 0, LOW_PRIORITY); /* Linux applies it to this thread only */
    unmap_all(s);
    atomic_store(&s->is_done, true);
    return NULL;
}

/* all   also those that are under way */
static void collect_sweeps(struct peer_maps *m, bool all)
{
    for (struct peer_sweep **at = &m->sweeps; *at != NULL;) {
        struct peer_sweep *s = *at;
        if (!all && !atomic_load(&s->is_done)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        sem_post(&s->hurries);
        pthread_join(s->thread, NULL);
        sem_destroy(&s->hurries);
        free(s);
    }
}

/* into   has space for all of them; NULL: unmap them at once */
static void take_unused(struct peer_maps *m, struct peer_map *into)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (m->map[i].is_used)
            m->map[n_kept++] = m->map[i];
        else if (into != NULL)
            *into++ = m->map[i];
        else
            user_segment_unmap_peer(m->map[i].base, m->map[i].bytes);
    }
    m->n = n_kept;
}

void peer_maps_sweep(struct peer_maps *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        n += !m->map[i].is_used;
    collect_sweeps(m, false);
    if (n == 0)
        return;
    struct peer_sweep *s = calloc(1, sizeof *s + n * sizeof s->map[0]);
    take_unused(m, s != NULL ? s->map : NULL);
    if (s == NULL)
        return;
    s->n = n;
    sem_init(&s->hurries, 0, 0);
    if (process_start_thread(&s->thread, run_sweep, s) != 0) {
        unmap_all(s); /* by the program's own thread, which keeps its priority */
        sem_destroy(&s->hurries);
        free(s);
        return;
    }
    s->next = m->sweeps;
    m->sweeps = s;
}

void peer_maps_fini(struct peer_maps *m)
{
    collect_sweeps(m, true);
    for (size_t i = 0; i < m->n; i++)
        user_segment_unmap_peer(m->map[i].base, m->map[i].bytes);
    free(m->map);
    *m = (struct peer_maps){0};
}

/* --- taking ----------------------------------------------------------------------------------- */

/* Make space for one more. */
static int reserve_map(struct peer_maps *m)
{
    if (m->n < m->cap)
        return 0;
    const size_t cap = m->cap > 0 ? 2 * m->cap : 8;
    struct peer_map *more = realloc(m->map, cap * sizeof *more);
    if (more == NULL)
        return -ENOMEM;
    m->map = more;
    m->cap = cap;
    return 0;
}

static struct peer_map *find_map(struct peer_maps *m, const struct stat *st, uint64_t bytes)
{
    for (size_t i = 0; i < m->n; i++) {
        struct peer_map *map = &m->map[i];
        if (!map->is_used && map->device == st->st_dev && map->inode == st->st_ino &&
            map->bytes == bytes)
            return map;
    }
    return NULL;
}

int peer_maps_take(struct peer_maps *m, int fd, uint64_t bytes, uint8_t **ret_base,
                   struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return co_fail(err, -errno, "cannot stat the user segment of a peer: %s", strerror(errno));
    struct peer_map *map = find_map(m, &st, bytes);
    if (map != NULL) {
        map->is_used = true;
        *ret_base = map->base;
        return 0;
    }
    if (reserve_map(m) != 0)
        return co_fail(err, -ENOMEM, "out of memory");
    map = &m->map[m->n];
    *map =
        (struct peer_map){.device = st.st_dev, .inode = st.st_ino, .bytes = bytes, .is_used = true};
    int code = user_segment_map_peer(fd, bytes, &map->base, err);
    if (code != 0)
        return code;
    m->n++;
    *ret_base = map->base;
    return 0;
}

void peer_maps_give_back(struct peer_maps *m, const uint8_t *base)
{
    for (size_t i = 0; base != NULL && i < m->n; i++)
        if (m->map[i].base == base)
            m->map[i].is_used = false;
}
