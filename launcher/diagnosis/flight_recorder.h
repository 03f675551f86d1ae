/* flight_recorder.h - the dumps of torch's flight recorder: have the ranks write them, and gather
 * them.
 *
 * torch keeps the last collective calls of each rank in memory. Where the job's environment has
 * TORCH_NCCL_DEBUG_INFO_PIPE_FILE, its process group for NCCL makes a named pipe for each rank,
 * that name followed by the rank and ".pipe". A byte in it makes torch write what it keeps to a
 * file, TORCH_FR_DUMP_TEMP_FILE (or TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or a name in the user's cache)
 * followed by the rank. This module writes the byte, waits for a new file that no longer grows, and
 * copies it to a directory of the job, as rank_N: what torch's fr_trace takes. Links and files of
 * other users are left alone.
 *
 * Torch writes the same file by itself before it ends a rank whose call took too long: this module
 * finds it when the ranks have ended.
 *
 * It sets no variables, and does nothing unless the job asks for it. With several nodes, each
 * ddprun handles its own ranks.
 *
 * The caller looks again and again; no call waits for a rank. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_FLIGHT_RECORDER_H
#define DDP_LAUNCHER_DIAGNOSIS_FLIGHT_RECORDER_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;
struct flights; /* opaque; the dumps of some ranks */

enum {
    FLIGHTS_WAIT_MS = 20000, /* torch looks at its pipe once a second, and may take 15 s to write */
    FLIGHTS_QUIET_MS = 300,  /* a file that has not grown for so long is whole */
    FLIGHTS_MAX_BYTES = 256 << 20,     /* a larger one stays where it is */
    FLIGHTS_MAX_END_BYTES = 128 << 20, /* all together, when the ranks have ended */
};

/* Where the ranks have their pipes and write their files: the beginnings of the names. */
struct flight_recorder_names {
    char pipe[PATH_MAX]; /* "": torch has no pipes */
    char file[PATH_MAX]; /* "": its name would be too long, or below /tmp for want of HOME */
    bool is_chosen;      /* the job configures where files are written; else torch's default */
};

/* get   of the environment that the ranks have; may return NULL, or "" */
void flight_recorder_find_names(struct flight_recorder_names *ret,
                                const char *(*get)(const char *variable));

/* Have these ranks write what they keep.
 *
 * names     with pipes
 * ranks     n of them, the job's numbers
 * dir       where copies are put, made with the first one; copied. NULL: nowhere, files stay where
 *           torch writes them
 * ret       to be looked at until nothing is awaited, then flight_recorder_destroy()
 * returns   0, -ENOMEM */
int flight_recorder_ask(const struct flight_recorder_names *names, const int *ranks, int n,
                        const char *dir, uint64_t now_ms, struct flights **ret,
                        struct co_error *err);

/* The same ranks are about to be started: note which files are there.
 *
 * ret       for flight_recorder_take(), then flight_recorder_destroy() */
int flight_recorder_watch(const struct flight_recorder_names *names, const int *ranks, int n,
                          const char *dir, struct flights **ret, struct co_error *err);

/* The ranks that were watched have ended: copy what they have written since, which is complete.
 * Ranks that wrote nothing are not reported. */
void flight_recorder_take(struct flights *f);

void flight_recorder_destroy(struct flights *f); /* NULL is fine, here and below */

/* See what has come, and copy some of it. returns whether more may come: look again in a moment */
bool flight_recorder_look(struct flights *f, uint64_t now_ms);

/* Where they are, in a few lines: "torch's flight recorder: ...". */
void flight_recorder_print(const struct flights *f, FILE *out);

/* [{"rank", "file" (null: none), "note" (why, or null)}]. returns given up; NULL without memory */
json_t *flight_recorder_json_make(const struct flights *f);

#endif
