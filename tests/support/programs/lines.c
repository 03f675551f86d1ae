/* lines - write COUNT lines of 100 bytes to stdout: "RANK NUMBER xxx...", each by one write(), or
 * PER_WRITE of them.
 *
 * usage: lines COUNT [PER_WRITE] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 100, PER_WRITE_MAX = 1024 };

int main(int argc, char **argv)
{
    static char text[PER_WRITE_MAX * LINE];
    const char *rank = getenv("RANK");
    long count = argc > 1 ? atol(argv[1]) : 0;
    long per_write = argc > 2 ? atol(argv[2]) : 1;
    if (count <= 0 || per_write <= 0 || per_write > PER_WRITE_MAX) {
        fprintf(stderr, "usage: lines COUNT [PER_WRITE]\n");
        return 2;
    }
    for (long i = 0; i < count;) {
        size_t n = 0;
        for (long k = 0; k < per_write && i < count; k++, i++) {
            char head[LINE];
            int n_head = snprintf(head, sizeof head, "%s %ld ", rank != NULL ? rank : "0", i);
            memset(text + n, 'x', LINE);
            memcpy(text + n, head, (size_t)n_head);
            text[n + LINE - 1] = '\n';
            n += LINE;
        }
        for (size_t at = 0; at < n;) {
            ssize_t took = write(STDOUT_FILENO, text + at, n - at);
            if (took < 0)
                return 1;
            at += (size_t)took;
        }
    }
    return 0;
}
