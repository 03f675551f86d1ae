/* reduce_vector.h - the vector kernels of one element type, written once for every width and type.
 *
 * Included by reduce_avx2.c and reduce_avx512.c once per type, with
 *     VECTOR_BYTES   width of a register
 *     ELEMENT        the element type
 *     SIGNED         the signed integer of its size: what a comparison of vectors gives
 *     UNSIGNED       the unsigned one: integers are added in it, since it may wrap around
 *     IS_FLOAT       1 or 0
 *     NAME(x)        x with the type's name behind it
 * The vectors are the compiler's own (gcc and clang), so that what is computed is written with the
 * same operators as in reduce_scalar.c. Each op is a constant by the time the loops are compiled.
 *
 * Tile by tile: TILE vectors stay in registers while all inputs are folded into them, and then go to
 * every output; each input byte is loaded once, each output byte stored once. */

typedef ELEMENT NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef SIGNED NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
typedef UNSIGNED NAME(wrap) __attribute__((vector_size(VECTOR_BYTES)));

#if IS_FLOAT
#define IS_NAN(x) ((x) != (x))
#else
#define IS_NAN(x) 0
#endif

static ALWAYS_INLINE NAME(vec) NAME(vec_add)(NAME(vec) a, NAME(vec) b)
{
#if IS_FLOAT
    return a + b;
#else
    return (NAME(vec))((NAME(wrap))a + (NAME(wrap))b);
#endif
}

static ALWAYS_INLINE NAME(vec) NAME(vec_pick)(NAME(mask) mask, NAME(vec) yes, NAME(vec) no)
{
    return (NAME(vec))((mask & (NAME(mask))yes) | (~mask & (NAME(mask))no));
}

/* A rank's value as it enters the fold, and the fold itself. */
static ALWAYS_INLINE NAME(vec) NAME(vec_enter)(NAME(vec) x, enum ddp_op op, ELEMENT scale)
{
    return IS_FLOAT && op == DDP_AVG ? x * scale : x;
}

static ALWAYS_INLINE NAME(vec) NAME(vec_fold)(NAME(vec) held, NAME(vec) x, enum ddp_op op)
{
    if (op == DDP_MIN)
        return NAME(vec_pick)((x < held) | IS_NAN(x), x, held);
    if (op == DDP_MAX)
        return NAME(vec_pick)((x > held) | IS_NAN(x), x, held);
    return NAME(vec_add)(held, x);
}

static ALWAYS_INLINE ELEMENT NAME(one_fold)(ELEMENT held, ELEMENT x, enum ddp_op op)
{
    if (op == DDP_MIN)
        return x < held || IS_NAN(x) ? x : held;
    if (op == DDP_MAX)
        return x > held || IS_NAN(x) ? x : held;
#if IS_FLOAT
    return held + x;
#else
    return (ELEMENT)((UNSIGNED)held + (UNSIGNED)x);
#endif
}

static ALWAYS_INLINE void NAME(reduce)(const void *const *in, unsigned n_in, void *const *out,
                                       unsigned n_out, size_t count, enum ddp_op op)
{
    enum { TILE = 4, WIDTH = VECTOR_BYTES / sizeof(ELEMENT) };
    const ELEMENT scale = (ELEMENT)1 / (ELEMENT)n_in;
    const bool divide = !IS_FLOAT && op == DDP_AVG;
    size_t i = 0;

    for (; i + TILE * WIDTH <= count; i += TILE * WIDTH) {
        NAME(vec) held[TILE];
        memcpy(held, (const ELEMENT *)in[0] + i, sizeof held);
        for (unsigned k = 0; k < TILE; k++)
            held[k] = NAME(vec_enter)(held[k], op, scale);
        for (unsigned r = 1; r < n_in; r++) {
            NAME(vec) x[TILE];
            memcpy(x, (const ELEMENT *)in[r] + i, sizeof x);
            for (unsigned k = 0; k < TILE; k++)
                held[k] = NAME(vec_fold)(held[k], NAME(vec_enter)(x[k], op, scale), op);
        }
        if (divide)
            for (unsigned k = 0; k < TILE; k++)
                held[k] /= (ELEMENT)n_in;
        for (unsigned o = 0; o < n_out; o++)
            memcpy((ELEMENT *)out[o] + i, held, sizeof held);
    }
    for (; i < count; i++) {
        const ELEMENT by = IS_FLOAT && op == DDP_AVG ? scale : 1;
        ELEMENT held = ((const ELEMENT *)in[0])[i] * by;
        for (unsigned r = 1; r < n_in; r++)
            held = NAME(one_fold)(held, ((const ELEMENT *)in[r])[i] * by, op);
        if (divide)
            held /= (ELEMENT)n_in;
        for (unsigned o = 0; o < n_out; o++)
            ((ELEMENT *)out[o])[i] = held;
    }
}

static void NAME(sum)(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,
                      size_t count)
{
    NAME(reduce)(in, n_in, out, n_out, count, DDP_SUM);
}

static void NAME(avg)(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,
                      size_t count)
{
    NAME(reduce)(in, n_in, out, n_out, count, DDP_AVG);
}

static void NAME(min)(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,
                      size_t count)
{
    NAME(reduce)(in, n_in, out, n_out, count, DDP_MIN);
}

static void NAME(max)(const void *const *in, unsigned n_in, void *const *out, unsigned n_out,
                      size_t count)
{
    NAME(reduce)(in, n_in, out, n_out, count, DDP_MAX);
}

#undef IS_NAN
#undef ELEMENT
#undef SIGNED
#undef UNSIGNED
#undef IS_FLOAT
#undef NAME
