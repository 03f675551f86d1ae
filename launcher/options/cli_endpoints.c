/* The list of --rdzv-endpoint: HOST[:PORT][,...]. */
#include "cli_draft.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int cli_check_host(const char *by, const char *host, size_t max, struct co_error *err)
{
    size_t len = strnlen(host, max + 1);
    for (const char *c = host; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected a host name or address", host,
                           by);
    if (len == 0 || len > max)
        return co_fail(
            err, -EINVAL,
            "invalid value for %s: expected a host name or address of 1 to %zu characters", by,
            max);
    return 0;
}

static int read_one(const struct given *g, const char *at, size_t len, struct job_endpoint *ret,
                    struct co_error *err)
{
    char text[2 * MESSAGE_HOST_BYTES], host[sizeof text] = "";
    if (len == 0)
        return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: an entry of the list is empty",
                       g->value, g->by);
    snprintf(text, sizeof text, "%.*s", len < sizeof text ? (int)len : (int)sizeof text - 1, at);
    int rc = co_parse_endpoint(g->by, text, host, sizeof host, &ret->port, err);
    if (rc == 0)
        rc = cli_check_host(g->by, host, sizeof ret->host - 1, err);
    if (rc == 0)
        strcpy(ret->host, host);
    return rc;
}

static bool is_listed(const struct job_endpoint *list, uint32_t n, const struct job_endpoint *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i].port == e->port && strcmp(list[i].host, e->host) == 0)
            return true;
    return false;
}

int cli_read_endpoints(const struct given *g, uint16_t port,
                       struct job_endpoint ret[JOB_MAX_ENDPOINTS], uint32_t *ret_n,
                       struct co_error *err)
{
    uint32_t n = 0;
    *ret_n = 0;
    if (g->value == NULL || *g->value == '\0')
        return 0;
    for (const char *at = g->value;; at++) {
        const size_t len = strcspn(at, ",");
        struct job_endpoint e = {.port = port};
        if (n == JOB_MAX_ENDPOINTS)
            return co_fail(err, -EINVAL, "invalid value for %s: expected at most %d endpoints",
                           g->by, JOB_MAX_ENDPOINTS);
        int rc = read_one(g, at, len, &e, err);
        if (rc < 0)
            return rc;
        if (is_listed(ret, n, &e))
            return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: %.100s:%u is listed twice",
                           g->value, g->by, e.host, e.port);
        ret[n++] = e;
        at += len;
        if (*at == '\0')
            break;
    }
    *ret_n = n;
    return 0;
}
