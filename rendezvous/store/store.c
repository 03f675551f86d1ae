/* store.c - a hash table of names, each with a value, a queue, and a list of waiters.
 *
 * Read store_set() and store_wait_begin() first. A call finds the name (lookup()) or makes it
 * (obtain()). A waiter has a link to each name that it misses; when a value or an item appears,
 * wake_all() or wake_one() removes the links of that name, and the waiter whose last link goes is
 * woken. drop_if_idle() forgets a name that has nothing any more.
 *
 * Invariant: all memory goes through counted_malloc() and counted_free(), so n_bytes never exceeds
 * max_bytes. A call that fails for want of memory leaves the store as it was. */
#include "store.h"

#include "common/error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MALLOC_OVERHEAD = 16, /* what the allocator adds to a block, about */
    MIN_SLOTS = 64,
    PREFETCH_SLOTS = 16,
    MIN_VALUE_CAP = 24, /* a counter of any size fits, so that counting never allocates again */
    SPARE_BYTES = 4096, /* that a value may leave unused, and three quarters of the rest */
};

struct item {
    struct item *next;
    size_t len;
    uint8_t bytes[];
};

struct store_name {
    struct store_name *next; /* in its slot */
    uint64_t hash;
    uint8_t *value; /* owned; may be NULL when value_len is 0 */
    size_t value_len, value_cap;
    struct item *last; /* the queue, a ring: last->next is the oldest; NULL: no item */
    uint64_t n_items;
    struct store_link *first_link; /* the waiters, oldest first; its prev is the last one */
    uint32_t len;
    bool is_key; /* there is a value */
    uint8_t bytes[];
};

struct store {
    struct store_limits limits;
    uint64_t seed;
    void (*on_wake)(struct store_waiter *w, void *arg);
    void *arg;
    struct store_name **slots; /* n_slots of them, a power of two */
    size_t n_slots;
    uint64_t n_names, n_keys, n_key_bytes, n_bytes;
};

/* --- memory, counted --- */

static int charge(struct store *s, size_t n, struct co_error *err)
{
    if (n + MALLOC_OVERHEAD > s->limits.max_bytes - s->n_bytes)
        return co_fail(err, -ENOSPC,
                       "the store is full: %" PRIu64 " of %" PRIu64
                       " bytes in use; delete keys, or raise --max-memory",
                       s->n_bytes, s->limits.max_bytes);
    s->n_bytes += n + MALLOC_OVERHEAD;
    return 0;
}

static int counted_malloc(struct store *s, size_t n, void *ret_block, struct co_error *err)
{
    int rc = charge(s, n, err);
    if (rc < 0)
        return rc;
    void *block = malloc(n);
    if (block == NULL) {
        s->n_bytes -= n + MALLOC_OVERHEAD;
        return co_fail(err, -ENOMEM, "out of memory for %zu bytes in the store", n);
    }
    memcpy(ret_block, &block, sizeof block);
    return 0;
}

static void counted_free(struct store *s, void *block, size_t n)
{
    if (block == NULL)
        return;
    free(block);
    s->n_bytes -= n + MALLOC_OVERHEAD;
}

/* --- the table --- */

/* The 128-bit product, folded: every bit of x reaches every bit of the result. */
static uint64_t mix(uint64_t x)
{
    unsigned __int128 product = (unsigned __int128)x * 0xD6E8FEB86659FD93u;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const struct store *s, struct wire_bytes name)
{
    uint64_t hash = s->seed ^ mix(name.len + 1);
    size_t i = 0;
    for (; i + 8 <= name.len; i += 8) {
        uint64_t word;
        memcpy(&word, name.at + i, 8);
        hash = mix(hash ^ word) + s->seed;
    }
    uint64_t rest = 0;
    if (name.len >= 8) /* fixed size, which is cheaper; it does not matter that some come twice */
        memcpy(&rest, name.at + name.len - 8, 8);
    else if (name.len > 0)
        memcpy(&rest, name.at, name.len);
    return mix(mix(hash ^ rest) + s->seed);
}

static struct store_name *name_find(const struct store *s, struct wire_bytes name, uint64_t hash)
{
    struct store_name *n = s->slots[hash & (s->n_slots - 1)];
    while (n != NULL && (n->hash != hash || n->len != name.len ||
                         (name.len > 0 && memcmp(n->bytes, name.at, name.len) != 0)))
        n = n->next;
    return n;
}

static struct store_name *lookup(const struct store *s, struct wire_bytes name)
{
    return name_find(s, name, hash_of(s, name));
}

/* Without memory the table stays as it is: chains get longer, nothing fails. */
static void grow_table(struct store *s)
{
    size_t n_slots = s->n_slots * 2;
    size_t n_bytes = n_slots * sizeof *s->slots;
    struct store_name **slots = NULL;
    if (counted_malloc(s, n_bytes, &slots, NULL) < 0)
        return;
    memset(slots, 0, n_bytes);
    for (size_t i = 0; i < s->n_slots; i++) {
        for (struct store_name *n = s->slots[i], *next; n != NULL; n = next) {
            next = n->next;
            n->next = slots[n->hash & (n_slots - 1)];
            slots[n->hash & (n_slots - 1)] = n;
        }
    }
    counted_free(s, s->slots, s->n_slots * sizeof *s->slots);
    s->slots = slots;
    s->n_slots = n_slots;
}

/* Find the name or make it: without a value, without anybody waiting. A caller that leaves it so
 * must call drop_if_idle(). */
static int obtain(struct store *s, struct wire_bytes name, struct store_name **ret_name,
                  struct co_error *err)
{
    uint64_t hash = hash_of(s, name);
    struct store_name *n = name_find(s, name, hash);
    if (n != NULL) {
        *ret_name = n;
        return 0;
    }
    if (s->n_names >= s->limits.max_names)
        return co_fail(err, -ENOSPC, "the store is full: %" PRIu64 " keys", s->n_names);
    if (name.len > UINT32_MAX)
        return co_fail(err, -ENOSPC, "a key of %zu bytes is too long", name.len);
    int rc = counted_malloc(s, sizeof *n + name.len, &n, err);
    if (rc < 0)
        return rc;
    if (s->n_names >= s->n_slots)
        grow_table(s);
    struct store_name **slot = &s->slots[hash & (s->n_slots - 1)];
    *n = (struct store_name){.next = *slot, .hash = hash, .len = (uint32_t)name.len};
    if (name.len > 0)
        memcpy(n->bytes, name.at, name.len);
    *slot = n;
    s->n_names++;
    *ret_name = n;
    return 0;
}

static void drop_if_idle(struct store *s, struct store_name *n)
{
    if (n->is_key || n->last != NULL || n->first_link != NULL)
        return;
    struct store_name **at = &s->slots[n->hash & (s->n_slots - 1)];
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    s->n_names--;
    counted_free(s, n->value, n->value_cap);
    counted_free(s, n, sizeof *n + n->len);
}

/* --- waiting --- */

static void link_remove(struct store_link *l)
{
    struct store_name *n = l->name;
    *(l != n->first_link ? &l->prev->next : &n->first_link) = l->next;
    struct store_link *behind = l->next != NULL ? l->next : n->first_link;
    if (behind != NULL)
        behind->prev = l->prev;
    l->name = NULL;
}

static void link_append(struct store_name *n, struct store_link *l)
{
    struct store_link *first = n->first_link;
    l->name = n;
    l->next = NULL;
    l->prev = first != NULL ? first->prev : l;
    *(first != NULL ? &first->prev->next : &n->first_link) = l;
    n->first_link->prev = l;
}

static void give_back_links(struct store *s, struct store_waiter *w)
{
    counted_free(s, w->many, w->max_links * sizeof *w->many);
    w->many = NULL;
    w->n_links = w->max_links = w->n_missing = 0;
}

/* This link's name has come. Returns whether its waiter is woken by that. */
static bool link_satisfied(struct store *s, struct store_link *l)
{
    struct store_waiter *w = l->waiter;
    link_remove(l);
    if (--w->n_missing > 0)
        return false;
    give_back_links(s, w);
    s->on_wake(w, s->arg);
    return true;
}

static void wake_all(struct store *s, struct store_name *n, bool at_barrier)
{
    for (struct store_link *l = n->first_link, *next; l != NULL; l = next) {
        next = l->next;
        if (l->at_barrier == at_barrier)
            link_satisfied(s, l);
    }
}

/* An item is for one waiter. Those that still miss other names only learn that this name is there.
 * Otherwise the item would remain unused while another waiter waits for nothing else. */
static void wake_one(struct store *s, struct store_name *n)
{
    for (struct store_link *l = n->first_link, *next; l != NULL; l = next) {
        next = l->next;
        if (!l->at_barrier && link_satisfied(s, l))
            return;
    }
}

int store_wait_begin(struct store *s, struct store_waiter *w, size_t n_names, struct co_error *err)
{
    store_wait_end(s, w);
    w->max_links = 1;
    if (n_names <= 1)
        return 0;
    if (n_names > SIZE_MAX / sizeof *w->many)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = counted_malloc(s, n_names * sizeof *w->many, &w->many, err);
    if (rc == 0)
        w->max_links = n_names;
    return rc;
}

static void wait_on(struct store_waiter *w, struct store_name *n, bool at_barrier)
{
    assert(w->n_links < w->max_links);
    struct store_link *l = w->many != NULL ? &w->many[w->n_links] : &w->one;
    *l = (struct store_link){.waiter = w, .at_barrier = at_barrier};
    link_append(n, l);
    w->n_links++;
    w->n_missing++;
}

static bool is_there(const struct store_name *n)
{
    return n != NULL && (n->is_key || n->last != NULL);
}

int store_wait_add(struct store *s, struct store_waiter *w, struct wire_bytes name,
                   struct co_error *err)
{
    struct store_name *n;
    int rc = obtain(s, name, &n, err);
    if (rc < 0) {
        store_wait_end(s, w);
        return rc;
    }
    if (!is_there(n))
        wait_on(w, n, false);
    return 0;
}

void store_wait_end(struct store *s, struct store_waiter *w)
{
    struct store_link *links = w->many != NULL ? w->many : &w->one;
    for (size_t i = 0; i < w->n_links; i++) {
        struct store_name *n = links[i].name;
        if (n == NULL)
            continue;
        link_remove(&links[i]);
        drop_if_idle(s, n);
    }
    give_back_links(s, w);
}

/* --- values --- */

static int reserve_value(struct store *s, struct store_name *n, size_t cap, struct co_error *err)
{
    uint8_t *value = NULL;
    cap = cap < MIN_VALUE_CAP ? MIN_VALUE_CAP : cap;
    int rc = counted_malloc(s, cap, &value, err);
    if (rc < 0)
        return rc;
    if (n->value_len > 0)
        memcpy(value, n->value, n->value_len);
    counted_free(s, n->value, n->value_cap);
    n->value = value;
    n->value_cap = cap;
    return 0;
}

static void become_key(struct store *s, struct store_name *n)
{
    if (n->is_key)
        return;
    n->is_key = true;
    s->n_keys++;
    s->n_key_bytes += n->len;
    wake_all(s, n, false);
}

static int set_value(struct store *s, struct store_name *n, struct wire_bytes value,
                     struct co_error *err)
{
    bool too_small = n->value_cap < value.len;
    bool wasteful = n->value_cap / 4 > value.len + SPARE_BYTES;
    if (too_small || wasteful) {
        size_t old_len = n->value_len;
        n->value_len = 0; /* the old value need not be copied */
        int rc = reserve_value(s, n, value.len, too_small ? err : NULL);
        if (rc < 0 && too_small) {
            n->value_len = old_len;
            drop_if_idle(s, n);
            return rc;
        }
    }
    if (value.len > 0)
        memcpy(n->value, value.at, value.len);
    n->value_len = value.len;
    become_key(s, n);
    return 0;
}

int store_set(struct store *s, struct wire_bytes key, struct wire_bytes value, struct co_error *err)
{
    struct store_name *n;
    int rc = obtain(s, key, &n, err);
    return rc < 0 ? rc : set_value(s, n, value, err);
}

int store_append(struct store *s, struct wire_bytes key, struct wire_bytes tail,
                 struct co_error *err)
{
    struct store_name *n;
    int rc = obtain(s, key, &n, err);
    if (rc < 0)
        return rc;
    if (tail.len > n->value_cap - n->value_len) {
        if (tail.len > SIZE_MAX / 4 - n->value_len)
            rc = co_fail(err, -ENOMEM, "out of memory");
        else /* half as much again, so that many small pieces cost little */
            rc = reserve_value(s, n, n->value_len + tail.len + n->value_len / 2, err);
        if (rc < 0) {
            drop_if_idle(s, n);
            return rc;
        }
    }
    if (tail.len > 0)
        memcpy(n->value + n->value_len, tail.at, tail.len);
    n->value_len += tail.len;
    become_key(s, n);
    return 0;
}

static struct wire_bytes value_of(const struct store_name *n)
{
    return (struct wire_bytes){n->value, n->value_len};
}

int store_compare_set(struct store *s, struct wire_bytes key, struct wire_bytes expected,
                      struct wire_bytes desired, struct wire_bytes *ret_value, struct co_error *err)
{
    struct store_name *n = lookup(s, key);
    bool is_key = n != NULL && n->is_key;
    if (!is_key && expected.len > 0) {
        *ret_value = expected;
        return 0;
    }
    if (is_key && (n->value_len != expected.len ||
                   (expected.len > 0 && memcmp(n->value, expected.at, expected.len) != 0))) {
        *ret_value = value_of(n);
        return 0;
    }
    int rc = store_set(s, key, desired, err);
    if (rc == 0)
        *ret_value = desired;
    return rc;
}

/* As strtoll reads it: blanks, a sign, digits; what follows is ignored. */
static int parse_counter(struct wire_bytes text, int64_t *ret_value, struct co_error *err)
{
    size_t i = 0;
    while (i < text.len && (text.at[i] == ' ' || (text.at[i] >= '\t' && text.at[i] <= '\r')))
        i++;
    bool negative = i < text.len && text.at[i] == '-';
    if (i < text.len && (text.at[i] == '-' || text.at[i] == '+'))
        i++;
    size_t first_digit = i;
    int64_t value = 0;
    bool fits = true;
    for (; i < text.len && text.at[i] >= '0' && text.at[i] <= '9'; i++) {
        int digit = text.at[i] - '0';
        fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_add_overflow(value, negative ? -digit : digit, &value);
    }
    if (i == first_digit)
        return co_fail(err, -EINVAL, "cannot add to a value that is not a number");
    if (!fits)
        return co_fail(err, -ERANGE, "cannot add to a number that exceeds 64 bits");
    *ret_value = value;
    return 0;
}

int store_add(struct store *s, struct wire_bytes key, int64_t delta, int64_t *ret_value,
              struct co_error *err)
{
    struct store_name *n;
    int64_t value = 0;
    int rc = obtain(s, key, &n, err);
    if (rc == 0 && n->is_key)
        rc = parse_counter(value_of(n), &value, err);
    if (rc < 0)
        return rc;
    value = (int64_t)((uint64_t)value + (uint64_t)delta);
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRId64, value);
    rc = set_value(s, n, (struct wire_bytes){(const uint8_t *)text, (size_t)len}, err);
    if (rc == 0)
        *ret_value = value;
    return rc;
}

bool store_get(const struct store *s, struct wire_bytes key, struct wire_bytes *ret_value)
{
    const struct store_name *n = lookup(s, key);
    bool is_key = n != NULL && n->is_key;
    *ret_value = is_key ? value_of(n) : (struct wire_bytes){NULL, 0};
    return is_key;
}

bool store_has(const struct store *s, struct wire_bytes name)
{
    return is_there(lookup(s, name));
}

bool store_delete(struct store *s, struct wire_bytes key)
{
    struct store_name *n = lookup(s, key);
    if (n == NULL || !n->is_key)
        return false;
    n->is_key = false;
    s->n_keys--;
    s->n_key_bytes -= n->len;
    counted_free(s, n->value, n->value_cap);
    n->value = NULL;
    n->value_len = n->value_cap = 0;
    drop_if_idle(s, n);
    return true;
}

int store_barrier(struct store *s, struct store_waiter *w, struct wire_bytes key, int64_t world,
                  struct co_error *err)
{
    int64_t n_here;
    store_wait_end(s, w);
    int rc = store_add(s, key, 1, &n_here, err);
    if (rc < 0)
        return rc;
    struct store_name *n = lookup(s, key);
    if (n_here >= world) {
        wake_all(s, n, true);
        return 0;
    }
    w->max_links = 1;
    wait_on(w, n, true);
    return 0;
}

/* --- queues --- */

int store_queue_push(struct store *s, struct wire_bytes queue, struct wire_bytes item,
                     struct co_error *err)
{
    struct store_name *n;
    struct item *it = NULL;
    int rc = obtain(s, queue, &n, err);
    if (rc < 0)
        return rc;
    rc = counted_malloc(s, sizeof *it + item.len, &it, err);
    if (rc < 0) {
        drop_if_idle(s, n);
        return rc;
    }
    it->len = item.len;
    if (item.len > 0)
        memcpy(it->bytes, item.at, item.len);
    it->next = n->last != NULL ? n->last->next : it;
    if (n->last != NULL)
        n->last->next = it;
    n->last = it;
    n->n_items++;
    wake_one(s, n);
    return 0;
}

uint64_t store_queue_len(const struct store *s, struct wire_bytes queue)
{
    const struct store_name *n = lookup(s, queue);
    return n != NULL ? n->n_items : 0;
}

bool store_queue_front(const struct store *s, struct wire_bytes queue, struct wire_bytes *ret_item)
{
    const struct store_name *n = lookup(s, queue);
    if (n == NULL || n->last == NULL)
        return false;
    *ret_item = (struct wire_bytes){n->last->next->bytes, n->last->next->len};
    return true;
}

static void drop_front(struct store *s, struct store_name *n)
{
    struct item *it = n->last->next;
    n->last->next = it->next;
    if (it == n->last)
        n->last = NULL;
    n->n_items--;
    counted_free(s, it, sizeof *it + it->len);
}

void store_queue_drop(struct store *s, struct wire_bytes queue)
{
    struct store_name *n = lookup(s, queue);
    if (n == NULL || n->last == NULL)
        return;
    drop_front(s, n);
    drop_if_idle(s, n);
}

/* --- the whole --- */

uint64_t store_n_keys(const struct store *s)
{
    return s->n_keys;
}

uint64_t store_n_key_bytes(const struct store *s)
{
    return s->n_key_bytes;
}

uint64_t store_n_bytes(const struct store *s)
{
    return s->n_bytes;
}

void store_each_key(const struct store *s, void (*on_key)(void *arg, struct wire_bytes key),
                    void *arg)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        /* names lie anywhere in memory: to go there one by one would be several times slower */
        __builtin_prefetch(s->slots[(i + PREFETCH_SLOTS) & (s->n_slots - 1)]);
        for (const struct store_name *n = s->slots[i]; n != NULL; n = n->next)
            if (n->is_key)
                on_key(arg, (struct wire_bytes){n->bytes, n->len});
    }
}

int store_create(const struct store_limits *limits, uint64_t seed,
                 void (*on_wake)(struct store_waiter *w, void *arg), void *arg,
                 struct store **ret_store, struct co_error *err)
{
    struct store *s = malloc(sizeof *s);
    struct store_name **slots = calloc(MIN_SLOTS, sizeof *slots);
    if (s == NULL || slots == NULL) {
        free(s);
        free(slots);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    *s = (struct store){.limits = *limits,
                        .seed = seed,
                        .on_wake = on_wake,
                        .arg = arg,
                        .slots = slots,
                        .n_slots = MIN_SLOTS,
                        .n_bytes = MIN_SLOTS * sizeof *slots + MALLOC_OVERHEAD};
    if (s->limits.max_bytes < s->n_bytes)
        s->limits.max_bytes = s->n_bytes;
    *ret_store = s;
    return 0;
}

void store_destroy(struct store *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_slots; i++) {
        for (struct store_name *n = s->slots[i], *next; n != NULL; n = next) {
            next = n->next;
            while (n->last != NULL)
                drop_front(s, n);
            free(n->value);
            free(n);
        }
    }
    free(s->slots);
    free(s);
}
