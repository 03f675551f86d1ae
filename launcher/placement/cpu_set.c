#include "cpu_set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANGE_BYTES = 16, CPU_DIGITS = 4 };

size_t cpu_set_count(const struct cpu_set *s)
{
    size_t n = 0;
    for (size_t i = 0; i < CPU_SET_CPUS / 64; i++)
        n += (size_t)__builtin_popcountll(s->word[i]);
    return n;
}

/* The next range from `from` on. returns false: there is none */
static bool next_range(const struct cpu_set *s, unsigned from, unsigned *ret_first,
                       unsigned *ret_last)
{
    while (from < CPU_SET_CPUS && !cpu_set_has(s, from))
        from++;
    if (from == CPU_SET_CPUS)
        return false;
    *ret_first = from;
    while (cpu_set_has(s, from + 1))
        from++;
    *ret_last = from;
    return true;
}

char *cpu_set_print(const struct cpu_set *s, char *to, size_t n)
{
    unsigned first, last;
    size_t len = 0;
    to[0] = '\0';
    for (unsigned from = 0; next_range(s, from, &first, &last); from = last + 1) {
        char range[RANGE_BYTES];
        const char *comma = len > 0 ? "," : "";
        int need = first == last ? snprintf(range, sizeof range, "%s%u", comma, first)
                                 : snprintf(range, sizeof range, "%s%u-%u", comma, first, last);
        if (len + (size_t)need + sizeof "..." > n) {
            snprintf(to + len, n - len, "%s", n - len >= sizeof "..." ? "..." : "");
            return to;
        }
        strcpy(to + len, range);
        len += (size_t)need;
    }
    return to;
}

/* Take a number from *at. returns -1: there is none, or it is too large */
static int take_cpu(const char **at)
{
    size_t n = strspn(*at, "0123456789");
    int cpu = n > 0 && n <= CPU_DIGITS ? atoi(*at) : -1;
    *at += n;
    return cpu < CPU_SET_CPUS ? cpu : -1;
}

int cpu_set_parse(const char *text, struct cpu_set *ret)
{
    struct cpu_set set = {0};
    const char *at = text;
    bool more = *at != '\0' && *at != '\n';
    while (more) {
        int first = take_cpu(&at);
        int last = first;
        if (*at == '-') {
            at++;
            last = take_cpu(&at);
        }
        if (first < 0 || last < first)
            return -EINVAL;
        for (int cpu = first; cpu <= last; cpu++)
            cpu_set_add(&set, (unsigned)cpu);
        more = *at == ',';
        at += more;
    }
    at += *at == '\n';
    if (*at != '\0')
        return -EINVAL;
    *ret = set;
    return 0;
}
