/* model_kept.c - what a model keeps beyond its steps: gradients that the library allocated, and
 * with keep_buffers a copy of the buffers.
 *
 * Where another generation can follow, the same model of that one, the next of the same number,
 * takes both: its gradients have the addresses that the program knows, and a rank that has the
 * state of the last completed step gives the buffers of that step, whatever a forward pass has
 * written into them since. Without keep_buffers a copy exists only while buffers are equalized. */
#include "model_priv.h"

#include "model_agree.h"
#include "worker-runtime/group/recovery.h"
#include <stdlib.h>
#include <string.h>

static void release_kept(void *left)
{
    struct model_kept *k = left;
    if (k == NULL)
        return;
    model_homes_destroy(k->homes, NULL);
    free(k->buffers);
    free(k->outer);
    free(k);
}

static int make_room(struct ddp_model *m)
{
    size_t bytes = 0;
    for (size_t i = 0; i < m->opts.n_buffers; i++)
        bytes += m->opts.buffers[i].count * ddp_dtype_size(m->opts.buffers[i].dtype);
    if (m->kept->buffers != NULL && m->kept->buffers_bytes == bytes)
        return 0;
    free(m->kept->buffers);
    m->kept->has_saved = m->kept->is_of_a_step = false;
    m->kept->buffers_bytes = bytes;
    m->kept->buffers = malloc(bytes + 1);
    return m->kept->buffers != NULL
               ? 0
               : rt_fail(DDP_ENOMEM, "out of memory to keep %zu bytes of buffers", bytes);
}

int model_kept_take(struct ddp_model *m)
{
    if (recovery_get_model(m->g, &m->next) != 0)
        return rt_fail(DDP_ENOMEM, "out of memory for what the model keeps");
    if (m->next != NULL && m->next->left != NULL) {
        m->kept = m->next->left;
        m->next->left = NULL;
    } else {
        m->kept = calloc(1, sizeof *m->kept);
    }
    if (m->kept == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory for what the model keeps");
    const bool may_recover = m->next != NULL && m->opts.stream == NULL;
    return m->opts.keep_buffers || may_recover ? make_room(m) : 0;
}

void model_kept_leave(struct ddp_model *m)
{
    if (m->next == NULL || m->kept == NULL) {
        model_homes_destroy(m->homes, m);
        release_kept(m->kept);
        return;
    }
    if (m->homes != NULL && m->homes->any_handed_out && !model_is_on_device(m)) {
        model_homes_destroy(m->kept->homes, NULL); /* they did not fit this model */
        m->kept->homes = m->homes;
    } else {
        model_homes_destroy(m->homes, m);
    }
    m->next->left = m->kept;
    m->next->release = release_kept;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static void copy_buffers(const struct ddp_model *m, bool to_the_program)
{
    uint8_t *at = m->kept->buffers;
    for (size_t i = 0; i < m->opts.n_buffers; i++) {
        const struct ddp_tensor *b = &m->opts.buffers[i];
        const size_t bytes = b->count * ddp_dtype_size(b->dtype);
        if (bytes > 0)
            memcpy(to_the_program ? b->param : at, to_the_program ? at : b->param, bytes);
        at += bytes;
    }
}

int model_kept_equalize(struct ddp_model *m, int root)
{
    const bool has_copy = m->kept->buffers != NULL && m->g->rank != root;
    if (has_copy)
        copy_buffers(m, false);
    const int rc = model_broadcast(m->g, m->opts.buffers, m->opts.n_buffers, root, m->opts.stream);
    if (rc != 0 && has_copy)
        copy_buffers(m, true);
    return rc;
}

void model_kept_save(struct ddp_model *m, bool is_of_a_step)
{
    if (!m->opts.keep_buffers)
        return;
    copy_buffers(m, false);
    m->kept->has_saved = true;
    m->kept->is_of_a_step = is_of_a_step;
}

void model_kept_restore(struct ddp_model *m)
{
    if (m->opts.keep_buffers && m->kept->has_saved)
        copy_buffers(m, true);
}
