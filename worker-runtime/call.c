#include "call.h"

#include <inttypes.h>
#include <stdio.h>

static const char *name_in(const char *const *names, size_t n, unsigned i)
{
    return i < n && names[i] != NULL ? names[i] : "?";
}

const char *call_format(const struct call *call, char text[CALL_TEXT_BYTES])
{
    static const char *const kinds[] = {
        [CALL_BARRIER] = "barrier",     [CALL_ALL_REDUCE] = "all_reduce", [CALL_REDUCE] = "reduce",
        [CALL_BROADCAST] = "broadcast", [CALL_ALL_GATHER] = "all_gather",
    };
    static const char *const dtypes[] = {"float32",  "float64", "int32", "int64",  "float16",
                                         "bfloat16", "int8",    "uint8", "uint32", "uint64"};
    static const char *const ops[] = {"sum", "avg", "min", "max", "prod", "band", "bor"};

    const char *kind = name_in(kinds, sizeof kinds / sizeof *kinds, call->kind);
    if (call->kind == CALL_BARRIER) {
        snprintf(text, CALL_TEXT_BYTES, "%s()", kind);
        return text;
    }
    bool has_op = call->kind == CALL_ALL_REDUCE || call->kind == CALL_REDUCE;
    bool has_root = call->kind == CALL_REDUCE || call->kind == CALL_BROADCAST;
    char root[24] = "";
    if (has_root)
        snprintf(root, sizeof root, ", root %" PRId32, call->root);
    snprintf(text, CALL_TEXT_BYTES, "%s(%s%s%s, %" PRIu64 "%s)", kind,
             name_in(dtypes, sizeof dtypes / sizeof *dtypes, call->dtype), has_op ? ", " : "",
             has_op ? name_in(ops, sizeof ops / sizeof *ops, call->op) : "", call->count, root);
    return text;
}

bool call_same(const struct call *a, const struct call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count;
}
