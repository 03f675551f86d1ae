/* train_gpt2cu - a TEST DOUBLE of llm.c's program of that name: it takes the same flags in the same
 * form (-x VALUE, -xy VALUE, no other), checks the values that identify the process against the
 * environment, and trains nothing.
 *
 * Prints "rank R of N, G per node, MASTER_IP". Exit status: 0; 2: a flag is none, or its value is
 * wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, NUMBER, REAL };

static const struct {
    const char *name;
    enum kind kind;
} flags[] = {
    {"-i", TEXT},   {"-j", TEXT},    {"-e", TEXT},    {"-o", TEXT},    {"-lg", NUMBER},
    {"-n", NUMBER}, {"-nk", NUMBER}, {"-nm", NUMBER}, {"-y", NUMBER},  {"-b", NUMBER},
    {"-t", NUMBER}, {"-d", NUMBER},  {"-x", NUMBER},  {"-k", TEXT},    {"-l", REAL},
    {"-u", NUMBER}, {"-q", REAL},    {"-c", REAL},    {"-sl", REAL},   {"-sg", REAL},
    {"-v", NUMBER}, {"-m", NUMBER},  {"-s", NUMBER},  {"-g", NUMBER},  {"-h", NUMBER},
    {"-a", NUMBER}, {"-f", NUMBER},  {"-w", NUMBER},  {"-ge", NUMBER}, {"-z", NUMBER},
    {"-r", NUMBER}, {"-pn", NUMBER}, {"-pr", NUMBER}, {"-pg", NUMBER}, {"-pi", TEXT},
    {"-ps", TEXT},  {"-pf", TEXT},
};

static _Noreturn void refuse(const char *flag, const char *value)
{
    fprintf(stderr, "train_gpt2cu: %s %s\n", flag, value != NULL ? value : "(no value)");
    exit(2);
}

static int number_of(const char *flag, const char *value)
{
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || n < 0 || n > INT_MAX)
        refuse(flag, value);
    return (int)n;
}

static void check_form(const char *flag, const char *value)
{
    size_t i = 0;
    char *end;
    while (i < sizeof flags / sizeof *flags && strcmp(flags[i].name, flag) != 0)
        i++;
    if (i == sizeof flags / sizeof *flags || value == NULL || *value == '\0')
        refuse(flag, value);
    if (flags[i].kind == NUMBER)
        number_of(flag, value);
    else if (flags[i].kind == REAL && (strtod(value, &end), end == value || *end != '\0'))
        refuse(flag, value);
}

static int check_number(const char *flag, const char *value, const char *variable)
{
    const char *expected = getenv(variable);
    if (expected == NULL || strcmp(expected, value) != 0)
        refuse(flag, value);
    return number_of(flag, value);
}

int main(int argc, char **argv)
{
    int n = 0, rank = 0, per_node = 0;
    struct in_addr address;
    const char *ip = "", *method = "";
    for (int i = 1; i < argc; i += 2) {
        const char *flag = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        check_form(flag, value);
        if (strcmp(flag, "-pn") == 0)
            n = check_number(flag, value, "WORLD_SIZE");
        else if (strcmp(flag, "-pr") == 0)
            rank = check_number(flag, value, "RANK");
        else if (strcmp(flag, "-pg") == 0)
            per_node = check_number(flag, value, "LOCAL_WORLD_SIZE");
        else if (strcmp(flag, "-pi") == 0)
            method = value;
        else if (strcmp(flag, "-ps") == 0)
            ip = value;
    }
    if (rank >= n || per_node < 1 || per_node > n)
        refuse("-pr", "of no such world");
    if (strcmp(method, "tcp") != 0 || inet_pton(AF_INET, ip, &address) != 1)
        refuse("-ps", ip);
    printf("rank %d of %d, %d per node, %s\n", rank, n, per_node, ip);
    return 0;
}
