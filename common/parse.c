#include "parse.h"

#include "error.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int co_parse_int(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret_value,
                 struct co_error *err)
{
    const char *digits = *text == '-' ? text + 1 : text;
    if (!is_digit(*digits) || digits[strspn(digits, "0123456789")] != '\0')
        return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: expected a number", text,
                       what);
    errno = 0;
    intmax_t value = strtoimax(text, NULL, 10);
    if (errno == ERANGE || value < min || value > max)
        return co_fail(err, -ERANGE,
                       "invalid value '%.200s' for %s: expected a number from %" PRId64
                       " to %" PRId64,
                       text, what, min, max);
    *ret_value = value;
    return 0;
}

int co_parse_duration_ms(const char *what, const char *text, uint64_t *ret_ms, struct co_error *err)
{
    static const struct {
        const char *suffix;
        double ms;
    } units[] = {{"", 1e3}, {"s", 1e3}, {"ms", 1}, {"m", 60e3}, {"h", 3600e3}};

    size_t n = strspn(text, "0123456789");
    if (n > 0 && text[n] == '.')
        n += 1 + strspn(text + n + 1, "0123456789");
    if (n == 0 || n > 30 || text[n - 1] == '.')
        return co_fail(
            err, -EINVAL,
            "invalid value '%.200s' for %s: expected a duration such as 90, 1.5s, 250ms, 10m or 2h",
            text, what);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text + n, units[i].suffix) != 0)
            continue;
        double ms = strtod(text, NULL) * units[i].ms;
        if (ms > 1e12)
            return co_fail(err, -ERANGE,
                           "invalid value '%.200s' for %s: expected at most 1000000000 s", text,
                           what);
        *ret_ms = (uint64_t)(ms + 0.5);
        return 0;
    }
    return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: expected the unit s, ms, m or h",
                   text, what);
}

static const char size_units[] = "KMGT"; /* each 1024 times the one before */

/* "64M" for 64 << 20: the largest unit that leaves no rest. */
static void print_size(uint64_t bytes, char *text, size_t size)
{
    size_t unit = 0;
    while (unit < sizeof size_units - 1 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    const char suffix[] = {unit > 0 ? size_units[unit - 1] : '\0', '\0'};
    snprintf(text, size, "%" PRIu64 "%s", bytes, suffix);
}

/* returns   the power of 1024 that a suffix means, or -EINVAL */
static int size_unit(const char *suffix)
{
    if (*suffix == '\0')
        return 0;
    const char *unit = strchr(size_units, toupper((unsigned char)*suffix));
    if (unit == NULL || (suffix[1] != '\0' && strcmp(suffix + 1, "iB") != 0))
        return -EINVAL;
    return (int)(unit - size_units) + 1;
}

int co_parse_size(const char *what, const char *text, uint64_t min, uint64_t max,
                  uint64_t *ret_bytes, struct co_error *err)
{
    size_t n = strspn(text, "0123456789");
    int unit = size_unit(text + n);
    if (n == 0 || unit < 0)
        return co_fail(
            err, -EINVAL,
            "invalid value '%.200s' for %s: expected a size such as 4096, 64K, 64M or 1G", text,
            what);
    errno = 0;
    uint64_t value = strtoull(text, NULL, 10);
    bool fits = errno != ERANGE && value <= UINT64_MAX >> 10 * unit;
    value <<= 10 * unit;
    if (!fits || value < min || value > max) {
        char least[24], most[24];
        print_size(min, least, sizeof least);
        print_size(max, most, sizeof most);
        return co_fail(err, -ERANGE, "invalid value '%.200s' for %s: expected a size from %s to %s",
                       text, what, least, most);
    }
    *ret_bytes = value;
    return 0;
}

int co_parse_endpoint(const char *what, const char *text, char *host, size_t host_size,
                      uint16_t *ret_port, struct co_error *err)
{
    const char *at = text;
    bool in_brackets = *at == '[';
    size_t n = in_brackets ? strcspn(++at, "]") : strcspn(at, ":");
    const char *port = at + n;
    if (in_brackets && *port++ != ']')
        return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: the closing ']' is missing",
                       text, what);
    if (n == 0 || n >= host_size || (*port != '\0' && *port != ':'))
        return co_fail(
            err, -EINVAL,
            "invalid value '%.200s' for %s: expected HOST[:PORT], with an IPv6 address in brackets",
            text, what);
    int64_t number = 0;
    bool has_port = *port == ':';
    if (has_port && co_parse_int(what, port + 1, 0, UINT16_MAX, &number, NULL) < 0)
        return co_fail(
            err, -EINVAL, "invalid value '%.200s' for %s: '%.200s' is not a port from 0 to 65535%s",
            text, what, port + 1,
            !in_brackets && strchr(port + 1, ':') != NULL ? "; write an IPv6 address in brackets"
                                                          : "");
    snprintf(host, host_size, "%.*s", (int)n, at);
    if (has_port)
        *ret_port = (uint16_t)number;
    return 0;
}

char **co_parse_words(const char *text)
{
    size_t n_max = strlen(text) / 2 + 2, n = 0;
    char **words = malloc(n_max * sizeof *words + strlen(text) + 1);
    char *rest = NULL;
    if (words == NULL)
        return NULL;
    char *copy = strcpy((char *)(words + n_max), text);
    for (char *word = strtok_r(copy, " \t\n", &rest); word != NULL;
         word = strtok_r(NULL, " \t\n", &rest))
        words[n++] = word;
    words[n] = NULL;
    return words;
}

size_t co_count_words(char *const *words)
{
    size_t n = 0;
    while (words[n] != NULL)
        n++;
    return n;
}

char **co_join_words(char *const *const *lists, size_t n)
{
    size_t n_words = 0, bytes = 0;
    for (size_t i = 0; i < n; i++)
        for (char *const *word = lists[i]; *word != NULL; word++, n_words++)
            bytes += strlen(*word) + 1;
    char **joined = malloc((n_words + 1) * sizeof *joined + bytes);
    if (joined == NULL)
        return NULL;
    char **to = joined;
    char *text = (char *)(joined + n_words + 1);
    for (size_t i = 0; i < n; i++)
        for (char *const *word = lists[i]; *word != NULL; word++) {
            *to++ = text;
            text = stpcpy(text, *word) + 1;
        }
    *to = NULL;
    return joined;
}

static const char hex_digits[] = "0123456789abcdef";

int co_parse_hex(const char *text, uint8_t *ret, size_t n)
{
    if (text == NULL || strlen(text) != 2 * n || strspn(text, hex_digits) != 2 * n)
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        ret[i] = (uint8_t)((strchr(hex_digits, text[2 * i]) - hex_digits) << 4 |
                           (strchr(hex_digits, text[2 * i + 1]) - hex_digits));
    return 0;
}

void co_print_hex(const uint8_t *bytes, size_t n, char *to)
{
    for (size_t i = 0; i < n; i++) {
        *to++ = hex_digits[bytes[i] >> 4];
        *to++ = hex_digits[bytes[i] & 15];
    }
    *to = '\0';
}

int co_edit_distance(const char *a, const char *b, int limit)
{
    enum { MAX = 64 };
    size_t n_a = strlen(a);
    size_t n_b = strlen(b);
    if (n_a > MAX || n_b > MAX)
        return limit;
    int row[MAX + 1]; /* row[j]: from the first i characters of a to the first j of b */
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n_b] < limit ? row[n_b] : limit;
}

char *co_format(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return n >= 0 ? text : NULL;
}
