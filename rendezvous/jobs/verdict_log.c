#include "verdict_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_instance(const struct verdict_log_node *node, const uint8_t *instance)
{
    return memcmp(node->instance, instance, sizeof node->instance) == 0;
}

static bool make_room(struct verdict_log *l)
{
    if (l->n < l->cap)
        return true;
    size_t cap = l->cap == 0 ? 8 : l->cap * 2;
    struct verdict_log_node *nodes =
        l->n < MESSAGE_MAX_NODES ? realloc(l->nodes, cap * sizeof *nodes) : NULL;
    if (nodes == NULL)
        return false;
    l->nodes = nodes;
    l->cap = cap;
    return true;
}

void verdict_log_add(struct verdict_log *l, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                     const char *name)
{
    if (!make_room(l))
        return;
    struct verdict_log_node *node = &l->nodes[l->n++];
    memcpy(node->instance, instance, sizeof node->instance);
    snprintf(node->name, sizeof node->name, "%s", name);
}

bool verdict_log_missed(const struct verdict_log *l, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                        const char *name)
{
    bool is_known = false;
    for (size_t i = 0; i < l->n; i++) {
        if (is_instance(&l->nodes[i], instance))
            return false; /* its connection broke before the verdict arrived */
        is_known |= strcmp(l->nodes[i].name, name) == 0;
    }
    return is_known;
}

void verdict_log_fini(struct verdict_log *l)
{
    free(l->nodes);
    *l = (struct verdict_log){0};
}
