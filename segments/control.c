#include "control.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#ifndef __GLIBC__
#error "only the layout of glibc's robust mutexes is known: see alive_word()"
#endif

static size_t round_to_page(size_t n)
{
    return (n + 4095) & ~(size_t)4095;
}

static size_t mailboxes_at(unsigned n_local)
{
    return round_to_page(sizeof(struct control_head) + n_local * sizeof(struct control_line));
}

size_t control_bytes(unsigned n_local)
{
    return mailboxes_at(n_local) + (size_t)n_local * CONTROL_MAILBOX_BYTES;
}

static int init_mutex(pthread_mutex_t *m)
{
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);
    if (rc != 0)
        return -rc;
    rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (rc == 0)
        rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (rc == 0)
        rc = pthread_mutex_init(m, &attr);
    pthread_mutexattr_destroy(&attr);
    return -rc;
}

static int init_segment(struct control_head *head, unsigned n_local, uint32_t generation,
                        size_t bytes, struct co_error *err)
{
    *head = (struct control_head){
        .version = CONTROL_VERSION, .n_local = n_local, .generation = generation, .bytes = bytes};
    for (unsigned i = 0; i < n_local; i++) {
        int code = init_mutex(&head->line[i].alive);
        if (code != 0)
            return co_fail(err, code, "cannot create a robust mutex: %s", strerror(-code));
    }
    head->magic = CONTROL_MAGIC;
    return 0;
}

static void fill_handle(struct control *c, struct control_head *head, unsigned n_local,
                        uint32_t generation, size_t bytes)
{
    *c = (struct control){.shared = head,
                          .line = head->line,
                          .n_local = n_local,
                          .generation = generation,
                          .bytes = bytes};
}

int control_create(unsigned n_local, uint32_t generation, int *ret_fd, struct control **ret,
                   struct co_error *err)
{
    if (n_local < 1 || n_local > CONTROL_MAX_LOCAL)
        return co_fail(err, -EINVAL,
                       "invalid number of ranks on this node: expected 1 to %d, not %u",
                       CONTROL_MAX_LOCAL, n_local);
    co_autofree struct control *c = malloc(sizeof *c);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    size_t bytes = control_bytes(n_local);
    co_autoclose_fd int fd = memfd_create("ddp-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return co_fail(err, -errno,
                       "cannot create the control segment of %zu bytes: memfd_create: %s", bytes,
                       strerror(errno));
    struct control_head *head = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED)
        return co_fail(err, -errno, "cannot create the control segment of %zu bytes: %s", bytes,
                       strerror(errno));
    int code = init_segment(head, n_local, generation, bytes, err);
    if (code != 0) {
        munmap(head, bytes);
        return code;
    }
    fill_handle(c, head, n_local, generation, bytes);
    *ret_fd = co_take_fd(&fd);
    *ret = co_take(&c);
    return 0;
}

/* The head has been copied: what is checked here is what is used afterwards. */
static int check_head(const struct control_head *h, size_t bytes, struct co_error *err)
{
    if (h->magic != CONTROL_MAGIC)
        return co_fail(err, -EPROTO, "the control segment has a wrong magic number");
    if (h->version != CONTROL_VERSION)
        return co_fail(err, -EPROTO,
                       "the control segment has version %u, this libddp %d: use ddprun and libddp "
                       "of the same release",
                       h->version, CONTROL_VERSION);
    if (h->n_local < 1 || h->n_local > CONTROL_MAX_LOCAL || h->bytes != bytes ||
        control_bytes(h->n_local) != bytes)
        return co_fail(err, -EPROTO, "the control segment's sizes are inconsistent");
    return 0;
}

int control_map(int fd, struct control **ret, struct co_error *err)
{
    struct stat st;
    struct control_head copy;
    if (fstat(fd, &st) != 0)
        return co_fail(err, -errno, "cannot stat the control segment: %s", strerror(errno));
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return co_fail(err, -EPROTO, "the control segment is not sealed: ddprun did not create it");
    if (pread(fd, &copy, sizeof copy, 0) != (ssize_t)sizeof copy)
        return co_fail(err, -EPROTO, "the control segment is too small: %lld bytes",
                       (long long)st.st_size);
    size_t bytes = (size_t)st.st_size;
    int code = check_head(&copy, bytes, err);
    if (code != 0)
        return code;
    co_autofree struct control *c = malloc(sizeof *c);
    if (c == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    struct control_head *head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED)
        return co_fail(err, -errno, "cannot map the control segment: %s", strerror(errno));
    fill_handle(c, head, copy.n_local, copy.generation, bytes);
    *ret = co_take(&c);
    return 0;
}

void control_unmap(struct control *c)
{
    if (c == NULL)
        return;
    munmap(c->shared, c->bytes);
    free(c);
}

uint8_t *control_mailbox(struct control *c, unsigned local_rank)
{
    return (uint8_t *)c->shared + mailboxes_at(c->n_local) +
           (size_t)local_rank * CONTROL_MAILBOX_BYTES;
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int control_join(struct control *c, unsigned local_rank, uint32_t pid)
{
    struct control_line *line = &c->line[local_rank];
    if (pthread_mutex_trylock(&line->alive) != 0)
        return -EBUSY;
    atomic_store(&line->pid, pid);
    atomic_store(&line->joined, 1);
    return 0;
}

void control_leave(struct control *c, unsigned local_rank)
{
    struct control_line *line = &c->line[local_rank];
    atomic_store(&line->left, 1); /* before the mutex is free: it must not look like a death */
    pthread_mutex_unlock(&line->alive);
    futex_wake_all(&line->arrived);
}

/* The half of the abort word that holds the cause: it changes when the word is set. */
static _Atomic uint32_t *abort_futex(struct control *c)
{
    return (_Atomic uint32_t *)&c->shared->abort + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
}

static uint64_t abort_pack(struct control_abort why)
{
    return (uint64_t)why.cause << 48 | (uint64_t)why.rank << 32 | why.detail;
}

void control_abort_set(struct control *c, struct control_abort why)
{
    uint64_t none = 0;
    if (!atomic_compare_exchange_strong(&c->shared->abort, &none, abort_pack(why)))
        return;
    futex_wake_all(abort_futex(c));
    for (unsigned i = 0; i < c->n_local; i++) /* a rank may be able to sleep on one word only */
        futex_wake_all(&c->line[i].arrived);
}

void control_abort_tell(struct control *c, unsigned local_rank, int code, const char *text)
{
    char *why = c->line[local_rank].why;
    size_t length = strnlen(text, CONTROL_WHY_BYTES - 1);
    memcpy(why, text, length);
    why[length] = '\0';
    control_abort_set(c, (struct control_abort){.cause = CONTROL_REPORTED,
                                                .rank = (uint16_t)local_rank,
                                                .detail = (uint32_t)-code});
}

struct control_abort control_abort_get(const struct control *c)
{
    uint64_t word = atomic_load_explicit(&c->shared->abort, memory_order_acquire);
    return (struct control_abort){
        .cause = (uint16_t)(word >> 48), .rank = (uint16_t)(word >> 32), .detail = (uint32_t)word};
}

/* A robust mutex of glibc begins with the word by which the kernel knows its owner: the owner's
 * thread ID; 0 once it has unlocked the mutex; FUTEX_OWNER_DIED once the kernel has ended it. */
static _Atomic uint32_t *alive_word(struct control_line *line)
{
    _Static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0, "the futex of a mutex");
    return (_Atomic uint32_t *)&line->alive;
}

enum control_state control_look(struct control *c, unsigned local_rank)
{
    struct control_line *line = &c->line[local_rank];
    if (atomic_load(&line->left))
        return CONTROL_LEFT;
    if (!atomic_load(&line->joined))
        return CONTROL_NOT_JOINED;
    const uint32_t alive = atomic_load(alive_word(line));
    if ((alive & FUTEX_TID_MASK) != 0)
        return CONTROL_ALIVE;
    if ((alive & FUTEX_OWNER_DIED) == 0) /* it left since we looked at `left` */
        return CONTROL_LEFT;
    control_abort_set(
        c, (struct control_abort){.cause = CONTROL_RANK_DIED, .rank = (uint16_t)local_rank});
    return CONTROL_DEAD;
}

uint64_t control_most_steps(const struct control *c)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < c->n_local; i++) {
        uint64_t n = atomic_load_explicit(&c->line[i].progress.steps, memory_order_relaxed);
        most = n > most ? n : most;
    }
    return most;
}

void control_publish(struct control_line *line, uint32_t value)
{
    atomic_store_explicit(&line->arrived, value, memory_order_release);
}

void control_wake(struct control_line *line)
{
    /* With control_sleep()'s: either we see the sleeper, or it sees the new value. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&line->sleepers, memory_order_relaxed) != 0)
        futex_wake_all(&line->arrived);
}

void control_arrive(struct control_line *line, uint32_t value)
{
    control_publish(line, value);
    control_wake(line);
}

void control_ring(struct control_line *line)
{
    atomic_fetch_add(&line->arrived, 1);
    if (atomic_load(&line->sleepers) != 0)
        futex_wake_all(&line->arrived);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t max_us)
{
    struct timespec t = {.tv_sec = max_us / 1000000, .tv_nsec = (long)(max_us % 1000000) * 1000};
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, &t, NULL, 0);
}

void control_sleep(struct control_line *line, uint32_t seen, uint32_t max_us)
{
    atomic_fetch_add(&line->sleepers, 1);
    futex_wait(&line->arrived, seen, max_us);
    atomic_fetch_sub(&line->sleepers, 1);
}

/* --- sleeping on several words ---------------------------------------------------------------- */

#ifdef SYS_futex_waitv

/* Mark a rank's `alive` as having a sleeper: the kernel then wakes one when the owner dies, and the
 * owner wakes one when it releases the mutex. returns what to sleep on; 0: no thread holds it */
static uint32_t announce_sleeper(_Atomic uint32_t *alive)
{
    uint32_t is = atomic_load(alive);
    while ((is & FUTEX_TID_MASK) != 0 && (is & FUTEX_WAITERS) == 0)
        if (atomic_compare_exchange_weak(alive, &is, is | FUTEX_WAITERS))
            return is | FUTEX_WAITERS;
    return (is & FUTEX_TID_MASK) != 0 ? is : 0;
}

static struct futex_waitv waiter_for(_Atomic uint32_t *word, uint32_t seen)
{
    return (struct futex_waitv){.uaddr = (uintptr_t)word, .val = seen, .flags = FUTEX_32};
}

static struct timespec time_after(uint32_t us)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)us * 1000;
    return (struct timespec){t.tv_sec + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

/* returns whether the system supports it */
static bool wait_for_words(struct futex_waitv *words, unsigned n, uint32_t max_us)
{
    static atomic_bool is_impossible;
    const struct timespec end = time_after(max_us);
    if (atomic_load_explicit(&is_impossible, memory_order_relaxed))
        return false;
    if (syscall(SYS_futex_waitv, words, n, 0, &end, CLOCK_MONOTONIC) >= 0 || errno == EAGAIN ||
        errno == ETIMEDOUT || errno == EINTR)
        return true;
    atomic_store(&is_impossible, true);
    return false;
}

static bool wait_for_any(struct control *c, _Atomic uint32_t *alive, _Atomic uint32_t *arrived,
                         uint32_t seen, uint32_t max_us)
{
    struct futex_waitv words[3] = {waiter_for(arrived, seen), waiter_for(abort_futex(c), 0)};
    const uint32_t holder = announce_sleeper(alive);
    words[2] = waiter_for(alive, holder);
    return wait_for_words(words, holder != 0 ? 3 : 2, max_us);
}

static bool wait_for_end(struct control *c, unsigned local_rank, _Atomic uint32_t *stop,
                         uint32_t seen, uint32_t max_us)
{
    struct futex_waitv words[2 + CONTROL_WATCHED] = {waiter_for(stop, seen),
                                                     waiter_for(abort_futex(c), 0)};
    unsigned n = 2;
    if (c->n_local > CONTROL_WATCHED)
        return false;
    for (unsigned i = 0; i < c->n_local; i++) {
        _Atomic uint32_t *alive = alive_word(&c->line[i]);
        const uint32_t holder = i != local_rank ? announce_sleeper(alive) : 0;
        if (holder != 0)
            words[n++] = waiter_for(alive, holder);
    }
    return wait_for_words(words, n, max_us);
}

#else

static bool wait_for_end(struct control *c, unsigned local_rank, _Atomic uint32_t *stop,
                         uint32_t seen, uint32_t max_us)
{
    (void)c, (void)local_rank, (void)stop, (void)seen, (void)max_us;
    return false;
}

static bool wait_for_any(struct control *c, _Atomic uint32_t *alive, _Atomic uint32_t *arrived,
                         uint32_t seen, uint32_t max_us)
{
    (void)c, (void)alive, (void)arrived, (void)seen, (void)max_us;
    return false;
}

#endif

void control_sleep_for(struct control *c, unsigned local_rank, struct control_line *line,
                       uint32_t seen, uint32_t max_us)
{
    _Atomic uint32_t *alive = alive_word(&c->line[local_rank]);
    atomic_fetch_add(&line->sleepers, 1);
    if (!wait_for_any(c, alive, &line->arrived, seen, max_us))
        futex_wait(&line->arrived, seen, max_us);
    atomic_fetch_sub(&line->sleepers, 1);
}

void control_sleep_until_end(struct control *c, unsigned local_rank, _Atomic uint32_t *stop,
                             uint32_t seen, uint32_t max_us)
{
    enum { BRIEF_US = 20000 };
    if (!wait_for_end(c, local_rank, stop, seen, max_us))
        futex_wait(stop, seen, max_us < BRIEF_US ? max_us : BRIEF_US);
}

void control_stop_sleep(_Atomic uint32_t *stop)
{
    futex_wake_all(stop);
}
