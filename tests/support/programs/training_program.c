/* training_program.c - the program that libddp promises its users, word for word: below the line it
 * is the text of the design, so that a change of the interface that breaks it is seen. */
#include "tests/support/training_net.h"

/* clang-format off */
/* -------------------------------------------------------------------------------------------- */
#include <ddp/ddp.h>

static int train(struct ddp_group *g, void *arg)
{
    struct net *net = arg;
    struct ddp_model *m;
    struct ddp_sampler *s;
    const int64_t *index;
    int rc;

    if ((rc = ddp_model_create(g, net->tensors, net->n_tensors, NULL, &m)) != 0 ||      /* checks shapes, gives all ranks one state */
        (rc = ddp_sampler_create(g, &(struct ddp_sampler_opts){ .n = net->n_images, .seed = 1, .shuffle = true }, &s)) != 0)
        return rc;
    while (ddp_sampler_next_epoch(s, EPOCHS)) {
        for (size_t n; (n = ddp_sampler_next(s, BATCH, &index)) > 0;) {
            forward(net, index, n);
            /* calls ddp_model_ready(m, i) as gradient i is final */
            backward(net, m);
            if ((rc = ddp_model_sync(m)) != 0)       /* DDP_RETRY: members changed; ddp_run calls train again on every rank */
                return rc;
            sgd_step(net);
        }
    }
    return 0;
}

int main(void)
{
    struct net net;
    net_init(&net);
    if (ddp_run(train, &net) != 0)                   /* init from ddprun's, torchrun's, mpirun's or srun's environment, else a world of 1 */
        ddp_fatal("train");                          /* prints rank and ddp_last_error(), exits 1 */
    return 0;
}
