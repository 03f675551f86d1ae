/* store.h - keys, values, counters, queues, and the waiters for them.
 *
 * Pure: knows neither sockets nor time. Every key and queue has a *name*; a name lives as long as
 * it has a value, queued items or a waiter. Keys and queues share names but are separate things, as
 * torch has them: a wait takes either for "there".
 *
 * A waiter is woken exactly when the last of its names comes into being, through on_wake, which
 * must not call the store. All the waiters of a key are woken in one pass; a push to a queue wakes
 * one.
 *
 * All memory the store holds counts against max_bytes, what is kept about waiting included, so that
 * no sequence of calls makes it grow further. */
#ifndef DDP_RENDEZVOUS_STORE_STORE_H
#define DDP_RENDEZVOUS_STORE_STORE_H

#include "wire.h"

#include <stdbool.h>

struct co_error;
struct store; /* opaque */

struct store_limits {
    uint64_t max_bytes; /* everything together */
    uint64_t max_names; /* keys, queues and names that are waited for */
};

/* Joins a name and a waiter for it. Part of the waiter. */
struct store_link {
    struct store_link *prev, *next; /* among the links of one name; see store.c */
    struct store_name *name;        /* NULL: this name has come */
    struct store_waiter *waiter;
    bool at_barrier; /* waits for the counter to reach a number, not for the name */
};

/* Can wait for one set of names at a time. Zeroed, it waits for nothing. */
struct store_waiter {
    struct store_link one;   /* the usual wait is for one name and allocates nothing */
    struct store_link *many; /* owned; NULL unless it waits for more */
    size_t max_links;        /* capacity of `many` */
    size_t n_links;          /* in use */
    size_t n_missing;        /* names that have not come yet; 0: not waiting */
};

/* seed      makes the places of keys in the table unpredictable for those who choose the keys
 * on_wake   called for a waiter that no longer waits
 * returns   0, -ENOMEM */
int store_create(const struct store_limits *limits, uint64_t seed,
                 void (*on_wake)(struct store_waiter *w, void *arg), void *arg,
                 struct store **ret_store, struct co_error *err);

/* No waiter may be waiting any more. NULL is fine. */
void store_destroy(struct store *s);

/* Calls that store something return 0, -ENOSPC (a limit; the text names it) or -ENOMEM, and have
 * changed nothing on failure. A value they lend stays valid until the store is changed. */
int store_set(struct store *s, struct wire_bytes key, struct wire_bytes value,
              struct co_error *err);
int store_append(struct store *s, struct wire_bytes key, struct wire_bytes tail,
                 struct co_error *err);

/* Store `desired` if the value is `expected`; a missing key is stored only if `expected` is empty.
 *
 * ret_value   lends what the protocol wants answered: the value there is now, or, when the key
 *             stays missing, `expected` */
int store_compare_set(struct store *s, struct wire_bytes key, struct wire_bytes expected,
                      struct wire_bytes desired, struct wire_bytes *ret_value,
                      struct co_error *err);

/* Values of counters are decimal text. A missing one counts as 0 and is created; leading blanks and
 * a sign are read, what follows the digits is not; sums wrap.
 *
 * returns   as above; -EINVAL the value is not a number, -ERANGE it does not fit */
int store_add(struct store *s, struct wire_bytes key, int64_t delta, int64_t *ret_value,
              struct co_error *err);

/* Lend the value. A missing key has an empty one.
 * returns   whether the key is there */
bool store_get(const struct store *s, struct wire_bytes key, struct wire_bytes *ret_value);

/* Whether a wait for this name would be over: a key, or a queue with something in it. */
bool store_has(const struct store *s, struct wire_bytes name);

bool store_delete(struct store *s, struct wire_bytes key); /* whether it was there */
uint64_t store_n_keys(const struct store *s);
uint64_t store_n_key_bytes(const struct store *s); /* total of all keys, values not counted */
uint64_t store_n_bytes(const struct store *s);     /* memory in use, as max_bytes counts it */

/* Visit all keys, in no order. The callback must not call the store. */
void store_each_key(const struct store *s, void (*on_key)(void *arg, struct wire_bytes key),
                    void *arg);

/* Queues: first in, first out. */
int store_queue_push(struct store *s, struct wire_bytes queue, struct wire_bytes item,
                     struct co_error *err);
uint64_t store_queue_len(const struct store *s, struct wire_bytes queue);

/* Lend the oldest item; store_queue_drop() takes it off.
 * returns   whether there is one */
bool store_queue_front(const struct store *s, struct wire_bytes queue, struct wire_bytes *ret_item);
void store_queue_drop(struct store *s, struct wire_bytes queue); /* fine when empty */

/* Waiting. store_wait_begin() ends an older wait of w; names are added one by one, those that are
 * there count as come. The wait is on when n_missing is not 0 after the last.
 *
 * n_names   how many will be added at most
 * returns   0, -ENOMEM, -ENOSPC; on failure w waits for nothing */
int store_wait_begin(struct store *s, struct store_waiter *w, size_t n_names, struct co_error *err);
int store_wait_add(struct store *s, struct store_waiter *w, struct wire_bytes name,
                   struct co_error *err);

/* Stop waiting and give back what waiting took. Fine when w does not wait. */
void store_wait_end(struct store *s, struct store_waiter *w);

/* Count w in at a barrier: adds 1 to the counter `key`; all waiters there are woken when it reaches
 * `world`, including w: then w->n_missing is 0 and on_wake was not called for it.
 *
 * returns   as store_add() */
int store_barrier(struct store *s, struct store_waiter *w, struct wire_bytes key, int64_t world,
                  struct co_error *err);

#endif
