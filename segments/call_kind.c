#include "call_kind.h"

#include <stddef.h>

static const char *name_in(const char *const *names, size_t n, unsigned i)
{
    return i < n && names[i] != NULL ? names[i] : "?";
}

const char *call_kind_name(unsigned kind)
{
    static const char *const names[CALL_N_KINDS] = {
        [CALL_BARRIER] = "barrier",
        [CALL_ALL_REDUCE] = "all_reduce",
        [CALL_REDUCE] = "reduce",
        [CALL_BROADCAST] = "broadcast",
        [CALL_ALL_GATHER] = "all_gather",
        [CALL_REDUCE_SCATTER] = "reduce_scatter",
        [CALL_GATHER] = "gather",
        [CALL_SCATTER] = "scatter",
        [CALL_ALL_TO_ALL] = "all_to_all",
        [CALL_GROUP_SPLIT] = "group_split",
        [CALL_GROUP_DESTROY] = "group_destroy",
    };
    return name_in(names, CALL_N_KINDS, kind);
}

const char *call_dtype_name(unsigned dtype)
{
    static const char *const names[] = {"float32",  "float64", "int32", "int64",  "float16",
                                        "bfloat16", "int8",    "uint8", "uint32", "uint64"};
    return name_in(names, sizeof names / sizeof *names, dtype);
}
