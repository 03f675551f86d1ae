#include "domain_rule.h"

#include "common/error.h"
#include "rendezvous/membership/message.h"

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULE_MAX = 1024 }; /* bytes of a rule */

static const char of_name[] = "name:", of_variable[] = "env:";

/* returns what follows the kind; NULL: it is another one */
static const char *rest_of(const char *rule, const char *kind)
{
    const size_t n = strlen(kind);
    return strncmp(rule, kind, n) == 0 ? rule + n : NULL;
}

bool domain_rule_is_gpu(const char *rule)
{
    return strcmp(rule, "gpu") == 0;
}

static bool is_domain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
    return len > 0 && len < MESSAGE_DOMAIN_BYTES;
}

static int compile(const char *by, const char *pattern, regex_t *ret, struct co_error *err)
{
    char why[128];
    const int code = regcomp(ret, pattern, REG_EXTENDED);
    if (code == 0)
        return 0;
    regerror(code, ret, why, sizeof why);
    return co_fail(err, -EINVAL,
                   "invalid value 'name:%.200s' for %s: expected a regular expression: %s", pattern,
                   by, why);
}

int domain_rule_check(const char *by, const char *rule, struct co_error *err)
{
    const char *pattern = rest_of(rule, of_name), *variable = rest_of(rule, of_variable);
    regex_t regex;
    const bool fits = strnlen(rule, RULE_MAX) < RULE_MAX;
    if (fits && pattern != NULL && strchr(pattern, '{') != NULL) /* they can take any memory */
        return co_fail(err, -EINVAL,
                       "invalid value '%.200s' for %s: expected a regular expression without '{'",
                       rule, by);
    if (fits && pattern != NULL && pattern[0] != '\0') {
        const int rc = compile(by, pattern, &regex, err);
        if (rc == 0)
            regfree(&regex);
        return rc;
    }
    const bool is_variable =
        variable != NULL && variable[0] != '\0' && strchr(variable, '=') == NULL;
    if (fits && (is_variable || (strchr(rule, ':') == NULL && is_domain(rule, strlen(rule)))))
        return 0;
    return co_fail(err, -EINVAL,
                   "invalid value '%.200s' for %s: expected gpu, name:REGEX, env:NAME, or a label "
                   "of 1 to %d printable characters without blanks and ':'",
                   rule, by, MESSAGE_DOMAIN_BYTES - 1);
}

static int take(const char *from, const char *text, size_t len, char *ret, struct co_error *err)
{
    if (!is_domain(text, len))
        return co_fail(err, -EINVAL,
                       "--domain %s: '%.*s' cannot be a domain: expected 1 to %d printable "
                       "characters without blanks",
                       from, len < 200 ? (int)len : 200, text, MESSAGE_DOMAIN_BYTES - 1);
    memcpy(ret, text, len);
    ret[len] = '\0';
    return 0;
}

static int match(const char *rule, const char *pattern, const char *name, char *ret,
                 struct co_error *err)
{
    enum { N_MATCHES = 2 };
    regmatch_t matches[N_MATCHES];
    regex_t regex;
    int rc = compile("--domain", pattern, &regex, err);
    if (rc < 0)
        return rc;
    const int code = regexec(&regex, name, N_MATCHES, matches, 0);
    const regmatch_t *m = &matches[regex.re_nsub > 0 && matches[1].rm_so >= 0 ? 1 : 0];
    if (code != 0)
        rc = co_fail(err, -ENOENT, "--domain %s does not match the name of this node, '%s'", rule,
                     name);
    else
        rc = take(rule, name + m->rm_so, (size_t)(m->rm_eo - m->rm_so), ret, err);
    regfree(&regex);
    return rc;
}

int domain_rule_apply(const char *rule, const char *node_name, char *ret, struct co_error *err)
{
    const char *pattern = rest_of(rule, of_name), *variable = rest_of(rule, of_variable);
    if (pattern != NULL)
        return match(rule, pattern, node_name, ret, err);
    if (variable == NULL)
        return take(rule, rule, strlen(rule), ret, err);
    const char *value = getenv(variable);
    if (value == NULL)
        return co_fail(err, -ENOENT, "--domain %s: this variable is not set on this node", rule);
    return take(rule, value, strlen(value), ret, err);
}
