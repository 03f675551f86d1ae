#include "base64.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t n, char *text)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i += 3) {
        size_t n_here = n - i < 3 ? n - i : 3;
        uint32_t v = (uint32_t)b[i] << 16;
        v |= n_here > 1 ? (uint32_t)b[i + 1] << 8 : 0;
        v |= n_here > 2 ? b[i + 2] : 0;
        *text++ = alphabet[v >> 18];
        *text++ = alphabet[v >> 12 & 63];
        *text++ = n_here > 1 ? alphabet[v >> 6 & 63] : '=';
        *text++ = n_here > 2 ? alphabet[v & 63] : '=';
    }
    *text = '\0';
}

/* returns 0 .. 63, or -1 */
static int value_of(char c)
{
    const char *at = c != '\0' ? strchr(alphabet, c) : NULL;
    return at != NULL ? (int)(at - alphabet) : -1;
}

/* One group of four, of which the last has n_padded signs of equality.
 * returns   whether it is one */
static int decode_group(const char *text, size_t n_padded, uint8_t out[3])
{
    uint32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        int six = i < 4 - n_padded ? value_of(text[i]) : 0;
        if (six < 0)
            return 0;
        v = v << 6 | (uint32_t)six;
    }
    out[0] = (uint8_t)(v >> 16);
    out[1] = (uint8_t)(v >> 8);
    out[2] = (uint8_t)v;
    return 1;
}

long base64_decode(const char *text, void *bytes, size_t max)
{
    size_t len = strlen(text), n = 0;
    if (len % 4 != 0)
        return -1;
    for (size_t i = 0; i < len; i += 4) {
        bool is_last = i + 4 == len;
        size_t n_padded =
            is_last ? (text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=') : 0;
        uint8_t group[3];
        size_t n_here = 3 - n_padded;
        if (!decode_group(text + i, n_padded, group) || n + n_here > max)
            return -1;
        memcpy((uint8_t *)bytes + n, group, n_here);
        n += n_here;
    }
    return (long)n;
}
