#include "verdict_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_instance(const struct told_node *node, const uint8_t *instance)
{
    return memcmp(node->instance, instance, sizeof node->instance) == 0;
}

static bool has_room(struct verdict_log *t)
{
    if (t->n < t->cap)
        return true;
    size_t cap = t->cap == 0 ? 8 : t->cap * 2;
    struct told_node *nodes =
        t->n < MESSAGE_MAX_NODES ? realloc(t->nodes, cap * sizeof *nodes) : NULL;
    if (nodes == NULL)
        return false;
    t->nodes = nodes;
    t->cap = cap;
    return true;
}

void verdict_log_add(struct verdict_log *t, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                     const char *name)
{
    if (!has_room(t))
        return;
    struct told_node *node = &t->nodes[t->n++];
    memcpy(node->instance, instance, sizeof node->instance);
    snprintf(node->name, sizeof node->name, "%s", name);
}

bool verdict_log_missed(const struct verdict_log *t, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                        const char *name)
{
    bool has_heard = false;
    for (size_t i = 0; i < t->n; i++) {
        if (is_instance(&t->nodes[i], instance))
            return false; /* its connection broke before the verdict was through */
        has_heard |= strcmp(t->nodes[i].name, name) == 0;
    }
    return has_heard;
}

void verdict_log_fini(struct verdict_log *t)
{
    free(t->nodes);
    *t = (struct verdict_log){0};
}
