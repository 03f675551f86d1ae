#include "machine.h"

#include <string.h>

static const struct co_machine_row *row_at(const struct co_machine *m, size_t i)
{
    const char *first = (const char *)m->first_row;
    return (const struct co_machine_row *)(const void *)(first + i * m->row_bytes);
}

/* --- Whole --- */

bool co_machine_ignores(const struct co_machine *m, unsigned state, unsigned event)
{
    for (size_t i = 0; i < m->n_ignored; i++)
        if (m->ignored[i].in == state && m->ignored[i].on == event)
            return true;
    return false;
}

bool co_machine_covers(const struct co_machine *m, unsigned state, unsigned event)
{
    bool has_row = false;
    bool has_answer = false;
    for (size_t i = 0; i < m->n_rows; i++) {
        const struct co_machine_row *row = row_at(m, i);
        if (row->in != state || row->on != event)
            continue;
        has_row = true;
        has_answer |= strcmp(row->only_if, "always") == 0;
    }
    return co_machine_ignores(m, state, event) ? !has_row : has_answer;
}

/* --- Drawn --- */

/* The lead and the name, unless it is the silent one. */
static void draw_part(FILE *out, const char *lead, const char *name, const char *silent)
{
    if (strcmp(name, silent) != 0)
        fprintf(out, "%s%s", lead, name);
}

static void draw_state(FILE *out, const struct co_machine_state *s)
{
    fprintf(out, "    %s [label=\"%s\\n%s", s->name, s->name, s->meaning);
    draw_part(out, "\\non entry: ", s->on_entry, "nothing");
    fprintf(out, "\"];\n");
}

static void draw_row(FILE *out, const struct co_machine *m, const struct co_machine_row *row)
{
    fprintf(out, "    %s -> %s [label=\"%s", m->states[row->in].name, m->states[row->then].name,
            m->event_names[row->on]);
    draw_part(out, ", ", row->only_if, "always");
    draw_part(out, ": ", row->does, "nothing");
    fprintf(out, "\"];\n");
}

void co_machine_draw(const struct co_machine *m, FILE *out)
{
    fprintf(out,
            "// Made from the table in %s; test_%s compares them.\n"
            "digraph %s {\n"
            "    node [shape=box, style=rounded];\n",
            m->source, m->name, m->name);
    for (size_t i = 0; i < m->n_states; i++)
        draw_state(out, &m->states[i]);
    for (size_t i = 0; i < m->n_rows; i++)
        draw_row(out, m, row_at(m, i));
    fprintf(out, "}\n");
}
