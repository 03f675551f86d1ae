#include "json_value.h"

#include "common/scope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *json_value_bytes(const char *bytes, size_t n)
{
    json_t *json = memchr(bytes, '\0', n) == NULL ? json_stringn(bytes, n) : NULL;
    if (json != NULL)
        return json;
    co_autofree char *clean = malloc(n + 1);
    if (clean == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        clean[i] = bytes[i] == '\0' || (unsigned char)bytes[i] >= 0x80 ? '?' : bytes[i];
    return json_stringn(clean, n);
}

json_t *json_value_text(const char *text)
{
    return text != NULL ? json_value_bytes(text, strlen(text)) : json_null();
}

json_t *json_value_number(bool is_known, int64_t number)
{
    return is_known ? json_integer(number) : json_null();
}

json_t *json_value_real(double value)
{
    return json_real(round(value * 1000) / 1000);
}
