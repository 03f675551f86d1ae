/* machine.h - a table of states and rows, seen from outside: whether it is whole, and how it is
 * drawn.
 *
 *     struct row {
 *         struct co_machine_row at;
 *         condition *only_if;
 *         action *does;
 *     };
 *     const struct co_machine door_machine =
 *         CO_MACHINE("door", "house/door.c", states, event_names, rows, ignored);
 *
 * It takes no steps: conditions and actions have the types of the module that owns the table. That
 * module reads it from the top and takes the first row that fits. Here they are known by the names
 * that they have in the table. Two of these are silent: a condition called "always", an action
 * called "nothing". */
#ifndef DDP_COMMON_MACHINE_H
#define DDP_COMMON_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct co_machine_state {
    const char *name, *meaning;
    const char *on_entry; /* a action */
};

/* States and events are indices. */
struct co_machine_row {
    unsigned in, on, then;
    const char *only_if, *does;
};

/* A pair that cannot happen, or that means nothing when it does. */
struct co_machine_pair {
    unsigned in, on;
};

struct co_machine {
    const char *name;
    const char *source; /* the file of the table, for the reader of its drawing */
    const struct co_machine_state *states;
    size_t n_states;
    const char *const *event_names;
    size_t n_events;
    const struct co_machine_row *first_row; /* the next one begins row_bytes later */
    size_t n_rows, row_bytes;
    const struct co_machine_pair *ignored;
    size_t n_ignored;
};

/* All but the first two are arrays. */
#define CO_MACHINE(name, source, states, event_names, rows, ignored)                               \
    {                                                                                              \
        name, source, states, CO_MACHINE_N(states), event_names, CO_MACHINE_N(event_names),        \
            &(rows)[0].at, CO_MACHINE_N(rows), sizeof *(rows), ignored, CO_MACHINE_N(ignored)      \
    }
#define CO_MACHINE_N(array) (sizeof(array) / sizeof *(array))

/* What the three arrays hold for each entry of a list of states, X(name, on_entry, meaning), or of
 * events, X(name, meaning), including the actions on entry. */
#define CO_MACHINE_STATE(name, on_entry, meaning) {#name, meaning, #on_entry},
#define CO_MACHINE_ENTRY(name, on_entry, meaning) on_entry,
#define CO_MACHINE_EVENT(name, meaning)           #name,

/* Whether this pair of state and event is covered: it has a row without a condition, or it has no
 * row and is in the list of ignored pairs. */
bool co_machine_covers(const struct co_machine *m, unsigned state, unsigned event);

/* Whether it is in that list. */
bool co_machine_ignores(const struct co_machine *m, unsigned state, unsigned event);

/* For Graphviz's dot. Failures of `out` are its caller's. */
void co_machine_draw(const struct co_machine *m, FILE *out);

#endif
