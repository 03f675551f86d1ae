/* failure.h - what went wrong, in a line for the user. */
#ifndef DDP_EXAMPLES_SHARED_FAILURE_H
#define DDP_EXAMPLES_SHARED_FAILURE_H

struct failure {
    char text[1024]; /* longer texts are cut; "" if nothing went wrong */
};

/* Write the text and return -1. */
__attribute__((format(printf, 2, 3))) int failure_set(struct failure *f, const char *format, ...);

#endif
