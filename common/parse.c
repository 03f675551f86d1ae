#include "parse.h"

#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
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
        return co_fail(err, -EINVAL, "%s '%.200s' is not a number", what, text);
    errno = 0;
    intmax_t value = strtoimax(text, NULL, 10);
    if (errno == ERANGE || value < min || value > max)
        return co_fail(err, -ERANGE, "%s '%.200s' is out of bounds: %" PRId64 " to %" PRId64, what,
                       text, min, max);
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
        return co_fail(err, -EINVAL,
                       "%s '%.200s' is not a duration: try 90, 1.5s, 250ms, 10m or 2h", what, text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text + n, units[i].suffix) != 0)
            continue;
        double ms = strtod(text, NULL) * units[i].ms;
        if (ms > 1e12)
            return co_fail(err, -ERANGE, "%s '%.200s' is out of bounds: at most 1000000000 s", what,
                           text);
        *ret_ms = (uint64_t)(ms + 0.5);
        return 0;
    }
    return co_fail(err, -EINVAL, "%s '%.200s' has an unknown unit: try s, ms, m or h", what, text);
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
