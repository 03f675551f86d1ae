#include "drawing.h"

#include <string.h>

void co_draw_begin(FILE *out, const char *machine, const char *source)
{
    fprintf(out,
            "// Made from the table in %s; test_%s compares them.\n"
            "digraph %s {\n"
            "    node [shape=box, style=rounded];\n",
            source, machine, machine);
}

/* The lead and the name, unless it is the one that says nothing. */
static void draw_part(FILE *out, const char *lead, const char *name, const char *silent)
{
    if (strcmp(name, silent) != 0)
        fprintf(out, "%s%s", lead, name);
}

void co_draw_state(FILE *out, const char *name, const char *meaning, const char *on_entry)
{
    fprintf(out, "    %s [label=\"%s\\n%s", name, name, meaning);
    draw_part(out, "\\non entry: ", on_entry, "nothing");
    fprintf(out, "\"];\n");
}

void co_draw_row(FILE *out, const char *from, const char *to, const char *on, const char *only_if,
                 const char *does)
{
    fprintf(out, "    %s -> %s [label=\"%s", from, to, on);
    draw_part(out, ", ", only_if, "always");
    draw_part(out, ": ", does, "nothing");
    fprintf(out, "\"];\n");
}

void co_draw_end(FILE *out)
{
    fprintf(out, "}\n");
}
