#include "gpt.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/failure.h"
#include "../shared/gemm.h"
#include "../shared/random.h"
#include "gpt_layers.h"

/* Tensors of a layer, in their order. */
enum {
    NORM1_SCALE,
    NORM1_SHIFT,
    QKV_W,
    QKV_B,
    PROJ_W,
    PROJ_B,
    NORM2_SCALE,
    NORM2_SHIFT,
    WIDE_W,
    WIDE_B,
    BACK_W,
    BACK_B,
    N_PER_LAYER,
};
/* And around the layers. */
enum { CHARACTERS, PLACES, FIRST_LAYER };

struct gpt_activations { /* rows of all stretches; kept for the way back */
    real *norm1, *mean1, *inverse1, *qkv, *att, *mixed, *middle;
    real *norm2, *mean2, *inverse2, *wide, *bent, *out;
};

/* ---- the tensors ---- */

struct kind { /* rows and cols in widths; rows 0: one dimension */
    const char *name;
    size_t rows, cols;
};

static const struct kind kinds[N_PER_LAYER] = {
    [NORM1_SCALE] = {"ln_1.weight", 0, 1},   [NORM1_SHIFT] = {"ln_1.bias", 0, 1},
    [QKV_W] = {"attn.c_attn.weight", 1, 3},  [QKV_B] = {"attn.c_attn.bias", 0, 3},
    [PROJ_W] = {"attn.c_proj.weight", 1, 1}, [PROJ_B] = {"attn.c_proj.bias", 0, 1},
    [NORM2_SCALE] = {"ln_2.weight", 0, 1},   [NORM2_SHIFT] = {"ln_2.bias", 0, 1},
    [WIDE_W] = {"mlp.c_fc.weight", 1, 4},    [WIDE_B] = {"mlp.c_fc.bias", 0, 4},
    [BACK_W] = {"mlp.c_proj.weight", 4, 1},  [BACK_B] = {"mlp.c_proj.bias", 0, 1},
};

static void add_tensor(struct gpt *g, const char *name, size_t rows, size_t cols)
{
    struct gpt_tensor *t = &g->tensors[g->n_tensors++];

    snprintf(t->name, sizeof(t->name), "%s", name);
    t->n_dims = rows > 0 ? 2 : 1;
    t->shape[0] = rows > 0 ? rows : cols;
    t->shape[1] = rows > 0 ? cols : 1;
    t->count = t->shape[0] * t->shape[1];
    t->first = g->n_params;
    g->n_params += t->count;
}

static void add_tensors(struct gpt *g)
{
    const size_t width = g->shape.width;

    add_tensor(g, "wte.weight", GPT_CHARACTERS, width);
    add_tensor(g, "wpe.weight", g->shape.context, width);
    for (size_t l = 0; l < g->shape.layers; l++) {
        for (int i = 0; i < N_PER_LAYER; i++) {
            char name[GPT_MAX_NAME];
            snprintf(name, sizeof(name), "h.%zu.%s", l, kinds[i].name);
            add_tensor(g, name, kinds[i].rows * width, kinds[i].cols * width);
        }
    }
    add_tensor(g, "ln_f.weight", 0, width);
    add_tensor(g, "ln_f.bias", 0, width);
}

static real *param(const struct gpt *g, size_t tensor)
{
    return g->params + g->tensors[tensor].first;
}

static real *grad(const struct gpt *g, size_t tensor)
{
    return g->grads + g->tensors[tensor].first;
}

static size_t of_layer(size_t layer, int kind)
{
    return FIRST_LAYER + layer * N_PER_LAYER + (size_t)kind;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

/* As GPT-2: normal with 0.02, less where a branch joins the rest, scales 1, shifts 0. */
static void init_params(struct gpt *g, uint64_t seed)
{
    struct random r = {seed};
    const double joining = 0.02 / sqrt(2 * (double)g->shape.layers);

    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gpt_tensor *t = &g->tensors[i];
        const double deviation = ends_with(t->name, "c_proj.weight") ? joining : 0.02;
        real *p = param(g, i);
        for (size_t j = 0; j < t->count; j++)
            p[j] = t->n_dims == 2                  ? (real)(deviation * random_normal(&r))
                   : ends_with(t->name, ".weight") ? 1
                                                   : 0;
    }
}

/* ---- memory ---- */

struct carver { /* first counts with base NULL, then deals out */
    real *base;
    size_t used;
};

static real *carve(struct carver *c, size_t count)
{
    real *at = c->base != NULL ? c->base + c->used : NULL;

    c->used += (count + 15) / 16 * 16; /* tensors begin on cache lines */
    return at;
}

static void carve_all(struct gpt *g, struct carver *c)
{
    const struct gpt_shape *s = &g->shape;
    const size_t rows = g->max_stretches * s->context, width = s->width;

    g->embedded = carve(c, rows * width);
    for (size_t l = 0; l < s->layers; l++) {
        struct gpt_activations *a = &g->layers[l];
        a->norm1 = carve(c, rows * width);
        a->mean1 = carve(c, rows);
        a->inverse1 = carve(c, rows);
        a->qkv = carve(c, rows * 3 * width);
        a->att = carve(c, rows * s->heads * s->context);
        a->mixed = carve(c, rows * width);
        a->middle = carve(c, rows * width);
        a->norm2 = carve(c, rows * width);
        a->mean2 = carve(c, rows);
        a->inverse2 = carve(c, rows);
        a->wide = carve(c, rows * 4 * width);
        a->bent = carve(c, rows * 4 * width);
        a->out = carve(c, rows * width);
    }
    g->normal = carve(c, rows * width);
    g->mean = carve(c, rows);
    g->inverse = carve(c, rows);
    g->logits = carve(c, rows * GPT_CHARACTERS);
    g->d_rows = carve(c, rows * width);
    g->d_branch = carve(c, rows * width);
    g->d_qkv = carve(c, rows * 3 * width);
    g->d_wide = carve(c, rows * 4 * width);
    g->scratch = carve(c, s->context * s->context);
}

static int allocate(struct gpt *g, struct failure *why)
{
    struct carver c = {0};

    g->tensors = calloc(FIRST_LAYER + g->shape.layers * N_PER_LAYER + 2, sizeof(*g->tensors));
    g->layers = calloc(g->shape.layers, sizeof(*g->layers));
    if (g->tensors == NULL || g->layers == NULL)
        return failure_set(why, "out of memory");
    add_tensors(g);
    carve_all(g, &c);
    g->params = calloc(g->n_params, sizeof(real));
    g->memory = aligned_alloc(64, c.used * sizeof(real));
    if (g->params == NULL || g->memory == NULL)
        return failure_set(why,
                           "out of memory for a network of %zu parameters on %zu characters: use "
                           "smaller --layers or --width",
                           g->n_params, g->max_stretches * g->shape.context);
    c = (struct carver){.base = g->memory};
    carve_all(g, &c);
    return 0;
}

int gpt_create(const struct gpt_shape *shape, size_t max_stretches, uint64_t seed,
               struct gpt **ret_gpt, struct failure *why)
{
    if (shape->heads == 0 || shape->width % shape->heads != 0)
        return failure_set(why, "a width of %zu is not divisible by %zu heads", shape->width,
                           shape->heads);
    if (shape->layers == 0 || shape->layers > GPT_MAX_LAYERS || shape->width == 0 ||
        shape->context == 0)
        return failure_set(
            why, "invalid network: expected 1 to %d layers, and a width and a context of 1 or more",
            GPT_MAX_LAYERS);
    struct gpt *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return failure_set(why, "out of memory");
    g->shape = *shape;
    g->max_stretches = max_stretches;
    if (allocate(g, why) < 0) {
        gpt_destroy(g);
        return -1;
    }
    init_params(g, seed);
    *ret_gpt = g;
    return 0;
}

void gpt_destroy(struct gpt *g)
{
    if (g == NULL)
        return;
    free(g->tensors);
    free(g->layers);
    free(g->params);
    free(g->memory);
    free(g);
}

/* ---- forward ---- */

static void add(real *to, const real *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void embed(struct gpt *g, const uint8_t *inputs, size_t rows)
{
    const size_t width = g->shape.width;
    const real *characters = param(g, CHARACTERS), *places = param(g, PLACES);

    for (size_t i = 0; i < rows; i++) {
        const real *c = characters + inputs[i] * width, *p = places + i % g->shape.context * width;
        for (size_t j = 0; j < width; j++)
            g->embedded[i * width + j] = c[j] + p[j];
    }
}

static struct layer_attention attention_of(const struct gpt *g)
{
    return (struct layer_attention){g->shape.context, g->shape.width, g->shape.heads};
}

static void layer_forward(const struct gpt *g, size_t l, const real *in, size_t n)
{
    const struct gpt_shape *s = &g->shape;
    const struct gpt_activations *a = &g->layers[l];
    const struct layer_attention how = attention_of(g);
    const size_t rows = n * s->context, width = s->width;

#define P(kind) param(g, of_layer(l, kind))
    layer_norm(a->norm1, a->mean1, a->inverse1, in, P(NORM1_SCALE), P(NORM1_SHIFT), rows, width);
    layer_linear(a->qkv, a->norm1, P(QKV_W), P(QKV_B), rows, width, 3 * width);
    for (size_t i = 0; i < n; i++)
        layer_attention(&how, a->mixed + i * s->context * width,
                        a->att + i * s->heads * s->context * s->context,
                        a->qkv + i * s->context * 3 * width);
    layer_linear(a->middle, a->mixed, P(PROJ_W), P(PROJ_B), rows, width, width);
    add(a->middle, in, rows * width);
    layer_norm(a->norm2, a->mean2, a->inverse2, a->middle, P(NORM2_SCALE), P(NORM2_SHIFT), rows,
               width);
    layer_linear(a->wide, a->norm2, P(WIDE_W), P(WIDE_B), rows, width, 4 * width);
    layer_gelu(a->bent, a->wide, rows * 4 * width);
    layer_linear(a->out, a->bent, P(BACK_W), P(BACK_B), rows, 4 * width, width);
    add(a->out, a->middle, rows * width);
#undef P
}

static const real *input_of(const struct gpt *g, size_t l)
{
    return l == 0 ? g->embedded : g->layers[l - 1].out;
}

double gpt_forward(struct gpt *g, const uint8_t *inputs, const int *targets, size_t n)
{
    const size_t rows = n * g->shape.context, width = g->shape.width, last = g->n_tensors - 2;

    embed(g, inputs, rows);
    for (size_t l = 0; l < g->shape.layers; l++)
        layer_forward(g, l, input_of(g, l), n);
    layer_norm(g->normal, g->mean, g->inverse, input_of(g, g->shape.layers), param(g, last),
               param(g, last + 1), rows, width);
    /* the same vectors encode the input characters and score the output characters */
    gemm(rows, GPT_CHARACTERS, width, (struct gemm_matrix){g->normal, width, false},
         (struct gemm_matrix){param(g, CHARACTERS), width, true}, g->logits, GPT_CHARACTERS, false);
    return layer_cross_entropy(g->logits, targets, rows, GPT_CHARACTERS);
}

/* ---- backward ---- */

/* d_rows: of the layer's output on entry, of its input on return. */
static void layer_backward(const struct gpt *g, size_t l, const real *in, size_t n)
{
    const struct gpt_shape *s = &g->shape;
    const struct gpt_activations *a = &g->layers[l];
    const struct layer_attention how = attention_of(g);
    const size_t rows = n * s->context, width = s->width;

#define P(kind) param(g, of_layer(l, kind))
#define G(kind) grad(g, of_layer(l, kind))
    layer_linear_back(g->d_wide, false, G(BACK_W), G(BACK_B), g->d_rows, a->bent, P(BACK_W), rows,
                      4 * width, width);
    layer_gelu_back(g->d_wide, g->d_wide, a->wide, rows * 4 * width);
    layer_linear_back(g->d_branch, false, G(WIDE_W), G(WIDE_B), g->d_wide, a->norm2, P(WIDE_W),
                      rows, width, 4 * width);
    layer_norm_back(g->d_rows, G(NORM2_SCALE), G(NORM2_SHIFT), g->d_branch, a->middle, a->mean2,
                    a->inverse2, P(NORM2_SCALE), rows, width);
    layer_linear_back(g->d_branch, false, G(PROJ_W), G(PROJ_B), g->d_rows, a->mixed, P(PROJ_W),
                      rows, width, width);
    for (size_t i = 0; i < n; i++)
        layer_attention_back(&how, g->d_qkv + i * s->context * 3 * width,
                             g->d_branch + i * s->context * width,
                             a->att + i * s->heads * s->context * s->context,
                             a->qkv + i * s->context * 3 * width, g->scratch);
    layer_linear_back(g->d_branch, false, G(QKV_W), G(QKV_B), g->d_qkv, a->norm1, P(QKV_W), rows,
                      width, 3 * width);
    layer_norm_back(g->d_rows, G(NORM1_SCALE), G(NORM1_SHIFT), g->d_branch, in, a->mean1,
                    a->inverse1, P(NORM1_SCALE), rows, width);
#undef P
#undef G
}

static void embed_backward(const struct gpt *g, const uint8_t *inputs, size_t rows)
{
    const size_t width = g->shape.width;

    for (size_t i = 0; i < rows; i++) {
        const real *d = g->d_rows + i * width;
        add(grad(g, CHARACTERS) + inputs[i] * width, d, width);
        add(grad(g, PLACES) + i % g->shape.context * width, d, width);
    }
}

/* ddp_model_sync() reports errors again. */
static void tell(struct ddp_model *model, size_t first, size_t n)
{
    if (model != NULL)
        ddp_model_ready_range(model, first, n);
}

void gpt_backward(struct gpt *g, const uint8_t *inputs, const int *targets, size_t n, real factor,
                  struct ddp_model *model)
{
    const size_t rows = n * g->shape.context, width = g->shape.width, last = g->n_tensors - 2;

    memset(g->grads, 0, g->n_params * sizeof(real));
    layer_cross_entropy_back(g->logits, targets, rows, GPT_CHARACTERS, factor);
    gemm(GPT_CHARACTERS, width, rows, (struct gemm_matrix){g->logits, GPT_CHARACTERS, true},
         (struct gemm_matrix){g->normal, width, false}, grad(g, CHARACTERS), width, true);
    gemm(rows, width, GPT_CHARACTERS, (struct gemm_matrix){g->logits, GPT_CHARACTERS, false},
         (struct gemm_matrix){param(g, CHARACTERS), width, false}, g->d_branch, width, false);
    memset(g->d_rows, 0, rows * width * sizeof(real));
    layer_norm_back(g->d_rows, grad(g, last), grad(g, last + 1), g->d_branch,
                    input_of(g, g->shape.layers), g->mean, g->inverse, param(g, last), rows, width);
    tell(model, last, 2);
    for (size_t l = g->shape.layers; l-- > 0;) {
        layer_backward(g, l, input_of(g, l), n);
        tell(model, of_layer(l, 0), N_PER_LAYER);
    }
    embed_backward(g, inputs, rows);
    tell(model, CHARACTERS, FIRST_LAYER);
}
