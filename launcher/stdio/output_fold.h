/* output_fold.h - fold.h for the two sinks of the output, with its timer. */
#ifndef DDP_LAUNCHER_STDIO_OUTPUT_FOLD_H
#define DDP_LAUNCHER_STDIO_OUTPUT_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct fold_line;
struct output_fold; /* opaque */

/* The label for a line that one rank or several have written. returns its length, at most n */
typedef size_t (*output_fold_label)(const void *arg, const struct fold_line *line, char *to,
                                    size_t n);

struct output_fold_opts { /* copied; arguments borrowed */
    uv_loop_t *loop;
    int n_ranks;
    uint64_t hold_ms;
    output_fold_label label;
    const void *label_arg;
    /* whole lines, for sink 0 or 1; from the loop, or from any call below but close */
    void (*write)(void *arg, int sink, const char *bytes, size_t n);
    void *write_arg;
};

/* returns NULL without memory */
struct output_fold *output_fold_create(const struct output_fold_opts *opts);

/* Lines of a rank's; the last needs no newline. */
void output_fold_add(struct output_fold *f, int sink, int rank, const char *text, size_t n);

/* Write all that is held. */
void output_fold_flush(struct output_fold *f);

/* Forget it. Frees f when the loop has closed its timer; NULL is fine. */
void output_fold_close(struct output_fold *f);

#endif
