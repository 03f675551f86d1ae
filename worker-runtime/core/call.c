#include "call.h"

#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

bool call_has_root(enum call_kind kind)
{
    return kind == CALL_REDUCE || kind == CALL_BROADCAST || kind == CALL_GATHER ||
           kind == CALL_SCATTER;
}

const char *call_format(const struct call *call, char text[CALL_TEXT_BYTES])
{
    static const char *const ops[] = {"sum", "avg", "min", "max", "prod", "band", "bor"};
    const enum call_kind kind = (enum call_kind)call->kind;
    const bool has_op = call_is_reduction(kind);
    const char *op = call->op < sizeof ops / sizeof *ops ? ops[call->op] : "?";
    const char *name = call_kind_name(call->kind);
    char root[24] = "", count[64] = "";

    if (kind == CALL_BARRIER || kind == CALL_GROUP_SPLIT || kind == CALL_GROUP_DESTROY) {
        snprintf(text, CALL_TEXT_BYTES, "ddp_%s()", name);
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
    snprintf(text, CALL_TEXT_BYTES, "ddp_%s%s(%s%s%s%s%s)", name,
             call->form == CALL_EQUAL ? ""
             : is_checked             ? "_checked"
                                      : "_v",
             call_dtype_name(call->dtype), has_op ? ", " : "", has_op ? op : "", count, root);
    return text;
}

int call_fail_mismatch(const struct call_side *a, const struct call_side *b, struct co_error *err)
{
    char text_a[CALL_TEXT_BYTES], text_b[CALL_TEXT_BYTES], number[32] = "";
    const char *hint = call_same(a->call, b->call)
                           ? ": the same call, so several threads of a rank may be using the group"
                           : "; make the same calls in the same order on all ranks";
    if (a->number != b->number)
        snprintf(number, sizeof number, " as call #%" PRIu32, b->number);
    return co_fail(err, -EPROTO, "%s called %s as call #%" PRIu32 " where %s called %s%s%s",
                   a->rank, call_format(a->call, text_a), a->number, b->rank,
                   call_format(b->call, text_b), number, hint);
}
