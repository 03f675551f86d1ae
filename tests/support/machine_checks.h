/* machine_checks.h - what the tests of all tables of states assert: that the table is whole, and
 * that its drawing in docs is up to date. */
#ifndef DDP_TESTS_SUPPORT_MACHINE_CHECKS_H
#define DDP_TESTS_SUPPORT_MACHINE_CHECKS_H

#include "common/machine.h"

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each pair of state and event has one answer. */
static inline void assert_whole(const struct co_machine *m)
{
    for (unsigned state = 0; state < m->n_states; state++)
        for (unsigned event = 0; event < m->n_events; event++)
            ck_assert_msg(co_machine_covers(m, state, event),
                          "%s on %s: no row without condition and not ignored, or both",
                          m->states[state].name, m->event_names[event]);
}

static inline void write_drawing(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static inline void assert_drawing(const char *path, const char *text, const char *variable)
{
    char drawn[32768];
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "cannot open %s", path);
    drawn[fread(drawn, 1, sizeof drawn - 1, f)] = '\0';
    fclose(f);
    ck_assert_msg(strcmp(drawn, text) == 0, "%s is not the table: make it again by %s=%s", path,
                  variable, path);
}

/* docs/design/NAME.dot is the table. Make it again by WRITE_NAME_DOT=docs/design/NAME.dot in the
 * environment, the name in capitals. */
static inline void assert_drawn(const struct co_machine *m, const char *name)
{
    char path[4096], variable[64];
    char *text;
    size_t n;
    snprintf(path, sizeof path, "%s/../../docs/design/%s.dot", getenv("TEST_DATA"), name);
    snprintf(variable, sizeof variable, "WRITE_%s_DOT", name);
    for (char *c = variable; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    FILE *out = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(out);
    co_machine_draw(m, out);
    ck_assert_int_eq(fclose(out), 0);
    if (getenv(variable) != NULL)
        write_drawing(getenv(variable), text);
    assert_drawing(path, text, variable);
    free(text);
}

#endif
