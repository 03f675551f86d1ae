/* oom_watch.h - read what oom.h needs: the counters of the ranks' control groups when they start
 * and when one fails, and the kernel log of the time between.
 *
 * Ranks are looked for in ddprun's own control group, where they are unless they leave it. Nothing
 * in here can fail a job: what cannot be read is not known. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_OOM_WATCH_H
#define DDP_LAUNCHER_DIAGNOSIS_OOM_WATCH_H

#include "oom.h"

struct oom_watch {
    const char *root; /* borrowed */
    bool has_before, has_failure;
    struct oom_groups before, failure;
    int log_fd; /* where the log ended at `before`; -1: not open */
};

/* Reads nothing yet.
 *
 * root   put in front of /proc, /sys and /dev; "" except in tests. It must outlive w */
void oom_watch_init(struct oom_watch *w, const char *root);
void oom_watch_close(struct oom_watch *w);

/* Ranks are about to start, or did a moment ago: remember the counters and where the log ends. Does
 * nothing the second time, or when a failure was noted already. Costs some 10 us for each level. */
void oom_watch_begin(struct oom_watch *w);

/* A rank failed: read the counters before others that are stopped now can change them. Only the
 * first call counts. */
void oom_watch_note_failure(struct oom_watch *w);

/* Forget all that: other ranks are about to start. Begins again. */
void oom_watch_renew(struct oom_watch *w);

/* What is known of the failure that was noted; OOM_BLAME_NONE if none was. Reads the log once: a
 * second call finds it empty.
 *
 * pid, killed   as in struct oom_case */
void oom_watch_find(struct oom_watch *w, pid_t pid, bool killed, struct oom_finding *ret);

/* The control group whose kills are counted; "" if none is, or nothing was read yet. */
const char *oom_watch_group(const struct oom_watch *w);

#endif
