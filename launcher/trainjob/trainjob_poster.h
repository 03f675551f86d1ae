/* trainjob_poster.h - posts the progress of a job to its TrainJob, from the loop of a node. */
#ifndef DDP_LAUNCHER_TRAINJOB_TRAINJOB_POSTER_H
#define DDP_LAUNCHER_TRAINJOB_TRAINJOB_POSTER_H

#include "trainjob_body.h"

#include <stdbool.h>
#include <uv.h>

struct trainjob_poster; /* opaque */

enum {
    TRAINJOB_EVERY_MS = 5000, /* what the controller asks its clients for */
    TRAINJOB_POST_MS = 4000,  /* a post has failed then; the end of the job waits for it */
    TRAINJOB_LAST_MS = 2000,  /* the same for one that begins when the job ends */
};

struct trainjob_user {
    /* The progress now, except for now_s.
     * returns   whether there is something to post; else ret is as it was */
    bool (*read)(void *arg, struct trainjob_progress *ret);
    void (*warn)(void *arg, const char *text);
    void *arg;
};

/* Post every TRAINJOB_EVERY_MS what is new. The server, its authority, and the token are those of
 * the environment (KUBEFLOW_TRAINER_SERVER_*). The timer does not keep the loop alive.
 *
 * ret       trainjob_poster_close() it
 * returns   0; -ENOENT the environment has no such server; -ELIBACC, -ELIBBAD no plug-in;
 *           -ENOMEM */
int trainjob_poster_open(uv_loop_t *loop, const struct trainjob_user *user,
                         struct trainjob_poster **ret, struct co_error *err);

/* Read the progress: later it may not be there any more. */
void trainjob_poster_look(struct trainjob_poster *p);

/* The last progress is posted although the time is not over. The user is not called any more. The
 * rest is freed from the loop, which lives until then. NULL is fine. */
void trainjob_poster_close(struct trainjob_poster *p);

#endif
