/* warm.h - --warm, ddprun's side: the parent that Python ranks are forked from
 * (docs/design/warm.md).
 *
 * Puts the bootstrap (launcher/warm) where a Python finds it, has ranks begin with it, has the
 * spawner start the parent, and passes on its messages. If anything fails here, ranks are executed
 * as without --warm, and -v prints the reason. */
#ifndef DDP_LAUNCHER_WARM_WARM_H
#define DDP_LAUNCHER_WARM_WARM_H

#include <stdbool.h>
#include <stddef.h>

struct co_error;
struct job_spec;
struct spawner;
struct spawner_report;

struct warm_callbacks {
    void (*say)(void *arg, const char *text); /* one line, without its end */
    void *arg;
};

struct warm {
    const struct job_spec *spec; /* borrowed; NULL: the job is not warm, and all calls do nothing */
    struct warm_callbacks callbacks;
    char *const *environment; /* borrowed */
    char *archive, *seen;     /* owned; paths in the runtime directory */
    char **rank_env;          /* owned, with the words that are new in it */
    int notes_fd;             /* the parent's messages; -1: no parent */
    char line[512];
    unsigned n_line;
    bool is_ahead; /* the parent is to find out what ranks will import: none has run here */
    bool asked;    /* for a parent */
    bool is_ready; /* ranks can be forked */
    bool is_gone;  /* and will not be */
};

/* Prepare everything for a warm job. Never fails: callbacks report errors, and then the job is not
 * warm.
 *
 * runtime_dir   borrowed for the call
 * environment   as `environ`, borrowed until warm_close() */
void warm_open(struct warm *w, const struct job_spec *spec, const char *runtime_dir,
               char *const *environment, const struct warm_callbacks *callbacks);
void warm_close(struct warm *w); /* a zeroed one is fine */

/* What ranks get as the parent's environment in worker_env_create(). */
char *const *warm_environment(const struct warm *w, char *const *environment);

/* Ask for the parent, once: when the first ranks run, or before for --warm=start.
 *
 * returns   a descriptor to watch for warm_on_note(), which stays ours; -1: nothing was asked
 * for */
int warm_start_parent(struct warm *w, const struct spawner *spawner);

/* notes_fd is readable. returns whether it will be again */
bool warm_on_note(struct warm *w);

/* A report of the spawner about the parent, or about how ranks were started. */
void warm_on_report(struct warm *w, const struct spawner_report *r);

/* --warm=start: wait until ranks can be forked, or can't be, or for a signal, but not for long.
 *
 * signal_fd   readable: a signal has arrived */
void warm_await(struct warm *w, const struct spawner *spawner, int signal_fd);

/* The modules of launcher/warm in a zip file, as Python imports them. Made by the
 * build (launcher/warm/python/pack.py). */
extern const unsigned char warm_archive[];
extern const size_t warm_archive_bytes;

#endif
