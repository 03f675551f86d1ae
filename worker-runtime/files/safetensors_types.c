#include "safetensors_types.h"

#include <string.h>

static const struct safetensors_type types[] = {
    {"F64", 8, DDP_FLOAT64}, {"F32", 4, DDP_FLOAT32},
    {"F16", 2, DDP_FLOAT16}, {"BF16", 2, DDP_BFLOAT16},
    {"I64", 8, DDP_INT64},   {"I32", 4, DDP_INT32},
    {"I8", 1, DDP_INT8},     {"U64", 8, DDP_UINT64},
    {"U32", 4, DDP_UINT32},  {"U8", 1, DDP_UINT8},
    {"I16", 2, -1},          {"U16", 2, -1},
    {"BOOL", 1, -1},         {"F8_E4M3", 1, -1},
    {"F8_E5M2", 1, -1},      {"C64", 8, -1},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

const struct safetensors_type *safetensors_type_find(const char *name)
{
    for (const struct safetensors_type *t = types; t < types + N_TYPES; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

const struct safetensors_type *safetensors_type_of(int dtype)
{
    for (const struct safetensors_type *t = types; t < types + N_TYPES; t++)
        if (dtype >= 0 && t->dtype == dtype)
            return t;
    return NULL;
}
