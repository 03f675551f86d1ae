#include "call.h"

#include "common/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *name_in(const char *const *names, size_t n, unsigned i)
{
    return i < n && names[i] != NULL ? names[i] : "?";
}

bool call_has_root(enum call_kind kind)
{
    return kind == CALL_REDUCE || kind == CALL_BROADCAST || kind == CALL_GATHER ||
           kind == CALL_SCATTER;
}

static bool has_data(enum call_kind kind)
{
    return kind != CALL_BARRIER && kind != CALL_GROUP_SPLIT && kind != CALL_GROUP_DESTROY;
}

const char *call_format(const struct call *call, char text[CALL_TEXT_BYTES])
{
    static const char *const ops[] = {"sum", "avg", "min", "max", "prod", "band", "bor"};
    const enum call_kind kind = (enum call_kind)call->kind;
    const bool has_op = call_is_reduction(kind);
    const char *name = call_kind_name(call->kind);
    char root[24] = "", count[64] = "";

    if (!has_data(kind)) {
        snprintf(text, CALL_TEXT_BYTES, "%s()", name);
        return text;
    }
    if (call_has_root(kind))
        snprintf(root, sizeof root, ", root %" PRId32, call->root);
    const bool is_checked = call->form == CALL_CHECKED;
    if (call->form == CALL_EQUAL || is_checked)
        snprintf(count, sizeof count, ", %" PRIu64, call->count);
    else if (call->form == CALL_COUNTS) /* different counts show, even if their sums do not */
        snprintf(count, sizeof count, ", %" PRIu64 " as counts %04x", call->count,
                 (unsigned)(call->digest & 0xffff));
    snprintf(text, CALL_TEXT_BYTES, "%s%s(%s%s%s%s%s)", name,
             call->form == CALL_EQUAL ? ""
             : is_checked             ? "_checked"
                                      : "_v",
             call_dtype_name(call->dtype), has_op ? ", " : "",
             has_op ? name_in(ops, sizeof ops / sizeof *ops, call->op) : "", count, root);
    return text;
}

uint64_t call_digest(const size_t *counts, size_t n)
{
    uint64_t hash = CO_HASH_START;
    for (size_t i = 0; i < n; i++)
        hash = co_hash_number(hash, counts[i]);
    return hash;
}
