/* text.h - a text to learn from: files one after the other, of which every tenth KiB is held out to
 * see what was learned.
 *
 * Stretches to learn from never touch what is held out. */
#ifndef DDP_EXAMPLES_CHARGPT_TEXT_H
#define DDP_EXAMPLES_CHARGPT_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct failure;

enum {
    TEXT_BLOCK = 1024,                            /* bytes of a block */
    TEXT_PERIOD = 10,                             /* of so many blocks the last one is held out */
    TEXT_LEARNT = TEXT_BLOCK * (TEXT_PERIOD - 1), /* bytes before it */
    TEXT_MAX_BYTES = 1 << 30,
    TEXT_MAX_FILES = 1 << 16,
};

struct text {
    uint8_t *bytes; /* n; owned */
    size_t n, n_files;
};

/* Read files, and the ordinary files of directories in the order of their names, but not of
 * directories in them. A file that is there twice (a link) is read once, or what is held out in one
 * place could be learnt in the other.
 *
 * ret_text   the caller calls text_fini()
 * returns    0, or -1: cannot be read, more than the bounds allow; the text names the file */
int text_read(const char *const *paths, size_t n_paths, struct text *ret_text, struct failure *why);
void text_fini(struct text *t); /* a zeroed one is fine */

/* Stretches of `length` bytes (at most TEXT_LEARNT) to learn from, beginning at any byte. */
size_t text_count(const struct text *t, size_t length);
const uint8_t *text_at(const struct text *t, size_t length, size_t i); /* lent */

/* Blocks that are held out: TEXT_BLOCK bytes each. */
size_t text_count_held_out(const struct text *t);
const uint8_t *text_held_out(const struct text *t, size_t i); /* lent */

#endif
