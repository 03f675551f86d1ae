/* rank_list.h - some ranks, named in a sentence. */
#ifndef DDP_LAUNCHER_LINES_RANK_LIST_H
#define DDP_LAUNCHER_LINES_RANK_LIST_H

enum {
    RANK_LIST_NAMED = 16, /* further ranks are counted */
    RANK_LIST_BYTES = 288,
};

/* Name n ranks: "rank 1", "ranks 0, 2 and 3", or, with more than RANK_LIST_NAMED, "ranks 0, 2, ...
 * and 5 more".
 *
 * ranks     the first ones; of more than RANK_LIST_NAMED the others need not exist
 * returns   to */
char *rank_list_text(const int *ranks, int n, char to[RANK_LIST_BYTES]);

#endif
