#include "hang_json.h"

#include "launcher/supervisor/hang.h"
#include "segments/call_kind.h"

static json_t *make_call(bool is_known, const struct rank_status_call *call)
{
    if (!is_known)
        return json_null();
    return json_pack("{s:s,s:I,s:I,s:s,s:i}", "op", call_kind_name(call->kind), "number",
                     (json_int_t)call->number, "bytes", (json_int_t)call->bytes, "dtype",
                     call_dtype_name(call->dtype), "group", (int)call->group);
}

json_t *hang_json_make(const struct hang_finding *f, struct rank_numbers numbers)
{
    static const char *const kinds[] = {[HANG_MISSING] = "missing",
                                        [HANG_NOT_JOINED] = "not_joined",
                                        [HANG_ALL_WAIT] = "all_wait",
                                        [HANG_SILENT] = "silent"};
    json_t *waiting = json_array();
    for (int i = 0; i < f->n_waiting && i < HANG_NAMED; i++)
        json_array_append_new(waiting, json_integer(rank_number(numbers, f->waiting[i])));
    return json_pack("{s:s,s:b,s:I,s:o,s:I,s:o,s:o}", "kind", kinds[f->kind], "stopped",
                     f->is_stopped, "still_ms", (json_int_t)f->still_ms, "waiting", waiting,
                     "waiting_ms", (json_int_t)f->waiting_ms, "call",
                     make_call(f->has_call, &f->call), "last", make_call(f->has_last, &f->last));
}
