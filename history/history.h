/* history.h - what happened in a job, read from the lines of ddprun --events.
 *
 * Pure: lines in, lists out. Lines may be those of several nodes, one file after the other. Lines
 * that cannot be read, and events after the first HISTORY_MAX_EVENTS, are counted and ignored. */
#ifndef DDP_HISTORY_HISTORY_H
#define DDP_HISTORY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HISTORY_MAX_EVENTS = 100000,  /* unless max_events is lower */
    HISTORY_LINE_BYTES = 1 << 20, /* longer lines are not read */
    HISTORY_NAME_BYTES = 64,
};

enum history_fate {
    FATE_RUNS, /* its end was not reported */
    FATE_WELL,
    FATE_FAILED,
    FATE_CONSEQUENCE, /* it failed because another one was lost */
    FATE_STOPPED,     /* it had been asked to stop */
    HISTORY_N_FATES,
};

struct history_run {            /* of a rank, from its start to its end */
    int rank, node, generation; /* node -1: not known */
    int64_t pid;
    char host[HISTORY_NAME_BYTES];
    double begun_s, ended_s; /* since 1970; FATE_RUNS: ended_s is that of the last event */
    bool has_ended;
    int code; /* -1: by a signal, or not reported */
    char signal[16];
    bool lost_peer;
    enum history_fate fate; /* after history_finish() */
    size_t open_before;     /* the module's own: the index of the previous open run of this pid,
                               plus 1 */
};

struct history_stop { /* the module's own */
    double at_s;
    int generation, node;
    int rank; /* which failed; -1: none */
};

/* Kinds of marks of which those of several nodes are one line. */
#define HISTORY_JOB_START "job_start"
#define HISTORY_JOB_END   "job_end"

struct history_mark { /* worth a line */
    double at_s;
    int generation;
    int node;         /* -1: not known yet, or several */
    int n_nodes;      /* that it is of */
    int64_t number;   /* job_start: of ranks; job_end: the exit status */
    int rank;         /* -1: of no one in particular */
    const char *kind; /* the event's name; static, or "other" */
    bool is_trouble;
    char *text; /* owned */
};

struct history_pace {
    double at_s;
    int generation, node;
    int64_t steps;
    double step_ms;
    int slowest;
    double share;
};

enum { HISTORY_MAX_CAUSES = 16 };

struct history_goodput { /* the last one that was reported */
    int node;            /* the lowest that reports one; -1: none yet, or not known */
    bool is_known, by_steps;
    double at_s, total_s, ratio;
    int n_causes;
    struct {
        char name[32];
        double s;
    } causes[HISTORY_MAX_CAUSES];
};

struct history {
    char job[256]; /* the run id; "" before the first event */
    char *program; /* owned; its words; NULL: not reported */
    double first_s, last_s;
    bool is_running; /* since history_set_now() */
    bool has_end;    /* a job_end came; of several nodes' the worst code: */
    int code;
    struct history_run *runs; /* all owned; in order of time as far as their file was */
    struct history_mark *marks;
    struct history_pace *paces;
    struct history_goodput goodput;
    struct history_stop *stops;
    void *open_runs; /* of <search.h> */
    size_t n_runs, n_marks, n_paces, n_stops;
    size_t n_events, n_unread, n_beyond; /* beyond HISTORY_MAX_EVENTS */
    size_t max_events;                   /* set by history_init(); the caller may lower it */
    size_t n_others;                     /* events of other jobs */
};

/* job   the run id to look for; NULL: that of the first event. Zeroed before. */
void history_init(struct history *h, const char *job);
void history_fini(struct history *h);

/* One line, with or without its newline.
 *
 * returns   0, also for one that cannot be read; -ENOMEM */
int history_add(struct history *h, const char *line, size_t len);

/* The job still runs: what has no end lasts until now. Call it before history_finish(). */
void history_set_now(struct history *h, double now_s);

/* All lines are read: each run gets its fate, marks and paces get in order of time. Nodes that
 * start, or end with the same exit status, one after the other are one mark. More lines may follow,
 * and then another call.
 *
 * returns   0, -ENOMEM */
int history_finish(struct history *h);

int history_n_ranks(const struct history *h); /* the highest number, plus 1; 0: no ranks */
int history_n_generations(const struct history *h);

#endif
