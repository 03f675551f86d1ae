/* json_value.h - values of our JSON files and answers that may be missing.
 *
 * json_dumps() gives up on a NULL inside an object or a list, so code that builds one of these
 * needs to check for lack of memory only once, at the end. */
#ifndef DDP_LAUNCHER_PLATFORM_JSON_VALUE_H
#define DDP_LAUNCHER_PLATFORM_JSON_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* null for NULL. Where the text is not UTF-8, its bytes from 0x80 on become '?'. returns NULL
 * without memory */
json_t *json_value_text(const char *text);

/* The same for bytes of any kind; a NUL also becomes '?'. */
json_t *json_value_bytes(const char *bytes, size_t n);

/* null for NULL, where a value that cannot be made is left out. */
static inline json_t *json_value_or_null(json_t *value)
{
    return value != NULL ? value : json_null();
}

json_t *json_value_number(bool is_known, int64_t number);

/* Rounded to three decimals, which JSON_VALUE_PRECISION writes as such: 8.044, not
 * 8.0440000000000005. */
json_t *json_value_real(double value);

#define JSON_VALUE_PRECISION JSON_REAL_PRECISION(15) /* what a double surely has */

#endif
