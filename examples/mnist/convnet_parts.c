/* convnet_parts.c - the network in two parts: the first block, and the rest. */
#include <string.h>

#include "convnet_priv.h"

size_t convnet_cut_count(const struct convnet *net)
{
    const struct block *b = &net->inside->blocks[0];

    return b->side * b->side / 4 * b->c_out;
}

/* Tensors of the first block come first. */
void convnet_part_tensors(const struct convnet *net, int part, size_t *ret_first, size_t *ret_n)
{
    const size_t of_first = net->inside->batch_norm ? 4 : 2;

    *ret_first = part == 0 ? 0 : of_first;
    *ret_n = part == 0 ? of_first : net->n_tensors - of_first;
}

int convnet_part_of_stat(const struct convnet *net, size_t i)
{
    const struct block *b = &net->inside->blocks[0];

    return &net->stats[i] == b->running_mean || &net->stats[i] == b->running_var ? 0 : 1;
}

double convnet_part_forward(struct convnet *net, int part, const struct convnet_images *images,
                            const int64_t *index, size_t n, const real *in, real *out, bool again)
{
    struct convnet_priv *inside = net->inside;
    struct block *blocks = inside->blocks;
    const size_t bytes = n * convnet_cut_count(net) * sizeof(real);

    convnet_take_images(inside, images, index, n);
    inside->again = again;
    if (part == 0) {
        convnet_block_forward(inside, &blocks[0], inside->input, true);
        if (out != NULL)
            memcpy(out, blocks[0].out, bytes);
        return 0;
    }
    memcpy(blocks[0].out, in, bytes);
    convnet_block_forward(inside, &blocks[1], blocks[0].out, true);
    convnet_fc_forward(inside);
    return convnet_take_loss(net);
}

void convnet_part_backward(struct convnet *net, int part, const real *d_out, real *d_in)
{
    struct convnet_priv *in = net->inside;
    struct block *blocks = in->blocks;
    const size_t bytes = in->n * convnet_cut_count(net) * sizeof(real);

    if (part == 0) {
        memcpy(blocks[0].d_out, d_out, bytes);
        convnet_block_backward(net, NULL, &blocks[0], in->input, NULL);
        return;
    }
    convnet_fc_backward(net, NULL, blocks[1].d_out);
    convnet_block_backward(net, NULL, &blocks[1], blocks[0].out, blocks[0].d_out);
    memcpy(d_in, blocks[0].d_out, bytes);
}
