#include "mnist_options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/failure.h"

const char mnist_options_help[] =
    "usage: mnist [OPTION]...\n"
    "Train a network to read digits: alone, or data-parallel under ddprun, mpirun or srun.\n"
    "\n"
    "  --device NAME         cpu, cuda (a GPU for each rank, by NCCL), or auto: GPUs if all ranks\n"
    "                        have one (cpu)\n"
    "  --graph               replay steps on GPUs from a CUDA graph\n"
    "  --data DIR            IDX files with MNIST's names, plain or .gz; drawn there if they\n"
    "                        do not exist (./mnist-data)\n"
    "  --draw N              how many training images to draw, and a fifth as many to test "
    "(20000)\n"
    "  --samples N           train on the first N images only (all)\n"
    "  --epochs N            (3)\n"
    "  --batch N             images of a step, over all ranks; each rank gets as many (100)\n"
    "  --accumulate N        send a rank's images through the network in N parts (1)\n"
    "  --steps N             stop after N steps (no limit)\n"
    "  --lr X                learning rate (0.01)\n"
    "  --momentum X          (0.9)\n"
    "  --seed N              of the first weights and of the order of images (1)\n"
    "  --model NAME          convnet or linear (convnet)\n"
    "  --norm NAME           batch or none (batch)\n"
    "  --sync-bn             normalize over the batches of all ranks as one\n"
    "  --amp O0..O3          train with 16-bit floats: Apex's levels (O0)\n"
    "  --amp-type NAME       float16 or bfloat16 (float16)\n"
    "  --zero1               divide the optimizer's state among the ranks; with --device the\n"
    "                        optimizer is on the CPUs\n"
    "  --pipeline            half of the network on each of two ranks, a batch in 4 parts\n"
    "  --print-loss-every K  print the loss of every Kth step (never)\n"
    "  --loss-file FILE      write the loss of each step, a line each\n"
    "  --checkpoint FILE     write the trained network, in the safetensors format\n"
    "  --help\n";

enum option_id {
    OPT_DEVICE = 256,
    OPT_GRAPH,
    OPT_DATA,
    OPT_DRAW,
    OPT_SAMPLES,
    OPT_EPOCHS,
    OPT_BATCH,
    OPT_ACCUMULATE,
    OPT_STEPS,
    OPT_LR,
    OPT_MOMENTUM,
    OPT_SEED,
    OPT_MODEL,
    OPT_NORM,
    OPT_SYNC_BN,
    OPT_AMP,
    OPT_AMP_TYPE,
    OPT_ZERO1,
    OPT_PIPELINE,
    OPT_PRINT_LOSS_EVERY,
    OPT_LOSS_FILE,
    OPT_CHECKPOINT,
    OPT_HELP,
};

static const struct option table[] = {
    {"device", required_argument, NULL, OPT_DEVICE},
    {"graph", no_argument, NULL, OPT_GRAPH},
    {"data", required_argument, NULL, OPT_DATA},
    {"draw", required_argument, NULL, OPT_DRAW},
    {"samples", required_argument, NULL, OPT_SAMPLES},
    {"epochs", required_argument, NULL, OPT_EPOCHS},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"accumulate", required_argument, NULL, OPT_ACCUMULATE},
    {"steps", required_argument, NULL, OPT_STEPS},
    {"lr", required_argument, NULL, OPT_LR},
    {"momentum", required_argument, NULL, OPT_MOMENTUM},
    {"seed", required_argument, NULL, OPT_SEED},
    {"model", required_argument, NULL, OPT_MODEL},
    {"norm", required_argument, NULL, OPT_NORM},
    {"sync-bn", no_argument, NULL, OPT_SYNC_BN},
    {"amp", required_argument, NULL, OPT_AMP},
    {"amp-type", required_argument, NULL, OPT_AMP_TYPE},
    {"zero1", no_argument, NULL, OPT_ZERO1},
    {"pipeline", no_argument, NULL, OPT_PIPELINE},
    {"print-loss-every", required_argument, NULL, OPT_PRINT_LOSS_EVERY},
    {"loss-file", required_argument, NULL, OPT_LOSS_FILE},
    {"checkpoint", required_argument, NULL, OPT_CHECKPOINT},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static int parse_int(const char *name, const char *text, int64_t min, int64_t max, int64_t *ret,
                     struct failure *why)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0')
        return failure_set(why, "invalid value '%s' for --%s: expected an integer", text, name);
    if (errno != 0 || value < min || value > max)
        return failure_set(why, "invalid value '%s' for --%s: expected %lld to %lld", text, name,
                           (long long)min, (long long)max);
    *ret = value;
    return 0;
}

/* min <= number < max */
static int parse_real(const char *name, const char *text, double min, double max, double *ret,
                      struct failure *why)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value))
        return failure_set(why, "invalid value '%s' for --%s: expected a number", text, name);
    if (value < min || value >= max)
        return failure_set(why, "invalid value '%s' for --%s: expected %g or more and less than %g",
                           text, name, min, max);
    *ret = value;
    return 0;
}

/* Is it the first word (0) or the second (1)? */
static int parse_word(const char *name, const char *text, const char *first, const char *second,
                      int *ret, struct failure *why)
{
    *ret = strcmp(text, second) == 0;
    if (*ret == 0 && strcmp(text, first) != 0)
        return failure_set(why, "invalid value '%s' for --%s: expected %s or %s", text, name, first,
                           second);
    return 0;
}

static int parse_level(const char *text, int64_t *ret, struct failure *why)
{
    if (text[0] != 'O' || text[1] < '0' || text[1] > '3' || text[2] != '\0')
        return failure_set(why, "invalid value '%s' for --amp: expected one of O0, O1, O2, O3",
                           text);
    *ret = text[1] - '0';
    return 0;
}

static int parse_device(const char *text, enum mnist_device *ret, struct failure *why)
{
    static const char *const names[] = {
        [MNIST_CPU] = "cpu", [MNIST_CUDA] = "cuda", [MNIST_AUTO] = "auto"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum mnist_device)i;
            return 0;
        }
    return failure_set(why, "invalid value '%s' for --device: expected one of cpu, cuda, auto",
                       text);
}

static int take_option(struct mnist_options *o, int id, const char *name, const char *text,
                       struct failure *why)
{
    int second = 0, rc;

    switch (id) {
    case OPT_DEVICE:
        return parse_device(text, &o->device, why);
    case OPT_GRAPH:
        o->graph = true;
        return 0;
    case OPT_DATA:
        o->data = text;
        return 0;
    case OPT_LOSS_FILE:
        o->loss_file = text;
        return 0;
    case OPT_CHECKPOINT:
        o->checkpoint = text;
        return 0;
    case OPT_HELP:
        o->help = true;
        return 0;
    case OPT_DRAW:
        return parse_int(name, text, 10, 1000000, &o->draw, why);
    case OPT_SAMPLES:
        return parse_int(name, text, 1, INT32_MAX, &o->samples, why);
    case OPT_EPOCHS:
        return parse_int(name, text, 1, 1000000, &o->epochs, why);
    case OPT_BATCH:
        return parse_int(name, text, 1, 65536, &o->batch, why);
    case OPT_ACCUMULATE:
        return parse_int(name, text, 1, 65536, &o->accumulate, why);
    case OPT_STEPS:
        return parse_int(name, text, 1, INT64_MAX, &o->steps, why);
    case OPT_SEED:
        return parse_int(name, text, 0, INT64_MAX, &o->seed, why);
    case OPT_PRINT_LOSS_EVERY:
        return parse_int(name, text, 1, INT64_MAX, &o->print_loss_every, why);
    case OPT_LR:
        return parse_real(name, text, 0, 1e6, &o->lr, why);
    case OPT_MOMENTUM:
        return parse_real(name, text, 0, 1, &o->momentum, why);
    case OPT_MODEL:
        rc = parse_word(name, text, "convnet", "linear", &second, why);
        o->kind = second ? CONVNET_LINEAR : CONVNET_CONV;
        return rc;
    case OPT_NORM:
        rc = parse_word(name, text, "batch", "none", &second, why);
        o->batch_norm = !second;
        return rc;
    case OPT_SYNC_BN:
        o->sync_bn = true;
        return 0;
    case OPT_ZERO1:
        o->zero1 = true;
        return 0;
    case OPT_PIPELINE:
        o->pipeline = true;
        return 0;
    case OPT_AMP:
        return parse_level(text, &o->amp, why);
    case OPT_AMP_TYPE:
        rc = parse_word(name, text, "float16", "bfloat16", &second, why);
        o->amp_type = second ? DDP_BFLOAT16 : DDP_FLOAT16;
        return rc;
    default:
        return failure_set(why, "internal error: unhandled option");
    }
}

static int check_combination(const struct mnist_options *o, struct failure *why)
{
    if (o->device != MNIST_CPU && o->pipeline)
        return failure_set(why, "--device cannot be used with --pipeline");
    if (o->graph && (o->device == MNIST_CPU || o->accumulate > 1 || o->zero1))
        return failure_set(why, "--graph requires --device cuda or auto, and cannot be used with "
                                "--accumulate or --zero1");
    if (o->zero1 && o->amp > 0)
        return failure_set(why, "--zero1 requires --amp O0");
    if (o->pipeline && (o->zero1 || o->amp > 0 || o->accumulate > 1 || o->sync_bn))
        return failure_set(
            why, "--pipeline cannot be used with --amp, --zero1, --accumulate or --sync-bn");
    if (o->pipeline && o->kind == CONVNET_LINEAR)
        return failure_set(why, "--pipeline cannot be used with --model linear");
    return 0;
}

int mnist_options_parse(int argc, char **argv, struct mnist_options *ret_opts, struct failure *why)
{
    struct mnist_options o = {
        .data = "mnist-data",
        .draw = 20000,
        .epochs = 3,
        .batch = 100,
        .accumulate = 1,
        .lr = 0.01,
        .momentum = 0.9,
        .seed = 1,
        .kind = CONVNET_CONV,
        .batch_norm = true,
        .amp_type = DDP_FLOAT16,
    };
    int id, which = 0;

    opterr = 0; /* the program prints its own message */
    optind = 1;
    while ((id = getopt_long(argc, argv, ":", table, &which)) != -1) {
        if (id == '?')
            return failure_set(why, "unknown option '%s': see --help", argv[optind - 1]);
        if (id == ':')
            return failure_set(why, "%s requires a value", argv[optind - 1]);
        if (take_option(&o, id, table[which].name, optarg, why) < 0)
            return -1;
    }
    if (optind < argc)
        return failure_set(why, "unexpected argument '%s': see --help", argv[optind]);
    if (check_combination(&o, why) < 0)
        return -1;
    *ret_opts = o;
    return 0;
}
