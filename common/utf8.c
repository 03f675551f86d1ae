#include "utf8.h"

#include <string.h>

unsigned co_utf8_encode(uint32_t c, char *to)
{
    static const uint8_t first[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    const unsigned n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (unsigned i = n; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(first[n] | c);
    return n;
}

size_t co_utf8_length(const char *text, size_t size)
{
    const uint8_t *at = (const uint8_t *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = at[0] < 0x80             ? 1
                     : (at[0] & 0xe0) == 0xc0 ? 2
                     : (at[0] & 0xf0) == 0xe0 ? 3
                     : (at[0] & 0xf8) == 0xf0 ? 4
                                              : 0;
    if (n <= 1 || n > size)
        return n <= size ? n : 0;
    uint32_t c = at[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (at[i] & 0x3f);
    }
    return c >= least[n] && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) ? n : 0;
}

bool co_utf8_is_valid(const char *text, size_t size)
{
    for (size_t done = 0, n; done < size; done += n)
        if ((n = co_utf8_length(text + done, size - done)) == 0)
            return false;
    return true;
}

bool co_utf8_is_control(const char *text, size_t size)
{
    const uint8_t *at = (const uint8_t *)text;
    return at[0] < ' ' || at[0] == 0x7f ||
           (size > 1 && at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

void co_utf8_clean(char *text, size_t size)
{
    for (size_t done = 0, n; done < size; done += n) {
        char *at = text + done;
        const size_t length = co_utf8_length(at, size - done);
        n = length > 0 ? length : 1;
        if (length == 0 || co_utf8_is_control(at, n))
            memset(at, '?', n);
    }
}
