/* error_text.h - what a rank wrote to standard error when it failed: does its error report a lost
 * peer, or is it the rank's own error? Pure.
 *
 * The error is the last uncaught exception: a Python traceback (the first one of a chain: "During
 * handling of the above exception, another exception occurred") or what std::terminate() printed.
 * Tracebacks of exceptions that Python ignores do not count. Without any exception, the last lines
 * are searched, and only for a lost peer. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_ERROR_TEXT_H
#define DDP_LAUNCHER_DIAGNOSIS_ERROR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum error_kind {
    ERROR_UNKNOWN,   /* the text has no error that differs from other lines */
    ERROR_PEER_LOST, /* a peer is gone, closed its connection or did not answer */
    ERROR_OWN,       /* any other exception */
};

struct error_text {
    enum error_kind kind;
    bool is_exception; /* else one of the last lines */
    int n_after;       /* lines after the first one of its message that are not empty */
    const char *line;  /* "RuntimeError: ..."; points into the text, not terminated; NULL: none */
    size_t n;
};

/* Does a message report a lost peer? The phrases are those of gloo, NCCL, TCPStore, libddp, Open
 * MPI, MPICH and UCX, in any case of letters. Only the first ERROR_TEXT_LINE_BYTES of a message
 * count. */
bool error_text_says_peer_lost(const char *message, size_t n);

/* bytes     any; the whole of it is read once, so the caller bounds it */
struct error_text error_text_judge(const char *bytes, size_t n);

#define ERROR_TEXT_LINE_BYTES 1024

#endif
