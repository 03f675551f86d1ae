/* check_text.c - a report for people: a row per node, then what is wrong. */
#include "check_report.h"

#include "ctl/base/table.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { CELL_BYTES = 80 };

static const char *const heads[] = {"NODE",   "STATE",   ">REACH", "VERSION", ">CLOCK",
                                    ">FILES", ">LOCKED", ">QUEUE", ">SHM",    "NAME",
                                    "PORTS",  "TOKEN",   "GPUS",   ">RTT",    ">MB/S"};
enum { N_COLUMNS = sizeof heads / sizeof *heads, N_NET_COLUMNS = 2 };

/* --- cells --- */

/* The worst that was found about a node in this field. */
static const char *mark(const struct check_report *r, size_t node, enum check_field field)
{
    const char *worst = "";
    for (size_t i = 0; i < r->n_findings; i++)
        if (r->findings[i].node == node && r->findings[i].field == field)
            worst = r->findings[i].is_failure ? "!" : worst[0] == '!' ? worst : "?";
    return worst;
}

static const char *state_of(const struct check_report *r, size_t node)
{
    const char *state = "ok";
    for (size_t i = 0; i < r->n_findings; i++) {
        if (r->findings[i].node == node && r->findings[i].is_failure)
            return "failed";
        if (r->findings[i].node == node)
            state = "warning";
    }
    return state;
}

static const char *count_text(uint64_t n, char cell[CELL_BYTES])
{
    if (n == CHECK_UNKNOWN)
        return "-";
    if (n == CHECK_UNLIMITED)
        return "all";
    snprintf(cell, CELL_BYTES, "%" PRIu64, n);
    return cell;
}

static const char *bytes(uint64_t n, char cell[CELL_BYTES])
{
    if (n == CHECK_UNKNOWN || n == CHECK_UNLIMITED)
        return count_text(n, cell);
    if (n >= (uint64_t)10 << 30)
        snprintf(cell, CELL_BYTES, "%" PRIu64 "G", n >> 30);
    else if (n >= (uint64_t)10 << 20)
        snprintf(cell, CELL_BYTES, "%" PRIu64 "M", n >> 20);
    else
        snprintf(cell, CELL_BYTES, "%" PRIu64 "K", n >> 10);
    return cell;
}

static const char *clock_cell(const struct check_node *n, char cell[CELL_BYTES])
{
    if (!n->has_clock)
        return "-";
    snprintf(cell, CELL_BYTES, "%+.3f+-%.3f ms", (double)n->offset_ns / 1e6,
             (double)n->error_ns / 1e6);
    return cell;
}

static const char *shm_cell(const struct check_facts *f, char cell[CELL_BYTES])
{
    char free[CELL_BYTES], all[CELL_BYTES];
    snprintf(cell, CELL_BYTES, "%s/%s", bytes(f->shm_free, free), bytes(f->shm_bytes, all));
    return cell;
}

static const char *gpus_cell(const struct check_facts *f, char cell[CELL_BYTES])
{
    if (f->n_gpus == CHECK_UNKNOWN || f->n_gpus == 0)
        return "-";
    snprintf(cell, CELL_BYTES, "%" PRIu64 " %s%s%s", f->n_gpus, f->driver,
             f->nccl[0] != '\0' ? " nccl " : "", f->nccl);
    return cell;
}

static const char *port_cell(const struct check_report *r, size_t node)
{
    bool is_asked = false;
    for (size_t i = 0; i < r->n_links; i++)
        is_asked |= r->links[i].to == node;
    return mark(r, node, CHECK_PORTS)[0] != '\0' ? "" : is_asked ? "ok" : "-";
}

static const char *token_cell(const struct check_report *r, size_t node)
{
    bool is_other = mark(r, node, CHECK_TOKEN)[0] != '\0';
    return r->nodes[node].facts.token_id[0] == '\0' ? "none" : is_other ? "other" : "same";
}

/* The slowest of its pairs. */
static void add_net(struct table *t, const struct check_report *r, size_t node)
{
    uint64_t rtt_ns = 0, speed = UINT64_MAX;
    for (size_t i = 0; i < r->n_pairs; i++) {
        const struct check_pair *p = &r->pairs[i];
        if ((p->a != node && p->b != node) || p->why[0] != '\0')
            continue;
        rtt_ns = p->rtt_median_ns > rtt_ns ? p->rtt_median_ns : rtt_ns;
        speed = p->forth < speed ? p->forth : speed;
        speed = p->back < speed ? p->back : speed;
    }
    if (speed == UINT64_MAX) {
        table_add(t, "-");
        table_add(t, "-%s", mark(r, node, CHECK_NET));
        return;
    }
    table_add(t, "%.3f ms", (double)rtt_ns / 1e6);
    table_add(t, "%.1f%s", (double)speed / 1e6, mark(r, node, CHECK_NET));
}

/* --- rows --- */

static void add_facts(struct table *t, const struct check_report *r, size_t i)
{
    const struct check_node *n = &r->nodes[i];
    const struct check_facts *f = &n->facts;
    char cell[CELL_BYTES];
    table_add(t, "%s%s", f->version[0] != '\0' ? f->version : "none", mark(r, i, CHECK_VERSION));
    table_add(t, "%s%s", clock_cell(n, cell), mark(r, i, CHECK_CLOCK));
    table_add(t, "%s%s", count_text(f->nofile_hard, cell), mark(r, i, CHECK_NOFILE));
    table_add(t, "%s%s", bytes(f->memlock, cell), mark(r, i, CHECK_MEMLOCK));
    table_add(t, "%s%s", count_text(f->somaxconn, cell), mark(r, i, CHECK_BACKLOG));
    table_add(t, "%s%s", shm_cell(f, cell), mark(r, i, CHECK_SHM));
    table_add(t, "%s%s", f->host, mark(r, i, CHECK_NAMES));
    table_add(t, "%s%s", port_cell(r, i), mark(r, i, CHECK_PORTS));
    table_add(t, "%s%s", token_cell(r, i), mark(r, i, CHECK_TOKEN));
    table_add(t, "%s%s", gpus_cell(f, cell), mark(r, i, CHECK_GPUS));
}

static void add_row(struct table *t, const struct check_report *r, size_t i)
{
    const struct check_node *n = &r->nodes[i];
    table_add(t, "%s", n->name);
    table_add(t, "%s", state_of(r, i));
    if (n->is_up)
        table_add(t, "%.2f s%s", (double)n->reach_ms / 1e3, mark(r, i, CHECK_REACH));
    else
        table_add(t, "-%s", mark(r, i, CHECK_REACH));
    if (n->has_facts)
        add_facts(t, r, i);
    else
        for (int k = 3; k < N_COLUMNS - N_NET_COLUMNS; k++)
            table_add(t, "-");
    if (r->has_net)
        add_net(t, r, i);
}

static void print_findings(const struct check_report *r, FILE *out)
{
    if (r->n_findings > 0)
        fputc('\n', out);
    for (size_t i = 0; i < r->n_findings; i++) {
        const struct check_finding *f = &r->findings[i];
        fprintf(out, "%s: %s: %s: %s\n", r->nodes[f->node].name,
                f->is_failure ? "failed" : "warning", check_field_words[f->field], f->text);
        if (f->hint != NULL)
            fprintf(out, "    try: %s\n", f->hint);
    }
}

static void print_sum(const struct check_report *r, FILE *out)
{
    size_t n_failed = 0, n_warned = 0;
    for (size_t i = 0; i < r->n_nodes; i++) {
        n_failed += strcmp(state_of(r, i), "failed") == 0;
        n_warned += strcmp(state_of(r, i), "warning") == 0;
    }
    fprintf(out, "\n%zu node%s, %zu failed, %zu with warnings\n", r->n_nodes,
            r->n_nodes == 1 ? "" : "s", n_failed, n_warned);
}

int check_text_print(const struct check_report *r, FILE *out)
{
    struct table t;
    table_init(&t, heads, r->has_net ? N_COLUMNS : N_COLUMNS - N_NET_COLUMNS);
    for (size_t i = 0; i < r->n_nodes; i++)
        add_row(&t, r, i);
    int rc = table_print(&t, 0, 0, out);
    table_fini(&t);
    if (rc < 0)
        return rc;
    print_findings(r, out);
    print_sum(r, out);
    return 0;
}
