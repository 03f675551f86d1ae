#include "escape.h"

void escape_print(const uint8_t *bytes, size_t len, FILE *out)
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
