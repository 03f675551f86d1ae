/* words.h - a command line of a test. */
#ifndef DDP_TESTS_SUPPORT_WORDS_H
#define DDP_TESTS_SUPPORT_WORDS_H

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MOST = 48 };

/* A program's name, and the words of a line, which blanks part. The next call makes others of them.
 *
 * ret_n     their number
 * returns   NULL-terminated */
static inline char **words_split(const char *program, const char *line, int *ret_n)
{
    static char text[2048];
    static char *words[WORDS_MOST];
    int n = 0;
    ck_assert_int_lt(snprintf(text, sizeof text, "%s %s", program, line), (int)sizeof text);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        ck_assert_int_lt(n, WORDS_MOST - 1);
        words[n++] = word;
    }
    words[n] = NULL;
    *ret_n = n;
    return words;
}

#endif
