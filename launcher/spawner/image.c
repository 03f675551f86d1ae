#include "image.h"

#include "launcher/placement/placement.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/whole.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The memfd: this head, then slots of a pointer's size, then the strings. A slot holds the string's
 * offset, 0 for NULL; mapping turns offsets into pointers. Slots of a worker: a free one, argv,
 * env. launcher/warm/python/ddp_warm.py also reads it. */
struct image_head {
    size_t n_slots;
    size_t n_workers;
    struct {
        size_t path_offset;
        size_t argv_slot, env_slot; /* where they start */
        size_t cpus_offset;         /* 0: none */
    } worker[SPAWN_AT_ONCE];
};

struct writer {
    char *base; /* NULL: only measure */
    uintptr_t *slots;
    size_t slot; /* the next one */
    size_t at;   /* where the next string goes */
};

static size_t put_bytes(struct writer *w, const void *bytes, size_t n)
{
    size_t at = w->at;
    if (w->base != NULL)
        memcpy(w->base + at, bytes, n);
    w->at += n;
    return at;
}

/* A list, followed by a NULL. Strings of `like`, a list that was put at like_slot, exist already.
 * returns the first slot */
static size_t put_words(struct writer *w, char *const *words, char *const *like, size_t like_slot)
{
    size_t first = w->slot;
    for (size_t i = 0; words[i] != NULL; i++, w->slot++) {
        if (like != NULL && like[i] == NULL)
            like = NULL;
        if (like == NULL || words[i] != like[i]) {
            size_t at = put_bytes(w, words[i], strlen(words[i]) + 1);
            if (w->base != NULL)
                w->slots[w->slot] = at;
        } else if (w->base != NULL) {
            w->slots[w->slot] = w->slots[like_slot + i];
        }
    }
    w->slot++;
    return first;
}

static void put_all(struct writer *w, const struct image_words *workers, size_t n,
                    struct image_head *head)
{
    for (size_t i = 0; i < n; i++) /* right after the slots, as aligned as those */
        head->worker[i].cpus_offset =
            workers[i].cpus != NULL ? put_bytes(w, workers[i].cpus, sizeof *workers[i].cpus) : 0;
    for (size_t i = 0; i < n; i++) /* those that have the path of the first share it */
        head->worker[i].path_offset =
            i > 0 && workers[i].path == workers[0].path
                ? head->worker[0].path_offset
                : put_bytes(w, workers[i].path, strlen(workers[i].path) + 1);
    head->n_workers = n;
    for (size_t i = 0; i < n; i++) {
        w->slot++; /* the free one */
        head->worker[i].argv_slot = put_words(w, workers[i].argv, i > 0 ? workers[0].argv : NULL,
                                              head->worker[0].argv_slot);
        head->worker[i].env_slot =
            put_words(w, workers[i].env, i > 0 ? workers[0].env : NULL, head->worker[0].env_slot);
    }
    head->n_slots = w->slot;
}

int image_make(const struct image_words *workers, size_t n, int *ret_fd, struct co_error *err)
{
    struct image_head head = {0};
    struct writer measure = {0};
    put_all(&measure, workers, n, &head);
    size_t slots_end = sizeof head + measure.slot * sizeof(uintptr_t);
    size_t bytes = slots_end + measure.at;

    co_autofree char *base = calloc(1, bytes);
    if (base == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    struct writer writer = {
        .base = base, .slots = (uintptr_t *)(base + sizeof head), .at = slots_end};
    put_all(&writer, workers, n, &head);
    memcpy(base, &head, sizeof head);

    co_autoclose_fd int fd = memfd_create("ddprun-image", MFD_CLOEXEC);
    if (fd < 0)
        return co_fail(err, -errno, "cannot make a memory file: %s", strerror(errno));
    int rc = co_write_all(fd, base, bytes);
    if (rc < 0)
        return co_fail(err, rc, "cannot write the arguments of '%s' to memory: %s", workers[0].path,
                       strerror(-rc));
    *ret_fd = co_take_fd(&fd);
    return 0;
}

int image_map(int fd, struct image *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    size_t bytes = (size_t)st.st_size;
    if (bytes < sizeof(struct image_head))
        return -EPROTO;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    const struct image_head *head = (const void *)base;
    uintptr_t *slots = (uintptr_t *)(base + sizeof *head);
    for (size_t i = 0; i < head->n_slots; i++) {
        if (slots[i] != 0)
            slots[i] += (uintptr_t)base;
    }
    *ret = (struct image){
        .map = base,
        .map_bytes = bytes,
        .n_workers = head->n_workers,
    };
    for (size_t i = 0; i < head->n_workers; i++) {
        ret->worker[i].path = base + head->worker[i].path_offset;
        ret->worker[i].argv = (char **)slots + head->worker[i].argv_slot;
        ret->worker[i].env = (char **)slots + head->worker[i].env_slot;
        if (head->worker[i].cpus_offset != 0)
            ret->worker[i].cpus = (const void *)(base + head->worker[i].cpus_offset);
    }
    return 0;
}

void image_unmap(struct image *image)
{
    if (image->map != NULL)
        munmap(image->map, image->map_bytes);
    *image = (struct image){0};
}
