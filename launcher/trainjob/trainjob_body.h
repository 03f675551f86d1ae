/* trainjob_body.h - the progress of a job as Kubeflow Trainer's status server takes it. Pure.
 *
 * The server (v2.2 and later) takes a JSON object trainerStatus: progressPercentage and
 * estimatedRemainingSeconds, if they are known, up to 256 metrics whose names and values are texts
 * of at most 64 characters, and lastUpdatedTime. */
#ifndef DDP_LAUNCHER_TRAINJOB_TRAINJOB_BODY_H
#define DDP_LAUNCHER_TRAINJOB_TRAINJOB_BODY_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    TRAINJOB_BODY_BYTES = 1024,
    TRAINJOB_TOKEN_MAX_BYTES = 16384, /* of a file: a signed token has about 1 KB */
};

struct trainjob_progress {
    uint64_t steps, total; /* completed steps, and those of the whole training; total > 0 */
    double step_s;         /* the duration of a step; 0: unknown */
    double goodput;        /* 0 to 1 */
    uint32_t generation;
    int world_size;
    int64_t now_s; /* since 1970 */
};

/* returns   how long the text is, without its NUL */
size_t trainjob_body_make(const struct trainjob_progress *p, char text[TRAINJOB_BODY_BYTES]);

/* What a file of a token contains, made usable for a header: white space at its end is cut off.
 *
 * text      NUL-terminated after len bytes
 * returns   0; -EINVAL: it is empty, or has a byte that a header may not have */
int trainjob_token_trim(char *text, size_t len, struct co_error *err);

#endif
