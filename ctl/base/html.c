#include "html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TEXT_BYTES = 4096 };

/* How many bytes a character of UTF-8 has that begins here; 0: none does. */
static size_t character_at(const uint8_t *at)
{
    static const struct {
        uint8_t mask, lead, low, high; /* bounds of the second byte: no other form of less bytes, no
                                          halves of UTF-16, nothing above U+10FFFF */
    } forms[] = {{0xe0, 0xc0, 0x80, 0xbf}, {0xf0, 0xe0, 0x80, 0xbf}, {0xf8, 0xf0, 0x80, 0xbf}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if ((at[0] & forms[i].mask) != forms[i].lead)
            continue;
        uint8_t low = forms[i].low, high = forms[i].high;
        if (at[0] < 0xc2 || at[0] > 0xf4)
            return 0;
        if (at[0] == 0xe0)
            low = 0xa0;
        if (at[0] == 0xed)
            high = 0x9f;
        if (at[0] == 0xf0)
            low = 0x90;
        if (at[0] == 0xf4)
            high = 0x8f;
        if (at[1] < low || at[1] > high)
            return 0;
        for (size_t j = 2; j < i + 2; j++)
            if ((at[j] & 0xc0) != 0x80)
                return 0;
        return i + 2;
    }
    return 0;
}

static const char *escape_of(uint8_t c)
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

void html_put(const char *text, FILE *out)
{
    const uint8_t *at = (const uint8_t *)text;
    while (*at != '\0') {
        const char *escape = escape_of(*at);
        size_t n = *at < 0x80 ? 1 : character_at(at);
        bool is_control = (*at < ' ' && *at != '\n' && *at != '\t') || *at == 0x7f ||
                          (n == 2 && at[0] == 0xc2 && at[1] < 0xa0);
        if (escape != NULL)
            fputs(escape, out);
        else if (n == 0 || is_control)
            fputs("\xef\xbf\xbd", out);
        else
            fwrite(at, 1, n, out);
        at += n > 0 ? n : 1;
    }
}

void html_printf(FILE *out, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    html_put(text, out);
}
