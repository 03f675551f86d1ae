/* mnist_options.h - the command line of mnist.c. */
#ifndef DDP_EXAMPLES_MNIST_MNIST_OPTIONS_H
#define DDP_EXAMPLES_MNIST_MNIST_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "convnet.h"
#include "mnist_gpu.h"

struct failure;

struct mnist_options {
    enum mnist_device device;
    bool graph;       /* on a GPU: steps are replayed from a CUDA graph */
    const char *data; /* directory of the IDX files */
    int64_t draw;     /* training images to draw if no data set exists */
    int64_t samples;  /* train on the first so many; 0: all */
    int64_t epochs;
    int64_t batch;      /* of all ranks together */
    int64_t accumulate; /* parts of a rank's batch */
    int64_t steps;      /* stop after so many; 0: no limit */
    double lr, momentum;
    int64_t seed; /* of weights and order */
    enum convnet_kind kind;
    bool batch_norm;
    bool sync_bn;             /* over the batches of all ranks */
    int64_t amp;              /* 0 .. 3: the level of precision */
    enum ddp_dtype amp_type;  /* the 16-bit type of levels 1 .. 3 */
    bool zero1;               /* the optimizer's state is sharded over the ranks */
    bool pipeline;            /* two ranks share a network */
    int64_t print_loss_every; /* steps; 0: never */
    const char *loss_file;    /* NULL: none */
    const char *checkpoint;   /* NULL: none */
    bool help;
};

/* Read the command line. Strings are borrowed from argv.
 * returns   0, or -1 with the reason in `why` */
int mnist_options_parse(int argc, char **argv, struct mnist_options *ret_opts, struct failure *why);

/* The text of --help. */
extern const char mnist_options_help[];

#endif
