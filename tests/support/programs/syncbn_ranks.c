/* syncbn_ranks.c - one rank of a layer of ddp_syncbn, for tests/interop/syncbn_vs_torch.py.
 *
 * Reads FILE_IN.RANK and writes FILE_OUT.RANK, of float64 in the machine's order:
 *   in    channels, inner, outer, eps, momentum, n_steps; weight, bias, running mean, running var;
 *         for each step x and dy
 *   out   for each step y, dx, dweight, dbias, running mean, running var
 *
 *     syncbn_ranks FILE_IN FILE_OUT float32|float64 */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_single;

static void quit(const char *what)
{
    fprintf(stderr, "syncbn_ranks: %s\n", what);
    exit(1);
}

static FILE *open_own(const char *path, int rank, const char *mode)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", path, rank);
    FILE *file = fopen(name, mode);
    if (file == NULL)
        quit(name);
    return file;
}

/* Numbers travel as float64, and are kept in the layer's type. */
static void *get(FILE *in, size_t count)
{
    double *wide = calloc(count + 1, sizeof *wide);
    if (wide == NULL || fread(wide, sizeof *wide, count, in) != count)
        quit("the input ends early");
    if (is_single)
        for (size_t i = 0; i < count; i++)
            ((float *)(void *)wide)[i] = (float)wide[i];
    return wide;
}

static void put(FILE *out, const void *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double x =
            is_single ? (double)((const float *)values)[i] : ((const double *)values)[i];
        if (fwrite(&x, sizeof x, 1, out) != 1)
            quit("cannot write");
    }
}

static void step(struct ddp_syncbn *bn, const struct ddp_syncbn_opts *o, FILE *in, FILE *out,
                 const struct ddp_syncbn_shape *shape)
{
    const size_t count = shape->outer * o->channels * shape->inner;
    void *x = get(in, count), *dy = get(in, count);
    void *y = calloc(count + 1, 8), *dx = calloc(count + 1, 8);
    void *dweight = calloc(o->channels, 8), *dbias = calloc(o->channels, 8);
    if (ddp_syncbn_forward(bn, shape, x, y) != 0 ||
        ddp_syncbn_backward(bn, shape, x, dy, dx, dweight, dbias) != 0)
        ddp_fatal("syncbn");
    put(out, y, count);
    put(out, dx, count);
    put(out, dweight, o->channels);
    put(out, dbias, o->channels);
    put(out, o->running_mean, o->channels);
    put(out, o->running_var, o->channels);
    void *all[] = {x, dy, y, dx, dweight, dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int main(int argc, char **argv)
{
    struct ddp_group *g;
    struct ddp_syncbn *bn;
    double head[6];
    if (argc != 4)
        quit("FILE_IN, FILE_OUT and a type are needed");
    if (ddp_init(NULL, &g) != 0)
        ddp_fatal("ddp_init");
    FILE *in = open_own(argv[1], ddp_rank(g), "re"), *out = open_own(argv[2], ddp_rank(g), "we");
    if (fread(head, sizeof head, 1, in) != 1)
        quit("the input has no head");
    is_single = strcmp(argv[3], "float32") == 0;
    struct ddp_syncbn_opts o = {.channels = (size_t)head[0],
                                .dtype = is_single ? DDP_FLOAT32 : DDP_FLOAT64,
                                .eps = head[3],
                                .momentum = head[4]};
    void *weight = get(in, o.channels), *bias = get(in, o.channels);
    o.weight = weight;
    o.bias = bias;
    o.running_mean = get(in, o.channels);
    o.running_var = get(in, o.channels);
    if (ddp_syncbn_create(g, &o, &bn) != 0)
        ddp_fatal("ddp_syncbn_create");
    const struct ddp_syncbn_shape shape = {.outer = (size_t)head[2], .inner = (size_t)head[1]};
    for (int s = 0; s < (int)head[5]; s++)
        step(bn, &o, in, out, &shape);
    ddp_finalize(g);
    free(weight);
    free(bias);
    free(o.running_mean);
    free(o.running_var);
    fclose(in);
    return fclose(out) != 0;
}
