/* options.h - a table of options: parses the command line, and prints the help.
 *
 * Long options take dashes and underscores alike, unambiguous prefixes, --name=V and --name V;
 * letters take -n 4, -n4, -n=4, and flags may share a dash (-vv). The walk ends at the first word
 * that is not an option, or after `--`: the rest belongs to another parser and is not examined.
 *
 *     struct co_option_walk w;
 *     struct co_option_found found;
 *     co_options_start(&w, table, argc, argv);
 *     while ((rc = co_options_next(&w, &found, err)) > 0)
 *         ... switch (found.option->id) ...
 *     ... rc < 0: wrong usage; else argv[w.at] is the first word after the options ...
 *
 * The caller checks what values mean, and which options cannot be used together.
 */
#ifndef DDP_COMMON_OPTIONS_H
#define DDP_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

struct co_error;

#define CO_OPTION_NAME_MAX  40   /* characters of a long name in a table */
#define CO_OPTION_VALUE_MAX 4096 /* bytes of a value; longer ones are refused */
#define CO_OPTIONS_MAX      1000 /* options on one command line; more are refused */

struct co_option {
    int id;            /* > 0; rows with one id are spellings of one option. 0 ends the table */
    char letter;       /* 'n' for -n; 0: none */
    const char *name;  /* the long name, with dashes */
    const char *value; /* what the help calls its value, "N"; NULL: a flag, it takes none */
    const char *env;   /* the variable that holds its default, shown in the help; NULL: none */
    const char *help;  /* one or more sentences; NULL: not in the help (another spelling) */
    const char
        *subject;      /* the heading of the group that begins with this row; NULL: no new group */
    int value_max;     /* bytes of the value; 0: CO_OPTION_VALUE_MAX */
    bool optional;     /* --name may have no value; a value only follows after '=' */
    bool weak;         /* a prefix shared with one option that isn't means that one */
    bool takes_next;   /* with `optional`: the long form also takes the next word as its value,
                            unless that looks like an option */
    const char *topic; /* with `subject`: the group in one word, for --help TOPIC */
    const char *brief; /* a line of the short help; NULL: not in it */
};

struct co_option_walk {
    int at; /* index of the next word; after the end, of the first word after the options */

    /* the walk's own */
    const struct co_option *table;
    int argc;
    char **argv;
    const char *letters; /* what is left of a word like -vv; NULL: nothing */
    int n_found;
    bool ended;
    char spelled[CO_OPTION_NAME_MAX + 3];
};

struct co_option_found {
    const struct co_option *option; /* its row */
    const char *spelled;            /* "-n" or "--np", for messages; valid until the next call */
    const char *value;              /* part of argv; NULL for a flag, or left out */
};

/* Begin after argv[0]. The table and argv are borrowed for the whole walk. */
void co_options_start(struct co_option_walk *w, const struct co_option *table, int argc,
                      char **argv);

/* The next option.
 *
 * returns   1         *ret is filled
 *           0         no options are left
 *           -EINVAL   unknown (the text names the nearest), ambiguous, a value missing or too long,
 *                     a value where none belongs, or too many options */
int co_options_next(struct co_option_walk *w, struct co_option_found *ret, struct co_error *err);

/* The table as text, wrapped at 80 columns: a heading per subject, then a paragraph per option. */
void co_options_print_help(const struct co_option *table, FILE *out);

/* The group with this topic, in the same form. returns false: no group has it */
bool co_options_print_group(const struct co_option *table, const char *topic, FILE *out);

/* The options that have a `brief` text, without headings. */
void co_options_print_brief(const struct co_option *table, FILE *out);

/* A line for each group that has a topic: the topic and the subject. */
void co_options_print_topics(const struct co_option *table, FILE *out);

#endif
