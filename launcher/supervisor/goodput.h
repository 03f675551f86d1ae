/* goodput.h - the seconds of a job by what they were spent on.
 *
 * Pure. The caller feeds in what happens, each with its time; at any moment the causes add up to
 * the time since the begin, to the millisecond. docs/design/goodput.dot is the drawing of the table
 * in goodput.c, compared with it by a test.
 *
 * A state is the cause to which time goes. What has passed since the last booking is the tail; it
 * is booked when the state is left, and some rows move it on to the next state instead: if a rank
 * fails, the work after the last completed step is lost, and it only turns out later whether the
 * ranks are started again or recover in place. So the newest seconds may change their cause; those
 * before them never do.
 *
 * Words:
 *   step     as libddp or the program reports it. The time of a step is that of its completion
 *   counted  a step was reported in this job. A job without any counts as productive while all its
 *            ranks run: nothing else is known of it */
#ifndef DDP_LAUNCHER_SUPERVISOR_GOODPUT_H
#define DDP_LAUNCHER_SUPERVISOR_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

#define GOODPUT_STATES(X) /* name, on entry, meaning */                                            \
    X(START, enter, "the first generation starts, until its first step is complete")               \
    X(RENDEZVOUS, enter, "the coordinator is looked for, or it makes a generation")                \
    X(NODES, enter, "fewer nodes have joined than the job needs")                                  \
    X(PRODUCTIVE, enter, "steps are completed")                                                    \
    X(CHECKPOINT, enter, "the ranks save their state before nodes join or leave")                  \
    X(HANG, enter, "nothing moves; the ranks that hang are ended")                                 \
    X(RESTART, enter, "work was lost, or ranks are stopped and started, until the next step")      \
    X(RECOVERY, enter, "the same, with ranks that live on")                                        \
    X(SHUTDOWN, enter, "the job ends")

#define GOODPUT_EVENTS(X) /* name, meaning */                                                      \
    X(GATHER, "no rank runs; the coordinator is to make a generation")                             \
    X(FEW_NODES, "nodes are missing")                                                              \
    X(START, "the ranks of a generation are started")                                              \
    X(RECOVER, "ranks live on, for the next generation")                                           \
    X(RUN, "all ranks of the generation run")                                                      \
    X(STEP, "a step was completed")                                                                \
    X(SAVE, "the ranks were asked to save their state")                                            \
    X(HANG, "a rank hangs")                                                                        \
    X(BREAK, "a rank has failed, or the ranks are to stop; more may follow")                       \
    X(DONE, "all ranks of this node have exited with 0")                                           \
    X(END, "the job ends, and no further generation follows")

enum goodput_state {
#define X(name, on_entry, meaning) GOODPUT_##name,
    GOODPUT_STATES(X)
#undef X
        GOODPUT_N_STATES
};

enum goodput_event_type {
#define X(name, meaning) GOODPUT_EV_##name,
    GOODPUT_EVENTS(X)
#undef X
        GOODPUT_N_EVENTS
};

struct goodput { /* in the caller's memory; goodput_begin() fills it */
    enum goodput_state state;
    uint64_t begun_ms;   /* the job */
    uint64_t booked_ms;  /* until then each millisecond has its cause */
    uint64_t entered_ms; /* the state */
    uint64_t run_ms;     /* START, RESTART, RECOVERY: all ranks run since then, and have not
                            completed a step; 0: they do not run yet */
    bool is_counted;     /* see above */
    bool has_started;    /* ranks were started at least once */
    uint64_t sum_ms[GOODPUT_N_STATES];
};

struct goodput_event {
    enum goodput_event_type type;
    uint64_t now_ms; /* not before that of the previous event */
    uint64_t at_ms;  /* STEP: of the completion. HANG: since when nothing has moved. At most now_ms.
                        A STEP that is not after the last one of its generation is ignored */
};

/* How far it is; causes add up to total_ms. */
struct goodput_sums {
    uint64_t total_ms;
    uint64_t sum_ms[GOODPUT_N_STATES];
    bool is_counted;
    enum goodput_state now; /* the cause to which the newest time goes */
};

void goodput_begin(struct goodput *g, uint64_t now_ms);
void goodput_step(struct goodput *g, const struct goodput_event *e);

/* now_ms   not before that of the last event */
void goodput_read(const struct goodput *g, uint64_t now_ms, struct goodput_sums *ret);

/* The productive part of the time, 0 to 1; 0 without any time. */
double goodput_ratio(const struct goodput_sums *s);

/* "start", "rendezvous", ...: in JSON, metrics and events. */
const char *goodput_name(enum goodput_state cause);

/* The table, for its drawing and its tests. */
extern const struct co_machine goodput_machine;

#endif
