/* user_segment.c - the memory of a rank that its peers map, and an allocator in it.
 *
 * The blocks of a segment are an array in the order of their offsets, and cover the segment
 * without gaps. user_segment_alloc() takes the first free block that is large enough, and carve()
 * cuts it; user_segment_free() joins a block with free neighbors. Pages that are free again go
 * back to the system, which gives zeros for them. */
#include "user_segment.h"

#include "common/error.h"
#include "common/parse.h"

#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE            4096u
#define LINE            64u
#define SMALLEST        ((uint64_t)1 << 20)
#define ALL_RANKS_BYTES ((uint64_t)1 << 46) /* of 2^47 that a process has on x86-64 */

struct block { /* of the address space; blocks lie side by side and cover all of it */
    uint64_t offset, bytes;
    bool used;
};

struct user_segment {
    int fd;
    uint8_t *base;
    uint64_t bytes;
    bool withdrawn;
    pthread_mutex_t mutex; /* guards what follows */
    struct block *block;   /* in order of offset */
    size_t n_blocks, cap;
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) & ~(to - 1);
}

/* --- size ------------------------------------------------------------------------------------- */

static uint64_t physical_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : (uint64_t)1 << 32;
    uint64_t power = SMALLEST;
    while (power < bytes)
        power *= 2;
    return power;
}

static void cut_to_limit(uint64_t *bytes, int resource, unsigned divide_by)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    uint64_t share = (uint64_t)limit.rlim_cur / divide_by;
    if (*bytes > share)
        *bytes = share;
}

/* Valgrind's search for leaks reads all that is mapped, and a page of a memfd that is read takes up
 * memory from then on. It puts a library of its own into each process that it runs. */
static bool is_under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded != NULL && strstr(preloaded, "/vgpreload_") != NULL;
}

int user_segment_size(const char *text, unsigned n_local, uint64_t *ret_bytes, struct co_error *err)
{
    uint64_t bytes = is_under_valgrind() ? USER_SEGMENT_VALGRIND_BYTES : physical_memory();
    if (text != NULL && text[0] != '\0') {
        if (co_parse_size(DDP_ENV_SEGMENT_BYTES, text, SMALLEST, ALL_RANKS_BYTES, &bytes, err) != 0)
            return -ENOEXEC;
    }
    if (bytes > ALL_RANKS_BYTES / n_local)
        bytes = ALL_RANKS_BYTES / n_local;
    cut_to_limit(&bytes, RLIMIT_AS, 2 * n_local); /* half of it is left to the program */
    cut_to_limit(&bytes, RLIMIT_FSIZE, 1);        /* ftruncate() past it raises SIGXFSZ */
    bytes &= ~(uint64_t)(PAGE - 1);
    *ret_bytes = bytes > 0 ? bytes : PAGE;
    return 0;
}

/* --- the segment ------------------------------------------------------------------------------ */

int user_segment_create(uint64_t bytes, struct user_segment **ret, struct co_error *err)
{
    bytes = round_up(bytes, PAGE);
    struct user_segment *s = calloc(1, sizeof *s);
    struct block *blocks = calloc(16, sizeof *blocks);
    if (s == NULL || blocks == NULL) {
        free(s);
        free(blocks);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    blocks[0] = (struct block){.offset = 0, .bytes = bytes};
    *s = (struct user_segment){
        .bytes = bytes, .block = blocks, .n_blocks = 1, .cap = 16, .base = MAP_FAILED};
    pthread_mutex_init(&s->mutex, NULL);

    s->fd = memfd_create("ddp-user", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd >= 0 && ftruncate(s->fd, (off_t)bytes) == 0 &&
        fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        s->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (s->base == MAP_FAILED) {
        int code = -errno;
        user_segment_destroy(s);
        return co_fail(err, code,
                       "cannot create the user segment of %llu bytes (set %s to another size): %s",
                       (unsigned long long)bytes, DDP_ENV_SEGMENT_BYTES, strerror(-code));
    }
    madvise(s->base, bytes, MADV_HUGEPAGE); /* where the system has them for shared memory */
    *ret = s;
    return 0;
}

void user_segment_touch(struct user_segment *s, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    const uint64_t n = bytes < s->bytes ? round_up(bytes, PAGE) : s->bytes;
    madvise(s->base, n, MADV_POPULATE_WRITE); /* since Linux 5.14 */
#else
    (void)s, (void)bytes;
#endif
}

void user_segment_destroy(struct user_segment *s)
{
    if (s == NULL)
        return;
    if (s->base != MAP_FAILED)
        munmap(s->base, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    pthread_mutex_destroy(&s->mutex);
    free(s->block);
    free(s);
}

int user_segment_fd(const struct user_segment *s)
{
    return s->fd;
}

uint64_t user_segment_bytes(const struct user_segment *s)
{
    return s->bytes;
}

uint8_t *user_segment_base(const struct user_segment *s)
{
    return s->base;
}

bool user_segment_find(const struct user_segment *s, const void *p, size_t bytes,
                       uint64_t *ret_offset)
{
    uintptr_t at = (uintptr_t)p, base = (uintptr_t)s->base;
    if (s->withdrawn || at < base || at - base > s->bytes || bytes > s->bytes - (at - base))
        return false;
    *ret_offset = at - base;
    return true;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Make space for up to two more blocks. */
static int reserve_blocks(struct user_segment *s)
{
    if (s->n_blocks + 2 <= s->cap)
        return 0;
    struct block *more = realloc(s->block, 2 * s->cap * sizeof *more);
    if (more == NULL)
        return -ENOMEM;
    s->block = more;
    s->cap *= 2;
    return 0;
}

static void insert_block(struct user_segment *s, size_t at, struct block b)
{
    memmove(&s->block[at + 1], &s->block[at], (s->n_blocks - at) * sizeof b);
    s->block[at] = b;
    s->n_blocks++;
}

static void remove_block(struct user_segment *s, size_t at)
{
    s->n_blocks--;
    memmove(&s->block[at], &s->block[at + 1], (s->n_blocks - at) * sizeof *s->block);
}

/* Take [offset, offset + bytes) out of free block i; what is left of it on both sides stays
 * free. */
static void carve(struct user_segment *s, size_t i, uint64_t offset, uint64_t bytes)
{
    struct block whole = s->block[i];
    uint64_t end = offset + bytes, whole_end = whole.offset + whole.bytes;
    s->block[i] = (struct block){.offset = offset, .bytes = bytes, .used = true};
    if (whole_end > end)
        insert_block(s, i + 1, (struct block){.offset = end, .bytes = whole_end - end});
    if (offset > whole.offset)
        insert_block(s, i, (struct block){.offset = whole.offset, .bytes = offset - whole.offset});
}

static int alloc_locked(struct user_segment *s, uint64_t bytes, uint64_t *ret_offset,
                        struct co_error *err)
{
    uint64_t align = bytes >= PAGE ? PAGE : LINE;
    uint64_t largest = 0;
    if (reserve_blocks(s) != 0)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < s->n_blocks; i++) {
        const struct block *b = &s->block[i];
        uint64_t offset = round_up(b->offset, align);
        if (b->used)
            continue;
        if (offset - b->offset <= b->bytes && bytes <= b->bytes - (offset - b->offset)) {
            carve(s, i, offset, bytes);
            *ret_offset = offset;
            return 0;
        }
        if (b->bytes > largest)
            largest = b->bytes;
    }
    return co_fail(err, -ENOMEM,
                   "out of memory for %llu bytes in this rank's user segment of %llu bytes, whose "
                   "largest free block has %llu: set %s to a larger size",
                   (unsigned long long)bytes, (unsigned long long)s->bytes,
                   (unsigned long long)largest, DDP_ENV_SEGMENT_BYTES);
}

int user_segment_alloc(struct user_segment *s, size_t bytes, void **ret, struct co_error *err)
{
    if (bytes > s->bytes)
        return co_fail(
            err, -ENOMEM,
            "%zu bytes exceed this rank's user segment of %llu bytes: set %s to a larger size",
            bytes, (unsigned long long)s->bytes, DDP_ENV_SEGMENT_BYTES);
    uint64_t offset = 0;
    pthread_mutex_lock(&s->mutex);
    int code = alloc_locked(s, bytes > 0 ? round_up(bytes, LINE) : LINE, &offset, err);
    pthread_mutex_unlock(&s->mutex);
    if (code == 0)
        *ret = s->base + offset;
    return code;
}

/* Zero the bytes again; whole pages are given back. */
static void give_back(struct user_segment *s, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;
    uint64_t first_page = round_up(offset, PAGE), last_page = end & ~(uint64_t)(PAGE - 1);
    if (first_page >= last_page || s->withdrawn ||
        fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first_page,
                  (off_t)(last_page - first_page)) != 0) {
        memset(s->base + offset, 0, bytes);
        return;
    }
    memset(s->base + offset, 0, first_page - offset);
    memset(s->base + last_page, 0, end - last_page);
}

static size_t find_block(const struct user_segment *s, uint64_t offset)
{
    size_t low = 0, high = s->n_blocks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->block[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int user_segment_free(struct user_segment *s, void *ptr)
{
    uintptr_t at = (uintptr_t)ptr, base = (uintptr_t)s->base;
    int code = -EINVAL;
    pthread_mutex_lock(&s->mutex);
    size_t i = at >= base ? find_block(s, at - base) : s->n_blocks;
    if (i < s->n_blocks && s->block[i].offset == at - base && s->block[i].used) {
        code = 0;
        give_back(s, s->block[i].offset, s->block[i].bytes);
        s->block[i].used = false;
        if (i + 1 < s->n_blocks && !s->block[i + 1].used) {
            s->block[i].bytes += s->block[i + 1].bytes;
            remove_block(s, i + 1);
        }
        if (i > 0 && !s->block[i - 1].used) {
            s->block[i - 1].bytes += s->block[i].bytes;
            remove_block(s, i);
        }
    }
    pthread_mutex_unlock(&s->mutex);
    return code;
}

/* --- withdrawing, and peers ------------------------------------------------------------------- */

/* Replace the pages of [offset, end) by private ones with the same content. */
static int make_private(struct user_segment *s, uint64_t offset, uint64_t end)
{
    size_t bytes = end - offset;
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return -errno;
    memcpy(copy, s->base + offset, bytes);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, s->base + offset) != MAP_FAILED)
        return 0;
    int code = -errno;
    munmap(copy, bytes);
    return code;
}

int user_segment_withdraw(struct user_segment *s, struct co_error *err)
{
    int code = 0;
    uint64_t done = 0; /* pages below are private */
    pthread_mutex_lock(&s->mutex);
    for (size_t i = 0; i < s->n_blocks && !s->withdrawn && code == 0; i++) {
        const struct block *b = &s->block[i];
        uint64_t from = b->offset & ~(uint64_t)(PAGE - 1),
                 end = round_up(b->offset + b->bytes, PAGE);
        if (from < done)
            from = done;
        if (!b->used || from >= end)
            continue;
        code = make_private(s, from, end);
        done = end;
    }
    if (code == 0) /* free parts stay as they are: a stuck peer is inside of a block */
        s->withdrawn = true;
    pthread_mutex_unlock(&s->mutex);
    if (code != 0)
        return co_fail(err, code, "cannot detach this rank's user segment from its peers: %s",
                       strerror(-code));
    return 0;
}

int user_segment_map_peer(int fd, uint64_t bytes, uint8_t **ret_base, struct co_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return co_fail(err, -errno, "cannot stat the user segment of a peer: %s", strerror(errno));
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return co_fail(err, -EPROTO, "the user segment of a peer is not sealed against shrinking");
    if (bytes == 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return co_fail(err, -EPROTO, "the user segment of a peer is smaller than announced");
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return co_fail(
            err, -errno,
            "cannot map a peer's user segment of %llu bytes (set %s to a smaller size): %s",
            (unsigned long long)bytes, DDP_ENV_SEGMENT_BYTES, strerror(errno));
    madvise(base, bytes, MADV_DONTFORK);
    madvise(base, bytes, MADV_DONTDUMP);
    madvise(base, bytes, MADV_HUGEPAGE);
    *ret_base = base;
    return 0;
}

void user_segment_unmap_peer(uint8_t *base, uint64_t bytes)
{
    if (base != NULL)
        munmap(base, bytes);
}
