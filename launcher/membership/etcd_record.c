#include "etcd_record.h"

#include <stdio.h>
#include <string.h>

/* Names and numbers of both sides fit each other. */
_Static_assert((int)ELECTOR_NAME_BYTES == (int)MESSAGE_NAME_BYTES, "a name goes through");
_Static_assert((int)ELECTOR_EXCLUDED_MAX == (int)ROSTER_PAST_EXCLUDED, "as many excluded nodes");
_Static_assert((int)ELECTOR_MISSING_MAX == (int)ROSTER_PAST_MISSING, "as many missing nodes");
_Static_assert(ELECTOR_NO_GENERATION == MESSAGE_NO_GENERATION, "unknown to both");

/* returns   false: there was no generation yet, and *ret is as it was */
static bool fill(const struct roster *r, struct elector_record *ret)
{
    const struct message_verdict *v = roster_get_verdict(r);
    struct roster_past past;
    roster_get_past(r, &past);
    if (past.generation == MESSAGE_NO_GENERATION)
        return false;
    *ret = (struct elector_record){.generation = past.generation,
                                   .n_nodes = past.n_nodes,
                                   .world_size = past.world_size,
                                   .n_restarts = past.n_restarts,
                                   .gone = past.gone,
                                   .is_over = v != NULL,
                                   .exit_code = v != NULL ? v->exit_code : 0,
                                   .n_excluded = (uint8_t)past.n_excluded,
                                   .before = {.generation = past.before.generation,
                                              .n_nodes = past.before.n_nodes,
                                              .n_missing = (uint8_t)past.before.n_missing}};
    memcpy(ret->before.missing, past.before.missing, sizeof ret->before.missing);
    for (uint32_t i = 0; i < past.n_excluded; i++) {
        struct elector_excluded *x = &ret->excluded[i];
        snprintf(x->name, sizeof x->name, "%s", past.excluded[i].name);
        x->exit_code = past.excluded[i].exit_code;
    }
    return true;
}

bool etcd_record_take(const struct roster *r, bool leaves, struct elector_record *ret)
{
    const enum roster_state to = roster_get_state(r);
    const bool begins = to == ROSTER_RUNNING && !leaves;
    return (begins || to == ROSTER_CLOSED) && fill(r, ret);
}

bool etcd_record_is_continued(const struct elector_record *e, const struct roster *r)
{
    return e->n_nodes > 0 && !e->is_over && roster_get_state(r) == ROSTER_RUNNING &&
           roster_generation(r) == e->generation;
}

bool etcd_record_note_host(struct elector_record *e, const struct roster_node_view *own,
                           const struct elector_address *at)
{
    if (!own->is_member ||
        (e->host.node == own->node_index && elector_same_address(&e->host.at, at)))
        return false;
    e->host = (struct elector_host){.node = own->node_index, .at = *at};
    return true;
}

struct roster_past etcd_record_past(const struct elector_record *r)
{
    struct roster_past past = {.generation = r->generation,
                               .n_nodes = r->n_nodes,
                               .world_size = r->world_size,
                               .n_restarts = r->n_restarts,
                               .gone = r->gone,
                               .n_excluded = r->n_excluded,
                               .before = {.generation = r->before.generation,
                                          .n_nodes = r->before.n_nodes,
                                          .n_missing = r->before.n_missing}};
    memcpy(past.before.missing, r->before.missing, sizeof past.before.missing);
    for (uint8_t i = 0; i < r->n_excluded; i++) {
        struct roster_past_excluded *x = &past.excluded[i];
        snprintf(x->name, sizeof x->name, "%s", r->excluded[i].name);
        x->exit_code = r->excluded[i].exit_code;
    }
    return past;
}
