/* chargpt_options.h - the command line of chargpt.c. */
#ifndef DDP_EXAMPLES_CHARGPT_CHARGPT_OPTIONS_H
#define DDP_EXAMPLES_CHARGPT_CHARGPT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct failure;

struct chargpt_options {
    const char *const *texts; /* files and directories */
    int n_texts;
    int64_t layers, width, heads, context;
    int64_t batch; /* stretches of a step, of all ranks together */
    int64_t steps;
    double minutes;  /* stop after so many; 0: no limit */
    int64_t stop_at; /* stop after that step; 0: no limit */
    double lr;
    int64_t seed;
    int64_t print_every, test_every; /* steps; 0: at the end only */
    const char *checkpoint;          /* directory; NULL: none */
    int64_t save_every;              /* steps; 0: at the end only */
    int64_t keep;                    /* checkpoints; 0: all */
    int64_t local_steps;             /* 0: every step is averaged */
    double outer_lr;                 /* 0: libddp's */
    const char *compress;            /* NULL: not */
    bool resume, verify, zero1, fragments, help;
    const char *loss_file; /* NULL: none */
};

/* Read the command line. Strings are borrowed from argv.
 * returns   0, or -1 with the reason in `why` */
int chargpt_options_parse(int argc, char **argv, struct chargpt_options *ret_opts,
                          struct failure *why);

/* --compress. returns one of enum ddp_compress; -1 for another text */
int chargpt_options_compress(const struct chargpt_options *o);

/* The text of --help. */
extern const char chargpt_options_help[];

#endif
