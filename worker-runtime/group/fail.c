/* fail.c - a failure of the program itself, written where its launcher looks for the cause.
 *
 * A rank that ends makes its peers fail, and may take longer to exit than they do. ddprun stops the
 * ranks that are left after the first exit, and reads their error files; torchrun compares the
 * files' times. */
#include "common/scope.h"
#include "common/utf8.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/core/process.h"

#include <ddp/env.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT_MAX = 4000 };

/* A JSON string's inner part: what is not a character becomes '?'. */
static void write_escaped(FILE *file, const char *text)
{
    for (size_t left = strnlen(text, TEXT_MAX); left > 0;) {
        const size_t n = co_utf8_length(text, left);
        const unsigned char c = (unsigned char)*text;
        if (n == 0)
            fputc('?', file);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else
            fwrite(text, 1, n, file);
        text += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
}

/* As torch's @record does. That it cannot be written changes nothing about the failure. */
static void write_error_file(const char *path, const char *text)
{
    co_autoclose FILE *file = fopen(path, "we");
    if (file == NULL)
        return;
    fputs("{\"message\": {\"message\": \"", file);
    write_escaped(file, text);
    fprintf(file, "\", \"extraInfo\": {\"timestamp\": \"%lld\"}}}", (long long)time(NULL));
}

int ddp_fail(const char *text)
{
    const char *path = getenv(DDP_ENV_ERROR_FILE);
    const char *what = text != NULL ? text : "the program failed";
    if (path != NULL && path[0] != '\0' && !process_is_forked())
        write_error_file(path, what);
    return rt_fail(DDP_EPROGRAM, "%s", what);
}
