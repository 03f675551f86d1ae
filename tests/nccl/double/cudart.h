/* cudart.h - inside of the double of libcudart: what its files share. One mutex guards all of
 * it. */
#ifndef DDP_TESTS_NCCL_DOUBLE_CUDART_H
#define DDP_TESTS_NCCL_DOUBLE_CUDART_H

#include "double.h"
#include "race.h"

#include <pthread.h>

extern pthread_mutex_t cudart_mutex;
extern struct race cudart_race;

/* With the mutex held: the operation that the agent has begun touches these. returns whether all is
 * well; else it was reported */
bool cudart_touch(unsigned agent, const char *name, const struct double_range *range, size_t n);

struct CUstream_st {
    unsigned agent;
    int device; /* current when it was made */
    pthread_t thread;
    struct job *first, **last;
    bool is_busy, must_stop;
    bool is_blocking;        /* what waits for the legacy stream, and has it wait */
    cudaError_t failed;      /* once it has */
    int n_holds;             /* see double_hold() */
    struct capture *capture; /* that it takes part in; NULL */
};

struct CUevent_st {
    int device;
    struct race_clock seen;   /* when it was recorded last */
    unsigned long n_recorded; /* by streams that run their work normally */
    unsigned long n_done;
    unsigned n_waits;      /* of streams for it, that are not over */
    bool is_destroyed;     /* it goes with the last of them */
    unsigned long capture; /* the number of that in which it was recorded last; 0: in none */
};

/* With the mutex held. returns NULL if no stream has that name, which is reported */
struct CUstream_st *cudart_stream(cudaStream_t name);
bool cudart_is_legacy(cudaStream_t name);
/* A capture is over: no stream takes part in it any more. With the mutex held. */
void cudart_streams_leave(const struct capture *c);

/* --- captures: with the mutex held ------------------------------------------------------------ */

/* Keep a copy of an operation of a stream that captures. launched: see double_queue_launched() */
cudaError_t cudart_capture_add(const struct CUstream_st *s, const char *name,
                               void (*work)(void *arg), void (*launched)(void *arg),
                               const void *arg, size_t bytes, const struct double_range *range,
                               size_t n);
/* An event is recorded by a stream that captures; a stream waits for one, where either of them is
 * part of a capture. */
cudaError_t cudart_capture_record(const struct CUstream_st *s, struct CUevent_st *e);
cudaError_t cudart_capture_wait(struct CUstream_st *s, const struct CUevent_st *e, bool is_legacy);

/* CUDA gives a capture up. It is reported. */
void cudart_capture_spoil(struct capture *c, const char *why);
/* The same of all that have a blocking stream, by a call on the legacy one. returns whether there
 * were some */
bool cudart_capture_spoil_blocking(const char *call);

/* Whether a call that CUDA does not allow during a capture is made then, by a thread whose capture
 * mode does not exempt it: reports it and invalidates the capture. Without the mutex. */
bool cudart_is_unsafe(const char *call);

/* Wait until all streams are idle, as what frees memory does. */
void cudart_wait_all(void);

/* Keep it as the thread's last error. returns it */
cudaError_t cudart_return(cudaError_t result);

#endif
