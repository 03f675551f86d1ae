#include "label.h"

#include "common/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum label_name { HOST, RANK, LOCAL_RANK, ROLE, GENERATION, N_NAMES };

static const char *const names[N_NAMES] = {"host", "rank", "local_rank", "role", "generation"};

static int find_name(const char *at, size_t len)
{
    for (int i = 0; i < N_NAMES; i++)
        if (strlen(names[i]) == len && memcmp(at, names[i], len) == 0)
            return i;
    return -1;
}

static void print_value(FILE *out, enum label_name name, const struct label_values *v)
{
    switch (name) {
    case HOST:
        fputs(v->host, out);
        break;
    case RANK:
        fprintf(out, "%d", v->rank);
        break;
    case LOCAL_RANK:
        fprintf(out, "%d", v->local_rank);
        break;
    case ROLE:
        fputs(v->role, out);
        break;
    default:
        fprintf(out, "%u", v->generation);
        break;
    }
}

/* A label is the start of a line: it must not end one, nor move a terminal's cursor. */
static int check_bytes(const char *text, struct co_error *err)
{
    if (strnlen(text, LABEL_MAX + 1) > LABEL_MAX)
        return co_fail(err, -EINVAL, "it is longer than %d bytes", LABEL_MAX);
    for (const char *c = text; *c != '\0'; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127)
            return co_fail(err, -EINVAL, "it holds a control character");
    return 0;
}

/* out == NULL: only look */
static int expand(const char *format, const struct label_values *values, FILE *out,
                  struct co_error *err)
{
    for (const char *c = format; *c != '\0'; c++) {
        bool is_brace = *c == '{' || *c == '}';
        if (!is_brace || c[1] == *c) {
            if (out != NULL)
                fputc(*c, out);
            c += is_brace;
            continue;
        }
        size_t len = strcspn(c + 1, "{}");
        if (*c == '}' || c[1 + len] != '}')
            return co_fail(err, -EINVAL,
                           "a '%c' stands alone: names are written {rank}, and braces {{ }}", *c);
        int name = find_name(c + 1, len);
        if (name < 0)
            return co_fail(err, -EINVAL,
                           "'{%.*s}' is none of {host}, {rank}, {local_rank}, {role} and "
                           "{generation}",
                           len < 60 ? (int)len : 60, c + 1);
        if (out != NULL)
            print_value(out, (enum label_name)name, values);
        c += len + 1;
    }
    return 0;
}

int label_make(const char *format, const struct label_values *values, char **ret,
               struct co_error *err)
{
    int rc = check_bytes(format, err);
    if (rc == 0)
        rc = expand(format, values, NULL, err);
    if (rc < 0 || ret == NULL)
        return rc;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return co_fail(err, -ENOMEM, "no memory for a label");
    rc = expand(format, values, out, err);
    if (fclose(out) != 0 || rc < 0) {
        free(text);
        return rc < 0 ? rc : co_fail(err, -ENOMEM, "no memory for a label");
    }
    *ret = text;
    return 0;
}

static bool is_name_byte(char c, bool first)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (!first && c >= '0' && c <= '9');
}

/* A $name or ${name} at `at`. returns its length; 0: none is there */
static size_t template_name(const char *at, const char **ret_name, size_t *ret_len)
{
    bool in_braces = at[1] == '{';
    const char *name = at + 1 + in_braces;
    size_t len = 0;
    while (is_name_byte(name[len], len == 0))
        len++;
    if (len == 0 || (in_braces && name[len] != '}'))
        return 0;
    *ret_name = name;
    *ret_len = len;
    return 1 + len + (in_braces ? 2 : 0);
}

int label_from_template(const char *text, char **ret, struct co_error *err)
{
    static const char *const theirs[] = {"role_name", "rank", "local_rank"};
    static const char *const ours[] = {"{role}", "{rank}", "{local_rank}"};
    int rc = check_bytes(text, err);
    if (rc < 0)
        return rc;
    char *format = malloc(2 * strlen(text) + 1); /* nothing becomes more than twice as long */
    if (format == NULL)
        return co_fail(err, -ENOMEM, "no memory for a label");
    char *to = format;
    for (const char *c = text; *c != '\0';) {
        const char *name;
        size_t len;
        size_t n = *c == '$' ? template_name(c, &name, &len) : 0;
        const char *known = NULL;
        for (size_t i = 0; n > 0 && i < sizeof theirs / sizeof *theirs; i++)
            if (strlen(theirs[i]) == len && memcmp(theirs[i], name, len) == 0)
                known = ours[i];
        if (known != NULL) {
            to = stpcpy(to, known);
            c += n;
            continue;
        }
        c += *c == '$' && c[1] == '$';
        if (*c == '{' || *c == '}')
            *to++ = *c;
        *to++ = *c++;
    }
    *to = '\0';
    if (strlen(format) > LABEL_MAX) {
        free(format);
        return co_fail(err, -EINVAL, "it is longer than %d bytes", LABEL_MAX);
    }
    *ret = format;
    return 0;
}
