#include "escape.h"

#include "common/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

enum { TEXT_BYTES = 4096 };

void co_escape_print(const uint8_t *bytes, size_t len, FILE *out)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t c = bytes[i];
        if (c == '\\')
            fputs("\\\\", out);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\r')
            fputs("\\r", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c < ' ' || c > '~')
            fprintf(out, "\\x%02x", c);
        else
            putc(c, out);
    }
}

static const char *entity_of(uint8_t c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void co_escape_html(const char *text, FILE *out)
{
    const uint8_t *at = (const uint8_t *)text;
    while (*at != '\0') {
        const char *entity = entity_of(*at);
        size_t n = co_utf8_length((const char *)at, strnlen((const char *)at, 4));
        const bool is_control =
            n > 0 && *at != '\n' && *at != '\t' && co_utf8_is_control((const char *)at, n);
        if (entity != NULL)
            fputs(entity, out);
        else if (n == 0 || is_control)
            fputs("\xef\xbf\xbd", out);
        else
            fwrite(at, 1, n, out);
        at += n > 0 ? n : 1;
    }
}

void co_escape_html_printf(FILE *out, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    co_escape_html(text, out);
}
