/* output_spec.h - where the ranks' output shall go: the texts of the options, checked. Pure. */
#ifndef DDP_LAUNCHER_JOB_OUTPUT_SPEC_H
#define DDP_LAUNCHER_JOB_OUTPUT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_SPEC_RANKS_MAX 1024

struct co_error;

enum { OUTPUT_OUT = 1, OUTPUT_ERR = 2 }; /* bits of torchrun's specs */

enum output_color {
    OUTPUT_COLOR_AUTO, /* on a terminal */
    OUTPUT_COLOR_ALWAYS,
    OUTPUT_COLOR_NEVER
};

struct log_turn {       /* --log-rotate; zeroed: never */
    uint64_t max_bytes; /* of a file; a line that is longer by itself is cut */
    int n_kept;         /* how many old ones are kept, 0 to LOG_KEPT_MAX */
};

#define LOG_KEPT_MAX 99

struct output_spec {
    char *log_dir;     /* owned; as given; NULL: none asked for */
    bool log_dir_null; /* it is /dev/null: -r and -t mean nothing, as with torchrun */
    uint8_t redirects[OUTPUT_SPEC_RANKS_MAX]; /* by local rank: to files only */
    uint8_t tees[OUTPUT_SPEC_RANKS_MAX];      /* to files and here */
    bool hidden[OUTPUT_SPEC_RANKS_MAX];       /* not here, in files only */
    struct log_turn log_turn;                 /* of the log files */
    uint64_t fold_ms; /* hold labeled lines for so long, for others to write the same; 0: they are
                       * not held */
    char *label;      /* owned; a format; "": none; NULL: the default where it is wanted */
    enum output_color color; /* of labels */
    char *line_prefix;       /* owned; torchrun's template for lines of -t; NULL: its default */
    char **filters[2]; /* owned, one block, NULL-terminated, of stdout and stderr; NULL: none */
    bool stdin_asked;  /* by --stdin: on a terminal that rank's output has no label */
    int stdin_rank;    /* the rank that reads ours; -1: none */
};

void output_spec_fini(struct output_spec *s);

/* torchrun's spec: one of 0 to 3 for all ranks, or RANK:[0-3],... with 0 for the others.
 *
 * what      named in messages
 * ret       n_ranks values
 * returns   0, -EINVAL */
int output_spec_parse_streams(const char *what, const char *text, int n_ranks, uint8_t *ret,
                              struct co_error *err);

/* Local ranks that are shown: "0,2"; "" is all. ret_hidden is set for the others.
 *
 * returns   0, -EINVAL, -ERANGE: no such rank */
int output_spec_parse_ranks(const char *what, const char *text, int n_ranks, bool *ret_hidden,
                            struct co_error *err);

/* Words between commas; two commas are one that belongs to a word. Empty words are left out.
 *
 * returns   one block to free(), NULL-terminated; NULL: out of memory */
char **output_spec_split(const char *text);

/* The origin of a line. */
struct output_label {
    const char *host, *hostname, *role; /* the name up to its first dot; all of it */
    int rank, local_rank;
    uint32_t generation;
    const char *ranks,
        *local_ranks; /* instead of the numbers, where several ranks write the same; or NULL */
};

#define OUTPUT_LABEL_DEFAULT "{host}:{rank}: "

/* Is format made of text and {host} {rank} {local_rank} {generation}, {{ and }} for braces?
 *
 * returns   0, -EINVAL: the text names what is unknown */
int output_spec_check_label(const char *what, const char *format, struct co_error *err);

/* The label for a line, cut to what fits into n bytes. returns its length */
size_t output_spec_label(const char *format, const struct output_label *of, char *to, size_t n);

/* The same in a color that neighboring ranks do not have; an empty label has none. */
size_t output_spec_colored_label(const char *format, const struct output_label *of, char *to,
                                 size_t n);

/* The same for torchrun's templates: ${role_name} ${rank} ${local_rank} ${hostname}, $$; other
 * names stay. */
size_t output_spec_template(const char *format, const struct output_label *of, char *to, size_t n);

#endif
