/* fold.h - the same line from several ranks -> one line. Pure: the time comes in as an argument.
 *
 * A line is held until all ranks have written it, or for a while. Lines of one rank stay in their
 * order; a line joins one that is held if its rank has written nothing after that. At most
 * FOLD_LINES lines and FOLD_BYTES bytes are held: then the oldest line is written as it is. */
#ifndef DDP_LAUNCHER_LINES_FOLD_H
#define DDP_LAUNCHER_LINES_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOLD_RANKS_MAX 1024
#define FOLD_LINES     256
#define FOLD_BYTES     65536

struct fold; /* opaque */

struct fold_line {
    char *text; /* n bytes */
    size_t n;
    int n_ranks;
    uint64_t ranks[FOLD_RANKS_MAX / 64]; /* the ranks that wrote it, one bit each */
};

/* n_ranks   1 to FOLD_RANKS_MAX
 * hold_ms   how long a line is held
 * returns   NULL without memory */
struct fold *fold_create(int n_ranks, uint64_t hold_ms);
void fold_destroy(struct fold *f); /* NULL is fine */

/* A line of a rank's, copied. returns 0, -ENOMEM: it is not held */
int fold_add(struct fold *f, int rank, const char *text, size_t n, uint64_t now_ms);

/* The next line that need not be held any longer, or any with `all`; lent until the next call.
 * returns NULL: none */
const struct fold_line *fold_take(struct fold *f, uint64_t now_ms, bool all);

/* When the next one is to be taken. returns CO_NEVER_MS: nothing is held */
uint64_t fold_due_ms(const struct fold *f);

/* Its ranks, each with `first` added, as "0-3,8"; what does not fit into n bytes is "...".
 * returns to */
char *fold_print_ranks(const struct fold_line *line, int first, char *to, size_t n);

#endif
