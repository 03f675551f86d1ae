/* memory.c - checkpoints in memory: what all ranks agree on, and the thread that sends copies.
 *
 * ddp_memory_open() gathers the entries of all ranks, from which each computes the same plan
 * (memory_plan.h), and brings every state to its rank. ddp_memory_save() writes a slot
 * (memory_slots.h), the ranks agree, and the thread exchanges the copies (memory_exchange.h) and
 * agrees again. docs/design/memory-checkpoints.md has the states.
 *
 * Invariant: all ranks have `saved`, and all have `kept`, with copies if some save is copied. No
 * slot of `saved` is written before a newer save is on all ranks, and none of `kept` before the
 * copies of a newer one are. */
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "memory_exchange.h"
#include "memory_lent.h"
#include "memory_plan.h"
#include "memory_slots.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/core/process.h"

#include <ddp/env.h>
#include <ddp/memory.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct ddp_memory {
    struct group_child child; /* first member; of `group` */
    struct ddp_group *group;  /* owned, except when it destroys this */
    struct memory_slots slots;
    uint8_t *pieces; /* owned; of the exchange */

    unsigned distance;      /* of the copies; 0: none are made */
    struct memory_id next;  /* of the next save */
    struct memory_id saved; /* of the last one that all ranks have; .serial 0: none */
    struct memory_id kept;  /* the last one that is also copied; without any, the same */

    int found_slot; /* -1: nothing was found, or a save has begun */
    unsigned found_from;
    struct memory_placed *found; /* owned; its items */
    bool has_saved;              /* a save has begun: the thread may use slots */

    /* The thread has `slots`, `group` and `pieces` from is_wanted on until it clears it. */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_wanted, is_ending;
    unsigned copied_slot; /* what to send */
    int status;           /* of the last copy; of all ranks, unless the group is broken */
    struct co_error err;
};

static unsigned plus(const struct ddp_memory *m, unsigned distance)
{
    return ((unsigned)m->group->rank + distance) % (unsigned)m->group->world_size;
}

/* The rank whose copy this one keeps; -1: none */
static int copied_rank(const struct ddp_memory *m)
{
    return m->distance == 0 ? -1 : (int)plus(m, (unsigned)m->group->world_size - m->distance);
}

static struct memory_keep kept_slots(const struct ddp_memory *m)
{
    return (struct memory_keep){.all = {m->kept},
                                .own = m->saved,
                                .rank = (unsigned)m->group->rank,
                                .lent = memory_lent_slots(&m->slots)};
}

/* --- the thread ------------------------------------------------------------------------------- */

static int exchange_copies(struct ddp_memory *m)
{
    struct co_error err = {0};
    const struct memory_keep keep = kept_slots(m);
    const int slot = memory_plan_slot(m->slots.saves, MEMORY_COPIED_SLOTS, &keep);
    const struct memory_exchange what = {.to = (int)plus(m, m->distance),
                                         .from = copied_rank(m),
                                         .from_slot = m->copied_slot,
                                         .to_slot = (unsigned)slot,
                                         .id = m->saved,
                                         .rank = (unsigned)copied_rank(m)};
    int code = 0;
    if (slot < 0) /* this save has one, the one before at most two */
        return rt_fail(DDP_ESYSTEM, "no slot is free for the copy of rank %d", copied_rank(m));
    const int rc = memory_exchange(m->group, &m->slots, &what, m->pieces, &code, &err);
    return rc != 0 ? rc : collective_agree(m->group, code, &err);
}

static void *send_copies(void *arg)
{
    struct ddp_memory *m = arg;
    rt_set_apart(m->group->is_apart);
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        while (!m->is_wanted && !m->is_ending)
            pthread_cond_wait(&m->changed, &m->mutex);
        if (!m->is_wanted)
            break;
        pthread_mutex_unlock(&m->mutex);
        const int status = exchange_copies(m);
        pthread_mutex_lock(&m->mutex);
        m->status = status;
        if (status != 0)
            co_fail(&m->err, -EIO, "%s", ddp_last_error());
        m->is_wanted = false;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

/* Wait until the thread has done what it was asked for. Its calls have deadlines. */
static int await_copies(struct ddp_memory *m)
{
    if (!m->has_thread)
        return DDP_OK;
    pthread_mutex_lock(&m->mutex);
    while (m->is_wanted)
        pthread_cond_wait(&m->changed, &m->mutex);
    pthread_mutex_unlock(&m->mutex);
    const int status = m->status;
    m->status = DDP_OK; /* it is reported once */
    if (status != DDP_OK)
        return rt_fail(status, "the copies of the last save: %s", m->err.text);
    m->kept = m->saved;
    return DDP_OK;
}

static void ask_for_copies(struct ddp_memory *m, unsigned slot)
{
    pthread_mutex_lock(&m->mutex);
    m->copied_slot = slot;
    m->is_wanted = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}

static void end_thread(struct ddp_memory *m)
{
    if (!m->has_thread)
        return;
    pthread_mutex_lock(&m->mutex);
    m->is_ending = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    pthread_join(m->thread, NULL);
    m->has_thread = false;
}

/* --- open ------------------------------------------------------------------------------------- */

/* What a rank sends to all others. */
struct offer {
    struct memory_member member;
    uint32_t reserved;
    uint64_t slot_bytes, random;
};

static int find_fd(int *ret, struct co_error *err)
{
    const char *text = getenv(DDP_ENV_MEMORY_FD);
    int64_t number = -1;
    if (text == NULL || text[0] == '\0')
        return co_fail(err, -ENOTSUP,
                       "this process cannot keep checkpoints in memory: start the job with ddprun "
                       "--memory-checkpoints SIZE");
    if (co_parse_int(DDP_ENV_MEMORY_FD, text, 0, INT_MAX, &number, err) != 0)
        return -ENOEXEC;
    *ret = (int)number;
    return 0;
}

static int open_slots(struct ddp_memory *m, unsigned local_rank, struct co_error *err)
{
    int fd = -1;
    int code = find_fd(&fd, err);
    if (code == 0 && (code = memory_slots_open(fd, local_rank, &m->slots, err)) == -EBADF) {
        co_fail_in(err, DDP_ENV_MEMORY_FD);
        code = -ENOEXEC;
    }
    if (code == 0 && (m->pieces = malloc(2 * (size_t)MEMORY_PIECE_BYTES)) == NULL)
        code = co_fail(err, -ENOMEM, "out of memory");
    return code;
}

/* ret_members   of all ranks; free() it */
static int gather_members(struct ddp_memory *m, unsigned node, struct memory_member **ret_members)
{
    const int n = m->group->world_size;
    struct offer own;
    struct co_error err = {0};
    int rc = DDP_OK, code = 0;
    memset(&own, 0, sizeof own);
    memcpy(own.member.saves, m->slots.saves, sizeof own.member.saves);
    own.member.node = node;
    own.slot_bytes = m->slots.all.slot_bytes;
    if (getrandom(&own.random, sizeof own.random, 0) != (ssize_t)sizeof own.random)
        own.random = (uintptr_t)m;
    co_autofree struct offer *all = collective_gather(m->group, &own, sizeof own, &rc);
    if (rc != DDP_OK)
        return rc;
    struct memory_member *members = calloc((size_t)n, sizeof *members);
    if (members == NULL)
        code = co_fail(&err, -ENOMEM, "out of memory");
    for (int r = 0; r < n && code == 0; r++) {
        members[r].node = all[r].member.node;
        for (unsigned i = 0; i < MEMORY_SLOTS; i++)
            if (memory_slots_accept(&m->slots, &all[r].member.saves[i]))
                members[r].saves[i] = all[r].member.saves[i];
        if (all[r].slot_bytes != all[0].slot_bytes)
            code = co_fail(&err, -EPROTO,
                           "--memory-checkpoints allows %llu bytes on rank 0, and %llu on rank %d: "
                           "give all nodes the same value",
                           (unsigned long long)all[0].slot_bytes,
                           (unsigned long long)all[r].slot_bytes, r);
    }
    rc = collective_agree(m->group, code, &err);
    if (rc != DDP_OK) {
        free(members);
        return rc;
    }
    m->next.lineage = all[0].random;
    *ret_members = members;
    return DDP_OK;
}

/* Bring the state of `rank` from the member that has it. Ranks that have no part in it do nothing,
 * and all take the ranks in the same order: so none waits for one that waits for it. */
static int bring(struct ddp_memory *m, const struct memory_member *members, struct memory_id id,
                 unsigned rank, int *ret_code, struct co_error *err)
{
    const unsigned n = (unsigned)m->group->world_size, own = (unsigned)m->group->rank;
    unsigned slot = 0;
    const int holder = memory_plan_holder(members, n, id, rank, &slot);
    struct memory_exchange what = {.to = -1, .from = -1, .id = id, .rank = rank};
    if (rank == own)
        m->found_from = (unsigned)holder;
    if (rank == own && holder == (int)own)
        m->found_slot = (int)slot;
    if (holder == (int)rank || (rank != own && holder != (int)own))
        return DDP_OK;
    if (rank == own) {
        const int free_slot =
            memory_plan_slot_to_load(m->slots.saves, id, m->kept, memory_lent_slots(&m->slots));
        if (free_slot < 0)
            return rt_fail(DDP_ESYSTEM, "no slot is free for the state of rank %u", rank);
        what.from = holder;
        what.to_slot = (unsigned)free_slot;
        m->found_slot = free_slot;
    } else {
        what.to = (int)rank;
        what.from_slot = slot;
    }
    int code = 0;
    const int rc = memory_exchange(m->group, &m->slots, &what, m->pieces, &code, err);
    if (code != 0)
        *ret_code = code;
    return rc;
}

/* Slots that no load will need: the next saves may use them. */
static int drop_others(struct ddp_memory *m, struct memory_id id, struct co_error *err)
{
    int code = 0;
    for (unsigned i = 0; i < MEMORY_SLOTS && code == 0; i++) {
        const struct memory_save *s = &m->slots.saves[i];
        const bool is_double = memory_id_same(s->id, id) && s->rank == (unsigned)m->group->rank &&
                               (int)i != m->found_slot;
        if (s->is_whole != 0 &&
            (!memory_plan_keeps(s, id, m->kept, (unsigned)m->group->rank, copied_rank(m)) ||
             is_double))
            code = memory_slots_free(&m->slots, i, err);
    }
    return code;
}

static int restore(struct ddp_memory *m, const struct memory_member *members)
{
    const unsigned n = (unsigned)m->group->world_size;
    const struct memory_id id = memory_plan_newest(members, n);
    struct co_error err = {0};
    int rc = DDP_OK, code = 0;
    m->distance = memory_plan_distance(members, n);
    m->next.serial = memory_plan_highest(members, n) + 1;
    m->kept = m->saved = id;
    if (m->distance > 0 && id.serial > 0 && memory_plan_copied(members, n).serial > 0)
        m->kept = memory_plan_copied(members, n);
    if (id.serial == 0)
        return DDP_OK;
    for (unsigned rank = 0; rank < n && rc == DDP_OK; rank++)
        rc = bring(m, members, id, rank, &code, &err);
    if (rc == DDP_OK && code == 0)
        code = memory_slots_list(&m->slots, (unsigned)m->found_slot, &m->found, &err);
    if (rc == DDP_OK)
        rc = collective_agree(m->group, code, &err);
    /* not before all have what they need */
    return rc != DDP_OK ? rc : collective_agree(m->group, drop_others(m, id, &err), &err);
}

static void destroy_child(struct group_child *child)
{
    struct ddp_memory *m = (struct ddp_memory *)child;
    if (!process_is_forked())
        end_thread(m); /* it uses the group */
    m->group = NULL;
    ddp_memory_close(m);
}

static int start_thread(struct ddp_memory *m)
{
    struct co_error err = {0};
    int code = m->distance > 0 ? process_start_thread(&m->thread, send_copies, m) : 0;
    m->has_thread = m->distance > 0 && code == 0;
    if (code != 0)
        co_fail(&err, code, "cannot start the thread that sends copies: %s", strerror(-code));
    return collective_agree(m->group, code, &err);
}

static int open_memory(struct ddp_group *g, struct ddp_memory *m)
{
    co_autofree struct memory_member *members = NULL;
    struct co_error err = {0};
    int rc = ddp_group_split(g, 0, g->rank, &m->group);
    if (rc != DDP_OK)
        return rc;
    group_adopt(m->group, &m->child);
    rc = collective_agree(m->group, open_slots(m, (unsigned)g->local_rank, &err), &err);
    if (rc == DDP_OK)
        rc = gather_members(m, (unsigned)g->node_rank, &members);
    if (rc == DDP_OK)
        rc = restore(m, members);
    return rc != DDP_OK ? rc : start_thread(m);
}

static int name_failure(const char *call, int status)
{
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", ddp_last_error());
    return rt_fail(status, "%s: %s", call, text);
}

int ddp_memory_open(struct ddp_group *g, struct ddp_memory **ret_memory)
{
    int rc = group_check("ddp_memory_open", g);
    if (rc != DDP_OK)
        return rc;
    if (ret_memory == NULL)
        return rt_fail_null("ddp_memory_open", "ret_memory");
    struct ddp_memory *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->child.destroy = destroy_child;
        m->found_slot = -1;
        pthread_mutex_init(&m->mutex, NULL);
        pthread_cond_init(&m->changed, NULL);
    }
    struct co_error err = {0};
    rc = collective_agree(
        g, m != NULL ? 0 : co_fail(&err, -ENOMEM, "ddp_memory_open: out of memory"), &err);
    if (rc == DDP_OK)
        rc = open_memory(g, m);
    if (rc == DDP_OK) {
        *ret_memory = m;
        return DDP_OK;
    }
    rc = name_failure("ddp_memory_open", rc);
    ddp_memory_close(m);
    return rc;
}

void ddp_memory_close(struct ddp_memory *m)
{
    if (m == NULL)
        return;
    group_disown(&m->child);
    if (!process_is_forked()) { /* a child has no such thread, and its condition no end */
        end_thread(m);
        pthread_cond_destroy(&m->changed);
        pthread_mutex_destroy(&m->mutex);
    }
    ddp_group_destroy(m->group);
    free(m->found);
    free(m->pieces);
    free(m);
}

/* --- load ------------------------------------------------------------------------------------- */

int ddp_memory_found(const struct ddp_memory *m, struct ddp_memory_state *ret_state)
{
    if (m == NULL || ret_state == NULL)
        return rt_fail_null("ddp_memory_found", m == NULL ? "memory" : "ret_state");
    struct ddp_memory_state state = {.step = -1,
                                     .came_from = m->group->rank,
                                     .copied_to = m->distance > 0 ? (int)plus(m, m->distance) : -1,
                                     .item_bytes_max = (size_t)m->slots.all.slot_bytes};
    if (m->found_slot >= 0) {
        const struct memory_save *save = &m->slots.saves[m->found_slot];
        state.step = save->step;
        state.n_items = (size_t)save->n_items;
        state.came_from = (int)m->found_from;
        for (size_t i = 0; i < state.n_items; i++)
            state.bytes += (size_t)m->found[i].bytes;
    }
    *ret_state = state;
    return DDP_OK;
}

/* Whether the call may read that item. */
static int check_item(const char *call, const struct ddp_memory *m, size_t item)
{
    if (m == NULL)
        return rt_fail_null(call, "memory");
    if (m->found_slot < 0)
        return rt_fail(DDP_EINVAL,
                       "%s: no state was found, or ddp_memory_save() has been called since", call);
    if (item >= m->slots.saves[m->found_slot].n_items)
        return rt_fail(DDP_EINVAL, "%s: there is no item %zu: the state has %llu", call, item,
                       (unsigned long long)m->slots.saves[m->found_slot].n_items);
    return DDP_OK;
}

int ddp_memory_item_bytes(const struct ddp_memory *m, size_t item, size_t *ret_bytes)
{
    int rc = check_item("ddp_memory_item_bytes", m, item);
    if (rc == DDP_OK && ret_bytes == NULL)
        rc = rt_fail_null("ddp_memory_item_bytes", "ret_bytes");
    if (rc == DDP_OK)
        *ret_bytes = (size_t)m->found[item].bytes;
    return rc;
}

static int read_item(const char *call, const struct ddp_memory *m, size_t item, void *out,
                     size_t bytes)
{
    int rc = check_item(call, m, item);
    if (rc != DDP_OK)
        return rc;
    if (bytes != m->found[item].bytes)
        return rt_fail(DDP_EINVAL, "%s: item %zu has %llu bytes: cannot read it into %zu", call,
                       item, (unsigned long long)m->found[item].bytes, bytes);
    if (out == NULL && bytes > 0)
        return rt_fail_null(call, "memory to read into");
    struct co_error err = {0};
    int code = memory_slots_read(&m->slots, (unsigned)m->found_slot, &m->found[item], out, &err);
    return rt_return_from(call, code, &err);
}

int ddp_memory_read(struct ddp_memory *m, size_t item, void *out, size_t bytes)
{
    return read_item("ddp_memory_read", m, item, out, bytes);
}

int ddp_memory_load(struct ddp_memory *m, const struct ddp_memory_item *items, size_t n)
{
    static const char call[] = "ddp_memory_load";
    if (m == NULL || (items == NULL && n > 0))
        return rt_fail_null(call, m == NULL ? "memory" : "items");
    if (m->found_slot >= 0 && n != m->slots.saves[m->found_slot].n_items)
        return rt_fail(DDP_EINVAL, "%s: the state has %llu items, not %zu", call,
                       (unsigned long long)m->slots.saves[m->found_slot].n_items, n);
    int rc = m->found_slot < 0 ? check_item(call, m, 0) : DDP_OK;
    for (size_t i = 0; i < n && rc == DDP_OK; i++)
        rc = read_item(call, m, i, items[i].data, items[i].bytes);
    return rc;
}

/* --- alloc ------------------------------------------------------------------------------------ */

static int lend(struct ddp_memory *m, size_t bytes, void **ret, struct co_error *err)
{
    const struct memory_keep keep = kept_slots(m);
    if (m->has_saved)
        return co_fail(err, -EINVAL, "ddp_memory_save() has been called");
    if (bytes == 0 || bytes > m->slots.all.slot_bytes)
        return co_fail(err, -EINVAL, "invalid value %zu for bytes: expected 1 to %llu", bytes,
                       (unsigned long long)m->slots.all.slot_bytes);
    if (keep.lent != 0) /* the others are for saves and copies */
        return co_fail(err, -ENOTSUP, "a process has such memory already");
    const int slot = memory_plan_slot(m->slots.saves, MEMORY_SLOTS, &keep);
    if (slot < 0)
        return co_fail(err, -ENOTSUP, "no slot is free");
    const int code = memory_slots_free(&m->slots, (unsigned)slot, err);
    return code != 0 ? code : memory_lend(&m->slots, (unsigned)slot, bytes, ret, err);
}

int ddp_memory_alloc(struct ddp_memory *m, size_t bytes, void **ret_data)
{
    static const char call[] = "ddp_memory_alloc";
    struct co_error err = {0};
    if (m == NULL || ret_data == NULL)
        return rt_fail_null(call, m == NULL ? "memory" : "ret_data");
    const int code = lend(m, bytes, ret_data, &err);
    return rt_return_from(call, code, &err);
}

void ddp_memory_free(void *data)
{
    memory_lent_return(data);
}

/* --- save ------------------------------------------------------------------------------------- */

static int write_own(struct ddp_memory *m, int64_t step, const struct ddp_memory_item *items,
                     size_t n, unsigned *ret_slot, struct co_error *err)
{
    struct memory_save save = {.id = m->next,
                               .step = step,
                               .rank = (uint32_t)m->group->rank,
                               .world_size = (uint32_t)m->group->world_size,
                               .is_whole = 1};
    const unsigned n_slots = m->distance > 0 ? MEMORY_COPIED_SLOTS : MEMORY_OWN_SLOTS;
    if (step < 0)
        return co_fail(err, -EINVAL, "invalid value %lld for step: expected 0 or more",
                       (long long)step);
    if (items == NULL && n > 0)
        return co_fail(err, -EINVAL, "items is NULL");
    const struct memory_keep keep = kept_slots(m);
    const int slot = memory_plan_slot(m->slots.saves, n_slots, &keep);
    if (slot < 0)
        return co_fail(err, -ENOSPC, "no slot is free");
    int code = memory_slots_write(&m->slots, (unsigned)slot, items, n, &save, err);
    if (code == 0)
        code = memory_slots_set(&m->slots, (unsigned)slot, &save, err);
    *ret_slot = (unsigned)slot;
    return code;
}

static int save_state(struct ddp_memory *m, int64_t step, const struct ddp_memory_item *items,
                      size_t n)
{
    struct co_error err = {0};
    unsigned slot = 0;
    int rc = await_copies(m);
    if (rc != DDP_OK)
        return rc;
    m->found_slot = -1;
    m->has_saved = true;
    rc = collective_agree(m->group, write_own(m, step, items, n, &slot, &err), &err);
    m->next.serial++; /* also of one that failed: a rank may have written it */
    if (rc != DDP_OK)
        return rc;
    m->saved = (struct memory_id){m->next.serial - 1, m->next.lineage};
    if (m->has_thread)
        ask_for_copies(m, slot);
    else
        m->kept = m->saved;
    return DDP_OK;
}

int ddp_memory_save(struct ddp_memory *m, int64_t step, const struct ddp_memory_item *items,
                    size_t n)
{
    if (m == NULL)
        return rt_fail_null("ddp_memory_save", "memory");
    int rc = group_check("ddp_memory_save", m->group);
    if (rc == DDP_OK && (rc = save_state(m, step, items, n)) != DDP_OK)
        rc = name_failure("ddp_memory_save", rc);
    return rc;
}

int ddp_memory_wait(struct ddp_memory *m)
{
    if (m == NULL)
        return rt_fail_null("ddp_memory_wait", "memory");
    int rc = await_copies(m);
    return rc != DDP_OK ? name_failure("ddp_memory_wait", rc) : DDP_OK;
}
