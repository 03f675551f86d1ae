#include "ctl.h"

#include "table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ctl_tell(enum co_severity severity, const char *format, ...)
{
    char text[CO_ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "ddpctl: %s: %s\n", co_severity_name(severity), table_plain(text));
}

enum ctl_exit ctl_fail(enum ctl_exit code, const struct co_error *err)
{
    ctl_tell(CO_ERROR, "%s", err->text);
    return code;
}

enum ctl_exit ctl_flush(enum ctl_exit code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    ctl_tell(CO_ERROR, "cannot write to standard output: %s", strerror(errno));
    return CTL_EXIT_IO;
}
