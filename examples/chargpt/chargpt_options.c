#include "chargpt_options.h"

#include <ddp/model.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/failure.h"

const char chargpt_options_help[] =
    "usage: chargpt [OPTION]... [TEXT]...\n"
    "Train a small GPT to predict the next character: alone, or data-parallel under ddprun,\n"
    "mpirun or srun. TEXTs are files, or directories of files (/usr/share/common-licenses).\n"
    "\n"
    "  --layers N        (4)\n"
    "  --width N         a multiple of the heads (128)\n"
    "  --heads N         (4)\n"
    "  --context N       characters that it sees (128)\n"
    "  --batch N         stretches of a step, over all ranks; each rank gets as many (24)\n"
    "  --steps N         of the whole training: the learning rate falls until then (2000)\n"
    "  --minutes X       stop earlier, after so many (no limit)\n"
    "  --stop-at N       stop earlier, after this step (no limit)\n"
    "  --lr X            the highest learning rate (0.002)\n"
    "  --seed N          of the first weights and of the order (1)\n"
    "  --print-every N   steps from one line to the next (50)\n"
    "  --test-every N    steps from one look at the held-out text to the next (250)\n"
    "  --checkpoint DIR  save the training there at its end\n"
    "  --save-every N    and every N steps\n"
    "  --keep N          only the last N of them (2; 0: all)\n"
    "  --zero1           divide the optimizer's state among the ranks\n"
    "  --local-steps N   steps that each rank makes alone between two averages (0: none)\n"
    "  --fragments       with these, average a part of the network in each step\n"
    "  --outer-lr X      learning rate of these averages (0: the default of libddp)\n"
    "  --compress TYPE   of what is averaged: none, float16, bfloat16, int8 (none)\n"
    "  --resume          continue from the newest checkpoint, if there is one\n"
    "  --verify-data     check that the ranks took different stretches, and print "
    "their digests\n"
    "  --loss-file FILE  write each step and its loss, a line each\n"
    "  --help\n";

enum kind { WHOLE, REAL, TEXT, FLAG };

struct entry { /* one for each option of the table that follows it */
    const char *name;
    enum kind kind;
    size_t at; /* in struct chargpt_options */
    double min, max;
};

#define AT(member) offsetof(struct chargpt_options, member)
static const struct entry entries[] = {
    {"layers", WHOLE, AT(layers), 1, 48},
    {"width", WHOLE, AT(width), 1, 4096},
    {"heads", WHOLE, AT(heads), 1, 64},
    {"context", WHOLE, AT(context), 1, 1024},
    {"batch", WHOLE, AT(batch), 1, 65536},
    {"steps", WHOLE, AT(steps), 1, 1e9},
    {"minutes", REAL, AT(minutes), 0, 1e6},
    {"stop-at", WHOLE, AT(stop_at), 0, 1e9},
    {"lr", REAL, AT(lr), 0, 10},
    {"seed", WHOLE, AT(seed), 0, 1e9},
    {"print-every", WHOLE, AT(print_every), 0, 1e9},
    {"test-every", WHOLE, AT(test_every), 0, 1e9},
    {"checkpoint", TEXT, AT(checkpoint), 0, 0},
    {"save-every", WHOLE, AT(save_every), 0, 1e9},
    {"keep", WHOLE, AT(keep), 0, 1e6},
    {"resume", FLAG, AT(resume), 0, 0},
    {"zero1", FLAG, AT(zero1), 0, 0},
    {"local-steps", WHOLE, AT(local_steps), 0, 1e6},
    {"fragments", FLAG, AT(fragments), 0, 0},
    {"outer-lr", REAL, AT(outer_lr), 0, 10},
    {"compress", TEXT, AT(compress), 0, 0},
    {"verify-data", FLAG, AT(verify), 0, 0},
    {"loss-file", TEXT, AT(loss_file), 0, 0},
    {"help", FLAG, AT(help), 0, 0},
};
enum { N_ENTRIES = sizeof(entries) / sizeof(entries[0]) };

static int take_whole(const struct entry *e, const char *text, int64_t *ret, struct failure *why)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0')
        return failure_set(why, "invalid value '%s' for --%s: expected an integer", text, e->name);
    if (errno != 0 || (double)value < e->min || (double)value > e->max)
        return failure_set(why, "invalid value '%s' for --%s: expected %.0f to %.0f", text, e->name,
                           e->min, e->max);
    *ret = value;
    return 0;
}

static int take_real(const struct entry *e, const char *text, double *ret, struct failure *why)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value))
        return failure_set(why, "invalid value '%s' for --%s: expected a number", text, e->name);
    if (value < e->min || value > e->max)
        return failure_set(why, "invalid value '%s' for --%s: expected %g to %g", text, e->name,
                           e->min, e->max);
    *ret = value;
    return 0;
}

static int take(struct chargpt_options *o, const struct entry *e, const char *text,
                struct failure *why)
{
    char *at = (char *)o + e->at;

    switch (e->kind) {
    case WHOLE:
        return take_whole(e, text, (int64_t *)at, why);
    case REAL:
        return take_real(e, text, (double *)at, why);
    case TEXT:
        *(const char **)at = text;
        return 0;
    case FLAG:
        *(bool *)at = true;
        return 0;
    }
    return failure_set(why, "internal error: unhandled option --%s", e->name);
}

int chargpt_options_compress(const struct chargpt_options *o)
{
    static const char *const names[] = {
        [DDP_COMPRESS_NONE] = "none",
        [DDP_COMPRESS_FLOAT16] = "float16",
        [DDP_COMPRESS_BFLOAT16] = "bfloat16",
        [DDP_COMPRESS_INT8] = "int8",
    };

    for (int i = 0; o->compress != NULL && i < (int)(sizeof(names) / sizeof(names[0])); i++)
        if (strcmp(names[i], o->compress) == 0)
            return i;
    return o->compress == NULL ? DDP_COMPRESS_NONE : -1;
}

static int check(const struct chargpt_options *o, struct failure *why)
{
    if (o->width % o->heads != 0)
        return failure_set(why, "--width %lld is not divisible by --heads %lld",
                           (long long)o->width, (long long)o->heads);
    if (o->checkpoint == NULL && (o->resume || o->save_every > 0))
        return failure_set(why, "--resume and --save-every require --checkpoint DIR");
    if (o->zero1 && (o->local_steps > 0 || o->compress != NULL))
        return failure_set(why, "--zero1 and %s cannot be used together",
                           o->local_steps > 0 ? "--local-steps" : "--compress");
    if ((o->fragments || o->outer_lr > 0) && o->local_steps == 0)
        return failure_set(why, "--fragments and --outer-lr require --local-steps N");
    if (chargpt_options_compress(o) < 0)
        return failure_set(why,
                           "invalid value '%s' for --compress: expected none, float16, bfloat16 "
                           "or int8",
                           o->compress);
    return 0;
}

int chargpt_options_parse(int argc, char **argv, struct chargpt_options *ret_opts,
                          struct failure *why)
{
    static const char *const licenses[] = {"/usr/share/common-licenses"};
    struct option table[N_ENTRIES + 1] = {0};
    struct chargpt_options o = {
        .layers = 4,
        .width = 128,
        .heads = 4,
        .context = 128,
        .batch = 24,
        .steps = 2000,
        .lr = 0.002,
        .seed = 1,
        .print_every = 50,
        .test_every = 250,
        .keep = 2,
    };
    int id, which = 0;

    for (int i = 0; i < N_ENTRIES; i++)
        table[i] = (struct option){entries[i].name,
                                   entries[i].kind == FLAG ? no_argument : required_argument, NULL,
                                   256 + i};
    opterr = 0; /* the program prints its own message */
    optind = 1;
    while ((id = getopt_long(argc, argv, ":", table, &which)) != -1) {
        if (id == '?')
            return failure_set(why, "unknown option '%s': see --help", argv[optind - 1]);
        if (id == ':')
            return failure_set(why, "%s requires a value", argv[optind - 1]);
        if (take(&o, &entries[which], optarg, why) < 0)
            return -1;
    }
    o.n_texts = argc - optind;
    o.texts = (const char *const *)argv + optind;
    if (o.n_texts == 0) {
        o.n_texts = 1;
        o.texts = licenses;
    }
    if (!o.help && check(&o, why) < 0)
        return -1;
    *ret_opts = o;
    return 0;
}
