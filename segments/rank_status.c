#include "rank_status.h"

#include "call_kind.h"
#include "common/hash.h"

#include <stddef.h>

enum { SMOOTH = 8 /* the last step is an eighth of the mean */, READS = 16 };

_Static_assert(CALL_N_KINDS <= 64, "a kind has six bits");

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void put(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* --- writing ---------------------------------------------------------------------------------- */

void rank_status_ready(struct rank_status_page *page, uint64_t now_ns)
{
    put(&page->ready_ns, now_ns);
}

void rank_status_begin(struct rank_status_page *page, uint64_t steps_before)
{
    put(&page->steps_before, steps_before);
}

static uint64_t smooth(uint64_t mean_ns, uint64_t last_ns)
{
    if (mean_ns == 0)
        return last_ns;
    return last_ns > mean_ns ? mean_ns + (last_ns - mean_ns) / SMOOTH
                             : mean_ns - (mean_ns - last_ns) / SMOOTH;
}

void rank_status_step(struct rank_status_page *page, uint64_t now_ns, uint64_t inside_ns)
{
    const uint64_t before_ns = get(&page->step_ns);
    if (before_ns != 0) {
        const uint64_t last_ns = now_ns - before_ns;
        put(&page->last_ns, last_ns);
        put(&page->mean_ns, smooth(get(&page->mean_ns), last_ns));
        put(&page->inside_ns, smooth(get(&page->inside_ns), inside_ns));
    } else {
        put(&page->first_ns, now_ns);
    }
    put(&page->step_ns, now_ns);
    put(&page->steps, get(&page->steps) + 1);
}

struct rank_status_place *rank_status_open(struct rank_status_page *page)
{
    uint32_t taken = atomic_load(&page->taken);
    for (;;) {
        unsigned i = 0;
        while (i < RANK_STATUS_GROUPS && (taken >> i & 1) != 0)
            i++;
        if (i == RANK_STATUS_GROUPS)
            return NULL;
        if (atomic_compare_exchange_weak(&page->taken, &taken, taken | UINT32_C(1) << i))
            return &page->place[i];
    }
}

void rank_status_close(struct rank_status_page *page, struct rank_status_place *place)
{
    if (place == NULL)
        return;
    put(&place->word, 0);
    atomic_fetch_and(&page->taken, ~(UINT32_C(1) << (place - page->place)));
}

/* --- reading ---------------------------------------------------------------------------------- */

/* None yet; or no libddp has written that: its state is none, and readers have names for those
 * there are. */
static bool is_call(uint64_t word)
{
    return word != 0 && (word & RANK_STATUS_STATE_MASK) <= RANK_STATUS_WAITS;
}

/* For counts, not times: readers add two of them, and write them as signed numbers. */
static uint64_t limit_count(uint64_t count)
{
    return count < RANK_STATUS_MOST ? count : RANK_STATUS_MOST;
}

/* returns whether there is one. The bytes belong to the call if the word is the same afterwards:
 * those of the next one go elsewhere. */
static bool read_place(const struct rank_status_place *place, struct rank_status_call *ret)
{
    uint64_t word = atomic_load_explicit(&place->word, memory_order_acquire);
    for (int i = 0; i < READS; i++) {
        const uint64_t bytes =
            atomic_load_explicit(&place->bytes[word >> 32 & 1], memory_order_acquire);
        const uint64_t again = get(&place->word);
        *ret = (struct rank_status_call){.number = (uint32_t)(word >> 32),
                                         .group = (uint16_t)(word >> 16),
                                         .kind = word >> RANK_STATUS_KIND_SHIFT & 63,
                                         .dtype = word >> RANK_STATUS_DTYPE_SHIFT & 31,
                                         .bytes = limit_count(bytes),
                                         .state = word & RANK_STATUS_STATE_MASK};
        if (again == word)
            return is_call(word);
        word = again;
    }
    ret->bytes = 0; /* it makes calls faster than they can be read: it is not lost */
    return is_call(word);
}

void rank_status_read(const struct rank_status_page *page, struct progress *ret)
{
    *ret = (struct progress){.steps = limit_count(get(&page->steps)),
                             .steps_before = limit_count(get(&page->steps_before)),
                             .step_ns = get(&page->step_ns),
                             .first_ns = get(&page->first_ns),
                             .ready_ns = get(&page->ready_ns),
                             .last_ns = get(&page->last_ns),
                             .mean_ns = get(&page->mean_ns),
                             .inside_ns = get(&page->inside_ns),
                             .waits = atomic_load(&page->n_unplaced) != 0};
    if (ret->inside_ns > ret->mean_ns) /* read a moment later */
        ret->inside_ns = ret->mean_ns;
    for (unsigned i = 0; i < RANK_STATUS_GROUPS; i++) {
        struct rank_status_call *call = &ret->call[ret->n_calls];
        if (!read_place(&page->place[i], call))
            continue;
        ret->waits = ret->waits || call->state == RANK_STATUS_WAITS;
        ret->n_calls++;
    }
}

uint64_t rank_status_digest(const struct rank_status_page *page)
{
    uint64_t hash = co_hash_word(CO_HASH_START, get(&page->steps));
    hash = co_hash_word(hash, get(&page->steps_before));
    hash = co_hash_word(hash, atomic_load(&page->n_unplaced));
    for (unsigned i = 0; i < RANK_STATUS_GROUPS; i++)
        hash = co_hash_word(hash, get(&page->place[i].word));
    return hash;
}
