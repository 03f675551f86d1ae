/* checkpoint.c - a directory of checkpoints and the thread that writes to it.
 *
 * A save (checkpoint_save.c) gathers an image of the state on rank 0, and checkpoint_write()
 * writes it, in a thread if the program wants that. A load (checkpoint_load.c) reads on the first
 * rank of each node, which deals the state out. Both begin with checkpoint_agree_on_items().
 * checkpoint_dir.c knows the files. Read ddp_checkpoint_save() and checkpoint_write() first. */
#include "checkpoint_dir.h"
#include "checkpoint_priv.h"
#include "common/scope.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/files/safetensors_header.h"

#include <ddp/collective.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* --- what ranks must have in common ----------------------------------------------------------- */

int checkpoint_describe(const struct ddp_checkpoint_item *item,
                        struct ddp_safetensors_tensor *ret_tensor, size_t *ret_elements,
                        struct co_error *err)
{
    struct ddp_safetensors_tensor t = {
        .name = item->name, .dtype = (int)item->dtype, .n_dims = item->n_dims};
    if (t.name == NULL)
        return co_fail(err, -EINVAL, "an item without a name");
    memcpy(t.shape, item->shape, sizeof t.shape);
    int code = safetensors_bytes(&t, &t.bytes, err);
    if (code != 0)
        return code;
    const size_t all = t.bytes / ddp_dtype_size(item->dtype);
    const size_t own = item->is_sharded ? item->count : all;
    if (item->is_sharded && (item->first > all || item->count > all - item->first))
        return co_fail(err, -EINVAL,
                       "item '%.100s' has %zu elements: cannot take %zu from offset %zu", t.name,
                       all, item->count, item->first);
    if (own > 0 && item->data == NULL)
        return co_fail(err, -EINVAL, "item '%.100s' has data NULL", t.name);
    *ret_tensor = t;
    *ret_elements = all;
    return 0;
}

static uint64_t digest_of(const struct ddp_checkpoint_item *items, size_t n)
{
    struct whole_digest d;
    whole_digest_init(&d);
    whole_digest_add(&d, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        const struct ddp_checkpoint_item *it = &items[i];
        const uint64_t head[] = {(uint64_t)it->dtype, it->n_dims, it->is_sharded};
        whole_digest_add(&d, it->name, strlen(it->name) + 1);
        whole_digest_add(&d, head, sizeof head);
        whole_digest_add(&d, it->shape, it->n_dims * sizeof it->shape[0]);
    }
    return whole_digest_end(&d);
}

static int check_items(const struct ddp_checkpoint_item *items, size_t n, int64_t step,
                       struct co_error *err)
{
    struct ddp_safetensors_tensor t;
    size_t elements;
    int code = 0;
    if (step < 0)
        return co_fail(err, -EINVAL, "step %" PRId64 " is negative", step);
    if (items == NULL && n > 0)
        return co_fail(err, -EINVAL, "items is NULL");
    for (size_t i = 0; i < n && code == 0; i++)
        code = checkpoint_describe(&items[i], &t, &elements, err);
    return code;
}

int checkpoint_agree_on_items(const char *name, struct ddp_checkpoint *c, int64_t step,
                              const struct ddp_checkpoint_item *items, size_t n)
{
    struct co_error err = {0};
    bool is_same;
    int code = checkpoint_join(c, &err);
    if (code == 0)
        code = check_items(items, n, step, &err);
    if (code != 0)
        co_fail_in(&err, "%s", name);
    int rc = collective_agree(c->group, code, &err);
    if (rc == 0)
        rc = collective_compare(c->group, digest_of(items, n), &is_same);
    if (rc == 0 && !is_same)
        rc = rt_fail(DDP_EMISMATCH,
                     "%s: the ranks' items differ in number, names, types or shapes; "
                     "pass the same items on all ranks",
                     name);
    return rc;
}

/* --- the thread ------------------------------------------------------------------------------- */

void checkpoint_image_fini(struct checkpoint_image *image)
{
    for (size_t i = 0; i < image->n; i++) {
        if (image->names != NULL)
            free(image->names[i]);
        if (image->copies != NULL)
            free(image->copies[i]);
    }
    free(image->tensors);
    free(image->names);
    free(image->copies);
    *image = (struct checkpoint_image){0};
}

static void *write_image(void *arg)
{
    struct ddp_checkpoint *c = arg;
    c->code = checkpoint_dir_write(c->directory, c->image.step, c->keep_last, c->image.tensors,
                                   c->image.n, &c->err);
    return NULL;
}

int checkpoint_write(struct ddp_checkpoint *c, struct checkpoint_image *image, struct co_error *err)
{
    c->image = *image;
    *image = (struct checkpoint_image){0};
    c->err = (struct co_error){0};
    if (c->async) {
        int code = process_start_thread(&c->thread, write_image, c);
        c->is_writing = code == 0;
        if (c->is_writing)
            return 0;
        checkpoint_image_fini(&c->image);
        return co_fail(err, code, "cannot start the thread that writes checkpoints: %s",
                       strerror(-code));
    }
    write_image(c);
    checkpoint_image_fini(&c->image);
    if (err != NULL)
        *err = c->err;
    return c->code;
}

int checkpoint_join(struct ddp_checkpoint *c, struct co_error *err)
{
    if (!c->is_writing)
        return 0;
    pthread_join(c->thread, NULL); /* it waits for the disk alone */
    c->is_writing = false;
    checkpoint_image_fini(&c->image);
    if (err != NULL)
        *err = c->err;
    return c->code;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void destroy_child(struct group_child *child)
{
    ddp_checkpoint_close((struct ddp_checkpoint *)child);
}

static int make_checkpoint(struct ddp_group *g, const struct ddp_checkpoint_opts *opts,
                           struct ddp_checkpoint **ret, struct co_error *err)
{
    if (opts->directory == NULL || opts->directory[0] == '\0')
        return co_fail(err, -EINVAL, "the directory is NULL or empty: set ddp_checkpoint_opts.dir");
    if (opts->keep_last < 0)
        return co_fail(err, -EINVAL,
                       "invalid value %d for keep_last: expected 0 (keep all) or more",
                       opts->keep_last);
    if (g->rank == 0) {
        int code = checkpoint_dir_prepare(opts->directory, err);
        if (code != 0)
            return code;
    }
    struct ddp_checkpoint *c = calloc(1, sizeof *c);
    char *directory = strdup(opts->directory);
    if (c == NULL || directory == NULL) {
        free(c);
        free(directory);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    c->child.destroy = destroy_child;
    c->group = g;
    c->directory = directory;
    c->keep_last = opts->keep_last;
    c->async = opts->async;
    *ret = c;
    return 0;
}

co_define_auto(ddp_checkpoint, ddp_checkpoint_close);

int ddp_checkpoint_open(struct ddp_group *g, const struct ddp_checkpoint_opts *opts,
                        struct ddp_checkpoint **ret_checkpoint)
{
    if (g == NULL || opts == NULL || ret_checkpoint == NULL)
        return rt_fail(DDP_EINVAL, "ddp_checkpoint_open: group, opts or ret_checkpoint is NULL");
    struct co_error err = {0};
    co_auto(ddp_checkpoint) c = NULL;
    int code = make_checkpoint(g, opts, &c, &err);
    if (code != 0)
        co_fail_in(&err, "ddp_checkpoint_open");
    int rc = collective_agree(g, code, &err);
    if (rc != 0)
        return rc;
    group_adopt(g, &c->child);
    *ret_checkpoint = co_take(&c);
    return DDP_OK;
}

void ddp_checkpoint_close(struct ddp_checkpoint *c)
{
    if (c == NULL)
        return;
    group_disown(&c->child);
    checkpoint_join(c, NULL);
    free(c->directory);
    free(c);
}

int ddp_checkpoint_wait(struct ddp_checkpoint *c)
{
    struct co_error err = {0};
    if (c == NULL)
        return rt_fail(DDP_EINVAL, "ddp_checkpoint_wait: the checkpoint is NULL");
    return collective_agree(c->group, checkpoint_join(c, &err), &err);
}

int ddp_checkpoint_latest(struct ddp_checkpoint *c, int64_t *ret_step)
{
    if (c == NULL || ret_step == NULL)
        return rt_fail(DDP_EINVAL, "ddp_checkpoint_latest: checkpoint or ret_step is NULL");
    struct co_error err = {0};
    co_autofree int64_t *steps = NULL;
    size_t n = 0;
    int code = c->group->rank == 0 ? checkpoint_join(c, &err) : 0;
    if (code == 0 && c->group->rank == 0)
        code = checkpoint_dir_list(c->directory, &steps, &n, &err);
    int64_t step = n > 0 ? steps[n - 1] : -1;
    int rc = collective_agree(c->group, code, &err);
    if (rc == 0)
        rc = ddp_broadcast(c->group, &step, &step, 1, DDP_INT64, 0, NULL);
    if (rc == 0)
        *ret_step = step;
    return rc;
}
