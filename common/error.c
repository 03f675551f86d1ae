#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *co_severity_name(enum co_severity severity)
{
    static const char *const names[] = {
        [CO_ERROR] = "error", [CO_WARNING] = "warning", [CO_NOTE] = "note"};
    return names[severity];
}

int co_fail(struct co_error *err, int code, const char *format, ...)
{
    if (err == NULL)
        return code;
    va_list args;
    va_start(args, format);
    /* through a copy, since err->text may be among the arguments */
    char text[CO_ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(err->text, text, sizeof text);
    err->code = code;
    return code;
}

int co_fail_in(struct co_error *err, const char *format, ...)
{
    if (err == NULL)
        return -EIO;
    va_list args;
    va_start(args, format);
    char where[CO_ERROR_TEXT_BYTES];
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    return co_fail(err, err->code != 0 ? err->code : -EIO, "%s: %s", where, err->text);
}
