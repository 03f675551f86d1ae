/* checkpoint.h - the network as a .safetensors file that PyTorch's module of the same name loads
 * with load_state_dict(): same names, same order of elements. */
#ifndef DDP_EXAMPLES_MNIST_CHECKPOINT_H
#define DDP_EXAMPLES_MNIST_CHECKPOINT_H

struct convnet;
struct failure;

/* Write the parameters and the running averages. One rank calls this.
 *
 * returns   0, or -1; the text names the file */
int checkpoint_write(const char *path, const struct convnet *net, struct failure *why);

#endif
