#include "check_wire.h"

#include "common/error.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char word[] = "ddpctl-check ";

static int parse(const char *text, size_t len, json_t **ret, struct co_error *err)
{
    json_error_t trouble;
    json_t *json = json_loadb(text, len, 0, &trouble);
    if (json_is_object(json)) {
        *ret = json;
        return 1;
    }
    json_decref(json);
    return co_fail(err, -EPROTO, "unexpected reply, not from ddpctl: %.100s",
                   json == NULL ? trouble.text : "not a JSON object");
}

int check_wire_take(struct check_wire *w, json_t **ret, struct co_error *err)
{
    for (;;) {
        const char *line = (const char *)co_buf_bytes(&w->in);
        size_t len = co_buf_len(&w->in);
        const char *end = len > 0 ? memchr(line, '\n', len) : NULL;
        size_t n = end != NULL ? (size_t)(end - line) : len;
        if (n > CHECK_LINE_MAX_BYTES || w->n_ignored > CHECK_CHATTER_MAX_BYTES)
            return co_fail(err, -E2BIG,
                           "unexpected reply, not from ddpctl: too long; make sure that login "
                           "scripts print nothing in non-interactive shells");
        if (end == NULL)
            return 0;
        bool is_ours = n >= sizeof word - 1 && memcmp(line, word, sizeof word - 1) == 0;
        int rc = is_ours ? parse(line + sizeof word - 1, n - (sizeof word - 1), ret, err) : 0;
        w->n_ignored += is_ours ? 0 : n + 1;
        co_buf_consume(&w->in, n + 1);
        if (rc != 0)
            return rc;
    }
}

void check_wire_fini(struct check_wire *w)
{
    co_buf_fini(&w->in);
}

char *check_wire_print(json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL, *line = NULL;
    if (text == NULL || asprintf(&line, "%s%s\n", word, text) < 0)
        line = NULL;
    free(text);
    json_decref(json);
    return line;
}
