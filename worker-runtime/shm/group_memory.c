/* group_memory.c - where the ranks of a group that was split off rendezvous: each rank gives a
 * block of its user segment, which all peers have mapped already. A block looks like the rank's
 * part of the control segment: a line, then a mailbox. In the line, only the fields that show how
 * far the rank has come are used; whether the rank lives is recorded in the control segment.
 *
 * A block serves one group after another. Its counter never goes back, and a block is used again
 * only once all members of its last group have come to that group's end: a rank that is late never
 * finds less there than it waits for. Blocks stay in the segment for the life of the process. */
#include "common/error.h"
#include "cpu.h"
#include "worker-runtime/core/user_segment.h"

#include <errno.h>
#include <stdlib.h>

enum { MAILBOX_AT = 4096, BLOCK_BYTES = MAILBOX_AT + TRANSPORT_SHM_MAILBOX_BYTES };
_Static_assert(sizeof(struct control_line) <= MAILBOX_AT, "the line lies before the mailbox");

void group_pool_fini(struct group_pool *p)
{
    while (p->blocks != NULL) {
        struct group_memory *m = p->blocks;
        p->blocks = m->next;
        free(m->last);
        free(m);
    }
}

static bool is_over(const struct group_memory *m)
{
    for (unsigned i = 0; i < m->n_last; i++) {
        uint32_t arrived = atomic_load_explicit(&m->last[i]->arrived, memory_order_acquire);
        if ((int32_t)(arrived - m->end) < 0)
            return false;
    }
    return true;
}

static struct group_memory *find_free(struct group_pool *p)
{
    for (struct group_memory *m = p->blocks; m != NULL; m = m->next)
        if (!m->in_use && is_over(m))
            return m;
    return NULL;
}

static int make_block(struct group_pool *p, struct group_memory **ret, struct co_error *err)
{
    struct group_memory *m = calloc(1, sizeof *m);
    void *block;
    if (m == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = user_segment_alloc(p->own, BLOCK_BYTES, &block, err);
    if (code != 0) {
        free(m);
        return code;
    }
    m->line = block;
    m->offset = (uint64_t)((uint8_t *)block - user_segment_base(p->own));
    m->next = p->blocks;
    p->blocks = m;
    *ret = m;
    return 0;
}

int group_memory_take(struct group_pool *p, struct group_memory **ret, struct co_error *err)
{
    struct group_memory *m = find_free(p);
    int code = m == NULL ? make_block(p, &m, err) : 0;
    if (code != 0)
        return code;
    free(m->last);
    m->last = NULL;
    m->n_last = 0;
    m->in_use = true;
    atomic_store(&m->line->where, 0);
    atomic_store(&m->line->commit, 0);
    /* what the last group's messages lay in is not looked at any more */
    const uint64_t outbox = atomic_exchange(&m->line->outbox, 0);
    if (outbox != 0)
        user_segment_free(p->own, user_segment_base(p->own) + outbox - 1);
    *ret = m;
    return 0;
}

void group_memory_give_back(struct group_memory *m, const struct transport_shm *last)
{
    if (m == NULL)
        return;
    if (last != NULL) {
        m->n_last = last->n_ranks;
        m->last = calloc(m->n_last, sizeof *m->last);
        m->end = last->arrived;
        if (m->last == NULL)
            return; /* it stays in use forever: safe, and nothing else is possible */
        for (unsigned r = 0; r < m->n_last; r++)
            m->last[r] = last->member[r].line;
    }
    m->in_use = false;
}

struct transport_shm_member group_memory_at(uint8_t *user, uint64_t offset, unsigned local_rank)
{
    return (struct transport_shm_member){.line = (struct control_line *)(user + offset),
                                         .mailbox = user + offset + MAILBOX_AT,
                                         .local_rank = local_rank};
}
