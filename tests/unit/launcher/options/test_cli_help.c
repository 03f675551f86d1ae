/* What -h, --help and --help TOPIC print. */
#include "one_command_line.h"

#include "launcher/options/cli_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BRIEF_LINES = 60, COLUMNS = 84 /* a variable may stick out */ };

static const char *const topics[] = {
    "launch",    "hosts",     "rendezvous", "restarts",    "termination", "output",
    "placement", "debugging", "general",    "environment", "exit-status", "topics",
};
enum { N_TOPICS = sizeof topics / sizeof *topics };

/* What a command line prints that asks for help. */
static const char *help_of(const char *const *words)
{
    static char text[1 << 16];
    int argc = 0;
    while (words[argc] != NULL)
        argc++;
    ck_assert_int_eq(parse(words), 0);
    ck_assert_int_eq(wish, CLI_HELP);
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    cli_print_help(argc, (char **)words, out);
    fclose(out);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= COLUMNS, "%.100s", line);
    return text;
}

#define HELP(...) help_of((const char *[]){__VA_ARGS__, NULL})

/* A line with "  -n, --np" */
static bool has_option(const char *text, const struct co_option *o)
{
    char name[80];
    int n = snprintf(name, sizeof name, o->letter != 0 ? "\n  -%c, " : "\n      ", o->letter);
    snprintf(name + n, sizeof name - (size_t)n, "--%s", o->name);
    const size_t len = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
        if (!isalnum((unsigned char)at[len]) && at[len] != '-')
            return true;
    return false;
}

START_TEST(the_help_names_each_option_and_its_variable)
{
    const char *text = HELP("ddprun", "--help");
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        ck_assert_msg(has_option(text, o), "--%s is missing", o->name);
        ck_assert(o->env == NULL || strstr(text, o->env) != NULL);
    }
    ck_assert_ptr_nonnull(strstr(text, "\nExit status:\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nExamples:\n"));
}
END_TEST

START_TEST(the_short_help_fits_a_screen_and_has_common_options_topics_and_examples)
{
    const char *text = HELP("ddprun", "-h");
    int n_lines = 0, n_examples = 0;
    for (const char *c = text; *c != '\0'; c++)
        n_lines += *c == '\n';
    ck_assert_int_le(n_lines, BRIEF_LINES);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 80, "%.100s", line);
    for (const struct co_option *o = cli_table; o->id != 0; o++)
        ck_assert_int_eq(has_option(text, o), o->brief != NULL);
    for (int i = 0; i < N_TOPICS; i++)
        ck_assert_msg(strstr(text, topics[i]) != NULL, "%s", topics[i]);
    for (const char *c = strstr(text, "\nExamples:\n"); c != NULL; c = strstr(c + 1, "\n  ddprun "))
        n_examples++;
    ck_assert_int_eq(n_examples, 1 + 3);
    ck_assert_str_eq(HELP("ddprun", "-vh", "output"), text);
}
END_TEST

START_TEST(each_option_is_in_one_topic)
{
    static const char *pages[N_TOPICS];
    for (int i = 0; i < N_TOPICS; i++) {
        char word[40];
        snprintf(word, sizeof word, "--help=%s", topics[i]);
        pages[i] = strdup(HELP("ddprun", "-n2", word));
        ck_assert_str_eq(HELP("ddprun", "--help", topics[i], "-n2"), pages[i]);
    }
    for (const struct co_option *o = cli_table; o->id != 0; o++) {
        int n = 0;
        for (int i = 0; i < N_TOPICS; i++)
            n += has_option(pages[i], o);
        ck_assert_msg(n == 1, "--%s is in %d topics", o->name, n);
        ck_assert(o->env == NULL || strstr(pages[9], o->env) != NULL);
    }
    ck_assert_ptr_nonnull(strstr(pages[10], "\n  75 "));
    for (int i = 0; i < N_TOPICS; i++) {
        ck_assert_msg(strstr(pages[11], topics[i]) != NULL, "%s", topics[i]);
        free((char *)pages[i]);
    }
}
END_TEST

START_TEST(an_unknown_topic_is_refused_with_the_known_ones)
{
    ck_assert_int_eq(PARSE("ddprun", "--help", "train.py"), -EINVAL);
    ck_assert_str_eq(err.text, "invalid value 'train.py' for --help: expected one of launch, "
                               "hosts, rendezvous, restarts, termination, output, placement, "
                               "debugging, general, environment, exit-status, topics");
}
END_TEST

START_TEST(torchrun_has_no_topics)
{
    const char *text = HELP("torchrun", "--help", "train.py");
    ck_assert_ptr_nonnull(strstr(text, "\nRendezvous of several nodes:\n"));
}
END_TEST

TCase *cli_help_cases(void)
{
    TCase *t = tcase_create("help");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, the_help_names_each_option_and_its_variable);
    tcase_add_test(t, the_short_help_fits_a_screen_and_has_common_options_topics_and_examples);
    tcase_add_test(t, each_option_is_in_one_topic);
    tcase_add_test(t, an_unknown_topic_is_refused_with_the_known_ones);
    tcase_add_test(t, torchrun_has_no_topics);
    return t;
}
