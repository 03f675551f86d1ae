/* The table of options: whatever else is written of them has all of them, and torchrun's spellings
 * mean what they mean there. */
#include "one_command_line.h"

#include "common/scope.h"
#include "launcher/options/cli_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file of the source tree, whole. */
static const char *read_source(const char *name)
{
    char path[1024];
    static char text[1 << 17];
    snprintf(path, sizeof path, "%s/../../%s", getenv("TEST_DATA"), name);
    co_autoclose FILE *in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    return text;
}

START_TEST(the_manual_page_has_each_option)
{
    const char *page = read_source("man/ddprun.1");
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        char named[80], variable[80];
        snprintf(named, sizeof named, ".It Fl -%s", o->name);
        if (o->letter != 0)
            snprintf(named, sizeof named, ".It Fl %c , Fl -%s", o->letter, o->name);
        ck_assert_msg(strstr(page, named) != NULL, "%s is not in ddprun(1)", named);
        snprintf(variable, sizeof variable, ".It Ev %s\n", o->env);
        ck_assert_msg(o->env == NULL || strstr(page, variable) != NULL, "%s is not in ddprun(1)",
                      variable);
    }
}
END_TEST

START_TEST(every_option_has_a_help_text_and_its_variable)
{
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        char variable[80] = "PET_";
        ck_assert_ptr_nonnull(o->help);
        if (o->env == NULL)
            continue;
        for (size_t i = 0; i <= strlen(o->name); i++)
            variable[4 + i] = (char)(o->name[i] == '-' ? '_' : toupper(o->name[i]));
        ck_assert_str_eq(o->env, variable);
        ck_assert(!o->weak);
    }
}
END_TEST

/* What torchrun knows, by its long names. */
static const char *const torchruns[] = {
    "nnodes",
    "nproc-per-node",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
    "max-restarts",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "module",
    "no-python",
    "run-path",
    "log-dir",
    "redirects",
    "tee",
    "log-line-prefix-template",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "logs-specs",
    "numa-binding",
    "signals-to-handle",
    "virtual-local-rank",
    "shutdown-timeout",
    "print-completion",
    "help",
};
enum { N_TORCHRUNS = sizeof torchruns / sizeof *torchruns };

/* The id that the table has for one spelling; 0: none. */
static int id_of(const char *spelling)
{
    char word[80];
    struct co_option_walk walk;
    struct co_option_found found;
    snprintf(word, sizeof word, "--%s", spelling);
    char *argv[] = {(char *)"ddprun", word, (char *)"1", NULL};
    co_options_start(&walk, cli_table, 3, argv);
    return co_options_next(&walk, &found, NULL) > 0 ? found.option->id : 0;
}

START_TEST(every_spelling_of_torchrun_has_its_meaning)
{
    for (int i = 0; i < N_TORCHRUNS; i++) {
        const char *name = torchruns[i];
        int id = id_of(name);
        ck_assert_msg(id > 0, "%s is unknown", name);
        for (size_t len = 1; len <= strlen(name); len++) {
            int n_meant = 0;
            for (int j = 0; j < N_TORCHRUNS; j++)
                n_meant += strncmp(torchruns[j], name, len) == 0;
            if (n_meant > 1 || strncmp(name, "np", len) == 0) /* --np is ours, and means the same */
                continue;
            char spelling[80];
            snprintf(spelling, sizeof spelling, "%.*s", (int)len, name);
            ck_assert_msg(id_of(spelling) == id, "--%s is not --%s", spelling, name);
            for (char *c = spelling; *c != '\0'; c++)
                *c = *c == '-' ? '_' : *c;
            ck_assert_msg(id_of(spelling) == id, "--%s is not --%s", spelling, name);
        }
    }
}
END_TEST

TCase *cli_table_cases(void)
{
    TCase *t = tcase_create("table");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, the_manual_page_has_each_option);
    tcase_add_test(t, every_option_has_a_help_text_and_its_variable);
    tcase_add_test(t, every_spelling_of_torchrun_has_its_meaning);
    return t;
}
