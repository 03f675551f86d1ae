/* dataset.h - images and labels for training and testing, from a directory of IDX files with
 * MNIST's names: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte,
 * t10k-labels-idx1-ubyte, each as it is or with .gz. */
#ifndef DDP_EXAMPLES_MNIST_DATASET_H
#define DDP_EXAMPLES_MNIST_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convnet.h"
#include "idx.h"

struct failure;

struct dataset_part {
    struct convnet_images images;
    size_t n;
    struct idx pixels, labels; /* own what `images` lends */
};

struct dataset {
    struct dataset_part train, test;
};

/* Make sure that the directory has a data set: if none of the four files is there, draw digits and
 * write them, all four or none. One process of a node calls this, before any calls dataset_read().
 *
 * n_train, n_test   how many images to draw
 * ret_drawn         true if they were drawn now
 * returns           0, or -1: the directory cannot be made or written, or has only some of the
 * files */
int dataset_prepare(const char *directory, size_t n_train, size_t n_test, uint64_t seed,
                    bool *ret_drawn, struct failure *why);

/* Read the four files.
 *
 * ret_set   the caller calls dataset_fini()
 * returns   0, or -1; the text names the file */
int dataset_read(const char *directory, struct dataset *ret_set, struct failure *why);
void dataset_fini(struct dataset *set); /* a zeroed one is fine */

#endif
