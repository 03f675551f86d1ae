#include "rank_list.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>

static_assert(sizeof "ranks" + (size_t)RANK_LIST_NAMED * (sizeof " and -2147483648" - 1) +
                      sizeof " and 2147483647 more" <=
                  RANK_LIST_BYTES,
              "a text is never cut");

char *rank_list_text(const int *ranks, int n, char to[RANK_LIST_BYTES])
{
    const int n_named = n < RANK_LIST_NAMED ? n : RANK_LIST_NAMED;
    int at = snprintf(to, RANK_LIST_BYTES, n == 1 ? "rank" : "ranks");
    for (int i = 0; i < n_named; i++) {
        const bool is_last = i > 0 && i == n - 1;
        at += snprintf(to + at, RANK_LIST_BYTES - (size_t)at, "%s %d",
                       is_last ? " and"
                       : i > 0 ? ","
                               : "",
                       ranks[i]);
    }
    if (n_named < n)
        snprintf(to + at, RANK_LIST_BYTES - (size_t)at, " and %d more", n - n_named);
    return to;
}
