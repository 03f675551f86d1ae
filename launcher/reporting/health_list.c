#include "health_list.h"

#include "launcher/platform/json_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void health_list_fini(struct health_list *l)
{
    free(l->nodes);
    *l = (struct health_list){.n = 0};
}

/* returns   NULL: it is not listed, and not added */
static struct health_list_node *find_node(struct health_list *l, const char *name, bool makes)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (strcmp(l->nodes[i].name, name) == 0)
            return &l->nodes[i];
    if (!makes || l->n == HEALTH_LIST_MAX)
        return NULL;
    struct health_list_node *grown = realloc(l->nodes, (l->n + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    l->nodes = grown;
    l->nodes[l->n] = (struct health_list_node){.is_bad = false};
    snprintf(l->nodes[l->n].name, sizeof l->nodes[l->n].name, "%s", name);
    return &l->nodes[l->n++];
}

bool health_list_note(struct health_list *l, const char *name, enum message_fitness fitness,
                      const char *text)
{
    const bool is_bad = fitness == MESSAGE_UNFIT;
    struct health_list_node *n = find_node(l, name, is_bad);
    if (n == NULL)
        return false;
    const bool is_news = n->is_bad != is_bad || (is_bad && strcmp(n->reason, text) != 0);
    n->n_times += is_bad && !n->is_bad;
    n->is_bad = is_bad;
    if (is_bad)
        snprintf(n->reason, sizeof n->reason, "%s", text);
    return is_news;
}

json_t *health_list_json_now(const struct health_list *l)
{
    json_t *list = json_array();
    for (uint32_t i = 0; l != NULL && i < l->n; i++)
        if (l->nodes[i].is_bad)
            json_array_append_new(list,
                                  json_pack("{s:o,s:o}", "node", json_value_text(l->nodes[i].name),
                                            "reason", json_value_text(l->nodes[i].reason)));
    return list;
}

json_t *health_list_json_all(const struct health_list *l)
{
    json_t *list = json_array();
    for (uint32_t i = 0; l != NULL && i < l->n; i++)
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:I,s:b}", "node", json_value_text(l->nodes[i].name),
                            "reason", json_value_text(l->nodes[i].reason), "times",
                            (json_int_t)l->nodes[i].n_times, "unhealthy", l->nodes[i].is_bad));
    return list;
}
