#include "check_gpus.h"

#include "common/parse.h"
#include "ctl/base/table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *const check_gpus_words[] = {
    "nvidia-smi", "--query-gpu=name,driver_version,ecc.errors.uncorrected.volatile.total",
    "--format=csv,noheader,nounits", NULL};

enum { LINE_BYTES = 256 };

/* Cut the line at its last comma. returns the text after it, without blanks in front; NULL: no
 * comma */
static char *cut_last(char *line)
{
    char *comma = strrchr(line, ',');
    if (comma == NULL)
        return NULL;
    *comma = '\0';
    return comma + 1 + strspn(comma + 1, " \t");
}

/* Names may hold commas: fields are taken from the end. */
static bool read_line(char *line, struct check_gpu *gpu, char *driver, size_t n_driver)
{
    int64_t n_errors;
    line[strcspn(line, "\r\n")] = '\0';
    const char *errors = cut_last(line), *version = errors != NULL ? cut_last(line) : NULL;
    if (version == NULL || *version == '\0' || !isdigit((unsigned char)*version) || *line == '\0')
        return false;
    gpu->ecc_errors = co_parse_int("errors", errors, 0, INT64_MAX, &n_errors, NULL) == 0
                          ? (uint64_t)n_errors
                          : CHECK_UNKNOWN;
    snprintf(gpu->name, sizeof gpu->name, "%s", line);
    table_plain(gpu->name);
    if (driver[0] == '\0')
        snprintf(driver, n_driver, "%s", version);
    table_plain(driver);
    return true;
}

size_t check_gpus_read(const char *text, struct check_facts *facts)
{
    size_t n = 0;
    facts->n_described = 0;
    facts->driver[0] = '\0';
    for (const char *at = text; *at != '\0';) {
        char line[LINE_BYTES];
        struct check_gpu gpu;
        size_t len = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)len, at);
        at += len + (at[len] == '\n');
        if (len >= sizeof line || !read_line(line, &gpu, facts->driver, sizeof facts->driver))
            continue;
        if (n++ < CHECK_GPUS_MAX)
            facts->gpus[facts->n_described++] = gpu;
    }
    return n;
}

/* The first word of figures and dots: where it stands differs between kinds of drivers. */
void check_gpus_read_version(const char *text, char *to, size_t n)
{
    to[0] = '\0';
    for (const char *at = text; *at != '\0' && *at != '\n';) {
        size_t len = strcspn(at, " \t\n");
        if (len > 0 && strspn(at, "0123456789.") == len && memchr(at, '.', len) != NULL) {
            snprintf(to, n, "%.*s", (int)len, at);
            return;
        }
        at += len + (at[len] == ' ' || at[len] == '\t');
    }
}

void check_gpus_print_nccl(int version, char *to, size_t n)
{
    int major = version < 10000 ? 1000 : 10000;
    to[0] = '\0';
    if (version > 0)
        snprintf(to, n, "%d.%d.%d", version / major, version % major / 100, version % 100);
}
