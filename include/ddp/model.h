/* model.h - gradients averaged over the ranks, bucket by bucket, during the backward pass.
 *
 * The tensors of a network are dealt into buckets in the order in which a backward pass finishes
 * them (the first bucket to be full is small, 1 MiB, the others 25 MiB: the choice of torch's
 * DistributedDataParallel). As soon as all gradients of a bucket are ready its average starts, in
 * the same order on every rank, while the backward pass continues. Before the first step that order
 * is taken to be that of the tensors from last to first; after it, it is what rank 0 saw.
 *
 * A step counts on all ranks or on none: ddp_model_sync() ends with an exchange that ensures it; if
 * a CUDA graph contains the step, ddp_model_replayed() does so instead.
 *
 * Threads: a model and its group are used by one thread at a time, which may be another one in each
 * call: a backward pass that a framework runs on a thread of its own calls ddp_model_ready() there,
 * while the thread that started it waits. ddp_last_error() is per thread; ddp_model_sync() returns
 * a failure of ddp_model_ready() again, with its text, on its own thread. From the first
 * ddp_model_ready() of a step until ddp_model_sync() no other collective may be called on the
 * group: where the buckets would stand among them depends on the rank. */
#ifndef DDP_MODEL_H
#define DDP_MODEL_H

#include <ddp/group.h>
#include <ddp/types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_model; /* opaque */

struct ddp_tensor {
    const char *name; /* shown in messages; borrowed until the model is destroyed */
    void *param;      /* count elements, aligned to one */
    void *grad;       /* count elements; NULL: the library allocates them (zeroed, and averaged
                         where they lie) and writes the address back here: valid for the life of the
                         process, whatever is destroyed meanwhile, and never to be freed. The same
                         model of the next generation (ddp_run()) gets the same addresses, whether
                         they are given to it or NULL is */
    size_t count;
    enum ddp_dtype dtype; /* a floating-point type */
    const char *layout;   /* how the elements lie, for example "strides 27 1 9 3": a text that ranks
                             compare, and messages show. Borrowed, as name. NULL: "" */
};

/* --- a bucket's average by the program itself ------------------------------------------------- */

struct ddp_bucket {
    size_t index, n_buckets; /* buckets are averaged in the order of their numbers */
    void *data;              /* count elements: the gradients, and 0 in gaps between them */
    size_t count;
    enum ddp_dtype dtype;
    void *stream; /* of a model with a stream: the CUDA stream, another one than the program's, on
                     which `data` is memory of the GPU. NULL: memory of the CPU */
};

/* Average a bucket: leave the same in `data` on every rank. Called on all ranks for the same
 * buckets in the same order, from inside of ddp_model_ready() or ddp_model_sync(); it may call
 * collectives on the group, but nothing of the model. Nothing was divided, and nothing will be.
 *
 * With a stream it puts its work there, and returns: collectives of the group, with that stream,
 * and kernels of its own. The gradients are in `data` when that work begins, and are taken from
 * there after it. What it puts on other streams it joins to this one, by events. It may wait for
 * the stream, by ddp_stream_wait(), but then the backward pass also waits.
 *
 * arg       ddp_model_opts.hook_arg
 * cost      gradients of a bucket that lie side by side are `data` themselves. Others are copied:
 *           on CPUs as described at ddp_model_create(), on a GPU by a kernel before and one after,
 *           to memory of the size of the bucket
 * returns   0; what a collective returned, which breaks the model; another negative status of the
 *           program, which this step then fails with on all ranks, each with its own text where it
 *           has one */
typedef int ddp_bucket_hook(struct ddp_group *g, const struct ddp_bucket *b, void *arg);

enum ddp_compress { /* what travels */
                    DDP_COMPRESS_NONE = 0,
                    DDP_COMPRESS_FLOAT16 = 1,  /* values of more than 65504 become infinite */
                    DDP_COMPRESS_BFLOAT16 = 2, /* three significant decimal digits */
                    DDP_COMPRESS_INT8 = 3      /* between nodes only: 8 bits a value, and a float32
                                                  scale for each 64 of them; see below */
};

#define DDP_OUTER_NO_MOMENTUM (-1.0)

/* DDP_COMPRESS_INT8: the ranks of a node add up their gradients as float32, exactly. One rank of
 * each node sends the sums, rounded to int8 in blocks of 64 values with a scale each; each node
 * adds up a slice of what all nodes send, and sends the result, rounded again. What rounding leaves
 * is kept, bucket by bucket, and added to the values of the next step (error feedback: F. Seide et
 * al., Interspeech 2014; H. Tang et al., DoubleSqueeze, 2019, arXiv:1905.05957), so that errors do
 * not add up over the steps. All ranks get the same bits. A value that is not finite makes its
 * block a NaN. What is kept is lost with the rank, or when a step fails: the next step begins
 * without it.
 *
 * Not with a stream. A job on one node, and 16-bit gradients, are averaged as without it.
 *
 * cost   the bytes of float32 gradients between nodes times 0.27. The call that completes a bucket
 *        waits for its average: the exchange does not overlap with the backward pass. On each rank
 *        memory of all gradients as float32, and on one rank of each node of up to 2.4 times
 *        that in addition; ddp_model_create() splits the group twice */

struct ddp_model_opts {        /* zeroed: all defaults. The same on all ranks */
    size_t first_bucket_bytes; /* 0: bucket_bytes if that is given, as in torch; else 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB */
    size_t message_size;       /* elements that close a bucket, in place of both (Apex's name); 0 */
    bool delay_allreduce;      /* average nothing before ddp_model_sync() (Apex's name) */
    bool always_fp32;          /* average 16-bit gradients as float32 (allreduce_always_fp32) */
    double predivide_factor;   /* f > 0: divide by f, add up, times f / world_size; 0: each rank's
                                  value times 1 / world_size, then add up */
    enum ddp_compress compress; /* of float32 and float64 gradients */
    ddp_bucket_hook *hook;      /* NULL: the library averages */
    void *hook_arg;
    bool allow_unused;   /* a gradient that was not marked ready is unused, and counts as zeros;
                          the order of buckets is not changed then */
    bool keep_order;     /* buckets stay those of the tensors from last to first */
    bool weighted;       /* see ddp_model_weight(). Not with predivide_factor */
    bool check_finite;   /* a step with a NaN or an infinity in a gradient fails on all ranks */
    bool tell_nonfinite; /* such a step counts, and ddp_model_found_inf() reports to all ranks that
                            they leave their parameters alone: what a loss scaler needs. Not with
                            check_finite */
    struct ddp_tensor
        *buffers; /* n_buffers of them, grad unused, any type: for example running statistics.
                                   Given to all ranks like parameters, and at the end of each step
                                   again: rank 0's, or the lowest rank's that is not in ddp_join().
                                   A death meanwhile leaves a rank of the CPU that may recover its
                                   own: costs their size in memory, and a copy per step. Borrowed
                                   like the tensors */
    size_t n_buffers;
    struct ddp_tensor
        *constants; /* n_constants of them, as buffers, but given by ddp_model_create()
                                     only: frozen parameters, for example. Borrowed until it
                                     returns */
    size_t n_constants;
    bool keep_buffers; /* for buffers that are changed before ddp_model_sync(), as the running
                          statistics of a forward pass are: the library keeps a copy of them after
                          each step that counts. A step that does not count leaves them as they were
                          after the last one that did, once one has, and so does
                          ddp_model_create() of the next generation. Costs their size in memory,
                          and a copy per step. Not with a stream */
    void *stream; /* parameters, gradients and buffers are memory of this rank's GPU (device.h), and
                     this CUDA stream computes: a gradient is ready in its order. A step may be
                     captured in a CUDA graph: see ddp_model_replayed(). NULL: memory of the CPU */
    bool nccl_memory;   /* with a stream: gradients that the library allocates, and what travels of
                         them, are memory of ncclMemAlloc() that is registered with the group's
                         communicator: NCCL copies nothing. Blocks are of 2 MiB or more. Where it
                         cannot be the model works without, on all ranks, and ddp_model_stats has
                         the reason */
    size_t local_steps; /* H: steps that each rank makes alone before all ranks make an outer
                              step together, below 2^32; see ddp_model_outer_step(). 0: none.
                              Parameters are float32 or float64, in memory of the CPU. Not with
                              allow_unused, tell_nonfinite or ddp_join() */
    bool local_fragments;  /* with local_steps: each step exchanges one of H fragments */
    double outer_lr;       /* with local_steps: above 0; 0: 0.7, or 0.4 with local_fragments */
    double outer_momentum; /* with local_steps: Nesterov's, above 0 and below 1; 0: 0.9; or
                              DDP_OUTER_NO_MOMENTUM: with it and an outer_lr of 1 the ranks take on
                              the average of their parameters */
};

/* Check that all ranks describe the same tensors, give every rank rank 0's parameters and buffers,
 * and plan the buckets. Collective, and no rank waits for one that fails: all of them fail
 * together.
 *
 * tensors     n_tensors (1 or more) of them; borrowed until the model is destroyed. grad is read
 *             here, and written where NULL, on success only
 * opts        NULL: all defaults; copied
 * ret_model   belongs to the group, which destroys it at ddp_finalize()
 * cost        gradients that the library allocates, and those of a bucket that lie in one array in
 *             the order of their numbers, without gaps, are averaged where they lie. Others are
 *             copied into a bucket, when they are ready, and back
 * returns     0
 *             DDP_EMISMATCH  names, counts, types or opts differ: the text names the tensor or
 *                            option and both sides, the same ones on all ranks; or another rank
 *                            failed with one of those below: the text names it. The group stays
 *                            whole
 *             DDP_EINVAL     no tensors; one without a name or param, or with an unusable type; an
 *                            option out of its bounds
 *             DDP_ENOMEM     the text names the purpose
 *             DDP_ESYSTEM    the file of DDP_TRACE cannot be written
 *             DDP_EUNSUPPORTED  with a stream: there is no GPU, or an option needs kernels, and
 *                            the plug-in has none for this GPU
 *             DDP_EPEER, DDP_ETIMEOUT  the group is broken */
int ddp_model_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                     const struct ddp_model_opts *opts, struct ddp_model **ret_model);

/* Before ddp_finalize(), if at all, and on all ranks between the same two steps: what is on its way
 * is waited for. NULL is fine. */
void ddp_model_destroy(struct ddp_model *m);

/* --- a step ----------------------------------------------------------------------------------- */

/* Mark gradient i as final for this step. Call it from the backward pass, in any order; a bucket
 * whose gradients are all ready starts its average at once, if it is the next one in order, and
 * averages that have started make progress inside of each call. Until ddp_model_sync() returns, a
 * gradient that is ready may not be read or written.
 *
 * A step marks all gradients ready or none: if none, ddp_model_sync() takes all as ready.
 *
 * DDP_EINVAL (no such gradient, or marked twice in a step) does not keep the other ranks waiting:
 * the step continues, fails in ddp_model_sync() on all ranks, and the next one starts clean.
 *
 * cost      tens of nanoseconds, in addition to the copy of a gradient that is copied and to the
 *           progress that can be made: the last rank that reaches a bucket adds it up, with the
 *           peers' help in their next calls
 * returns   0 or an error, which ddp_model_sync() returns again, so that it may be ignored here */
int ddp_model_ready(struct ddp_model *m, size_t i);

/* The same for gradients first .. first + n - 1, from last to first. */
int ddp_model_ready_range(struct ddp_model *m, size_t first, size_t n);

/* Finish the step: average what is left, and agree with all ranks that it counts. When it returns 0
 * each grad holds the average over all ranks, bit for bit the same on each, and so it does on every
 * other rank of this node, whatever happens to one of them meanwhile.
 *
 * After an error gradients are undefined, parameters are as they were, with keep_buffers so are
 * buffers (if a step has counted before), and all ranks have one:
 *   DDP_EINVAL        this rank's: a ddp_model_ready() of this step, or some gradients were marked
 *                     ready and others not: the text names them
 *   DDP_ENOTFINITE    with check_finite: the text names the gradient, and the rank that computed it
 *   DDP_EMISMATCH     another rank has a DDP_EINVAL: the text names it
 * After these the group is whole, and the next step starts clean. After the following it is not,
 * and they are returned from then on:
 *   DDP_RETRY         see ddp_run()
 *   DDP_EPEER, DDP_ETIMEOUT, DDP_EMISMATCH   as ddp_all_reduce()
 *
 * cost      the buckets that are left; then an exchange of the size of a barrier */
int ddp_model_sync(struct ddp_model *m);

/* For a model with a stream: finish a step that a CUDA graph contains. To capture one, call
 * ddp_model_ready() and ddp_model_sync() between cudaStreamBeginCapture() and
 * cudaStreamEndCapture() of the model's stream, as in a step: the averages become part of the
 * graph, ddp_model_sync() returns at once, and no step is counted. Then, for each step, launch the
 * graph on that stream and call this after it. It waits for the stream, and agrees with all ranks
 * that the step counts, as ddp_model_sync() does. The optimizer follows, in another graph
 * or in none: parameters may change once the step counts.
 *
 * In a capture ddp_model_sync() returns 0, and the graph will have a step, or this rank's failure,
 * and it will not: DDP_EINVAL, it would be the first step, or not all of it was called in the
 * capture, or CUDA has invalidated the capture, or as in any step; DDP_EUNSUPPORTED, the model is
 * weighted; DDP_EPEER and the like, the group is broken. Of a step that had begun before the
 * capture it returns DDP_EINVAL, and has to be called again after it: that step fails on all
 * ranks.
 *
 * Capturing, and each step: on all ranks, or on none. So a rank in ddp_join() cannot take part in a
 * replayed step. The model's first step is a plain one; a weighted model has no others. No graph is
 * launched when its model has gone. Destroy it before the function that ddp_run() calls returns,
 * and end a capture, whatever failed in it; there the next generation captures its own.
 *
 * returns   as ddp_model_sync(), and
 *           DDP_EINVAL     no graph with a step has run on the stream since the last call: the step
 *                          fails on all ranks; or, of this rank alone, and nothing was done, the
 *                          model has no stream, no step was captured, a plain one has begun, or the
 *                          stream captures
 *           DDP_EMISMATCH  another rank did not replay this step, and the group is broken
 * cost      the exchange at the end of a step, and another one while the graph runs */
int ddp_model_replayed(struct ddp_model *m);

/* Accumulate gradients over several backward passes (torch's no_sync()): while it is on
 * ddp_model_ready() and ddp_model_sync() do nothing, and return 0 unless the group is broken.
 * Turn it off before the last of these passes. Divide the loss yourself.
 *
 * returns   0; DDP_EINVAL in the middle of a step: nothing was changed */
int ddp_model_accumulate(struct ddp_model *m, bool on);

/* Of a weighted model: average with weights, sum of weight * grad / sum of weights. For batches of
 * different sizes: the weight is how many samples this rank's gradients are the mean of. Holds for
 * all steps until the next call; 1 before the first. Call it before the first ddp_model_ready() of
 * a step. A rank in ddp_join() has weight 0.
 *
 * returns   0; DDP_EINVAL the model is not weighted, the weight is negative or not finite, or the
 *           step has begun */
int ddp_model_weight(struct ddp_model *m, double weight);

/* This rank has no more batches, but peers may have: take part in their steps with zeros, until all
 * ranks have called this. Then give every rank the parameters and buffers of the lowest rank that
 * was among the last to call this.
 * Averages are still over the whole world (torch's divide_by_initial_world_size); of a weighted
 * model over the ranks that are left. Gradients of this rank are overwritten. Between steps the
 * program calls no other collectives of the group: no rank takes part in them here.
 *
 * cost      a step of zeros when all ranks have called this, and the broadcast of the parameters
 * returns   0; DDP_EINVAL in the middle of a step, which is finished and fails on all ranks, or in
 *           the capture of a graph, and nothing was done; else as ddp_model_sync(). Where others
 *           replay steps, DDP_EMISMATCH on all ranks */
int ddp_join(struct ddp_model *m);

/* --- local steps ------------------------------------------------------------------------------ */

/* With local_steps each rank trains alone for H steps; then all ranks average how far they have
 * come, and an outer optimizer takes the parameters of the last outer step that way. This is DiLoCo
 * (A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
 * arXiv:2311.08105), for networks between nodes that are too slow for an average per step. The
 * defaults of outer_lr and outer_momentum are that paper's: SGD with Nesterov momentum, 0.7 and
 * 0.9. With local_fragments outer_lr is 0.4: examples/chargpt learns better with that.
 *
 *     opts.local_steps = 16;
 *     for each step:
 *         forward, backward                       ddp_model_ready() may be called, or not
 *         ddp_model_sync(m)                       returns at once: gradients stay this rank's own
 *         the program's optimizer
 *         all that ddp_state_add() registers      for example the number of the step
 *         ddp_model_outer_step(m, false)          every 16th call communicates
 *
 * In the outer step each rank has g = (parameters after the last outer step) - (its own). These are
 * averaged as gradients are, with compress, hook, weighted, predivide_factor and check_finite; then
 *
 *     v = outer_momentum * v + average
 *     parameters = (those after the last outer step) - outer_lr * (average + outer_momentum * v)
 *
 * (torch.optim.SGD with nesterov), the same bits on all ranks. The state of the program's own
 * optimizer stays with each rank. With local_fragments the buckets are dealt into H fragments
 * (fewer, if the model has fewer tensors), and each step exchanges one: each parameter every H
 * steps, and about an H-th of the bytes per step (streaming DiLoCo, arXiv:2501.18512, without its
 * overlap: the call waits for the exchange).
 *
 * A step that counts, for ddp_completed_steps(), samplers and recovery, is one that exchanged
 * something. When a rank dies, or nodes join or leave, ddp_run() returns all ranks to the last one:
 * parameters are those of the outer optimizer, memory of ddp_state_add() is what it was when that
 * call of ddp_model_outer_step() was made (the library keeps a copy), and samplers draw the batches
 * after it again. So a death costs each rank less than H steps. A new rank gets the outer state,
 * and registered memory of another rank: its inner optimizer's. State of ddp_state_add_callbacks()
 * is put back by the program. */

/* Call it after the optimizer, in each step. Does nothing in a model without local_steps. Between
 * two outer steps it counts this step, and communicates nothing.
 *
 * now       make the outer step now, of all parameters: before a checkpoint, and at the end. On all
 *           ranks or on none
 * cost      in an outer step the averages of all buckets (with local_fragments, of a fragment's),
 *           an exchange of the size of a barrier, and three passes over these parameters. Memory of
 *           twice the parameters, and under ddp_run() a copy of registered memory, which each step
 *           that counts fills
 * returns   0. After an outer step gradients are undefined; parameters are the same bits on all
 *           ranks, with local_fragments those of the fragment
 *           DDP_EINVAL  the model is NULL; or gradients are marked ready, without ddp_model_sync()
 *                       after it: the outer step fails on all ranks
 *           else as ddp_model_sync(). After a failure that leaves the group whole the parameters of
 *           all ranks are those after the last outer step */
int ddp_model_outer_step(struct ddp_model *m, bool now);

/* The outer state of tensor i, for a checkpoint: as many elements as the tensor has, of its type,
 * the same on all ranks. Right after an outer step of all parameters, the tensor's own param has
 * the same values as ret_param. To load a checkpoint write both, and call ddp_model_outer_loaded().
 *
 * ret_param, ret_momentum   lent until the model is destroyed; NULL: not wanted. Without momentum
 *                           it is zeros
 * returns                   0; DDP_EINVAL the model is NULL or has no local_steps, or there is no
 *                           tensor i */
int ddp_model_outer(struct ddp_model *m, size_t i, void **ret_param, void **ret_momentum);

/* The outer state was loaded: parameters are made those of ddp_model_outer(), and the local steps
 * begin. Between two steps, on all ranks, with the same state. Not collective.
 * returns   0; DDP_EINVAL the model is NULL or has no local_steps, or gradients are marked ready */
int ddp_model_outer_loaded(struct ddp_model *m);

/* --- after a step ----------------------------------------------------------------------------- */

/* Scale all gradients so that their norm, as of one vector, is at most max_norm: times
 * max_norm / (norm + 1e-6) where that is less than 1 (torch's clip_grad_norm_). Not collective, and
 * the same bits on all ranks. A norm that is NaN or infinite scales nothing.
 *
 * With a stream it is put there: kernels after ddp_model_sync() find the norm and the factor, and
 * what follows sees the scaled gradients. A call with ret_norm waits for the stream, as
 * ddp_stream_wait() does; otherwise nothing waits, and a graph may capture the call: a launch clips
 * what gradients there are by then, to the same max_norm. Not after ddp_model_destroy().
 *
 * max_norm   more than 0
 * ret_norm   the norm before, written on success; NULL is fine
 * order      squares are added up in float64, in an order that depends on the sizes alone; with a
 *            stream it is another one, and the norm may differ in its last digits
 * cost       each gradient is read once, and once more and written where it is scaled
 * returns    0
 *            DDP_EINVAL       max_norm is not more than 0, or gradients are on their way, or CUDA
 *                             has given up the capture of a graph
 *            DDP_EUNSUPPORTED with a stream: there are no kernels for this GPU; or it captures a
 *                             graph, and ret_norm is not NULL
 *            DDP_ESYSTEM      with a stream: CUDA takes no kernel
 *            DDP_EPEER, DDP_RETRY, DDP_ETIMEOUT, DDP_ERESPAWN  with a stream and ret_norm: as
 *                             ddp_stream_wait() */
int ddp_model_clip(struct ddp_model *m, double max_norm, double *ret_norm);

/* Whether any rank marked gradient i ready in the last step; of a model without
 * allow_unused always. A gradient that no rank used is zero: an optimizer with momentum may
 * want to skip its parameter. false where there is no gradient i. */
bool ddp_model_is_used(const struct ddp_model *m, size_t i);

/* Of a model with tell_nonfinite: whether an average of the last step that counted holds a NaN or
 * an infinity. The same on all ranks. Found out while adding up, as by ddp_all_reduce_checked(). */
bool ddp_model_found_inf(const struct ddp_model *m);

struct ddp_model_stats {
    uint64_t n_steps; /* that count */
    size_t n_buckets;
    size_t n_in_place;        /* of these: no copies */
    size_t n_overlapped;      /* buckets that were averaged when ddp_model_sync() was called last;
                                 not known for steps from a graph */
    bool was_reordered;       /* buckets are no longer those of the tensors from last to first */
    uint64_t sync_ns;         /* time in the last ddp_model_sync(), or ddp_model_replayed() */
    bool is_registered;       /* with nccl_memory: NCCL knows all memory of the buckets */
    const char *unregistered; /* with nccl_memory, why it does not, for people: lent until the model
                                 is destroyed. NULL: it does, or was not asked to */
    uint64_t wire_bytes; /* of all buckets that this rank has given to averages with other ranks, in
                            the type that travels; as int8, to those with other nodes. An algorithm
                            sends about twice as many */
};
/* As of the last step. Not collective. */
void ddp_model_get_stats(const struct ddp_model *m, struct ddp_model_stats *ret);

#ifdef __cplusplus
}
#endif
#endif
