#include "perf_cli.h"

#include "common/error.h"
#include "common/parse.h"
#include "perf_work.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define DEFAULT_MAX_BYTES ((uint64_t)64 << 20)

enum { DEFAULT_MIN_BYTES = 4, DEFAULT_FACTOR = 4, DEFAULT_WARMUPS = 5 };

const struct co_option perf_cli_table[] = {
    {PERF_OPTION_MIN_BYTES, 'b', "minbytes", "SIZE", .subject = "Sizes",
     .brief = "Smallest size. Default: 4.", .help = "Smallest size: 4, 64K, 1G. Default: 4."},
    {PERF_OPTION_MAX_BYTES, 'e', "maxbytes", "SIZE", .brief = "Largest size. Default: 64M.",
     .help = "Largest size. Default: 64M, or --minbytes if that is larger."},
    {PERF_OPTION_STEP_FACTOR, 'f', "stepfactor", "N", .brief = "Factor between sizes. Default: 4.",
     .help = "Factor between sizes. Default: 4."},
    {PERF_OPTION_STEP_BYTES, 'i', "stepbytes", "SIZE",
     .help = "Difference between sizes, instead of a factor."},

    {PERF_OPTION_DATATYPE, 'd', "datatype",
     "float32|float64|int32|int64|float16|bfloat16|int8|uint8|uint32|uint64", .subject = "Calls",
     .help = "Type of the elements; also half, float and double. Default: float32."},
    {PERF_OPTION_OP, 'o', "op", "sum|avg|min|max|prod|band|bor",
     .help = "Operation of a reduction. Default: sum."},
    {PERF_OPTION_ROOT, 'r', "root", "RANK", .help = "Root of the collective. Default: 0."},
    {PERF_OPTION_BUFFER, 0, "buffer", "segment|plain",
     .help = "segment: memory of ddp_alloc(). plain: other memory. Default: segment."},
    {PERF_OPTION_ITERATIONS, 'n', "iters", "N",
     .help = "Timed calls for each size. Default: 20 to 1000, about 64 MiB in total."},
    {PERF_OPTION_WARMUPS, 'w', "warmup-iters", "N",
     .help = "Calls before the timed ones. Default: 5."},
    {PERF_OPTION_CHECK, 'c', "check", "0|1",
     .help = "Whether to check the result of one more call, and count wrong elements. Default: "
             "1."},
    {PERF_OPTION_REWRITE, 0, "rewrite", .brief = "Write the input before each call.",
     .help = "Write each rank's input before each timed call, as a program does. Otherwise the "
             "calls follow each other at once."},

    {PERF_OPTION_RANKS, 0, "ranks", "N", .subject = "General",
     .brief = "Start N ranks without a launcher.",
     .help = "Start N ranks on this machine, without a launcher."},
    {PERF_OPTION_JSON, 0, "json", .brief = "Print JSON lines.",
     .help = "Print JSON lines instead of a table."},
    {PERF_OPTION_TUNE, 0, "tune", .brief = "Print a tuning table, or what suits the network.",
     .help = "With --ranks: measure which algorithm is the fastest for which sizes, and print a "
             "table for DDP_TUNING. In a job on several nodes: measure the network, and print "
             "DDP_SOCKET_LANES and DDP_TUNING."},
    {PERF_OPTION_HELP, 'h', "help", .brief = "Print this text (-h), or all options (--help).",
     .help = "-h: print the common options. --help: print all options."},
    {PERF_OPTION_VERSION, 'V', "version", .brief = "Print the version.",
     .help = "Print the version."},
    {0},
};

/* --- names ------------------------------------------------------------------------------------ */

struct word {
    const char *name;
    int value;
};

static const struct word dtypes[] = {
    {"float32", DDP_FLOAT32}, {"float64", DDP_FLOAT64},
    {"int32", DDP_INT32},     {"int64", DDP_INT64},
    {"float16", DDP_FLOAT16}, {"bfloat16", DDP_BFLOAT16},
    {"int8", DDP_INT8},       {"uint8", DDP_UINT8},
    {"uint32", DDP_UINT32},   {"uint64", DDP_UINT64},
    {"half", DDP_FLOAT16},    {"float", DDP_FLOAT32},
    {"double", DDP_FLOAT64},  {0},
};
static const struct word ops[] = {
    {"sum", DDP_SUM},   {"avg", DDP_AVG},   {"min", DDP_MIN}, {"max", DDP_MAX},
    {"prod", DDP_PROD}, {"band", DDP_BAND}, {"bor", DDP_BOR}, {0},
};
static const struct word buffers[] = {{"segment", PERF_SEGMENT}, {"plain", PERF_PLAIN}, {0}};

static const char *name_of(const struct word *words, int value)
{
    for (; words->name != NULL; words++)
        if (words->value == value)
            return words->name;
    return "?";
}

const char *perf_cli_dtype_name(enum ddp_dtype dtype)
{
    return name_of(dtypes, (int)dtype);
}

const char *perf_cli_op_name(enum ddp_op op)
{
    return name_of(ops, (int)op);
}

const char *perf_cli_buffer_name(enum perf_buffer buffer)
{
    return name_of(buffers, (int)buffer);
}

static int find_word(const struct co_option_found *found, const struct word *words, int *ret,
                     struct co_error *err)
{
    for (; words->name != NULL; words++) {
        if (strcmp(found->value, words->name) != 0)
            continue;
        *ret = words->value;
        return 0;
    }
    return co_fail(err, -EINVAL, "invalid value '%.100s' for %s: expected one of %s", found->value,
                   found->spelled, found->option->value);
}

/* --- options ---------------------------------------------------------------------------------- */

struct draft { /* the options that were read so far */
    struct perf_spec spec;
    enum perf_wish wish;
    bool has_max, has_factor, has_collective;
};

static int set_bytes(const struct co_option_found *found, uint64_t *ret, struct co_error *err)
{
    return co_parse_size(found->spelled, found->value, 1, PERF_MAX_BYTES, ret, err);
}

static int set_unsigned(const struct co_option_found *found, int64_t min, int64_t max,
                        unsigned *ret, struct co_error *err)
{
    int64_t n;
    int rc = co_parse_int(found->spelled, found->value, min, max, &n, err);
    if (rc == 0)
        *ret = (unsigned)n;
    return rc;
}

static int set_word(const struct co_option_found *found, struct perf_spec *s, struct co_error *err)
{
    const enum perf_option id = (enum perf_option)found->option->id;
    int value = 0;
    int rc = find_word(found,
                       id == PERF_OPTION_DATATYPE ? dtypes
                       : id == PERF_OPTION_OP     ? ops
                                                  : buffers,
                       &value, err);
    if (rc < 0)
        return rc;
    if (id == PERF_OPTION_DATATYPE)
        s->dtype = (enum ddp_dtype)value;
    else if (id == PERF_OPTION_OP)
        s->op = (enum ddp_op)value;
    else
        s->buffer = (enum perf_buffer)value;
    return 0;
}

static int read_option(struct draft *d, const struct co_option_found *found, struct co_error *err)
{
    struct perf_spec *s = &d->spec;
    unsigned number = 0;
    int rc = 0;
    switch ((enum perf_option)found->option->id) {
    case PERF_OPTION_MIN_BYTES:
        return set_bytes(found, &s->min_bytes, err);
    case PERF_OPTION_MAX_BYTES:
        d->has_max = true;
        return set_bytes(found, &s->max_bytes, err);
    case PERF_OPTION_STEP_FACTOR:
        d->has_factor = true;
        return set_unsigned(found, 2, 1024, &s->factor, err);
    case PERF_OPTION_STEP_BYTES:
        return set_bytes(found, &s->step_bytes, err);
    case PERF_OPTION_DATATYPE:
    case PERF_OPTION_OP:
    case PERF_OPTION_BUFFER:
        return set_word(found, s, err);
    case PERF_OPTION_ROOT:
        rc = set_unsigned(found, 0, PERF_MAX_RANKS - 1, &number, err);
        s->root = (int)number;
        return rc;
    case PERF_OPTION_ITERATIONS:
        return set_unsigned(found, 1, PERF_MAX_ITERATIONS, &s->n_iterations, err);
    case PERF_OPTION_WARMUPS:
        return set_unsigned(found, 0, PERF_MAX_ITERATIONS, &s->n_warmups, err);
    case PERF_OPTION_CHECK:
        rc = set_unsigned(found, 0, 1, &number, err);
        s->check = number != 0;
        return rc;
    case PERF_OPTION_RANKS:
        return set_unsigned(found, 1, PERF_MAX_RANKS, &s->n_ranks, err);
    case PERF_OPTION_REWRITE:
        s->rewrite = true;
        return 0;
    case PERF_OPTION_JSON:
        s->json = true;
        return 0;
    case PERF_OPTION_TUNE:
        s->tune = true;
        return 0;
    case PERF_OPTION_HELP:
        d->wish = found->spelled[1] == '-' ? PERF_HELP : PERF_HELP_BRIEF;
        return 0;
    case PERF_OPTION_VERSION:
        d->wish = PERF_VERSION;
        return 0;
    }
    return 0;
}

/* Read the options after argv[0].
 * returns   the index of the first word that is not an option, or -EINVAL */
static int read_options(struct draft *d, int argc, char **argv, struct co_error *err)
{
    struct co_option_walk walk;
    struct co_option_found found;
    int rc;
    co_options_start(&walk, perf_cli_table, argc, argv);
    while ((rc = co_options_next(&walk, &found, err)) > 0 && d->wish == PERF_RUN)
        if (read_option(d, &found, err) < 0)
            return -EINVAL;
    return rc < 0 ? -EINVAL : walk.at;
}

static int find_collective(struct draft *d, const char *name, struct co_error *err)
{
    for (int c = 0; c < PERF_N_COLLECTIVES; c++) {
        if (strcmp(name, perf_work_name((enum perf_collective)c)) != 0)
            continue;
        d->spec.collective = (enum perf_collective)c;
        d->has_collective = true;
        return 0;
    }
    return co_fail(err, -EINVAL, "unknown collective '%.60s'; try ddp-perf --help", name);
}

static int read_words(struct draft *d, int argc, char **argv, struct co_error *err)
{
    int at = read_options(d, argc, argv, err);
    if (at < 0 || d->wish != PERF_RUN || at == argc)
        return at < 0 ? at : 0;
    int rc = find_collective(d, argv[at], err);
    if (rc < 0)
        return rc;
    argv += at;
    argc -= at;
    at = read_options(d, argc, argv, err); /* once more: options after the collective are common */
    if (at >= 0 && d->wish == PERF_RUN && at < argc)
        return co_fail(err, -EINVAL,
                       "unexpected argument '%.60s'; usage: ddp-perf COLLECTIVE [OPTION]...",
                       argv[at]);
    return at < 0 ? at : 0;
}

/* --- what contradicts what -------------------------------------------------------------------- */

static int check_sizes(struct draft *d, struct co_error *err)
{
    struct perf_spec *s = &d->spec;
    if (!d->has_max && s->max_bytes < s->min_bytes)
        s->max_bytes = s->min_bytes;
    if (s->max_bytes < s->min_bytes)
        return co_fail(err, -EINVAL, "--maxbytes is less than --minbytes (%" PRIu64 "); raise it",
                       s->min_bytes);
    if (d->has_factor && s->step_bytes > 0)
        return co_fail(err, -EINVAL, "--stepfactor and --stepbytes cannot be used together");
    return 0;
}

static int check_call(const struct draft *d, struct co_error *err)
{
    const struct perf_spec *s = &d->spec;
    const bool is_float = s->dtype == DDP_FLOAT32 || s->dtype == DDP_FLOAT64 ||
                          s->dtype == DDP_FLOAT16 || s->dtype == DDP_BFLOAT16;
    if (!d->has_collective && !s->tune)
        return co_fail(err, -EINVAL, "no collective given; try ddp-perf all_reduce, or --help");
    if (is_float && (s->op == DDP_BAND || s->op == DDP_BOR))
        return co_fail(
            err, -EINVAL,
            "--op %s requires an integer type, but %s is a floating-point type; use --datatype",
            perf_cli_op_name(s->op), perf_cli_dtype_name(s->dtype));
    return 0;
}

static int check_ranks(const struct draft *d, bool launched, struct co_error *err)
{
    const struct perf_spec *s = &d->spec;
    if (launched && s->n_ranks > 0)
        return co_fail(err, -EINVAL,
                       "--ranks cannot be used under a launcher, which started this rank already");
    if (s->n_ranks > 0 && s->root >= (int)s->n_ranks)
        return co_fail(err, -EINVAL, "invalid value '%d' for --root: expected one of %u ranks",
                       s->root, s->n_ranks);
    if (s->tune && !launched && s->n_ranks < 2)
        return co_fail(err, -EINVAL,
                       "--tune requires --ranks N, at least 2, or a job on several nodes");
    if (s->tune && d->has_collective)
        return co_fail(err, -EINVAL, "--tune and a collective cannot be used together");
    return 0;
}

int perf_cli_parse(int argc, char **argv, bool launched, enum perf_wish *ret_wish,
                   struct perf_spec *ret_spec, struct co_error *err)
{
    struct draft d = {.spec = {.min_bytes = DEFAULT_MIN_BYTES,
                               .max_bytes = DEFAULT_MAX_BYTES,
                               .factor = DEFAULT_FACTOR,
                               .n_warmups = DEFAULT_WARMUPS,
                               .check = true}};
    if (read_words(&d, argc, argv, err) < 0)
        return -EINVAL;
    if (d.wish == PERF_RUN &&
        (check_sizes(&d, err) < 0 || check_call(&d, err) < 0 || check_ranks(&d, launched, err) < 0))
        return -EINVAL;
    if (d.spec.collective == PERF_BARRIER)
        d.spec.check = false; /* it has no result */
    *ret_wish = d.wish;
    if (d.wish == PERF_RUN)
        *ret_spec = d.spec;
    return 0;
}

void perf_cli_print_help(bool is_brief, FILE *out)
{
    fputs("Usage: ddp-perf COLLECTIVE [OPTION]...\n"
          "       ddp-perf --tune [--ranks N]\n"
          "Measure a collective of libddp over a range of sizes, and check its results.\n"
          "Runs under ddprun, mpirun or srun, or starts its ranks with --ranks.\n"
          "\n"
          "Collectives:\n ",
          out);
    for (int c = 0; c < PERF_N_COLLECTIVES; c++)
        fprintf(out, " %s%s", perf_work_name((enum perf_collective)c), c == 5 ? "\n " : "");
    fputs("\n\n", out);
    if (is_brief) {
        fputs("Common options (--help prints all):\n", out);
        co_options_print_brief(perf_cli_table, out);
    } else {
        co_options_print_help(perf_cli_table, out);
        fputs("\n"
              "Exit status: 0 success; 1 wrong elements, or a call failed; 2 wrong usage.\n",
              out);
    }
    fputs("\n"
          "Examples:\n"
          "  ddp-perf all_reduce --ranks 8 -e 256M --rewrite\n"
          "  ddprun -n 8 ddp-perf all_reduce -e 256M --buffer plain\n"
          "  ddp-perf --tune --ranks 64 > tuning.txt\n"
          "\n"
          "More in ddp-perf(1).\n",
          out);
}
