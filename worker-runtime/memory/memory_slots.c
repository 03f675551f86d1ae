#include "memory_slots.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ENTRY_BYTES = 128,     /* distance of entries */
    PIECE_BYTES = 1 << 17, /* digested while it is in a cache; an item's digest depends on it */
    LANES = 12,
    LIST_AT_ONCE = 256 /* items */
};

struct memory_listed { /* an item, in the list at the beginning of a slot */
    uint64_t bytes, digest;
};

struct entry { /* as it is in the memory */
    struct memory_save save;
    uint64_t digest;
};
_Static_assert(sizeof(struct entry) <= ENTRY_BYTES, "entries do not overlap");
_Static_assert(MEMORY_SLOTS *ENTRY_BYTES <= CHECKPOINT_MEMORY_PAGE, "a page has all entries");

/* --- digests ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return lane << 29 | lane >> 35;
}

static void mix_block(uint64_t lanes[LANES], const uint8_t *block)
{
    uint64_t words[LANES];
    memcpy(words, block, sizeof words);
    for (int i = 0; i < LANES; i++)
        lanes[i] = mix(lanes[i], words[i]);
}

/* Lanes, since one multiplication takes several cycles, but one can begin in each. */
uint64_t memory_digest(uint64_t digest, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint64_t lanes[LANES];
    uint8_t last[sizeof lanes] = {0};
    size_t left = n;
    for (int i = 0; i < LANES; i++)
        lanes[i] = digest + (uint64_t)i;
    for (; left >= sizeof last; left -= sizeof last, at += sizeof last)
        mix_block(lanes, at);
    if (left > 0)
        memcpy(last, at, left);
    mix_block(lanes, last);
    digest = n;
    for (int i = 0; i < LANES; i++)
        digest = mix(digest, lanes[i]);
    return digest ^ digest >> 32;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* returns 0, -errno; -EIO the memory ends before */
static int get_bytes(int fd, uint64_t at, void *out, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        done += (size_t)got;
    }
    return 0;
}

static int put_bytes(int fd, uint64_t at, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t put = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        done += (size_t)put;
    }
    return 0;
}

static uint64_t place_of(const struct memory_slots *s, unsigned slot, uint64_t at)
{
    return checkpoint_memory_slot_at(&s->all, s->local_rank, slot) + at;
}

int memory_slots_get(const struct memory_slots *s, unsigned slot, uint64_t at, void *out, size_t n)
{
    return get_bytes(s->fd, place_of(s, slot, at), out, n);
}

int memory_slots_put(const struct memory_slots *s, unsigned slot, uint64_t at, const void *bytes,
                     size_t n)
{
    return put_bytes(s->fd, place_of(s, slot, at), bytes, n);
}

/* --- entries ---------------------------------------------------------------------------------- */

bool memory_slots_accept(const struct memory_slots *s, const struct memory_save *save)
{
    return save->is_whole == 1 && save->reserved == 0 && save->id.serial > 0 &&
           save->id.serial <= UINT64_MAX / 2 && save->step >= 0 && save->rank < save->world_size &&
           save->bytes <= s->all.slot_bytes && save->n_items <= MEMORY_ITEMS_MAX &&
           save->n_items * sizeof(struct memory_listed) <= save->bytes;
}

static uint64_t entry_at(const struct memory_slots *s, unsigned slot)
{
    return checkpoint_memory_entries_at(s->local_rank) + (uint64_t)slot * ENTRY_BYTES;
}

int memory_slots_open(int fd, unsigned local_rank, struct memory_slots *ret, struct co_error *err)
{
    struct memory_slots s = {.fd = fd, .local_rank = local_rank};
    int code = checkpoint_memory_read(fd, &s.all, err);
    if (code != 0)
        return code;
    if (local_rank >= s.all.n_ranks)
        return co_fail(err, -ERANGE,
                       "the memory for checkpoints is for %u ranks of this node: local rank %u has "
                       "none",
                       (unsigned)s.all.n_ranks, local_rank);
    for (unsigned i = 0; i < MEMORY_SLOTS; i++) {
        struct entry e;
        code = get_bytes(fd, entry_at(&s, i), &e, sizeof e);
        if (code != 0)
            return co_fail(err, code, "cannot read the memory for checkpoints: %s",
                           strerror(-code));
        if (e.digest == memory_digest(0, &e.save, sizeof e.save) &&
            memory_slots_accept(&s, &e.save))
            s.saves[i] = e.save;
    }
    *ret = s;
    return 0;
}

int memory_slots_set(struct memory_slots *s, unsigned slot, const struct memory_save *save,
                     struct co_error *err)
{
    struct entry e;
    memset(&e, 0, sizeof e);
    e.save = *save;
    e.digest = memory_digest(0, &e.save, sizeof e.save);
    const int code = put_bytes(s->fd, entry_at(s, slot), &e, sizeof e);
    if (code != 0)
        return co_fail(err, code, "cannot write to the memory for checkpoints: %s",
                       strerror(-code));
    s->saves[slot] = *save;
    return 0;
}

int memory_slots_free(struct memory_slots *s, unsigned slot, struct co_error *err)
{
    return memory_slots_set(s, slot, &(struct memory_save){0}, err);
}

/* --- items ------------------------------------------------------------------------------------ */

static size_t piece_of(uint64_t left)
{
    return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
}

static int check_items(const struct memory_slots *s, const struct ddp_memory_item *items, size_t n,
                       uint64_t *ret_bytes, struct co_error *err)
{
    if (n > MEMORY_ITEMS_MAX)
        return co_fail(err, -EINVAL, "%zu items are too many: at most %d are allowed", n,
                       MEMORY_ITEMS_MAX);
    uint64_t bytes = n * sizeof(struct memory_listed);
    for (size_t i = 0; i < n; i++) {
        if (items[i].data == NULL && items[i].bytes > 0)
            return co_fail(err, -EINVAL, "item %zu has data NULL", i);
        if (items[i].bytes > SIZE_MAX / 2 || (bytes += items[i].bytes) > SIZE_MAX / 2)
            return co_fail(err, -EINVAL, "item %zu has an impossible size", i);
    }
    if (bytes > s->all.slot_bytes)
        return co_fail(
            err, -EINVAL,
            "the state has %llu bytes, but --memory-checkpoints allows %llu: use a larger "
            "value",
            (unsigned long long)bytes, (unsigned long long)s->all.slot_bytes);
    *ret_bytes = bytes;
    return 0;
}

static int write_item(const struct memory_slots *s, unsigned slot, uint64_t at,
                      const struct ddp_memory_item *item, struct memory_listed *ret)
{
    uint64_t digest = item->bytes;
    for (uint64_t done = 0; done < item->bytes;) {
        const char *from = (const char *)item->data + done;
        const size_t n = piece_of(item->bytes - done);
        digest = memory_digest(digest, from, n);
        const int code = memory_slots_put(s, slot, at + done, from, n);
        if (code != 0)
            return code;
        done += n;
    }
    *ret = (struct memory_listed){item->bytes, digest};
    return 0;
}

/* Items in order, and after each LIST_AT_ONCE of them that part of the list. */
static int write_items(const struct memory_slots *s, unsigned slot,
                       const struct ddp_memory_item *items, size_t n, uint64_t *ret_digest)
{
    struct memory_listed part[LIST_AT_ONCE];
    uint64_t digest = n, at = n * sizeof part[0];
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        const size_t k = i % LIST_AT_ONCE;
        code = write_item(s, slot, at, &items[i], &part[k]);
        at += items[i].bytes;
        if (code == 0 && (k + 1 == LIST_AT_ONCE || i + 1 == n)) {
            digest = memory_digest(digest, part, (k + 1) * sizeof part[0]);
            code =
                memory_slots_put(s, slot, (i - k) * sizeof part[0], part, (k + 1) * sizeof part[0]);
        }
    }
    *ret_digest = digest;
    return code;
}

int memory_slots_write(struct memory_slots *s, unsigned slot, const struct ddp_memory_item *items,
                       size_t n, struct memory_save *save, struct co_error *err)
{
    uint64_t bytes = 0, digest = 0;
    int code = check_items(s, items, n, &bytes, err);
    if (code == 0)
        code = memory_slots_free(s, slot, err);
    if (code != 0)
        return code;
    code = write_items(s, slot, items, n, &digest);
    if (code != 0)
        return co_fail(err, code, "cannot keep %llu bytes in memory: %s", (unsigned long long)bytes,
                       strerror(-code));
    save->bytes = bytes;
    save->n_items = n;
    save->digest = digest;
    return 0;
}

static int check_list(const struct memory_save *save, const struct memory_listed *list)
{
    uint64_t digest = save->n_items, bytes = save->n_items * sizeof *list;
    for (size_t i = 0; i < save->n_items; i += LIST_AT_ONCE) {
        const size_t left = save->n_items - i;
        const size_t n = left < LIST_AT_ONCE ? left : LIST_AT_ONCE;
        digest = memory_digest(digest, list + i, n * sizeof *list);
    }
    for (size_t i = 0; i < save->n_items; i++)
        if (list[i].bytes > save->bytes || (bytes += list[i].bytes) > save->bytes)
            return -EINVAL;
    return digest == save->digest && bytes == save->bytes ? 0 : -EINVAL;
}

int memory_slots_list(const struct memory_slots *s, unsigned slot, struct memory_placed **ret,
                      struct co_error *err)
{
    const struct memory_save *save = &s->saves[slot];
    const size_t n = (size_t)save->n_items;
    co_autofree struct memory_listed *list = calloc(n + 1, sizeof *list);
    co_autofree struct memory_placed *placed = calloc(n + 1, sizeof *placed);
    if (list == NULL || placed == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = memory_slots_get(s, slot, 0, list, n * sizeof *list);
    if (code == 0)
        code = check_list(save, list);
    if (code != 0)
        return co_fail(err, code, "the state of rank %u in memory is damaged: %s",
                       (unsigned)save->rank, strerror(-code));
    uint64_t at = n * sizeof *list;
    for (size_t i = 0; i < n; i++) {
        placed[i] = (struct memory_placed){at, list[i].bytes, list[i].digest};
        at += list[i].bytes;
    }
    *ret = co_take(&placed);
    return 0;
}

int memory_slots_read(const struct memory_slots *s, unsigned slot, const struct memory_placed *item,
                      void *out, struct co_error *err)
{
    uint64_t digest = item->bytes;
    for (uint64_t done = 0; done < item->bytes;) {
        char *to = (char *)out + done;
        const size_t n = piece_of(item->bytes - done);
        const int code = memory_slots_get(s, slot, item->at + done, to, n);
        if (code != 0)
            return co_fail(err, code, "cannot read the state in memory: %s", strerror(-code));
        digest = memory_digest(digest, to, n);
        done += n;
    }
    if (digest != item->digest)
        return co_fail(err, -EINVAL, "the state in memory is damaged");
    return 0;
}
