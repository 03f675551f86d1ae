#include "host_names.h"

#include "address.h"
#include "common/error.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- the value of an option --- */

static bool is_list(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n;
    for (;; text += n + 1) {
        n = strspn(text, allowed);
        if (n == 0 || n > HOST_NAME_CHARS || (text[n] != ',' && text[n] != '\0'))
            return false;
        if (text[n] == '\0')
            return true;
    }
}

int host_names_check(const char *option, const char *value, struct co_error *err)
{
    if (strcmp(value, "*") == 0 || is_list(value))
        return 0;
    return co_fail(err, -EINVAL,
                   "invalid value '%.100s' for %s: expected names of hosts, separated by commas, "
                   "without ports, or *",
                   value, option);
}

/* --- the name that a client uses --- */

bool host_names_are_own(const char *host)
{
    char name[HOST_NAME_MAX + 1] = "";
    gethostname(name, sizeof name - 1);
    if (strcasecmp(host, "localhost") == 0 || (name[0] != '\0' && strcasecmp(host, name) == 0))
        return true;
    name[strcspn(name, ".")] = '\0';
    return name[0] != '\0' && strcasecmp(host, name) == 0;
}

static bool is_listed(const char *host, const char *names)
{
    const size_t len = strlen(host);
    while (*names != '\0') {
        const size_t n = strcspn(names, ",");
        if ((n == 1 && *names == '*') || (n == len && strncasecmp(names, host, n) == 0))
            return true;
        names += n + (names[n] == ',');
    }
    return false;
}

bool host_names_allow(const char *host, const char *more)
{
    struct sockaddr_storage address;
    return address_parse(host, 0, &address) == 0 || (more != NULL && is_listed(host, more)) ||
           host_names_are_own(host);
}
