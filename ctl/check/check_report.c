#include "check_report.h"

#include <errno.h>
#include <stdlib.h>

const char *const check_field_words[CHECK_N_FIELDS] = {
    [CHECK_REACH] = "reach",   [CHECK_VERSION] = "version", [CHECK_CLOCK] = "clock",
    [CHECK_NOFILE] = "nofile", [CHECK_MEMLOCK] = "memlock", [CHECK_BACKLOG] = "somaxconn",
    [CHECK_SHM] = "shm",       [CHECK_NAMES] = "name",      [CHECK_PORTS] = "ports",
    [CHECK_TOKEN] = "token",   [CHECK_GPUS] = "gpus",       [CHECK_NET] = "net",
};

const char *const check_reach_words[CHECK_N_REACHES] = {
    [CHECK_REACH_OK] = "ok",
    [CHECK_REACH_REFUSED] = "refused",
    [CHECK_REACH_SILENT] = "silent",
    [CHECK_REACH_UNREACHABLE] = "unreachable",
    [CHECK_REACH_WRONG_SERVICE] = "wrong-service",
    [CHECK_REACH_OTHER] = "other",
};

int check_report_init(struct check_report *r, size_t n)
{
    *r = (struct check_report){.n_nodes = n};
    r->nodes = calloc(n, sizeof *r->nodes);
    return r->nodes != NULL ? 0 : -ENOMEM;
}

void check_report_fini(struct check_report *r)
{
    free(r->nodes);
    free(r->links);
    free(r->pairs);
    free(r->findings);
    *r = (struct check_report){.n_nodes = 0};
}

bool check_has_failed(const struct check_report *r)
{
    for (size_t i = 0; i < r->n_findings; i++)
        if (r->findings[i].is_failure)
            return true;
    return false;
}

/* --- JSON --- */

static json_t *node_to_json(const struct check_node *n)
{
    json_t *facts = n->has_facts ? check_facts_to_json(&n->facts) : json_null();
    json_object_del(facts, "token_id"); /* it would help guesses at the token */
    json_t *clock = n->has_clock ? json_pack("{s:I, s:I}", "offset_ns", (json_int_t)n->offset_ns,
                                             "error_ns", (json_int_t)n->error_ns)
                                 : json_null();
    return json_pack("{s:s, s:b, s:o, s:s*, s:o, s:s*, s:o}", "node", n->name, "up", n->is_up,
                     "reach_ms", n->is_up ? json_integer((json_int_t)n->reach_ms) : json_null(),
                     "why", n->why[0] != '\0' ? n->why : NULL, "clock", clock, "address",
                     n->address[0] != '\0' ? n->address : NULL, "facts", facts);
}

static json_t *link_to_json(const struct check_report *r, const struct check_link *l)
{
    return json_pack("{s:s, s:s, s:s}", "from", r->nodes[l->from].name, "to", r->nodes[l->to].name,
                     "result", check_reach_words[l->reach]);
}

static json_t *pair_to_json(const struct check_report *r, const struct check_pair *p)
{
    const char *a = r->nodes[p->a].name, *b = r->nodes[p->b].name;
    if (p->why[0] != '\0')
        return json_pack("{s:s, s:s, s:s}", "a", a, "b", b, "why", p->why);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "a", a, "b", b, "rtt_min_ns",
                     (json_int_t)p->rtt_min_ns, "rtt_median_ns", (json_int_t)p->rtt_median_ns,
                     "bytes_per_s", (json_int_t)p->forth, "bytes_per_s_back", (json_int_t)p->back);
}

static json_t *finding_to_json(const struct check_report *r, const struct check_finding *f)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s*}", "node", r->nodes[f->node].name, "what",
                     check_field_words[f->field], "level", f->is_failure ? "failed" : "warning",
                     "text", f->text, "hint", f->hint);
}

json_t *check_report_to_json(const struct check_report *r)
{
    json_t *nodes = json_array(), *links = json_array(), *pairs = json_array(),
           *findings = json_array();
    int rc = 0;
    for (size_t i = 0; i < r->n_nodes; i++)
        rc |= json_array_append_new(nodes, node_to_json(&r->nodes[i]));
    for (size_t i = 0; i < r->n_links; i++)
        rc |= json_array_append_new(links, link_to_json(r, &r->links[i]));
    for (size_t i = 0; i < r->n_pairs; i++)
        rc |= json_array_append_new(pairs, pair_to_json(r, &r->pairs[i]));
    for (size_t i = 0; i < r->n_findings; i++)
        rc |= json_array_append_new(findings, finding_to_json(r, &r->findings[i]));
    json_t *all = json_pack("{s:i, s:b, s:o, s:o, s:o, s:o}", "v", 1, "ok", !check_has_failed(r),
                            "nodes", nodes, "links", links, "pairs", pairs, "findings", findings);
    if (rc == 0)
        return all;
    json_decref(all);
    return NULL;
}
