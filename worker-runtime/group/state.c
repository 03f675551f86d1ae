/* state.c - what a program registers in addition to its models, and how it gets to the ranks that
 * lack it: memory of a fixed size, or two functions of which one gives the state and the other
 * takes it. Read recovery_take_memory() first. */
#include "common/error.h"
#include "common/hash.h"
#include "recovery.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>
#include <ddp/elastic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recovery_memory {
    struct group_child child; /* first: of the world */
    struct recovery_memory *next;
    char *name;           /* owned */
    void *data;           /* borrowed; of ddp_state_add() */
    size_t bytes;         /* the same */
    ddp_state_save *save; /* of ddp_state_add_callbacks(); else NULL */
    ddp_state_load *load;
    void *arg;
};

/* --- registering ------------------------------------------------------------------------------ */

static void destroy_memory(struct group_child *child)
{
    struct recovery_memory *m = (struct recovery_memory *)child;
    free(m->name);
    free(m);
}

static int add_memory(struct ddp_group *g, const char *call, const char *name,
                      const struct recovery_memory *what)
{
    if (g->world->has_memory)
        return rt_fail(DDP_EINVAL,
                       "%s: '%s' was added too late: call %s() before "
                       "ddp_model_create()",
                       call, name, call);
    struct recovery *r = g->world->recovery;
    if (r == NULL || !r->again.may_follow)
        return DDP_OK; /* no rank will ever ask for it */
    struct recovery_memory *m = malloc(sizeof *m);
    if (m != NULL)
        *m = *what;
    if (m == NULL || (m->name = strdup(name)) == NULL) {
        free(m);
        return rt_fail(DDP_ENOMEM, "%s: out of memory", call);
    }
    m->child.destroy = destroy_memory;
    *r->memory_end = m;
    r->memory_end = &m->next;
    group_adopt(&g->world->group, &m->child);
    return DDP_OK;
}

int ddp_state_add(struct ddp_group *g, const char *name, void *data, size_t bytes)
{
    if (g == NULL || name == NULL || name[0] == '\0' || (data == NULL && bytes > 0))
        return rt_fail(DDP_EINVAL, "ddp_state_add: group, name or data is NULL");
    const struct recovery_memory what = {.data = data, .bytes = bytes};
    return add_memory(g, "ddp_state_add", name, &what);
}

int ddp_state_add_callbacks(struct ddp_group *g, const char *name, ddp_state_save *save,
                            ddp_state_load *load, void *arg)
{
    if (g == NULL || name == NULL || name[0] == '\0' || save == NULL || load == NULL)
        return rt_fail(DDP_EINVAL, "ddp_state_add_callbacks: group, name, save or load is NULL");
    const struct recovery_memory what = {.save = save, .load = load, .arg = arg};
    return add_memory(g, "ddp_state_add_callbacks", name, &what);
}

/* --- taking ----------------------------------------------------------------------------------- */

/* A digest of names and sizes, in their order. */
static uint64_t digest_of(const struct recovery *r)
{
    uint64_t hash = CO_HASH_START;
    for (const struct recovery_memory *m = r->memory; m != NULL; m = m->next) {
        hash = co_hash_bytes(hash, m->name, strlen(m->name));
        hash = co_hash_word(hash, m->save != NULL ? UINT64_MAX : m->bytes);
    }
    return hash;
}

/* --- copies ----------------------------------------------------------------------------------- */

int recovery_copies_reserve(struct ddp_group *g)
{
    struct recovery *r = g->world->recovery;
    size_t bytes = 0;
    if (r == NULL || !r->again.may_follow)
        return 0;
    const uint64_t digest = digest_of(r);
    if (r->copies.memory != NULL && r->copies.digest == digest)
        return 0;
    for (const struct recovery_memory *m = r->memory; m != NULL; m = m->next)
        bytes += m->bytes;
    free(r->copies.memory);
    r->copies = (struct recovery_copies){.memory = malloc(bytes + 1), .digest = digest};
    return r->copies.memory != NULL ? 0 : -ENOMEM;
}

static void copy_memory(const struct recovery *r, bool to_the_program)
{
    uint8_t *at = r->copies.memory;
    for (const struct recovery_memory *m = r->memory; m != NULL; m = m->next) {
        if (m->bytes > 0)
            memcpy(to_the_program ? m->data : at, to_the_program ? at : m->data, m->bytes);
        at += m->bytes;
    }
}

void recovery_copies_save(struct ddp_group *g)
{
    struct recovery *r = g->world->recovery;
    if (r == NULL || r->copies.memory == NULL || !group_is_world(g))
        return;
    copy_memory(r, false);
    r->copies.are_made = true;
}

/* For a rank that has the state that counts, or if no step has counted yet. */
static void restore_copies(struct ddp_group *g)
{
    const struct recovery *r = g->world->recovery;
    if (r != NULL && r->copies.are_made && r->copies.digest == digest_of(r) &&
        (!recovery_is_due(g) || recovery_has_state(r)))
        copy_memory(r, true);
}

/* --- comparing and sending -------------------------------------------------------------------- */

static int compare_memory(struct ddp_group *g)
{
    bool is_same;
    int rc = collective_compare(g, digest_of(g->world->recovery), &is_same);
    if (rc == 0 && !is_same)
        rc = rt_fail(DDP_EMISMATCH, "ddp_state_add: the ranks made different calls: use the same "
                                    "names, sizes and order on all ranks");
    return rc;
}

/* All ranks fail if one does: `rc` is this one's. */
static int agree(struct ddp_group *g, const struct recovery_memory *m, int rc)
{
    char text[CO_ERROR_TEXT_BYTES];
    int32_t failed = rc != 0 ? ddp_rank(g) : INT32_MAX;
    snprintf(text, sizeof text, "%s", ddp_last_error());
    int all = ddp_all_reduce(g, &failed, &failed, 1, DDP_INT32, DDP_MIN, NULL);
    if (all != 0)
        return all;
    if (rc != 0)
        return rt_fail(rc, "%s", text);
    if (failed != INT32_MAX)
        return rt_fail(DDP_EMISMATCH,
                       "ddp_state_add_callbacks: '%s' failed on rank %d: check its own message",
                       m->name, (int)failed);
    return 0;
}

static int check_callback(const char *which, const struct recovery_memory *m, int rc)
{
    char what[CO_ERROR_TEXT_BYTES];
    if (rc == 0)
        return 0;
    snprintf(what, sizeof what, "ddp_state_add_callbacks: %s of '%s'", which, m->name);
    rt_fail_returned(what, rc);
    return rc > 0 ? rt_fail(DDP_EINVAL, "%s", ddp_last_error()) : rc;
}

/* This rank's memory for n bytes; of the giver its own. returns a public status */
static int save_or_alloc(const struct recovery_memory *m, bool gives, uint64_t n, uint8_t **ret)
{
    *ret = !gives && n < PTRDIFF_MAX ? malloc((size_t)n + 1) : NULL;
    if (!gives && *ret == NULL)
        return rt_fail(DDP_ENOMEM,
                       "ddp_state_add_callbacks: out of memory for the %llu bytes of "
                       "'%s'",
                       (unsigned long long)n, m->name);
    return 0;
}

static int take_by_callbacks(struct ddp_group *g, const struct recovery_memory *m, int giver)
{
    const bool gives = ddp_rank(g) == giver;
    const void *given = NULL;
    size_t bytes = 0;
    uint8_t *memory = NULL;
    rt_forget(); /* a callback may fail without a text of its own */
    int own = gives ? check_callback("save", m, m->save(m->arg, &given, &bytes)) : 0;
    uint64_t n = own == 0 ? bytes : 0;
    int rc = ddp_broadcast_bytes(g, &n, sizeof n, giver);
    if (rc != 0)
        return rc;
    if (own == 0)
        own = save_or_alloc(m, gives, n, &memory);
    rc = agree(g, m, own);
    if (rc == 0) /* the giver's is only read */
        rc = ddp_broadcast_bytes(g, gives ? (void *)(uintptr_t)given : memory, (size_t)n, giver);
    if (rc == 0) {
        own = recovery_has_state(g->world->recovery)
                  ? 0
                  : check_callback("load", m, m->load(m->arg, memory, (size_t)n));
        rc = agree(g, m, own);
    }
    free(memory);
    return rc;
}

static int take_one(struct ddp_group *g, struct recovery_memory *m, int giver)
{
    if (m->save != NULL)
        return take_by_callbacks(g, m, giver);
    int rc = ddp_broadcast_bytes(g, m->data, m->bytes, giver);
    return rc == 0 ? 0 : rt_fail(rc, "'%s' from rank %d: %s", m->name, giver, ddp_last_error());
}

int recovery_take_memory(struct ddp_group *g, int giver)
{
    const struct recovery *r = g->world->recovery;
    if (g->world->has_memory)
        return 0;
    restore_copies(g);
    int rc = r != NULL && r->again.may_follow ? compare_memory(g) : 0;
    const bool comes = recovery_is_due(g) && recovery_sends(g);
    for (struct recovery_memory *m = comes ? r->memory : NULL; rc == 0 && m != NULL; m = m->next)
        rc = take_one(g, m, giver);
    if (rc == 0 && comes)
        restore_copies(g); /* the giver's came to all ranks: those with copies keep their own */
    g->world->has_memory = rc == 0;
    return rc;
}
