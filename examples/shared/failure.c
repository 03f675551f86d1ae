#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

int failure_set(struct failure *f, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(f->text, sizeof(f->text), format, args);
    va_end(args);
    return -1;
}
