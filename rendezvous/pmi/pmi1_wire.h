/* pmi1_wire.h - lines of PMI-1, by which programs with the MPICH ABI find each other.
 *
 * Pure. A line is words of NAME=VALUE with blanks between them, ended by a newline:
 *
 *     cmd=put kvsname=job key=P0-businesscard value=tag#0...
 *
 * Neither names nor values hold blanks; a value may hold '='. docs/design/pmi1.md has the
 * commands. */
#ifndef DDP_RENDEZVOUS_PMI_PMI1_WIRE_H
#define DDP_RENDEZVOUS_PMI_PMI1_WIRE_H

#include "rendezvous/store/wire.h"

#include <stdbool.h>

struct co_error;

enum {
    PMI1_LINE_BYTES = 4096, /* bytes of the longest line, its newline included */
    PMI1_MAX_WORDS = 32,    /* in a line */
    /* what is promised to clients by get_maxes; each includes a NUL */
    PMI1_KVSNAME_BYTES = 256,
    PMI1_KEY_BYTES = 64,
    PMI1_VALUE_BYTES = 1024,
};

#define PMI1_MAPPING_KEY "PMI_process_mapping" /* which ranks share a node */

/* A line that was taken apart; lends its bytes. */
struct pmi1_line {
    size_t n;
    struct {
        struct wire_bytes name, value; /* of a word without '=': empty */
    } words[PMI1_MAX_WORDS];
};

/* bytes     without the newline
 * returns   0
 *           -EPROTO   control characters, no word, a word without a name, excess words or bytes */
int pmi1_parse(const uint8_t *bytes, size_t len, struct pmi1_line *ret, struct co_error *err);

/* The first word of that name. returns whether there is one */
bool pmi1_find(const struct pmi1_line *line, const char *name, struct wire_bytes *ret_value);

/* Is it there, and is its value this one? */
bool pmi1_says(const struct pmi1_line *line, const char *name, const char *value);

/* A value that is a whole number from min to max. returns 0; -EPROTO: it is missing or invalid */
int pmi1_find_int(const struct pmi1_line *line, const char *name, int min, int max, int *ret,
                  struct co_error *err);

/* A failure as a value, for the ranks that wait for another one: '!' and its text, in which "%20"
 * stands for a blank and "%25" for '%'. */
void pmi1_print_failure(const struct co_error *why, char ret_value[PMI1_VALUE_BYTES]);

/* Restore the blanks and '%' of such a value in place. Other values stay as they are. */
void pmi1_restore_failure(char *value);

/* The next line of a stream: its length without the newline.
 *
 * returns   0; -EAGAIN: it is not complete; -EPROTO: it is too long */
int pmi1_next_line(const uint8_t *bytes, size_t len, size_t *ret_len, struct co_error *err);

#endif
