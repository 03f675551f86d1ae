/* memory_lent.c - the lock is of an open file description of its own (F_OFD_SETLK). A lock of the
 * process would end when any descriptor of the memory is closed in it, and would not be held by
 * processes that are forked from it. */
#include "memory_lent.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    int fd;
    void *at; /* NULL: nothing was lent to this process */
    size_t bytes;
} lent = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static off_t begin_of(const struct memory_slots *s, unsigned slot)
{
    return (off_t)checkpoint_memory_slot_at(&s->all, s->local_rank, slot);
}

static struct flock lock_of(const struct memory_slots *s, unsigned slot)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = begin_of(s, slot), .l_len = 1};
}

unsigned memory_lent_slots(const struct memory_slots *s)
{
    unsigned slots = 0;
    for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
        struct flock lock = lock_of(s, i);
        if (fcntl(s->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
            slots |= 1u << i;
    }
    return slots;
}

/* The memory with an open file description of its own. */
static int open_again(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static int map_slot(const struct memory_slots *s, unsigned slot, size_t bytes, struct co_error *err)
{
    struct flock lock = lock_of(s, slot);
    co_autoclose_fd int fd = open_again(s->fd);
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0)
        return co_fail(err, -ENOTSUP, "cannot lock a slot of the memory for checkpoints: %s",
                       strerror(errno));
    /* where memory is exhausted a page that is missing would be a signal later */
    if (fallocate(fd, 0, begin_of(s, slot), (off_t)bytes) != 0)
        return co_fail(err, -errno, "cannot get %zu bytes of memory: %s", bytes, strerror(errno));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, begin_of(s, slot));
    if (at == MAP_FAILED)
        return co_fail(err, -errno, "cannot map %zu bytes of memory: %s", bytes, strerror(errno));
#ifdef MADV_POPULATE_READ
    /* All pages at once, which is faster than one fault for each; since Linux 5.14. Pages of such
     * a mapping are writable also if they were mapped for reading, and those are mapped in groups.
     */
    madvise(at, bytes, MADV_POPULATE_READ);
#endif
    lent.fd = co_take_fd(&fd);
    lent.at = at;
    lent.bytes = bytes;
    return 0;
}

int memory_lend(const struct memory_slots *s, unsigned slot, size_t bytes, void **ret,
                struct co_error *err)
{
    pthread_mutex_lock(&lent.mutex);
    const int code = lent.at != NULL
                         ? co_fail(err, -ENOTSUP, "this process has such memory already")
                         : map_slot(s, slot, bytes, err);
    if (code == 0)
        *ret = lent.at;
    pthread_mutex_unlock(&lent.mutex);
    return code;
}

void memory_lent_return(void *at)
{
    pthread_mutex_lock(&lent.mutex);
    if (at != NULL && at == lent.at) {
        munmap(lent.at, lent.bytes);
        co_close_fd(&lent.fd); /* and with it the lock */
        lent.at = NULL;
    }
    pthread_mutex_unlock(&lent.mutex);
}
