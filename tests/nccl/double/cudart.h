/* cudart.h - inside of the double of libcudart: what its files share. One mutex guards all of
 * it. */
#ifndef DDP_TESTS_NCCL_CUDART_H
#define DDP_TESTS_NCCL_CUDART_H

#include "double.h"
#include "race.h"

#include <pthread.h>

extern pthread_mutex_t cudart_mutex;
extern struct race cudart_race;

/* With the mutex held: the operation that the agent has begun touches these. returns whether all is
 * well; else it was reported */
bool cudart_touch(unsigned agent, const char *name, const struct double_range *range, size_t n);

/* What a stream captures in the place of doing it; NULL: it does not. With the mutex held. */
struct CUgraph_st **cudart_graph_of(cudaStream_t stream);
extern unsigned cudart_n_captures; /* streams that capture now */

/* Keep a copy of an operation in a graph. */
cudaError_t cudart_graph_add(struct CUgraph_st *g, const char *name, void (*work)(void *arg),
                             const void *arg, size_t bytes, const struct double_range *range,
                             size_t n);

/* Whether a call that CUDA does not allow while a graph is captured is made then, by a thread that
 * has not said that it is apart: it is reported. */
bool cudart_is_unsafe(const char *call);

/* Wait until all streams are idle, as what frees memory does. */
void cudart_wait_all(void);

/* Keep it as the thread's last error. returns it */
cudaError_t cudart_return(cudaError_t result);

#endif
