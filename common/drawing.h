/* drawing.h - a table of states and rows as a drawing for Graphviz's dot.
 *
 *     co_draw_begin(out, "member", "rendezvous/member.c");
 *     co_draw_state(out, "SEEKING", "looks for the roster", "look");
 *     co_draw_row(out, "SEEKING", "WAITING", "LINK_UP", "always", "say_hello");
 *     co_draw_end(out);
 *
 * Functions are given by the names they have in the table. Two of these say nothing and are left
 * out: a condition called "always", a deed called "nothing". Failures of `out` are its caller's. */
#ifndef DDP_COMMON_DRAWING_H
#define DDP_COMMON_DRAWING_H

#include <stdio.h>

/* source   the file of the table, for the reader; its test is test_MACHINE */
void co_draw_begin(FILE *out, const char *machine, const char *source);
void co_draw_state(FILE *out, const char *name, const char *meaning, const char *on_entry);
void co_draw_row(FILE *out, const char *from, const char *to, const char *on, const char *only_if,
                 const char *does);
void co_draw_end(FILE *out);

#endif
